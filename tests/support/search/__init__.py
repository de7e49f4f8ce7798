"""Splits, search tables and queries with known answers."""
