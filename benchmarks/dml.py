"""DML and maintenance: Headwater against delta-spark (the reference, on a Spark of its own) and deltalake.

    python -m benchmarks.dml --quick
    python -m benchmarks.dml --results

The operations are in `dml_operations.py`, the tables in `dml_tables.py`. What is compared beside wall time is memory:
the highest resident memory of all processes that take part, driver, JVM and workers, during the operation.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks import delta_spark
from benchmarks.dml_operations import DELTALAKE, NO_SPARK_VARIABLE, PEAK, Subject
from benchmarks.dml_tables import (
    after_delete,
    after_merge,
    after_update,
    littered,
    small_files,
    unchanged,
    upserts,
    with_vectors,
)
from benchmarks.harness import Case, Measurement
from benchmarks.report import Comparison, wall_and_cpu
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.scan import sessions_of
from benchmarks.scan_operations import DELTA_JARS_VARIABLE, DELTA_SPARK
from benchmarks.scan_tables import ScanSpec, ScanTable, scan_table_apart
from benchmarks.sessions import SessionSpec
from benchmarks.tables import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DELETED_KEYS = 100


def _peak(measured: Measurement) -> float:
    return float((measured.answer or {}).get(PEAK, 0))


MEMORY_IN_USE = Comparison(
    unit="MB",
    explanation="wall ms / CPU ms (JVM, Python and workers); highest memory of all processes together",
    value=_peak,
    target=lambda case: case.memory_target,
    cell=lambda measured: "" if measured is None else f"{_peak(measured) / 1e6:,.0f}",
    wall_cell=wall_and_cpu,
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much data, and how often to measure."""

    rows: ScanSpec
    many_rows: ScanSpec
    """At scale: what a command costs whatever it does matters less, and what a row costs matters more."""
    small_files: tuple[int, int]
    """Rows and files of the table to compact."""
    littered_files: int
    runs: int
    warmups: int
    target: float | None


FULL = Size(
    ScanSpec(4_000_000, 16), ScanSpec(16_000_000, 64), (1_000_000, 10_000), 100_000, runs=3, warmups=1, target=1.0
)
QUICK = Size(ScanSpec(200_000, 4), ScanSpec(400_000, 8), (20_000, 200), 1_000, runs=1, warmups=1, target=None)
"""Far too small for ratios to say much: it shows that everything runs and that answers are right."""

DML = Benchmark(
    name="dml",
    title="DML and maintenance",
    operations="benchmarks.dml_operations",
    reference=DELTA_SPARK,
    remarks=(
        "every peer has a warm session of its own and a copy of the table for each run",
        "times are the best of all rounds, ratios the median of the rounds' ratios",
        "after each run the peer read its table again, and rows and sums were the ones that Arrow had worked out",
        "rows of a MERGE differ from those of the table in one column, unless it is said that all do",
        "deltalake does not write tables with deletion vectors",
        "a Spark driver here has at most 3 GB of heap",
    ),
    second=MEMORY_IN_USE,
    libraries=("headwater", "pyspark", "deltalake", "pyarrow"),
)


def cases_of(size: Size, cache: Path) -> Iterator[Case]:
    """Every case. A table is made when the first case that needs it is due."""
    for case in (*_row_cases(size, cache), *_many_row_cases(size, cache), *_maintenance_cases(size, cache)):
        yield replace(case, target=size.target)


def _row_cases(size: Size, cache: Path) -> Iterator[Case]:
    table = scan_table_apart(size.rows, cache)
    vectors = (", deletion vectors", with_vectors(table), " with vectors")
    for how, path, ways in (("", table.path, ""), vectors):
        for percent in (1, 10):
            merges = _merge_case(f"MERGE, {percent}% upserts{how}", path, table, percent)
            yield replace(merges, operation=merges.operation + ways)
        deletes = _delete_case(f"DELETE by {DELETED_KEYS} keys{how}", path, table)
        updates = _update_case(f"UPDATE of 1% of the rows{how}", path, table)
        yield from (replace(case, operation=case.operation + ways) for case in (deletes, updates))


def _many_row_cases(size: Size, cache: Path) -> Iterator[Case]:
    table = scan_table_apart(size.many_rows, cache)
    cases = [
        *(_merge_case(f"MERGE, {percent}% upserts", table.path, table, percent) for percent in (1, 10)),
        _merge_case("MERGE, 10% upserts, every column differs", table.path, table, 10, changes_all=True),
        _delete_case(f"DELETE by {DELETED_KEYS} keys", table.path, table),
        _update_case("UPDATE of 1% of the rows", table.path, table),
    ]
    yield from (replace(case, max_runs=2) for case in cases)


def _merge_case(title: str, path: Path, table: ScanTable, percent: int, *, changes_all: bool = False) -> Case:
    """Rows that lie in all files, and a tenth as many new ones."""
    source = upserts(table, percent, changes_all=changes_all)
    return _case(title, "merge", Subject(str(path), source=str(source)), table, after_merge(table, source))


def _delete_case(title: str, path: Path, table: ScanTable) -> Case:
    """Keys that lie in all files."""
    step = table.spec.num_rows // DELETED_KEYS
    keys = list(range(step // 2, table.spec.num_rows, step))
    subject = Subject(str(path), condition=f"id IN ({', '.join(map(str, keys))})")

    def matches(rows: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.is_in(rows["id"], value_set=pa.array(keys, pa.int64()))

    return _case(title, "delete", subject, table, after_delete(table, matches))


def _update_case(title: str, path: Path, table: ScanTable) -> Case:
    """Rows that lie in every file."""

    def matches(rows: Any) -> Any:
        import pyarrow.compute as pc

        return pc.equal(rows["quantity"], 17)

    subject = Subject(str(path), condition="quantity = 17")
    return _case(title, "update", subject, table, after_update(table, matches))


def _maintenance_cases(size: Size, cache: Path) -> Iterator[Case]:
    small = small_files(*size.small_files, cache)
    yield _case("OPTIMIZE of small files", "optimize", Subject(str(small.path)), small, unchanged(small))
    path = littered(size.littered_files, cache)
    files = f"{size.littered_files // 1000}k files"
    truth = {"files": size.littered_files // 2}
    yield Case("VACUUM, every second file is garbage", "vacuum", Subject(str(path)).text(), files, truth)


def _case(title: str, operation: str, subject: Subject, table: ScanTable, truth: dict[str, Any]) -> Case:
    size = f"{table.spec.num_rows / 1e6:g}M rows, {table.spec.num_files:,} files"
    return Case(title, operation, subject.text(), size, truth)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=DML.title)
    parser.add_argument("--quick", action="store_true", help="small tables, no targets")
    add_options(parser, runs=FULL.runs)
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    given.runs = min(given.runs, size.runs)
    installed, benchmark = None, DML
    os.environ.pop(DELTA_JARS_VARIABLE, None)
    try:
        installed = None if DELTA_SPARK in given.without else delta_spark.find()
    except delta_spark.DeltaSparkMissingError as missing:
        print(f"delta-spark was left out: {missing}.", flush=True)
    if installed is None:
        given.without.append(DELTA_SPARK)
        benchmark = replace(DML, reference=DELTALAKE)
    sessions = sessions_of(installed, {DELTALAKE: SessionSpec(sys.executable, {NO_SPARK_VARIABLE: "1"})})
    with sessions:
        return run(benchmark, cases_of(size, cache_directory(given.cache)), given, sessions.measure, size.warmups)


if __name__ == "__main__":
    sys.exit(main())
