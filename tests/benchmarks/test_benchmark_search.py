"""The benchmark of searches: all peers give the answers that the generator of the lines knows."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.harness import HEADWATER, measure_cases
from benchmarks.scan_operations import PARQUET
from benchmarks.search import QUICK, SEARCH, cases_of, findings
from benchmarks.search_operations import DELTA, OPERATIONS
from benchmarks.search_tables import Lines, SearchSpec, word
from benchmarks.sessions import Sessions, SessionSpec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = SearchSpec(4_000, 2)


def test_no_word_is_part_of_another() -> None:
    words = [word(number) for number in range(5_000)]

    assert len(set(words)) == len(words)
    assert {len(one) for one in words} == {7}


def test_lines_are_what_their_answers_say() -> None:
    lines = Lines.of(SPEC, 0)
    messages = lines.table().column("message").to_pylist()
    found = sum(word(2_500) in message.split() for message in messages)

    assert lines.answers()["count"] == {"rows": found}
    assert sum(word(11) + " " + word(60) in message for message in messages) == lines.answers()["phrase"]["rows"]


@pytest.mark.spark
@pytest.mark.slow
def test_peers_give_the_answers_of_the_generator(tmp_path: Path) -> None:
    every = cases_of(replace(QUICK, searched=SPEC, built=SPEC), tmp_path)
    by_spark = ("rows", "boolean", "build")
    on_the_driver = ("best 10, on the driver", "filtered GROUP BY, on the driver")
    cases = [case for case in every if case.title in (*by_spark, *on_the_driver)]
    peers = dict.fromkeys((HEADWATER, PARQUET, DELTA), "own")
    before = sorted(tmp_path.rglob("*"))

    with Sessions({"own": SessionSpec(sys.executable)}, peers) as sessions:
        outcomes = list(measure_cases(SEARCH.operations, OPERATIONS, cases, runs=1, measure=sessions.measure))

    assert [outcome.errors for outcome in outcomes] == [[]] * len(cases)
    assert len(findings(outcomes[-1])) == 3
    assert sorted(tmp_path.rglob("*")) == before
