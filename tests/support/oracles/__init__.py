"""Models and other implementations, to compare our answers with."""
