"""Opening tables and planning scans from the log alone: Headwater against deltalake.

    python -m benchmarks.log_open --quick
    python -m benchmarks.log_open --files 10000,100000,1000000 --results

The operations are in `log_open_operations.py`; `README.md` says what is measured, and why that way.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Answer, Case
from benchmarks.log_open_operations import DELTALAKE
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.tables import FileSet, Selection, Table, TableSpec, cache_directory, make_table_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    MakeTable: TypeAlias = Callable[[TableSpec], Table]

TARGET_FILES = 1_000_000
"""Targets hold for tables of this size: below, what both libraries do once per process weighs too much."""
MEMORY_TARGET = 0.5
MAX_PARTITIONS = 1_000
MIN_FILES = 100
SORTED_ROW_GROUP_ROWS = 50_000
COMMITS_FILES = 10_000
SHOW_FILES = 1_000
QUICK_FILES, QUICK_RUNS = 10_000, 2

LOG_OPEN = Benchmark(
    name="log_open",
    title="Opening a table and planning from its log",
    operations="benchmarks.log_open_operations",
    reference=DELTALAKE,
    remarks=(
        "every answer (number of files, digest of the sorted paths) was the one that the generator knows",
        f"targets hold at {TARGET_FILES:,} files; at other sizes the ratio is shown without one",
    ),
)


def sized_cases(num_files: int, table_of: MakeTable) -> Iterator[Case]:
    """The cases at one size. A table is made when the first case that needs it is due."""
    json_stats = TableSpec(num_files=num_files, num_partitions=min(num_files // 10, MAX_PARTITIONS))
    struct_stats = replace(json_stats, stats="struct")
    sorted_stats = replace(struct_stats, order="sorted", row_group_rows=SORTED_ROW_GROUP_ROWS)
    table = table_of(json_stats)
    yield _case("open", "open", table, _opened(table), target=0.01, memory_target=MEMORY_TARGET)
    with_crc = table_of(replace(json_stats, checksums=True))
    yield _case("open, with .crc", "open", with_crc, _opened(with_crc), target=0.01, memory_target=MEMORY_TARGET)
    yield _paths_case("all live paths", table)
    yield _plan_case("partition filter", "partition", table, table.truth.by_partition[0], target=0.05)
    yield _plan_case("id range, JSON stats", "statistics", table, table.truth.by_statistics[0], target=0.3)
    structs = table_of(struct_stats)
    yield _plan_case("id range, struct stats", "statistics", structs, structs.truth.by_statistics[0], target=0.05)
    ordered = table_of(sorted_stats)
    yield _plan_case(
        "id range, struct stats, sorted adds",
        "statistics",
        ordered,
        ordered.truth.by_statistics[0],
        target=0.05,
    )
    yield _second_case("second partition filter", "second-partition", table, table.truth.by_partition)
    yield _second_case("second id range, JSON stats", "second-statistics", table, table.truth.by_statistics)
    yield from _refresh_cases(table)
    yield _paths_case("all live paths, multi-part", table_of(replace(json_stats, layout="multi-part")))
    yield _paths_case("all live paths, V2 sidecars", table_of(replace(json_stats, layout="v2")))


def fixed_cases(table_of: MakeTable) -> Iterator[Case]:
    """The cases whose tables have one size."""
    commits = table_of(TableSpec(layout="commits", num_files=COMMITS_FILES))
    truth = _files(commits.truth.live)
    yield _case("all live paths, 1,000 commits and no checkpoint", "paths", commits, truth, target=0.2)
    small = table_of(TableSpec(num_files=SHOW_FILES, num_partitions=100))
    yield _case("`headwater show`, the whole process", "show", small, {"version": small.truth.version})


def _case(title: str, operation: str, table: Table, truth: Answer, *filters: str, **more: Any) -> Case:
    subject = json.dumps([str(table.path), *filters])
    return Case(title, operation, subject, _size(table.spec.num_files), truth, **more)


def _plan_case(title: str, operation: str, table: Table, chosen: Selection, *, target: float) -> Case:
    truth = _files(chosen.files)
    return _case(title, operation, table, truth, chosen.where, target=target, memory_target=MEMORY_TARGET)


def _paths_case(title: str, table: Table) -> Case:
    return _case(title, "paths", table, _files(table.truth.live), target=0.2, memory_target=MEMORY_TARGET)


def _second_case(title: str, operation: str, table: Table, chosen: list[Selection]) -> Case:
    first, second = chosen
    truth = _files(second.files)
    return _case(title, operation, table, truth, first.where, second.where, setup_title="opening and the first filter")


def _refresh_cases(table: Table) -> Iterator[Case]:
    after = table.truth.next_by_partition
    truth = {"version": table.truth.version + 1, **_files(table.truth.next_live)}
    yield _case("refresh by one commit", "refresh", table, truth, after.where, target=0.02)
    yield _case("refresh, then a partition filter", "refresh-partition", table, _files(after.files), after.where)


def _opened(table: Table) -> Answer:
    return {"version": table.truth.version, "min_reader_version": 1, "columns": table.truth.columns}


def _files(files: FileSet) -> Answer:
    return {"num_files": files.num_files, "paths": files.digest}


def _size(num_files: int) -> str:
    return f"{num_files / 1e6:.0f}M files" if num_files >= 1e6 else f"{num_files / 1e3:.0f}k files"


def all_cases(sizes: list[int], table_of: MakeTable) -> Iterator[Case]:
    """Every case: the sized ones for each size, then the others."""
    for size in sizes:
        for case in sized_cases(size, table_of):
            yield case if size >= TARGET_FILES else replace(case, target=None, memory_target=None)
    yield from fixed_cases(table_of)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=LOG_OPEN.title)
    sizes = f"{QUICK_FILES},100000,{TARGET_FILES}"
    parser.add_argument("--files", default=sizes, metavar="N,...", help=f"sizes of the tables (default: {sizes})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FILES} files, {QUICK_RUNS} runs")
    add_options(parser, runs=5)
    given = parser.parse_args()
    if given.quick:
        given.files, given.runs = str(QUICK_FILES), QUICK_RUNS
    try:
        chosen = [int(size) for size in given.files.split(",")]
    except ValueError:
        parser.error(f"--files takes numbers with commas between them, not {given.files!r}")
    if min(chosen) < MIN_FILES:
        parser.error(f"--files takes sizes of {MIN_FILES} and more, not {min(chosen)}")
    cache = cache_directory(given.cache)
    return run(LOG_OPEN, all_cases(chosen, lambda spec: make_table_apart(spec, cache)), given)


if __name__ == "__main__":
    sys.exit(main())
