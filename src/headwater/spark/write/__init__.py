"""Writing DataFrames to tables."""
