"""What each reader sees of a table, in a form in which they can be compared: schema, rows and history."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder

import headwater as hw
from headwater.log.schema import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMAT = "yyyy-MM-dd HH:mm:ss.SSSSSS"
JSON_OPTIONS = {"timestampFormat": _FORMAT, "timestampNTZFormat": _FORMAT, "ignoreNullFields": "false"}
"""For rows as JSON from Spark, with nothing left out."""


@dataclass(frozen=True)
class Commit:
    """An entry of the history."""

    version: int
    timestamp_ms: int
    operation: str
    user_metadata: str | None


@dataclass(frozen=True)
class Seen:
    """A table as one reader sees it."""

    schema: str
    rows: list[dict[str, Any]]

    def without(self, names: set[str]) -> list[dict[str, Any]]:
        return ordered([{k: v for k, v in row.items() if k not in names} for row in self.rows])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def spark_rows(texts: list[str]) -> list[dict[str, Any]]:
    """Rows as Spark writes them in JSON (`JSON_OPTIONS`)."""
    return ordered([json.loads(text, parse_float=str) for text in texts])


def by_spark(frame: DataFrame) -> Seen:
    from pyspark.sql import functions as sf

    rows = frame.select(sf.to_json(sf.struct("*"), JSON_OPTIONS)).collect()
    return Seen(_simple(frame.schema.json()), spark_rows([row[0] for row in rows]))


def by_delta_spark(answer: dict[str, Any]) -> Seen:
    return Seen(_simple(answer["schema"]), spark_rows(answer["rows"]))


def by_deltalake(path: Path) -> Seen:
    table = RustTable(path)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    return Seen(_simple(table.schema().to_json()), arrow_rows(rows))


@contextmanager
def duckdb_with_delta() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def by_duckdb(connection: duckdb.DuckDBPyConnection, path: Path) -> Seen:
    query = f"SELECT * FROM delta_scan('{path}')"
    columns = [(name, type_) for name, type_, *_ in connection.execute(f"DESCRIBE {query}").fetchall()]
    if any(type_ == "VARIANT" for _, type_ in columns):  # Arrow has no such type
        names = [name for name, _ in columns]
        rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query).fetchall()]
        schema = ",".join(f"{name}:{type_.lower()}" for name, type_ in columns)
        return Seen(f"struct<{schema}>", ordered([{key: _plain(v) for key, v in row.items()} for row in rows]))
    table = connection.execute(query).to_arrow_table()
    return Seen(str(StructType.from_arrow(table.schema)), arrow_rows(table))


def arrow_rows(table: pa.Table) -> list[dict[str, Any]]:
    return ordered([{key: _plain(value) for key, value in row.items()} for row in table.to_pylist()])


def headwater_history(path: Path) -> list[Commit]:
    return [
        Commit(c.version, c.timestamp, c.operation or "", c.user_metadata)
        for c in reversed(hw.open_log(path).history())
    ]


def delta_spark_history(answer: dict[str, Any]) -> list[Commit]:
    rows = sorted(map(json.loads, answer["rows"]), key=lambda row: row["version"])
    return [Commit(row["version"], _ms(row["timestamp"]), row["operation"], row.get("userMetadata")) for row in rows]


def deltalake_history(path: Path) -> list[Commit]:
    rows = sorted(RustTable(path).history(), key=lambda row: row["version"])
    return [Commit(row["version"], row["timestamp"], row["operation"], row.get("userMetadata")) for row in rows]


def _ms(text: str) -> int:
    return round(datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp() * 1000)


def _simple(schema: str) -> str:
    """A schema's names and types, as Spark says them."""
    return str(StructType.from_json(schema))


def _plain(value: Any) -> Any:
    """A value as Spark's JSON has it."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case [(_, _), *_] if all(isinstance(item, tuple) for item in value):  # a map
            return {str(key): _plain(item) for key, item in value}
        case list():
            return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} is not a value of a table")


def by_headwater(spark: SparkSession, path: Path) -> Seen:
    return by_spark(hw.read(spark, path))
