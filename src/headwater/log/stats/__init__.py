"""Statistics and partition values of files: typed values, columns, and their text in the log."""
