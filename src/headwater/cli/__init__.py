"""The `headwater` command: a table's log for people at a terminal, or as JSON for programs.

A face: it asks a `Snapshot` and draws the answer. Each command is a module; what they share is `app` (the
wiring), `main` (the process: exit codes, signals, pipes), `output`, `formats` and `errors`.
"""
