"""Small commits: Headwater against deltalake, which commit the same actions.

    python -m benchmarks.commit --quick
    python -m benchmarks.commit --results

The operations are in `commit_operations.py`. Headwater flushes every commit to the disk and writes a version checksum
beside it; what the peer leaves out is not put right here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commit_operations import DELTALAKE, WRITERS
from benchmarks.harness import Case
from benchmarks.runner import Benchmark, add_options, run
from benchmarks.tables import PROJECT, TableSpec, cache_directory, make_table_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = Benchmark(
    name="commit",
    title="Small commits",
    operations="benchmarks.commit_operations",
    reference=DELTALAKE,
    remarks=(
        "a commit adds one file; every commit was in the log once, and the versions had no gap",
        "Headwater flushes each commit to the disk and writes a version checksum; deltalake does neither",
    ),
)
FEW = 9
"""Commits in the cases that compare tables; as many as lie between two checkpoints."""


def history_table(commits: int, cache: Path) -> Path:
    """Make, once, a table after a number of commits of one file each, with a checkpoint at the end."""
    path = cache / f"history-{commits}"
    if not path.exists():
        subprocess.run(
            [sys.executable, "-m", "benchmarks.commit", "--make", str(commits), str(path)], check=True, cwd=PROJECT
        )
    return path


def make_history(commits: int, path: Path) -> None:
    """Write the log of such a table, by the spec; the checkpoint is deltalake's."""
    from deltalake import DeltaTable

    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    format_ = {"provider": "parquet", "options": {}}
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "11111111-2222-4333-8444-555555555555",
                "format": format_,
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as making:
        log = Path(making) / path.name / "_delta_log"
        log.mkdir(parents=True)
        for version in range(commits):
            info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
            add: dict[str, Any] = {"path": f"old-{version}.parquet", "partitionValues": {}, "size": 1_000}
            add |= {"modificationTime": 1_700_000_000_000, "dataChange": True, "stats": '{"numRecords":1000}'}
            lines = [info, *(first if version == 0 else []), {"add": add}]
            (log / f"{version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        DeltaTable(str(log.parent)).create_checkpoint()
        log.parent.rename(path)


def _case(title: str, operation: str, path: Path, version: int, commits: int, size: str, **more: Any) -> Case:
    truth = {"version": version + commits, "added": commits, "distinct": commits}
    return Case(title, operation, json.dumps([str(path), commits]), size, truth, **more)


def _history_cases(sizes: list[int], cache: Path) -> Iterator[Case]:
    for size in sizes:
        path = history_table(size + 1, cache)
        yield _case(f"{FEW} commits after {size:,}", "alone", path, size, FEW, f"{size:,} commits")


def _file_cases(sizes: list[int], cache: Path) -> Iterator[Case]:
    for size in sizes:
        for checksums in (True, False):
            spec = TableSpec(num_files=size, num_partitions=min(size // 10, 1_000), checksums=checksums)
            table = make_table_apart(spec, cache)
            title = f"{FEW} commits, {size:,} live files" + ("" if checksums else ", no .crc before")
            yield _case(title, "alone", table.path, table.truth.version, FEW, f"{size:,} files")
        title = f"{FEW + 1} commits and a checkpoint, {size:,} live files"
        yield _case(title, "alone", table.path, table.truth.version, FEW + 1, f"{size:,} files", max_runs=2)


def all_cases(cache: Path, *, quick: bool) -> Iterator[Case]:
    """Every case."""
    small, many = history_table(11, cache), 40 if quick else 200
    yield _case(f"one writer, {many} commits", "alone", small, 10, many, "10 commits")
    yield _case(f"{WRITERS} writers, {many} commits in all", "contended", small, 10, many, "10 commits")
    if not quick:
        # Headwater alone, for what it needs: deltalake takes minutes, and its ratio is known from fewer commits.
        yield _case("one writer, 1,000 commits", "long", small, 10, 1_000, "10 commits", max_runs=2)
    yield from _history_cases([10, 1_000] if quick else [10, 1_000, 10_000], cache)
    yield from _file_cases([1_000] if quick else [1_000, 1_000_000], cache)


def main() -> int:
    """Measure, report, and say with the exit code whether all answers were right."""
    parser = argparse.ArgumentParser(description=COMMIT.title)
    parser.add_argument("--quick", action="store_true", help="small tables, two runs")
    parser.add_argument("--make", nargs=2, metavar=("COMMITS", "PATH"), help=argparse.SUPPRESS)
    add_options(parser, runs=3)
    given = parser.parse_args()
    if given.make:
        make_history(int(given.make[0]), Path(given.make[1]))
        return 0
    if given.quick:
        given.runs = 2
    return run(COMMIT, all_cases(cache_directory(given.cache), quick=given.quick), given)


if __name__ == "__main__":
    sys.exit(main())
