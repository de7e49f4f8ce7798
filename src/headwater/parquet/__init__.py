"""Data files without Spark: reading and writing Parquet with the table's rules."""
