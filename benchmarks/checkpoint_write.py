"""Writing a checkpoint: Headwater against deltalake's `create_checkpoint`, time and peak memory.

    python -m benchmarks.checkpoint_write --quick
    python -m benchmarks.checkpoint_write --files 100000,1000000 --results

The operations are in `checkpoint_write_operations.py`; the tables are those of `log_open`. Each measurement works on a
clone of the table (hard links), so that the cached one stays as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.harness import Case
from benchmarks.log_open_operations import DELTALAKE
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.tables import TableSpec, cache_directory, make_table_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGET_FILES = 1_000_000
TARGET, MEMORY_TARGET = 0.5, 0.5
MAX_PARTITIONS = 1_000
QUICK_FILES, QUICK_RUNS = 10_000, 2

CHECKPOINT_WRITE = Benchmark(
    name="checkpoint_write",
    title="Writing a checkpoint",
    operations="benchmarks.checkpoint_write_operations",
    reference=DELTALAKE,
    remarks=(
        "from the path: opening the table is included, because Headwater reads the files of a table only now",
        "delta-spark's order: the older checkpoint's adds are in hash order and have to be sorted by partition",
        "our order: the older checkpoint is one that Headwater wrote, as it is from the second checkpoint on",
        "every checkpoint was opened again by both libraries, and has as many files as the table",
        f"targets hold at {TARGET_FILES:,} files",
    ),
)


def cases(num_files: int, cache: Path) -> Iterator[Case]:
    """The cases at one size."""
    text = TableSpec(num_files=num_files, num_partitions=min(num_files // 10, MAX_PARTITIONS))
    size = f"{num_files / 1e6:.0f}M files" if num_files >= 1e6 else f"{num_files / 1e3:.0f}k files"
    for title, operation, spec in (
        ("checkpoint, delta-spark's order", "checkpoint", text),
        ("checkpoint, our order", "second-checkpoint", text),
        ("checkpoint, struct stats, delta-spark's order", "checkpoint", replace(text, stats="struct")),
    ):
        table = make_table_apart(spec, cache)
        truth = {"num_files": table.truth.live.num_files, "version": table.truth.version}
        case = Case(title, operation, json.dumps([str(table.path)]), size, truth, TARGET, MEMORY_TARGET)
        yield case if num_files >= TARGET_FILES else replace(case, target=None, memory_target=None)


def main() -> int:
    """Measure, report, and say with the exit code whether all checkpoints were right."""
    parser = argparse.ArgumentParser(description=CHECKPOINT_WRITE.title)
    sizes = f"100000,{TARGET_FILES}"
    parser.add_argument("--files", default=sizes, metavar="N,...", help=f"sizes of the tables (default: {sizes})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FILES} files, {QUICK_RUNS} runs")
    add_options(parser, runs=3)
    given = parser.parse_args()
    if given.quick:
        given.files, given.runs = str(QUICK_FILES), QUICK_RUNS
    cache = cache_directory(given.cache)
    chosen = [int(size) for size in given.files.split(",")]
    return run(CHECKPOINT_WRITE, (case for size in chosen for case in cases(size, cache)), given)


if __name__ == "__main__":
    sys.exit(main())
