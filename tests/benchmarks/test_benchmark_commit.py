"""The benchmark of commits measures commits that have happened: each once, by either peer, alone or among others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.commit import make_history
from benchmarks.commit_operations import OPERATIONS, WRITERS
from benchmarks.harness import HEADWATER, Operation


@pytest.mark.parametrize("peer", [HEADWATER, "deltalake"])
@pytest.mark.parametrize(("operation", "commits"), [("alone", 12), ("contended", WRITERS)])
def test_commits_are_counted_once(operation: str, commits: int, peer: str, tmp_path: Path) -> None:
    make_history(3, tmp_path / "history")
    how = OPERATIONS[operation][peer]
    assert isinstance(how, Operation)
    ready = how.setup(json.dumps([str(tmp_path / "history"), commits]))
    try:
        assert how.answer(how.run(ready)) == {"version": 2 + commits, "added": commits, "distinct": commits}
    finally:
        how.cleanup(ready)
