"""Parquet files of several writers with columns of every kind, such files spliced, and what readers see in them."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from headwater.parquet.splice.file import splice

Writer = Callable[[pa.Table, Path], bytes]
"""Writes a file; it may use a directory."""
Columns = Mapping[str, pa.Array]

NAN = float("nan")
TYPES = {
    "id": pa.int64(),
    "text": pa.string(),
    "number": pa.float64(),
    "single": pa.float32(),
    "flag": pa.bool_(),
    "small": pa.int16(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "amount": pa.decimal128(20, 3),
    "price": pa.decimal128(9, 2),
    "raw": pa.binary(),
    "pair": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "many": pa.list_(pa.field("element", pa.int32())),
    "named": pa.map_(pa.string(), pa.int64()),
}
VALUES: dict[str, list[Any]] = {
    "id": list(range(300)),
    "text": ["", None, "é", "a", "b"],
    "number": [0.0, -0.0, NAN, None, -1.5],
    "single": [-0.0, None, 0.5],
    "flag": [True, None, False],
    "small": [1, -1, None],
    "day": [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)],
    "at": [dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), None],
    "amount": [Decimal("-12345678901234567.125"), None, Decimal("0.000")],
    "price": [Decimal("1.50"), None],
    "raw": [b"", None, b"\x00\xff"],
    "pair": [{"x": 1, "y": ""}, None, {"x": None, "y": "z"}],
    "many": [[1, None, 2], None, [], [3]],
    "named": [[("k", 1)], None, [], [("a", None), ("b", 2)]],
}
NEW: dict[str, list[Any]] = {
    "id": list(range(1000, 1300)),
    "text": ["a longer text than any before", None, ""],
    "number": [NAN, 1e300, -0.0, None],
    "single": [NAN, None],
    "flag": [None, True],
    "small": [-(2**15), None],
    "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "at": [None, dt.datetime(1900, 1, 1, tzinfo=dt.UTC)],
    "amount": [Decimal("0.001"), None],
    "price": [Decimal("-9999999.99"), None],
    "raw": [None, b"new"],
    "pair": [None, {"x": 7, "y": None}],
    "many": [[], None, list(range(20))],
    "named": [[("new", 7)], None],
}
"""Values that columns have, and others; both are repeated."""


def column(name: str, values: dict[str, list[Any]], num_rows: int = 300) -> pa.Array:
    return pa.array((values[name] * num_rows)[:num_rows], TYPES[name])


OLD = pa.table({name: column(name, VALUES) for name in TYPES})


def by_pyarrow(**options: Any) -> Writer:
    def write(table: pa.Table, _directory: Path) -> bytes:
        sink = io.BytesIO()
        pq.write_table(table, sink, **{"row_group_size": 128, **options})
        return sink.getvalue()

    return write


def with_odd_groups(table: pa.Table, _directory: Path) -> bytes:
    """Among them are empty ones, and some of one row."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, write_page_index=True) as writer:
        start = 0
        for size in (1, 0, 7, 1, 0, 100):
            writer.write_table(table.slice(start, size))
            start += size
    return sink.getvalue()


def by_duckdb(table: pa.Table, directory: Path) -> bytes:
    path = directory / "duck"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", pa.concat_tables([table] * 10))  # row groups have 2048 rows at least
        connection.execute(f"COPY rows TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return path.read_bytes()


def by_delta_rs(table: pa.Table, directory: Path) -> bytes:
    write_deltalake(directory / "rust", table, writer_properties=WriterProperties(max_row_group_size=128))
    [path] = (directory / "rust").glob("*.parquet")
    return path.read_bytes()


WRITERS: dict[str, Writer] = {
    "defaults": by_pyarrow(),
    "no dictionary": by_pyarrow(use_dictionary=False, compression="none"),
    "pages 2.0": by_pyarrow(data_page_version="2.0", compression="zstd", max_rows_per_page=10),
    "gzip, one row group": by_pyarrow(compression="gzip", row_group_size=1000),
    "odd row groups": with_odd_groups,
    "page index": by_pyarrow(write_page_index=True, write_page_checksum=True, max_rows_per_page=10),
    "other encodings": by_pyarrow(use_dictionary=False, use_byte_stream_split=["number"], version="1.0"),
    "bloom filters": by_pyarrow(bloom_filter_options={"id": {"ndv": 300}, "text": {"ndv": 5}}),
    "no statistics": by_pyarrow(write_statistics=False, sorting_columns=[pq.SortingColumn(0)]),
    "DuckDB": by_duckdb,
    "delta-rs": by_delta_rs,
}


def read(file: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(file), page_checksum_verification=True)


def rows(table: pa.Table) -> list[str]:
    """Rows as text, in which zeros have signs and NaN is equal to itself."""
    return [str(row) for row in table.to_pylist()]


def by_readers(file: bytes, directory: Path) -> dict[str, list[str]]:
    """The rows of a file, by reader."""
    path = directory / "read.parquet"
    path.write_bytes(file)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"FROM read_parquet('{path}')").to_arrow_table()
    return {"pyarrow": rows(read(file)), "DuckDB": rows(found)}


def sizes(file: bytes) -> list[int]:
    metadata = pq.read_metadata(io.BytesIO(file))
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def alone(name: str, values: pa.Array, groups: list[int], **options: Any) -> memoryview:
    """A file with one column, and row groups of these sizes."""
    sink = io.BytesIO()
    schema = pa.schema([pa.field(name, values.type)])
    with pq.ParquetWriter(sink, schema, store_schema=False, **options) as writer:
        start = 0
        for size in groups:
            writer.write_table(pa.table([values.slice(start, size)], schema))
            start += size
    return sink.getbuffer()


def spliced(file: bytes, columns: Columns, added: Columns | None = None, **options: Any) -> bytes:
    sink, groups = io.BytesIO(), sizes(file)
    pieces = [(alone(name, values, groups, **options), name) for name, values in columns.items()]
    more = [(alone(name, values, groups, **options), None) for name, values in (added or {}).items()]
    splice(memoryview(file), [*pieces, *more], sink)
    return sink.getvalue()
