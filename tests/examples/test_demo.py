"""The demonstration runs from anywhere, in a pipe as on a terminal, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo.py"
TIMEOUT_S = 300


@pytest.mark.parametrize("width", [80, 120])
def test_the_demonstration_shows_everything_and_leaves_nothing_behind(tmp_path: Path, width: int) -> None:
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    env = os.environ | {"TMPDIR": str(temporary), "COLUMNS": str(width), "PYTHONDONTWRITEBYTECODE": "1"}

    done = subprocess.run(
        [sys.executable, str(DEMO)],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, _not_from_java(done.stderr)) == (0, [])
    expected = [
        "$ headwater show events",
        "kept 6 of 72 files",  # three of nine days, two of eight countries
        "UPDATE",
        "(10, 11, 8)",  # refreshed: one commit, eight files
        "Version 11 is sound",
        "has 1 discrepancy",
        "error: there is no column cuontry",
        "error: ",
        "[(10, 80)]",  # one country of eight
        "(15808, 15803)",  # two versions of the table that Spark wrote
        "Your turn",
    ]
    shown = " ".join(done.stdout.split())  # where a line breaks depends on the length of the temporary directory's name
    assert [text for text in expected if text not in shown] == []
    assert [*temporary.iterdir(), *here.iterdir()] == []
    messages = ("error: ", "$ ", ">>> ")
    assert [line for line in done.stdout.splitlines() if len(line) > width and not line.startswith(messages)] == []


def _not_from_java(complaints: str) -> list[str]:
    """What the demonstration complains of itself; a Java runtime greets everybody."""
    greetings = ("WARNING: ", "Picked up ", "Setting default log level", "To adjust logging level")
    return [line for line in complaints.splitlines() if not line.startswith(greetings) and " WARN " not in line]
