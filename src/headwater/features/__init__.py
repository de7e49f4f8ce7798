"""Table features: what a table may ask of its readers and writers, and what of that we support."""
