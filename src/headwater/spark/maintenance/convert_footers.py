"""What the footers of Parquet files tell about them, read by Spark's executors: the schema and the statistics.

No row is read. A bound is taken over only where the footer's order is that of Delta: not for NaN under other writers
than Spark's, not for units or calendars that Delta does not have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import CorruptLogError, HeadwaterError, SchemaError
from headwater.log.parquet import ParquetObject
from headwater.log.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from headwater.spark.evolution import as_data_schema
from headwater.spark.failures import explained_failures
from headwater.spark.file_statistics import statistics_json
from headwater.spark.indexed_columns import leaves, width
from headwater.spark.workers import dealt, in_workers
from headwater.storage import ObjectMeta, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    from headwater.log.schema import DataType
    from headwater.spark.indexed_columns import Leaf
    from headwater.storage import ObjectStore

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_RESULT = "key string, schema string, stats string"
_RESULT_SCHEMA = pa.schema([("key", pa.string()), ("schema", pa.string()), ("stats", pa.string())])
_FILES_PER_TASK = 64
_MOST_TASKS = 200


class NotParquetError(HeadwaterError):
    """A file in a directory of Parquet files is not one."""


@dataclass(frozen=True)
class FooterReader:
    """Reads footers below one location; it travels to the executors."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    num_indexed: int
    """How many leaves get statistics; all if negative."""
    prefix_length: int

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: files by key and size in, what is known of them out."""
        store = open_store(self.uri, self.storage_options)
        for batch in batches:
            rows = [self._row(store, row["key"], row["size_bytes"]) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _RESULT_SCHEMA)

    def _row(self, store: ObjectStore, key: str, size_bytes: int) -> dict[str, str]:
        file = ParquetObject(store, ObjectMeta(key, size_bytes, 0))
        try:
            footer = file.metadata
            schema = schema_of(footer, file.schema)
        except CorruptLogError as error:
            raise NotParquetError(
                f"{self.uri} cannot be converted: {key} is not a Parquet file ({error}). Move it away, or give it a "
                "name that starts with an underscore."
            ) from error
        except SchemaError as error:
            raise SchemaError(f"{self.uri} cannot be converted, because of {key}: {error}") from error
        return {"key": key, "schema": as_data_schema(schema).to_json(), "stats": self._statistics(footer, schema)}

    def _statistics(self, footer: pq.FileMetaData, schema: StructType) -> str:
        found = leaves(schema)
        indexed = found if self.num_indexed < 0 else found[: self.num_indexed]
        if footer.num_columns != width(schema):
            indexed = []
        trusted = [leaf for leaf in indexed if not leaf.has_bounds or _has_same_order(footer, leaf)]
        return statistics_json(footer, trusted, self.prefix_length)


def read_footers(spark: SparkSession, files: pa.Table, reader: FooterReader) -> pa.Table:
    """The schemas and statistics of files, by one Spark job.

    Args:
        spark: the session.
        files: columns `key` (text) and `size_bytes`.
        reader: says where they are, and which statistics are wanted.

    Returns:
        Columns `key`, `schema` (JSON) and `stats` (JSON).
    """
    tasks = min(_MOST_TASKS, -(-files.num_rows // _FILES_PER_TASK))
    frame = dealt(spark, files.select(["key", "size_bytes"]), tasks, private=True)
    with explained_failures():
        return in_workers(frame, partial(FooterReader.read, reader), _RESULT).toArrow()


def schema_of(footer: pq.FileMetaData, schema: pa.Schema) -> StructType:
    """The columns of a file: as Spark noted them if it wrote the file, else by Parquet's types.

    Raises:
        SchemaError: Delta cannot hold a column.
    """
    noted: Mapping[bytes, bytes] = footer.metadata or {}
    if _SPARK_SCHEMA in noted:
        return StructType.from_json(noted[_SPARK_SCHEMA].decode())
    plain = StructType.from_arrow(schema.remove_metadata())
    columns = iter(range(footer.num_columns))
    return StructType([StructField(f.name, _typed(f.type, footer, columns), f.nullable) for f in plain.fields])


def _typed(type_: DataType, footer: pq.FileMetaData, columns: Iterator[int]) -> DataType:
    """The type, with Parquet's oldest form of timestamps as what Spark takes it for: an instant."""
    match type_:
        case StructType(fields=fields):
            return StructType([StructField(f.name, _typed(f.type, footer, columns), f.nullable) for f in fields])
        case ArrayType(element_type=element, contains_null=nullable):
            return ArrayType(_typed(element, footer, columns), nullable)
        case MapType(key_type=key, value_type=value, value_contains_null=nullable):
            return MapType(_typed(key, footer, columns), _typed(value, footer, columns), nullable)
    column = footer.schema.column(next(columns))
    if column.physical_type == "INT96":
        return TIMESTAMP
    logical = _logical(column)
    if logical.get("timeUnit") == "nanoseconds":
        raise SchemaError(f"column {column.path} counts nanoseconds, and Delta's timestamps count microseconds")
    if logical.get("Type") == "Float16":
        raise SchemaError(f"column {column.path} holds numbers of 16 bits, which Spark does not read")
    return type_


def _logical(column: Any) -> dict[str, Any]:
    text = column.logical_type.to_json() if column.logical_type is not None else "{}"
    found: dict[str, Any] = json.loads(text)
    return found


def _has_same_order(footer: pq.FileMetaData, leaf: Leaf) -> bool:
    """Whether the bounds of a leaf in the footer are bounds in Delta's sense."""
    column = footer.schema.column(leaf.column)
    if leaf.type in (FLOAT, DOUBLE):
        # Other writers leave NaN out of the bounds, and for Delta it is the greatest of all.
        return str(footer.created_by or "").startswith("parquet-mr")
    if leaf.type in (TIMESTAMP, TIMESTAMP_NTZ) and _logical(column).get("timeUnit") != "microseconds":
        return False
    if leaf.type in (DATE, TIMESTAMP) and any(key in (footer.metadata or {}) for key in _OLD_CALENDAR):
        return False
    return not str(column.converted_type or "").startswith("UINT")
