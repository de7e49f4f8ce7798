"""The benchmark of DML: what is said to be true of each change is what deltalake makes of it, and nothing is left."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.dml import DML, MEMORY_IN_USE, QUICK, cases_of
from benchmarks.dml_operations import DELTALAKE, NO_SPARK_VARIABLE, OPERATIONS
from benchmarks.harness import HEADWATER, measure_cases
from benchmarks.scan_operations import DELTA_SPARK
from benchmarks.scan_tables import ScanSpec
from benchmarks.sessions import Sessions, SessionSpec

if TYPE_CHECKING:
    from pathlib import Path

SIZE = replace(
    QUICK, rows=ScanSpec(20_000, 4), many_rows=ScanSpec(40_000, 4), small_files=(2_000, 20), littered_files=40
)


def test_deltalake_gives_the_answers_that_arrow_worked_out(tmp_path: Path) -> None:
    cases = [case for case in cases_of(SIZE, tmp_path) if DELTALAKE in OPERATIONS[case.operation]]
    before = sorted(tmp_path.rglob("*"))
    spec = SessionSpec(sys.executable, {NO_SPARK_VARIABLE: "1"})

    with Sessions({DELTALAKE: spec}, {DELTALAKE: DELTALAKE}) as sessions:
        others = frozenset((HEADWATER, DELTA_SPARK))
        found = measure_cases(DML.operations, OPERATIONS, cases, runs=1, without=others, measure=sessions.measure)
        outcomes = list(found)

    assert len(outcomes) == 11
    assert [outcome.errors for outcome in outcomes] == [[]] * 11
    assert sorted(tmp_path.rglob("*")) == before
    assert all(MEMORY_IN_USE.value(outcome.best[DELTALAKE]) > 0 for outcome in outcomes)


@pytest.mark.spark
@pytest.mark.slow
def test_headwater_gives_the_same_answers(tmp_path: Path) -> None:
    cases = list(cases_of(SIZE, tmp_path))
    before = sorted(tmp_path.rglob("*"))

    with Sessions({"own": SessionSpec(sys.executable)}, {HEADWATER: "own"}) as sessions:
        others = frozenset((DELTALAKE, DELTA_SPARK))
        found = measure_cases(DML.operations, OPERATIONS, cases, runs=1, without=others, measure=sessions.measure)
        outcomes = list(found)

    assert [outcome.errors for outcome in outcomes] == [[]] * 15
    assert sorted(tmp_path.rglob("*")) == before
