"""Logs, commits and checkpoints made by hand."""
