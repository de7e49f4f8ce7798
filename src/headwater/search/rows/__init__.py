"""Evaluating queries on plain rows that have no index."""
