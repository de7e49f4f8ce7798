"""On a terminal: colours, unless they are not wanted, and a spinner for those who wait."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from support.jobs.cli_process import BUSY, COMMAND, TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path


def on_terminal(command: list[str], **variables: str) -> str:
    """What a command writes to a terminal of 80 columns, stdout and stderr together."""
    leader, follower = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "80"} | variables
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        text = read_until_end(leader)
        process.wait(TIMEOUT_S)
    os.close(leader)
    return text


def read_until_end(leader: int) -> str:
    return read_until(leader, None)


def read_until(leader: int, wanted: str | None) -> str:
    """Read until the text appears, or until nobody has the terminal open any more."""
    data = b""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and (wanted is None or wanted not in data.decode(errors="replace")):
        if not select.select([leader], [], [], 1.0)[0]:
            continue
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux: the other side was closed
            break
        if not chunk:
            break
        data += chunk
    return data.decode()


def test_a_terminal_gets_colours(tiny: Path) -> None:
    assert "\x1b[1" in on_terminal([*COMMAND, "show", str(tiny)])


def test_no_color_means_plain_text(tiny: Path) -> None:
    shown = on_terminal([*COMMAND, "show", str(tiny)], NO_COLOR="1")
    failed = on_terminal([*COMMAND, "show", "/nowhere"], NO_COLOR="1")

    assert "\x1b" not in shown
    assert "reader version 1" in shown
    assert "\x1b" not in failed
    assert failed.startswith("error: ")


def test_who_does_not_wait_sees_no_spinner() -> None:
    quick = "from headwater.cli.output import waiting\nwith waiting('Opening the table'): print('opened')"

    shown = on_terminal([sys.executable, "-c", quick])

    assert "opened" in shown
    assert "Opening the table" not in shown


def test_who_waits_sees_a_spinner_on_stderr_and_nothing_of_it_on_stdout(tiny: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, "show", str(tiny), "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env=os.environ | {"TERM": "xterm-256color"},
    ) as process:
        os.close(follower)
        seen = read_until(leader, "Opening the table")
        out, _ = process.communicate("go on\n", timeout=TIMEOUT_S)
    os.close(leader)

    assert "Opening the table" in seen
    opening, shown = out.splitlines()
    assert opening == "opening"
    assert shown.startswith('{"uri":')
    assert process.returncode == 0
