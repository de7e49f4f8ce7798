"""The benchmark of search logs opens the same table both ways, and once really from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.harness import HEADWATER, Operation
from benchmarks.search_log_operations import OPERATIONS, SPLITS_PER_VERSION, WITHOUT_CHECKPOINTS, make_table


@pytest.mark.parametrize("request_ms", [0, 1])
def test_both_ways_give_the_same_table(request_ms: int, tmp_path: Path) -> None:
    paths = tmp_path / "with", tmp_path / "without"
    for path, interval in zip(paths, (5, 10**9), strict=True):
        make_table(path, 12, interval)
    subject = json.dumps([*map(str, paths), request_ms])
    from_checkpoint = {}
    for peer in (HEADWATER, WITHOUT_CHECKPOINTS):
        how = OPERATIONS["open"][peer]
        assert isinstance(how, Operation)
        found = how.run(how.setup(subject))
        assert how.answer(found) == {"version": 12, "num_files": 12 * SPLITS_PER_VERSION}
        from_checkpoint[peer] = found[0].segment.checkpoint is not None
    assert from_checkpoint == {HEADWATER: True, WITHOUT_CHECKPOINTS: False}
