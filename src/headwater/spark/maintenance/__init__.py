"""Commands that keep a table in good shape, and move or copy it as a whole: none of them changes a row."""
