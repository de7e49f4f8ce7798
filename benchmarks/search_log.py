"""Opening a search table by its log: with checkpoints every 10 versions against all version files, the same table.

    python -m benchmarks.search_log --quick
    python -m benchmarks.search_log --results

The specification of the log (spec 002) gives 2.5x for 50 transactions as the gain of checkpoints; the target is that
figure. The operations are in `search_log_operations.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.harness import Case
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.search_log_operations import SPLITS_PER_VERSION, WITHOUT_CHECKPOINTS
from benchmarks.tables import PROJECT, cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = (50, 500)
TARGET = 1 / 2.5
REQUEST_MS = 20
QUICK_RUNS = 2

SEARCH_LOG = Benchmark(
    name="search_log",
    title="Opening a search table by its log",
    operations="benchmarks.search_log_operations",
    reference=WITHOUT_CHECKPOINTS,
    remarks=(
        "opening the newest version and listing its splits; caches are off, eight threads read, as the defaults say",
        f"the far store is the disk with {REQUEST_MS} ms for every request",
        f"every version adds {SPLITS_PER_VERSION} splits",
    ),
    libraries=("headwater", "pyarrow"),
)


def make_tables_apart(versions: int, cache: Path) -> tuple[Path, Path]:
    """The table with checkpoints and the one without, made once in a process of their own."""
    both = cache / f"search-log-{versions}-checkpoints", cache / f"search-log-{versions}"
    for path, interval in zip(both, (10, 10**9), strict=True):
        if not path.exists():
            arguments = [str(path), str(versions), str(interval)]
            command = [sys.executable, "-m", "benchmarks.search_log_operations", *arguments]
            subprocess.run(command, check=True, cwd=PROJECT)
    return both


def cases(versions: int, cache: Path) -> Iterator[Case]:
    """A table on a disk, and on a store that is far away."""
    paths = [str(path) for path in make_tables_apart(versions, cache)]
    truth = {"version": versions, "num_files": versions * SPLITS_PER_VERSION}
    for title, request_ms in ((f"{versions} versions", 0), (f"{versions} versions, far store", REQUEST_MS)):
        yield Case(title, "open", json.dumps([*paths, request_ms]), f"{versions} versions", truth, target=TARGET)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=SEARCH_LOG.title)
    parser.add_argument("--quick", action="store_true", help=f"{VERSIONS[0]} versions, {QUICK_RUNS} runs")
    add_options(parser, runs=5)
    given = parser.parse_args()
    if given.quick:
        given.runs = QUICK_RUNS
    cache = cache_directory(given.cache)
    chosen = VERSIONS[:1] if given.quick else VERSIONS
    return run(SEARCH_LOG, (case for versions in chosen for case in cases(versions, cache)), given)


if __name__ == "__main__":
    sys.exit(main())
