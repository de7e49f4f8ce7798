"""Checkpoints: reading and writing the state of a version (spec: "Checkpoints")."""
