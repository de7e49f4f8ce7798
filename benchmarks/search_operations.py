"""What search tables, Delta tables with an index, and plain Parquet do in the benchmark `search`, in one Spark session.

Plain Parquet is asked with LIKE, which is what one has without an index. The subject of a case is JSON: see `Subject`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers
from benchmarks.scan_operations import PARQUET, before_each, session
from benchmarks.search_tables import (
    COMMON,
    DELTA_DIRECTORY,
    PARQUET_DIRECTORY,
    PHRASE,
    RARE,
    SCHEMA,
    SEARCH_DIRECTORY,
)
from benchmarks.search_tables import word as word_of
from benchmarks.write_operations import BYTES, cpu_time_s

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OPERATIONS", "before_each", "cpu_time_s"]

DELTA = "search on a Delta table"
INDEXED = {"message": "text", "host": "string", "level": "string"}

_RARE, _COMMON = word_of(RARE), word_of(COMMON)
_PHRASE = " ".join(word_of(number) for number in PHRASE)
QUERIES = {
    "count": _RARE,
    "rows": _RARE,
    "top": _RARE,
    "phrase": f'"{_PHRASE}"',
    "boolean": f"{_COMMON} AND host:web-07 AND NOT level:DEBUG",
    "groups": _COMMON,
}
CONDITIONS = {
    "count": f"message LIKE '%{_RARE}%'",
    "rows": f"message LIKE '%{_RARE}%'",
    "top": f"message LIKE '%{_RARE}%'",
    "phrase": f"message LIKE '%{_PHRASE}%'",
    "boolean": f"message LIKE '%{_COMMON}%' AND host = 'web-07' AND NOT level = 'DEBUG'",
    "groups": f"message LIKE '%{_COMMON}%'",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a case is about."""

    path: str
    """Where the tables of the spec are."""
    query: str
    """Which query, by its name."""

    def text(self) -> str:
        """As the subject of a `Case`."""
        return json.dumps(asdict(self))


# --- the tables ---------------------------------------------------------------------------------------


def read_parquet(path: str) -> Any:
    """The lines as a DataFrame, on plain Parquet."""
    return session().read.schema(", ".join(f"{name} {type_}" for name, type_ in SCHEMA.items())).parquet(path)


def create_search_table(path: str) -> Any:
    """A search table for the lines."""
    from headwater.api.search_table import SearchTable

    schema = ", ".join(f"{name} {type_}" for name, type_ in SCHEMA.items())
    return SearchTable.create(session(), path, schema, types={"message": "text"})


@dataclass(frozen=True, slots=True)
class State:
    """What `run` gets."""

    query: str
    found: Callable[[], Any]
    """The DataFrame of what the query finds; of all rows for a full scan."""
    table: Any = None
    """The search table."""


def _search_table(text: str) -> State:
    from headwater.api.search_table import SearchTable

    subject = Subject(**json.loads(text))
    table = SearchTable.forPath(session(), f"{subject.path}/{SEARCH_DIRECTORY}")
    query = QUERIES.get(subject.query)
    return State(subject.query, lambda: table.toDF() if query is None else table.search(query), table)


def _delta_table(text: str) -> State:
    from headwater.api.delta_table import DeltaTable

    subject = Subject(**json.loads(text))
    table = DeltaTable.forPath(session(), f"{subject.path}/{DELTA_DIRECTORY}")
    query = QUERIES.get(subject.query)
    return State(subject.query, lambda: table.toDF() if query is None else table.search(query))


def _parquet(text: str) -> State:
    subject = Subject(**json.loads(text))
    frame = read_parquet(f"{subject.path}/{PARQUET_DIRECTORY}")
    condition = CONDITIONS.get(subject.query)
    return State(subject.query, lambda: frame if condition is None else frame.where(condition))


# --- measured -----------------------------------------------------------------------------------------


def _count(state: State) -> Answer:
    return {"rows": state.found().count()}


def _rows(state: State) -> Answer:
    import pyarrow.compute as pc

    rows = state.found().toArrow()
    return {"rows": rows.num_rows, "took": pc.sum(rows["took"]).as_py()}


def _groups(state: State) -> Answer:
    rows = state.found().groupBy("host").agg({"*": "count", "took": "sum"}).collect()
    return {"groups": {row["host"]: [row["count(1)"], row["sum(took)"]] for row in rows}}


