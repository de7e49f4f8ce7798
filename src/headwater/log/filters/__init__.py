"""Filters: SQL text to an expression tree, and the files that can hold matching rows."""
