"""Queries: text and SQL filters to a query tree."""
