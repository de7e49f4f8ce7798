"""Searching log lines: search tables against Spark on the same lines as Parquet, and Delta tables with an index.

    python -m benchmarks.search --quick
    python -m benchmarks.search --results

The operations are in `search_operations.py`, the lines in `search_tables.py`. Below the table stand what building takes
for a line, and search on a Delta table with the same lines. What checkpoints do for a log is in `search_log.py`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks import report
from benchmarks.harness import HEADWATER, Case
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.scan_operations import PARQUET
from benchmarks.search_operations import DELTA, Subject
from benchmarks.search_tables import SearchSpec, search_tables_apart
from benchmarks.sessions import Sessions, SessionSpec
from benchmarks.tables import cache_directory
from benchmarks.write_operations import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness import Outcome


@dataclass(frozen=True, slots=True)
class Size:
    """How many lines, and how often to measure."""

    searched: SearchSpec
    built: SearchSpec
    """Of which tables are built; fewer, for it takes long."""
    runs: int
    warmups: int
    has_targets: bool


FULL = Size(SearchSpec(5_000_000, 25), SearchSpec(1_000_000, 4), runs=5, warmups=2, has_targets=True)
QUICK = Size(SearchSpec(40_000, 4), SearchSpec(40_000, 4), runs=1, warmups=1, has_targets=False)
"""Far too small for ratios to say much: it shows that everything runs and that answers are right."""


def findings(outcome: Outcome) -> list[str]:
    """What building takes for a line, peer by peer."""
    if outcome.case.operation != "build" or outcome.errors:
        return []
    found = []
    for peer, best in outcome.best.items():
        answer = best.answer or {}
        rate = answer["rows"] / best.cpu_s / 1000
        found.append(
            f"build, {peer}: {rate:,.0f}k lines per CPU second, {answer[BYTES] / answer['rows']:.0f} bytes a line"
        )
    return found


SEARCH = Benchmark(
    name="search",
    title="Searching log lines",
    operations="benchmarks.search_operations",
    reference=PARQUET,
    remarks=(
        "every answer was the one that the generator of the lines knows",
        "plain Parquet is asked with LIKE; for the best ten it gives the newest matches, since it has no scores",
        "all take turns in one session, which is warm before the runs that count",
        "times are the best of all rounds, ratios the median of the rounds' ratios",
        "CPU time is that of the JVM, the driver and Spark's Python workers",
    ),
    second=report.CPU,
    libraries=("headwater", "pyspark", "tantivy", "pyarrow"),
    findings=findings,
)
TARGETS = {
    "count": 0.16,
    "count, on the driver": 0.01,
    "rows": 0.2,
    "phrase": 0.1,
    "boolean": 0.2,
    "best 10, on the driver": 0.05,
    "filtered GROUP BY": 0.1,
    "filtered GROUP BY, on the driver": 0.1,
    "full scan": 0.6,
}
"""Headwater's wall time by that of plain Parquet, at 5M lines; from what the prototype took."""


def cases_of(size: Size, cache: Path) -> Iterator[Case]:
    """Every case. Tables are made when the first case that needs them is due."""
    for case in (*_query_cases(size, cache), *_build_cases(size, cache)):
        yield replace(case, target=TARGETS.get(case.title) if size.has_targets else None)


def _query_cases(size: Size, cache: Path) -> Iterator[Case]:
    tables = search_tables_apart(size.searched, cache)
    lines = f"{size.searched.num_rows / 1e6:g}M lines, {size.searched.num_files} splits"
    for title, operation, query in (
        ("count", "count", "count"),
        ("count, on the driver", "driver count", "count"),
        ("rows", "rows", "rows"),
        ("phrase", "count", "phrase"),
        ("boolean", "count", "boolean"),
        ("best 10, on the driver", "driver top", "top"),
        ("filtered GROUP BY", "groups", "groups"),
        ("filtered GROUP BY, on the driver", "driver groups", "groups"),
        ("full scan", "scan", "scan"),
        ("full scan to nowhere", "scan to nowhere", ""),
    ):
        truth = tables.truth.get(query, {})
        yield Case(title, operation, Subject(str(tables.path), query).text(), lines, truth)


def _build_cases(size: Size, cache: Path) -> Iterator[Case]:
    tables = search_tables_apart(size.built, cache)
    lines = f"{size.built.num_rows / 1e6:g}M lines"
    truth = {"rows": size.built.num_rows}
    yield Case("build", "build", Subject(str(tables.path), "").text(), lines, truth, max_runs=2)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=SEARCH.title)
    parser.add_argument("--quick", action="store_true", help="few lines, no targets")
    add_options(parser, runs=FULL.runs)
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    given.runs = min(given.runs, size.runs)
    session_of = dict.fromkeys((HEADWATER, PARQUET, DELTA), "own")
    with Sessions({"own": SessionSpec(sys.executable)}, session_of) as sessions:
        return run(SEARCH, cases_of(size, cache_directory(given.cache)), given, sessions.measure, size.warmups)


if __name__ == "__main__":
    sys.exit(main())