def _scan(state: State) -> Answer:
    row = state.found().selectExpr(
        "count(*) AS rows", "sum(took) AS took", "sum(status) AS status", "max(length(message)) AS longest",
        "max(host) AS host", "max(level) AS level", "max(ts) AS ts",
    ).collect()[0]  # fmt: skip
    return {"rows": row["rows"], "took": row["took"], "status": row["status"]}


def _scan_to_nowhere(state: State) -> Answer:
    """Every row and column, and nothing done with them: Spark's `noop` takes them."""
    state.found().write.format("noop").mode("overwrite").save()
    return {}


def _driver_count(state: State) -> Answer:
    return {"rows": state.table.count(QUERIES[state.query])}


def _driver_top(state: State) -> Answer:
    return {"rows": state.table.top(QUERIES[state.query], 10).num_rows}


def _parquet_top(state: State) -> Answer:
    """Without scores the newest matches must do."""
    return {"rows": len(state.found().orderBy("ts", ascending=False).limit(10).collect())}


def _driver_groups(state: State) -> Answer:
    found = state.table.aggregate("count", "sum(took)", query=QUERIES[state.query], group_by="host")
    columns = [column.to_pylist() for column in found.columns]
    return {"groups": {host: [count, took] for host, count, took in zip(*columns, strict=True)}}


# --- building -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Build:
    """Rows to write, and where to."""

    frame: Any
    path: Path


def _build_setup(text: str) -> Build:
    subject = Subject(**json.loads(text))
    path = Path(subject.path).parent / f"built-{os.getpid()}-{time.monotonic_ns()}"
    return Build(read_parquet(f"{subject.path}/{PARQUET_DIRECTORY}"), path)


def _delta_build_setup(text: str) -> Build:
    """The Delta table is there already: only its index is measured."""
    import headwater as hw

    build = _build_setup(text)
    hw.write(build.frame, str(build.path))
    return build


def _build_search_table(build: Build) -> Answer:
    table = create_search_table(str(build.path))
    table.write(build.frame)
    return {"rows": table.count(), **_built(build, "*.split")}


def _build_delta_index(build: Build) -> Answer:
    import headwater as hw

    done = hw.search_index(str(build.path), columns=INDEXED, spark=session())
    return {"rows": done.num_records, BYTES: done.size_bytes}


def _build_parquet(build: Build) -> Answer:
    import pyarrow.parquet as pq

    build.frame.write.option("compression", "zstd").parquet(str(build.path))
    rows = sum(pq.read_metadata(file).num_rows for file in build.path.glob("part-*.parquet"))
    return {"rows": rows, **_built(build, "part-*.parquet")}


def _built(build: Build, pattern: str) -> Answer:
    files = [file for file in build.path.rglob(pattern) if file.is_file()]
    return {BYTES: sum(file.stat().st_size for file in files)}


def _build_cleanup(build: Build) -> None:
    shutil.rmtree(build.path, ignore_errors=True)


def _same(answer: Answer) -> Answer:
    return answer


def _queries(run: Callable[[State], Answer]) -> Peers:
    return {
        HEADWATER: Operation((), run, _same, _search_table),
        PARQUET: Operation((), run, _same, _parquet),
        DELTA: Operation((), run, _same, _delta_table),
    }


def _on_the_driver(run: Callable[[State], Answer], parquet: Callable[[State], Answer]) -> Peers:
    return {
        HEADWATER: Operation((), run, _same, _search_table),
        PARQUET: Operation((), parquet, _same, _parquet),
    }


OPERATIONS: dict[str, Peers] = {
    "count": _queries(_count),
    "rows": _queries(_rows),
    "groups": _queries(_groups),
    "scan": _on_the_driver(_scan, _scan),
    "scan to nowhere": _on_the_driver(_scan_to_nowhere, _scan_to_nowhere),
    "driver count": _on_the_driver(_driver_count, _count),
    "driver top": _on_the_driver(_driver_top, _parquet_top),
    "driver groups": _on_the_driver(_driver_groups, _groups),
    "build": {
        HEADWATER: Operation((), _build_search_table, _same, _build_setup, _build_cleanup),
        PARQUET: Operation((), _build_parquet, _same, _build_setup, _build_cleanup),
        DELTA: Operation((), _build_delta_index, _same, _delta_build_setup, _build_cleanup),
    },
}
