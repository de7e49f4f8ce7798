"""Many writers on one table in virtual time, each history from one number."""
