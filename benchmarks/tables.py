"""Synthetic Delta tables, log only: what they are, what is true of them, and where they are kept.

A `TableSpec` says everything about a table; the same spec always gives the same bytes. Tables are made once,
in a cache directory, each with a note of its truth: the answers that every reader must give. This module is
cheap to import (the process that starts measurements must stay small); the heavy modules come when they must.

    python -m benchmarks.tables --layout v2 --files 100000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Layout: TypeAlias = Literal["classic", "multi-part", "v2", "commits"]
LAYOUTS: tuple[Layout, ...] = ("classic", "multi-part", "v2", "commits")

GENERATOR = 1
"""Part of every cache key: raise it when the same spec gives other bytes."""
PROJECT = Path(__file__).resolve().parent.parent
"""Where `python -m benchmarks...` works."""
CACHE_VARIABLE = "HEADWATER_BENCH_CACHE"
TRUTH_FILE = "_truth.json"
NEXT_COMMIT_FILE = "_next_commit.json"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of `num_files` files in `num_partitions` dates.

    Layouts: `classic`, `multi-part` and `v2` have a checkpoint of `num_files` adds (and 1% tombstones) at
    version 1,000 and `tail_commits` commits after it; `commits` has 1,000 commits and no checkpoint.

    Orders: `spark` is delta-spark's (no row group can be skipped), `sorted` is by date and id.

    Row groups: parquet-mr closes one at 128 MB of encoded bytes, which is about 300,000 adds with JSON
    statistics; that is the default. A writer that sorts its adds to skip row groups makes smaller ones.
    """

    layout: Layout = "classic"
    num_files: int = 10_000
    stats: Literal["json", "struct", "both"] = "json"
    order: Literal["spark", "sorted"] = "spark"
    row_group_rows: int = 300_000
    num_partitions: int = 1_000
    tail_commits: int = 20
    checksums: bool = False
    seed: int = 20_240_101

    def __post_init__(self) -> None:
        if self.num_files < 100:
            raise ValueError(f"num_files is {self.num_files}: a table needs at least 100 files")
        if not 1 <= self.num_partitions <= self.num_files:
            raise ValueError(f"num_partitions is {self.num_partitions}: it must be between 1 and num_files")
        if self.tail_commits < 1 or self.row_group_rows < 1:
            raise ValueError("tail_commits and row_group_rows must be at least 1")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is {self.layout!r}: it must be one of {', '.join(LAYOUTS)}")
        if self.layout == "commits" and (self.num_files % 1_000 or self.num_files < 2_000):
            raise ValueError(f"num_files is {self.num_files}: 1,000 commits need 2000, 3000, ... files")

    @property
    def name(self) -> str:
        """A directory name: readable, and different for every spec."""
        key = json.dumps([GENERATOR, asdict(self)], sort_keys=True)
        checksums = "-crc" if self.checksums else ""
        readable = f"{self.layout}-{self.num_files}-{self.stats}-{self.order}{checksums}"
        return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class FileSet:
    """A set of files, as an answer to compare."""

    num_files: int
    num_records: int
    size_bytes: int
    digest: str
    """`digest_of_paths` of their paths."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter and the files it leaves."""

    where: str
    """SQL; partition values are quoted, numbers are not."""
    files: FileSet


@dataclass(frozen=True, slots=True)
class Truth:
    """What every correct reader says of the table."""

    version: int
    columns: list[str]
    live: FileSet
    by_partition: list[Selection]
    """One date each."""
    by_statistics: list[Selection]
    """A narrow range of `id` each, about one file in a thousand."""
    next_live: FileSet
    """The live files once the commit in `NEXT_COMMIT_FILE` has been made."""
    next_by_partition: Selection
    """One date of which that commit removes a file, after it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the cache."""

    path: Path
    spec: TableSpec
    truth: Truth

    def next_commit(self) -> bytes:
        """The content of the commit that may follow the table's version."""
        return (self.path / NEXT_COMMIT_FILE).read_bytes()

    def clone(self, parent: Path) -> Path:
        """A copy of the log (hard links, so at no cost) that may be committed to."""
        target = parent / self.path.name
        shutil.copytree(self.path / "_delta_log", target / "_delta_log", copy_function=os.link)
        return target


def digest_of_paths(paths: Iterable[str]) -> str:
    """SHA-256 of the sorted paths, one per line."""
    return hashlib.sha256("".join(f"{path}\n" for path in sorted(paths)).encode()).hexdigest()


def cache_directory(chosen: str | None = None) -> Path:
    """The directory of the tables: `chosen`, else the environment's, else one in the temporary directory."""
    fallback = str(Path(tempfile.gettempdir()) / "headwater-bench")
    return Path(chosen or os.environ.get(CACHE_VARIABLE) or fallback).resolve()


def open_table(path: Path) -> Table:
    """The table at `path`, which `make_table` has made."""
    known = json.loads((path / TRUTH_FILE).read_text())
    raw = known["truth"]
    return Table(
        path,
        TableSpec(**known["spec"]),
        Truth(
            version=raw["version"],
            columns=raw["columns"],
            live=FileSet(**raw["live"]),
            by_partition=[_selection(s) for s in raw["by_partition"]],
            by_statistics=[_selection(s) for s in raw["by_statistics"]],
            next_live=FileSet(**raw["next_live"]),
            next_by_partition=_selection(raw["next_by_partition"]),
        ),
    )


def _selection(raw: dict[str, Any]) -> Selection:
    return Selection(raw["where"], FileSet(**raw["files"]))


def make_table(spec: TableSpec, cache: Path) -> Table:
    """The table of this spec, made now if the cache does not have it yet."""
    path = cache / spec.name
    if not path.exists():
        from benchmarks.synthesis import build_table

        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as making:
            build_table(spec, Path(making) / spec.name)
            try:
                (Path(making) / spec.name).rename(path)
            except OSError:
                if not path.exists():  # otherwise another process has made the same table meanwhile
                    raise
    return open_table(path)


def make_table_apart(spec: TableSpec, cache: Path) -> Table:
    """`make_table` in a process of its own.

    A process inherits the peak memory of the one that starts it: the process that measures must not make tables.
    """
    if not (cache / spec.name).exists():
        options = ["--cache", str(cache), "--spec", json.dumps(asdict(spec))]
        command = [sys.executable, "-m", "benchmarks.tables", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=PROJECT)
    return open_table(cache / spec.name)


def main() -> None:
    """Make one table and print where it is."""
    parser = argparse.ArgumentParser(description="Make a synthetic Delta table.")
    parser.add_argument("--cache", help=f"directory of the tables (default: ${CACHE_VARIABLE})")
    parser.add_argument("--layout", choices=LAYOUTS, default="classic")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--stats", choices=("json", "struct", "both"), default="json")
    parser.add_argument("--order", choices=("spark", "sorted"), default="spark")
    parser.add_argument("--checksums", action="store_true", help="write .crc files")
    parser.add_argument("--spec", help="the whole spec as JSON; the other options are then ignored")
    given = parser.parse_args()
    if given.spec:
        spec = TableSpec(**json.loads(given.spec))
    else:
        spec = TableSpec(
            layout=given.layout,
            num_files=given.files,
            stats=given.stats,
            order=given.order,
            checksums=given.checksums,
        )
    print(make_table(spec, cache_directory(given.cache)).path)


if __name__ == "__main__":
    main()
