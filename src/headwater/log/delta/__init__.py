"""Keeping a log healthy: checksums, cleanup and verification."""
