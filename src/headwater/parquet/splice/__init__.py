"""Rewriting some columns of a Parquet file while the bytes of the others are copied."""
