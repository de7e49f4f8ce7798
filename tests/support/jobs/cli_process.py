"""The command as a process of its own."""

from __future__ import annotations

import sys

COMMAND = [sys.executable, "-m", "headwater.cli"]
TIMEOUT_S = 60

# A command that is in the middle of something until it is told to go on.
BUSY = """
import sys
import headwater.api.open
opened = headwater.api.open.open_log
def open_log(*args):
    print("opening", flush=True)
    sys.stdin.readline()
    return opened(*args)
headwater.api.open.open_log = open_log
from headwater.cli.main import run
run()
"""
