"""Writing with Spark: Headwater against plain Parquet, the same rows to the same disk.

    python -m benchmarks.write --quick
    python -m benchmarks.write --results

The operations are in `write_operations.py`. What is compared beside wall time is the size of the data files: CPU time
stands behind the slash.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.harness import HEADWATER, Case, Measurement
from benchmarks.report import Comparison, wall_and_cpu
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.scan_operations import PARQUET
from benchmarks.scan_tables import ScanSpec, scan_table_apart
from benchmarks.sessions import Sessions, SessionSpec
from benchmarks.tables import cache_directory
from benchmarks.write_operations import BYTES, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGET = 1.1
PARTITIONS = 50
NARROW = ("id", "value", "ts")


def _bytes(measured: Measurement) -> float:
    return float((measured.answer or {})[BYTES])


FILE_SIZES = Comparison(
    unit="MB",
    explanation="wall ms / CPU ms (JVM and Python, workers included); size of the data files",
    value=_bytes,
    target=lambda case: case.target,
    cell=lambda measured: "" if measured is None else f"{_bytes(measured) / 1e6:,.1f}",
    wall_cell=wall_and_cpu,
)


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows, and how often to measure."""

    source: ScanSpec
    runs: int
    warmups: int
    has_targets: bool


FULL = Size(ScanSpec(4_000_000, 8), runs=5, warmups=2, has_targets=True)
QUICK = Size(ScanSpec(400_000, 4), runs=2, warmups=1, has_targets=False)
"""Far too small for ratios to say much: it shows that everything runs and that answers are right."""

WRITE = Benchmark(
    name="write",
    title="Writing with Spark",
    operations="benchmarks.write_operations",
    reference=PARQUET,
    remarks=(
        "Headwater collects statistics, commits, and flushes all files to the disk; plain Parquet flushes nothing",
        "both take turns in one session, which is warm before the runs that count",
        "times are the best of all rounds, ratios the median of the rounds' ratios",
        "every write had all rows, by the footers of its files",
    ),
    second=FILE_SIZES,
    libraries=("headwater", "pyspark", "pyarrow"),
)


def cases_of(size: Size, cache: Path) -> Iterator[Case]:
    """Every case."""
    table = scan_table_apart(size.source, cache)
    schema = ", ".join(f"{name} {type_}" for name, type_ in size.source.schema.items())
    subject = Subject(str(table.path / "data"), schema)
    by_value = replace(subject, partition_expression=f"quantity % {PARTITIONS}")
    rows = f"{size.source.num_rows / 1e6:g}M rows"
    columns = len(size.source.schema)
    for title, what, shape in (
        ("append", subject, f"{columns} columns"),
        ("append", replace(subject, columns=NARROW), f"{len(NARROW)} columns"),
        ("partitioned append", by_value, f"{PARTITIONS} partitions"),
    ):
        target = TARGET if size.has_targets else None
        yield Case(title, "write", what.text(), f"{rows}, {shape}", {"rows": size.source.num_rows}, target)


def main() -> int:
    """Measure, report, and say with the exit code whether all rows were written."""
    parser = argparse.ArgumentParser(description=WRITE.title)
    parser.add_argument("--quick", action="store_true", help="few rows, no targets")
    add_options(parser, runs=FULL.runs)
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    given.runs = min(given.runs, size.runs)
    with Sessions({"own": SessionSpec(sys.executable)}, dict.fromkeys((HEADWATER, PARQUET), "own")) as sessions:
        return run(WRITE, cases_of(size, cache_directory(given.cache)), given, sessions.measure, size.warmups)


if __name__ == "__main__":
    sys.exit(main())
