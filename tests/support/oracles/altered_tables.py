"""Altered tables, as independent readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


def by_duckdb(path: str) -> Rows:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return _sorted(connection.execute(f"SELECT * FROM delta_scan('{path}')").fetchall())


def by_headwater(spark: SparkSession, path: str) -> Rows:
    return _sorted([tuple(row) for row in hw.read(spark, path).collect()])


def operations(path: str) -> list[str]:
    """What the history says, oldest first."""
    return [commit.operation or "" for commit in reversed(hw.open_log(path).history())]


def _sorted(rows: list[Any]) -> Rows:
    return sorted((tuple(row) for row in rows), key=lambda row: [(value is None, str(value)) for value in row])
