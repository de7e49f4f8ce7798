"""The log of search tables, a dialect of its own (spec 002, IndexTables)."""
