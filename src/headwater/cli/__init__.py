"""The `headwater` command: a table's log for people at a terminal, or as JSON for programs.

`app` declares the commands and their options, `main` runs the process (exit codes, signals, pipes), `output` writes.
"""
