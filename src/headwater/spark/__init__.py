"""Spark does the data work: sessions, scans and the commands on DataFrames."""
