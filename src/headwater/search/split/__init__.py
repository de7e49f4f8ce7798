"""Splits: files that hold rows and a tantivy index of them."""
