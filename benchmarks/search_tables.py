"""Synthetic log lines for the benchmark `search`: as Parquet, as a search table, and as a Delta table with an index.

The same spec always gives the same rows. Words are seven letters long, so that `LIKE '%word%'` finds what a search for
the word finds, and the answers of all queries are known from the numbers behind the lines.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.tables import CACHE_VARIABLE, PROJECT, TRUTH_FILE, cache_directory

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa

GENERATOR = 1
"""Part of every cache key: raise it when the same spec gives other rows."""
SEED = 20_240_101
WORDS = 5_000
LINE_WORDS = 14
HOSTS = 50
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
START_US = 1_704_067_200_000_000
RARE = 2_500
"""A word that about one line in four thousand has."""
COMMON = 40
"""One that about one line in forty has."""
PHRASE = (11, 60)
SCHEMA = {
    "ts": "timestamp",
    "host": "string",
    "level": "string",
    "status": "int",
    "took": "bigint",
    "message": "string",
}
PARQUET_DIRECTORY, SEARCH_DIRECTORY, DELTA_DIRECTORY = "parquet", "search", "delta"


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """How many lines are in how many files, splits and data files."""

    num_rows: int
    num_files: int

    @property
    def name(self) -> str:
        """A directory name, different for every spec."""
        return f"search-{GENERATOR}-{self.num_rows}-{self.num_files}"

    @property
    def rows_per_file(self) -> int:
        """Files are equally long."""
        return self.num_rows // self.num_files


@dataclass(frozen=True, slots=True)
class SearchTables:
    """The tables of a spec in the cache."""

    path: Path
    spec: SearchSpec
    truth: dict[str, dict[str, Any]]
    """The answer of each query."""

    def directory(self, name: str) -> str:
        """Where one of the tables is."""
        return str(self.path / name)


def word(number: int) -> str:
    """A word of seven letters; no two are alike.

    >>> word(0), word(27)
    ('qaaaaaa', 'qaaaabb')
    """
    letters = []
    for _ in range(6):
        number, letter = divmod(number, 26)
        letters.append(chr(ord("a") + letter))
    return "q" + "".join(reversed(letters))


# --- the rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Return the numbers behind the lines of one file."""

    words: np.ndarray
    hosts: np.ndarray
    levels: np.ndarray
    status: np.ndarray
    took: np.ndarray
    ts_us: np.ndarray

    @classmethod
    def of(cls, spec: SearchSpec, file: int) -> Lines:
        """The lines of one file. Word number n is about as frequent as 1 / (n + 30)."""
        import numpy as np

        random = np.random.default_rng([SEED, file])
        count = spec.rows_per_file
        weights = 1.0 / (np.arange(WORDS) + 30.0)
        bounds = np.cumsum(weights / weights.sum())
        bounds[-1] = 1.0
        start = START_US + file * count * 1_000
        return cls(
            words=np.searchsorted(bounds, random.random((count, LINE_WORDS))).astype(np.int32),
            hosts=random.integers(0, HOSTS, count),
            levels=random.choice(len(LEVELS), count, p=[0.2, 0.6, 0.1, 0.09, 0.01]),
            status=random.choice([200, 204, 301, 404, 500, 503], count).astype(np.int32),
            took=random.integers(1, 100_000, count),
            ts_us=start + np.arange(count) * 1_000,
        )

    def table(self) -> pa.Table:
        """The rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = pa.array([word(number) for number in range(WORDS)])
        hosts = pa.array([f"web-{number:02}" for number in range(HOSTS)])
        columns = [names.take(pa.array(self.words[:, place])) for place in range(LINE_WORDS)]
        return pa.table(
            {
                "ts": pa.array(self.ts_us).cast(pa.timestamp("us", "UTC")),
                "host": hosts.take(pa.array(self.hosts)),
                "level": pa.array(LEVELS).take(pa.array(self.levels)),
                "status": pa.array(self.status),
                "took": pa.array(self.took),
                "message": pc.binary_join_element_wise(*columns, " "),
            }
        )

    def answers(self) -> dict[str, dict[str, Any]]:
        """What the queries find in these lines."""
        import numpy as np

        rare, common = ((self.words == number).any(axis=1) for number in (RARE, COMMON))
        first, second = PHRASE
        phrase = ((self.words[:, :-1] == first) & (self.words[:, 1:] == second)).any(axis=1)
        both = common & (self.hosts == 7) & (self.levels != 0)
        groups = {f"web-{host:02}": [int((common & (self.hosts == host)).sum())] for host in range(HOSTS)}
        for host, found in zip(range(HOSTS), groups.values(), strict=True):
            found.append(int(self.took[common & (self.hosts == host)].sum()))
        return {
            "count": {"rows": int(rare.sum())},
            "rows": {"rows": int(rare.sum()), "took": int(self.took[rare].sum())},
            "phrase": {"rows": int(phrase.sum())},
            "boolean": {"rows": int(both.sum())},
            "groups": {"groups": groups},
            "top": {"rows": int(min(10, rare.sum()))},
            "scan": {"rows": len(self.took), "took": int(self.took.sum()), "status": int(np.sum(self.status))},
        }


def _merged(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answers on all files, from those on some and those on others."""
    merged: dict[str, dict[str, Any]] = {}
    for query, ours in one.items():
        theirs = other[query]
        if query == "groups":
            names = ours["groups"]
            sums = {name: [a + b for a, b in zip(names[name], theirs["groups"][name], strict=True)] for name in names}
            merged[query] = {"groups": sums}
        else:
            merged[query] = {key: ours[key] + theirs[key] for key in ours}
    merged["top"] = {"rows": min(10, merged["top"]["rows"])}
    return merged


