"""Reading tables with Spark: Headwater against plain Parquet on the same files, and delta-spark beside them.

    python -m benchmarks.scan --quick
    python -m benchmarks.scan --results

The operations are in `scan_operations.py`; `README.md` says what is measured, and why that way.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from benchmarks import delta_spark, report
from benchmarks.harness import HEADWATER, Case
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.scan_operations import DELTA_JARS_VARIABLE, DELTA_PARQUET, DELTA_SPARK, PARQUET, Subject
from benchmarks.scan_tables import ANSWER, PATHS_FILE, ScanSpec, planning_table_apart, scan_table_apart
from benchmarks.sessions import Sessions, SessionSpec
from benchmarks.tables import cache_directory, open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.scan_tables import ScanTable

OPENED = ", opening included"
SLOW_PLANNING_FILES = 100_000
"""From here on, plain Parquet takes so long to plan that few runs must do."""
SHORT_RUNS = 25
"""Rounds of queries that take a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the tables are, and how often to measure."""

    wide: ScanSpec
    partitions: ScanSpec
    planned_files: tuple[int, ...]
    runs: int
    warmups: int
    """Rounds before those that count."""
    has_targets: bool


FULL = Size(
    wide=ScanSpec(4_000_000, 20),
    partitions=ScanSpec(2_000_000, 1_000, partitioned=True),
    planned_files=(1_000, 10_000, 100_000),
    runs=7,
    warmups=2,
    has_targets=True,
)
QUICK = Size(
    wide=ScanSpec(400_000, 4),
    partitions=ScanSpec(100_000, 100, partitioned=True),
    planned_files=(1_000,),
    runs=2,
    warmups=1,
    has_targets=False,
)
"""Far too small for ratios to say much: it shows that everything runs and that answers are right."""

SCAN = Benchmark(
    name="scan",
    title="Reading tables with Spark",
    operations="benchmarks.scan_operations",
    reference=PARQUET,
    remarks=(
        "every answer (aggregates, number of files) was the one that the generator knows",
        "plain Parquet does not know what is deleted, so its answer is that for all rows",
        "Headwater and plain Parquet take turns in one session, which is warm before the runs that count",
        "times are the best of all rounds, ratios the median of the rounds' ratios",
        "plain Parquet is given the schema; in planning also the setting that makes it list paths fastest",
    ),
    second=report.CPU,
    libraries=("headwater", "pyspark", "pyarrow"),
)


def cases_of(size: Size, cache: Path) -> Iterator[Case]:
    """Every case. A table is made when the first case that needs it is due."""
    for case in chain(_scan_cases(size, cache), _deletion_cases(size, cache), _planning_cases(size, cache)):
        yield case if size.has_targets else replace(case, target=None, cpu_target=None, min_runs=0)


def _scan_cases(size: Size, cache: Path) -> Iterator[Case]:
    wide = scan_table_apart(size.wide, cache)
    yield from _both("full scan, aggregate", wide, "aggregate", 1.05)
    yield from _both("selective filter, nothing to skip", wide, "unclustered", 1.1)
    yield from _both("selective filter, statistics skip files", wide, "clustered", 1.1)
    partitions = scan_table_apart(size.partitions, cache)
    for title, query in (("one partition", "partition"), ("range of partitions, 5%", "partitions")):
        opened, unopened = _both(title, partitions, query, 1.1)
        yield replace(opened, min_runs=SHORT_RUNS)
        yield unopened


def _both(title: str, table: ScanTable, query: str, target: float) -> Iterator[Case]:
    """A query on an open DataFrame, and from the path to the answer."""
    case = _case(title, "query", table, query)
    yield replace(case, target=target, cpu_target=target)
    yield replace(case, title=title + OPENED, operation="open and query", target=target, cpu_target=target)


def _deletion_cases(size: Size, cache: Path) -> Iterator[Case]:
    for percent in (1, 10, 50):
        physical = scan_table_apart(size.wide, cache)
        table = scan_table_apart(replace(size.wide, deleted_percent=percent), cache)
        case = _case(f"deletion vectors, {percent}% deleted", "query", table, "aggregate")
        all_rows = dict.fromkeys((PARQUET, DELTA_PARQUET), physical.truth["aggregate"])
        yield replace(case, cpu_target=1.25, peer_truths=all_rows)


def _planning_cases(size: Size, cache: Path) -> Iterator[Case]:
    for num_files in size.planned_files:
        path = planning_table_apart(num_files, cache)
        live = open_table(cache / path.name.split("-", 2)[2]).truth.live.num_files
        subject = Subject(str(path), "id long, value double, name string", PATHS_FILE)
        yield Case(
            "planning all files",
            "plan",
            subject.text(),
            f"{num_files // 1000}k files",
            {"num_files": live},
            target=1.0,
            max_runs=2 if num_files >= SLOW_PLANNING_FILES else None,
        )


def _case(title: str, operation: str, table: ScanTable, query: str) -> Case:
    spec = table.spec
    schema = ", ".join(f"{name} {type_}" for name, type_ in spec.schema.items())
    plain = "" if spec.partitioned else "data"
    subject = Subject(str(table.path), schema, plain, spec.filters[query], ANSWER)
    rows = f"{spec.num_rows / 1e6:g}M rows"
    parts = f"{spec.num_files:,} partitions" if spec.partitioned else f"{spec.num_files} files"
    return Case(title, operation, subject.text(), f"{rows}, {parts}", table.truth[query])


def sessions_of(installed: delta_spark.DeltaSpark | None, others: Mapping[str, SessionSpec] | None = None) -> Sessions:
    """Where each peer is measured; `others` have sessions of their own names."""
    from headwater.spark.session.java import find_java

    specs = {"own": SessionSpec(sys.executable)}
    session_of = {HEADWATER: "own", PARQUET: "own"}
    if installed is not None:
        jars = ",".join(str(jar) for jar in installed.jars)
        environ = {
            DELTA_JARS_VARIABLE: jars,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": str(installed.python),
        }
        specs["delta-spark"] = SessionSpec(str(installed.python), environ)
        session_of |= {DELTA_SPARK: "delta-spark", DELTA_PARQUET: "delta-spark"}
    for peer, spec in (others or {}).items():
        specs[peer], session_of[peer] = spec, peer
    return Sessions(specs, session_of)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=SCAN.title)
    parser.add_argument("--quick", action="store_true", help="small tables, no targets")
    parser.add_argument("--delta-spark", action="store_true", help="measure it in a quick run too")
    add_options(parser, runs=FULL.runs)
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    given.runs = min(given.runs, size.runs)
    installed, remark = None, "delta-spark was left out by choice"
    os.environ.pop(DELTA_JARS_VARIABLE, None)
    if DELTA_SPARK not in given.without and (given.delta_spark or not given.quick):
        try:
            installed = delta_spark.find()
        except delta_spark.DeltaSparkMissingError as missing:
            remark = f"delta-spark was left out: {missing}"
    if installed is not None:
        remark = f"delta-spark {delta_spark.VERSION} and its floor have a session on Spark {delta_spark.SPARK_VERSION}"
    else:
        given.without += [DELTA_SPARK, DELTA_PARQUET]
    print(f"{remark[0].upper()}{remark[1:]}.", flush=True)
    benchmark = replace(SCAN, remarks=(*SCAN.remarks, remark))
    with sessions_of(installed) as sessions:
        return run(benchmark, cases_of(size, cache_directory(given.cache)), given, sessions.measure, size.warmups)


if __name__ == "__main__":
    sys.exit(main())
