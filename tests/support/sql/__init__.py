"""Statements that run on Headwater and on delta-spark, and what each answers."""
