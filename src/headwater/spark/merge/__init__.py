"""MERGE: clauses, source, matching rows and writing the result."""
