"""Tables that we wrote, as independent readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
from deltalake import DeltaTable

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


def by_duckdb(path: str | Path) -> Rows:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return _sorted(connection.execute(f"SELECT * FROM delta_scan('{path}')").fetchall())


def by_deltalake(path: str | Path) -> Rows:
    table = DeltaTable(str(path)).to_pyarrow_table()
    return _sorted([tuple(row.values()) for row in table.to_pylist()])


def by_headwater(spark: SparkSession, path: str | Path) -> Rows:
    return _sorted([tuple(row) for row in hw.read(spark, path).collect()])


def by_all(spark: SparkSession, path: str | Path) -> Rows:
    """The rows of a table, on which all readers agree."""
    rows = by_headwater(spark, path)
    assert by_duckdb(path) == rows
    assert by_deltalake(path) == rows
    return rows


def operations(path: str | Path) -> list[str]:
    """What the history says, oldest first."""
    return [commit.operation or "" for commit in reversed(hw.open_log(path).history())]


def _sorted(rows: list[Any]) -> Rows:
    return sorted((tuple(row) for row in rows), key=lambda row: [(v is None, str(v)) for v in row])
