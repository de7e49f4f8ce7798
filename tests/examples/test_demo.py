"""The demonstration runs from anywhere, in a pipe as on a terminal, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo.py"
TIMEOUT_S = 120


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

    assert (done.returncode, done.stderr) == (0, "")
    expected = [
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
    assert [text for text in expected if text not in done.stdout] == []
    assert [*temporary.iterdir(), *here.iterdir()] == []
    messages = ("error: ", "$ ", ">>> ")
    assert [line for line in done.stdout.splitlines() if len(line) > width and not line.startswith(messages)] == []
