"""Stores for tests: in memory, scripted, failing on purpose, and servers on loopback ports."""
