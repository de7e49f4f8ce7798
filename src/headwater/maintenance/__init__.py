"""Maintenance that needs no Spark: VACUUM, RESTORE and CLONE on the log and the store alone.

The command line uses this room directly; the methods of `DeltaTable` put DataFrames around what it returns.
"""
