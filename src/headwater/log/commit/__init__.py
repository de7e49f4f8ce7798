"""Committing: drafts, transactions, conflict detection, and what follows a commit."""
