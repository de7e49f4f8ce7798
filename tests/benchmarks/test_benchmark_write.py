"""The benchmark of writes: both peers write the same rows, leave nothing behind, and all CPU time is counted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.harness import HEADWATER, measure_cases
from benchmarks.scan_operations import PARQUET
from benchmarks.scan_tables import ScanSpec
from benchmarks.sessions import Sessions, SessionSpec
from benchmarks.write import FILE_SIZES, QUICK, WRITE, cases_of
from benchmarks.write_operations import BYTES, OPERATIONS

SIZE = replace(QUICK, source=ScanSpec(20_000, 4))


@pytest.mark.spark
@pytest.mark.slow
def test_peers_write_the_same_rows_and_leave_nothing(tmp_path: Path) -> None:
    cases = list(cases_of(SIZE, tmp_path))
    before = sorted(tmp_path.rglob("*"))

    with Sessions({"own": SessionSpec(sys.executable)}, dict.fromkeys((HEADWATER, PARQUET), "own")) as sessions:
        outcomes = list(measure_cases(WRITE.operations, OPERATIONS, cases, runs=1, measure=sessions.measure))

    assert [outcome.errors for outcome in outcomes] == [[], [], []]
    assert sorted(tmp_path.rglob("*")) == before
    for outcome in outcomes:
        for measured in outcome.best.values():
            assert measured.answer is not None
            assert measured.cpu_s > 0
            assert FILE_SIZES.value(measured) == measured.answer[BYTES] > 0
    partitioned = outcomes[2].best[HEADWATER].answer
    assert partitioned is not None
    assert partitioned["files"] >= 50