# --- making the tables --------------------------------------------------------------------------------


def make_search_tables(spec: SearchSpec, cache: Path) -> SearchTables:
    """The tables of this spec, made now if the cache does not have them yet."""
    path = cache / spec.name
    if not (path / TRUTH_FILE).exists():
        # In its place from the start: a search table names its splits by absolute paths.
        shutil.rmtree(path, ignore_errors=True)
        truth = _write_parquet(spec, path / PARQUET_DIRECTORY)
        _index(spec, path)
        (path / TRUTH_FILE).write_text(json.dumps(truth))
    return SearchTables(path, spec, json.loads((path / TRUTH_FILE).read_text()))


def _write_parquet(spec: SearchSpec, directory: Path) -> dict[str, dict[str, Any]]:
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    truth: dict[str, dict[str, Any]] | None = None
    for file in range(spec.num_files):
        lines = Lines.of(spec, file)
        pq.write_table(lines.table(), directory / f"part-{file:05}.parquet", compression="zstd")
        truth = lines.answers() if truth is None else _merged(truth, lines.answers())
    assert truth is not None, "there are files"
    found = {host: counted for host, counted in truth["groups"]["groups"].items() if counted[0]}
    return {**truth, "groups": {"groups": found}}


def _index(spec: SearchSpec, target: Path) -> None:
    """The same rows as a search table, and as a Delta table with a search index: a split for each file of either."""
    import headwater as hw
    from benchmarks.search_operations import INDEXED, create_search_table, read_parquet, session

    frame = read_parquet(str(target / PARQUET_DIRECTORY)).repartition(spec.num_files)
    create_search_table(str(target / SEARCH_DIRECTORY)).write(frame)
    hw.write(frame, str(target / DELTA_DIRECTORY))
    hw.search_index(str(target / DELTA_DIRECTORY), columns=INDEXED, spark=session())


def search_tables_apart(spec: SearchSpec, cache: Path) -> SearchTables:
    """Run `make_search_tables` in another process: the process that measures must stay small."""
    argv = [
        sys.executable,
        "-m",
        "benchmarks.search_tables",
        "--cache",
        str(cache),
        "--order",
        json.dumps(asdict(spec)),
    ]
    subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    path = cache / spec.name
    return SearchTables(path, spec, json.loads((path / TRUTH_FILE).read_text()))


def main() -> None:
    """Make the tables of one spec and print where they are."""
    parser = argparse.ArgumentParser(description="Make tables of log lines.")
    parser.add_argument("--cache", help=f"directory of the tables (default: ${CACHE_VARIABLE})")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--order", help="the spec as JSON; the other options are then ignored")
    given = parser.parse_args()
    spec = SearchSpec(**json.loads(given.order)) if given.order else SearchSpec(given.rows, given.files)
    print(make_search_tables(spec, cache_directory(given.cache)).path)


if __name__ == "__main__":
    main()
