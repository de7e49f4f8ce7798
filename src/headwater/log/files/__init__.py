"""The files of a snapshot as Arrow columns: chunks, live files, listings and changes."""
