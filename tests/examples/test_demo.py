"""The examples run from anywhere, in a pipe as on a terminal, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
TIMEOUT_S = 600
PIPELINE = [
    "$ headwater show events",
    "120000",  # rows of four days
    "num_affected_rows",
    "update_preimage",
    "1600",  # corrected
    "[30000, 60000, 90000, 120000, 120300,",  # time travel
    "numFilesRemoved",
    "before after",
    "OPTIMIZE",
    "MERGE",
    "DELETE",
    "is sound",
    "Your turn",
]
LOOK_INSIDE = [
    "$ headwater show events",
    "kept 6 of 72 files",  # three of nine days, two of eight countries
    "UPDATE",
    "(10, 11, 8)",  # refreshed: one commit, eight files
    "Version 11 is sound",
    "has 1 discrepancy",
    "error: there is no column cuontry",
    "error: ",
    "Your turn",
]

LOG_SEARCH = [
    "$ headwater show logs",
    "(300000, 933, 2174)",  # all lines; one word; a boolean query
    "declined by the bank",
    "<b>slow</b> <b>query</b>",
    "web-2 77",
    "num_merged_splits=3",
    "[0, 740, 1458, 2174, 2174]",  # time travel
    "(200000, 300000)",  # a partition less, and before
    "MERGE SPLITS",
    "is sound",
    "Your turn",
]


@pytest.mark.parametrize(
    ("script", "width", "expected"),
    [
        ("demo.py", 100, PIPELINE),
        ("log_search.py", 120, LOG_SEARCH),
        ("look_inside.py", 80, LOOK_INSIDE),
        ("look_inside.py", 120, LOOK_INSIDE),
    ],
)
def test_an_example_shows_everything_and_leaves_nothing_behind(
    tmp_path: Path, script: str, width: int, expected: list[str]
) -> None:
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    env = os.environ | {"TMPDIR": str(temporary), "COLUMNS": str(width), "PYTHONDONTWRITEBYTECODE": "1"}

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, _not_from_java(done.stderr)) == (0, [])
    shown = " ".join(done.stdout.split())  # where a line breaks depends on the length of the temporary directory's name
    assert [text for text in expected if text not in shown] == []
    assert [*temporary.iterdir(), *here.iterdir()] == []
    messages = ("error: ", "$ ", ">>> ")
    assert [line for line in done.stdout.splitlines() if len(line) > width and not line.startswith(messages)] == []


def _not_from_java(complaints: str) -> list[str]:
    """What the demonstration complains of itself; a Java runtime greets everybody."""
    greetings = ("WARNING: ", "Picked up ", "Setting default log level", "To adjust logging level")
    return [line for line in complaints.splitlines() if not line.startswith(greetings) and " WARN " not in line]
