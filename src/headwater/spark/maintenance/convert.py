"""Run CONVERT TO DELTA: a directory of Parquet files becomes a table, in place and without rewriting any of them.

Files are found by listing in parallel, their schemas and statistics come from their footers (Spark's executors read
them), and partition values from the names of directories. One commit names all files. If it fails, nothing has changed.
A bound is taken over only where the footer's order is that of Delta: not for NaN under other writers than Spark's, not
for units or calendars that Delta does not have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.commands.table_keys import nested_roots
from headwater.errors import (
    CorruptLogError,
    InvalidCommitError,
    NotParquetError,
    SchemaError,
    SchemaMismatchError,
    TableNotFoundError,
)
from headwater.features.definition import TableDefinition, new_table, set_table
from headwater.log.actions.model import Add
from headwater.log.actions.paths import parse_partition_directory
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.files.listing import check_no_other_log, list_tree
from headwater.log.files.parquet import ParquetObject
from headwater.log.opening import open_snapshot
from headwater.log.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_string,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.stats.columns import DEFAULT_INDEXED_COLUMNS
from headwater.log.stats.values import parse_text, partition_text
from headwater.parquet.plan import DEFAULT_TEXT_PREFIX_LENGTH, leaves, log_path, width
from headwater.parquet.stats import statistics_json
from headwater.spark.errors import explained_failures
from headwater.spark.workers import distribute, in_workers
from headwater.spark.write.schema import as_data_schema, merged
from headwater.storage import ObjectMeta, ObjectStore, open_store
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    from headwater.log.context import LogContext
    from headwater.log.stats.decode import Leaf
    from headwater.spark.session import SparkTable


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """A directory of Parquet files, and the columns that its directories are named after, in order."""

    table: SparkTable
    partition_columns: StructType | None = None


def convert(request: ConvertRequest) -> None:
    """Make a Delta table of a directory of Parquet files; a directory that is one already stays as it is.

    Raises:
        TableNotFoundError: there are no files.
        TableAlreadyExistsError: there is a search table.
        InvalidCommitError: there is a table in a directory below.
        SchemaMismatchError: the directories have other partition columns, or files contradict each other.
        NotParquetError: a file is not Parquet.
    """
    ctx = request.table.context()
    if _is_table(ctx):
        return
    check_no_other_log(ctx)
    files = _files(ctx)
    columns = () if request.partition_columns is None else request.partition_columns.fields
    values = partition_values_of(_directories(files).unique().to_pylist(), columns, ctx.uri, ctx.time_zone)
    read = read_footers(request.table.spark, files, _reader(ctx))
    definition = _definition(ctx, read, columns)
    adds = _adds(files, read, values)
    transaction = Transaction(ctx, None)
    set_table(transaction, definition)
    transaction.add(adds)
    parameters: dict[str, Any] = {
        "numFiles": len(adds),
        "partitionedBy": [column.name for column in columns],
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    transaction.commit(Operation("CONVERT", parameters, {"numConvertedFiles": len(adds)}))


def _is_table(ctx: LogContext) -> bool:
    try:
        open_snapshot(ctx)
    except TableNotFoundError:
        return False
    return True


def _files(ctx: LogContext) -> pa.Table:
    """List the files: all but hidden ones. A directory of a column that starts with an underscore is not hidden."""

    def enters(prefix: str) -> bool:
        name = prefix.rstrip("/").rpartition("/")[2]
        return not name.startswith(".") and (not name.startswith("_") or "=" in name)

    tree = list_tree(ctx.store, enters)
    inner = sorted(nested_roots(tree.closed))
    if inner:
        raise InvalidCommitError(
            f"{ctx.uri} cannot be converted: there is a table in {inner[0]!r} already, whose files belong to it."
        )
    found = tree.objects
    names = pc.replace_substring_regex(found.column("key"), pattern="^(?s:.*)/", replacement="")
    found = found.filter(pc.invert(pc.match_substring_regex(names, "^[_.]")))
    if not found.num_rows:
        raise TableNotFoundError(f"{ctx.uri} cannot be converted: there are no files in it.")
    try:
        text = found.column("key").cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidCommitError(f"{ctx.uri} cannot be converted: the name of a file is no UTF-8 text.") from error
    return found.set_column(0, "key", text).sort_by("key")


def _directories(files: pa.Table) -> pa.ChunkedArray:
    return pc.replace_substring_regex(files.column("key"), pattern="[^/]*$", replacement="")


def _reader(ctx: LogContext) -> FooterReader:
    if parse_uri(ctx.uri).kind == "memory":
        raise InvalidCommitError(f"{ctx.uri} is in the memory of this process, where no executor can read it.")
    return FooterReader(ctx.uri, ctx.storage_options, DEFAULT_INDEXED_COLUMNS, DEFAULT_TEXT_PREFIX_LENGTH)


def _definition(ctx: LogContext, read: pa.Table, columns: tuple[StructField, ...]) -> TableDefinition:
    """Return the table: the columns of all files, then the partition columns."""
    by_schema = read.group_by("schema").aggregate([("key", "min")]).sort_by("key_min")
    names = {column.name.lower() for column in columns}
    schema = StructType([])
    for text, key in zip(by_schema.column("schema").to_pylist(), by_schema.column("key_min").to_pylist(), strict=True):
        found = StructType([f for f in StructType.from_json(text).fields if f.name.lower() not in names])
        _check_same(schema, found, (), f"{ctx.uri} cannot be converted: in {key}, column")
        schema = merged(schema, found, widening=False)
    whole = StructType([*schema.fields, *(StructField(c.name, c.type) for c in columns)])
    return new_table(
        whole,
        partition_columns=[column.name for column in columns],
        id=ctx.new_id(),
        created_ms=ctx.clock_ms(),
        new_id=ctx.new_id,
    )


def _check_same(known: DataType, found: DataType, path: tuple[str, ...], what: str) -> None:
    """Raise unless columns that two files share have the same types."""
    match known, found:
        case StructType(), StructType():
            by_name = {f.name.lower(): f for f in known.fields}
            for field in found.fields:
                if field.name.lower() in by_name:
                    _check_same(by_name[field.name.lower()].type, field.type, (*path, field.name), what)
        case ArrayType(), ArrayType():
            _check_same(known.element_type, found.element_type, (*path, "element"), what)
        case MapType(), MapType():
            _check_same(known.key_type, found.key_type, (*path, "key"), what)
            _check_same(known.value_type, found.value_type, (*path, "value"), what)
        case _ if known != found:
            raise SchemaMismatchError(
                f"{what} {'.'.join(path)} is {found}, and other files have {known}: rewrite the ones or the others."
            )


def _adds(files: pa.Table, read: pa.Table, values: dict[str, dict[str, str | None]]) -> list[Add]:
    rows = files.append_column("directory", _directories(files)).join(read.select(["key", "stats"]), "key").to_pylist()
    assert len(rows) == files.num_rows, "every footer was read"
    return [
        Add(
            path=log_path(row["key"]),
            size=row["size_bytes"],
            partition_values=values[row["directory"]],
            modification_time=row["modified_ms"],
            stats=row["stats"],
        )
        for row in sorted(rows, key=lambda row: row["key"])
    ]


_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_RESULT = "key string, schema string, stats string"
_RESULT_SCHEMA = pa.schema([("key", pa.string()), ("schema", pa.string()), ("stats", pa.string())])
_FILES_PER_TASK = 64
_MOST_TASKS = 200


@dataclass(frozen=True)
class FooterReader:
    """Reads footers below one location; it is sent to the executors."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    num_indexed: int
    """How many leaves get statistics; all if negative."""
    prefix_length: int

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read files by key and size; made for `mapInArrow`."""
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
    """Read the schemas and statistics of files, by one Spark job.

    Args:
        files: columns `key` (text) and `size_bytes`.
        reader: says where they are, and which statistics are wanted.

    Returns:
        Columns `key`, `schema` (JSON) and `stats` (JSON).
    """
    tasks = min(_MOST_TASKS, -(-files.num_rows // _FILES_PER_TASK))
    frame = distribute(spark, files.select(["key", "size_bytes"]), tasks, private=True)
    with explained_failures():
        return in_workers(frame, partial(FooterReader.read, reader), _RESULT).toArrow()


def schema_of(footer: pq.FileMetaData, schema: pa.Schema) -> StructType:
    """Return the columns of a file: as Spark noted them if it wrote the file, else by Parquet's types.

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
    """Return the type; INT96 timestamps are instants, as for Spark."""
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
    """Return whether the bounds of a leaf in the footer are bounds in Delta's sense."""
    column = footer.schema.column(leaf.column)
    if leaf.type in (FLOAT, DOUBLE):
        # Other writers leave NaN out of the bounds, and for Delta it is the greatest of all.
        return str(footer.created_by or "").startswith("parquet-mr")
    if leaf.type in (TIMESTAMP, TIMESTAMP_NTZ) and _logical(column).get("timeUnit") != "microseconds":
        return False
    if leaf.type in (DATE, TIMESTAMP) and any(key in (footer.metadata or {}) for key in _OLD_CALENDAR):
        return False
    return not str(column.converted_type or "").startswith("UINT")


def partition_values_of(
    directories: Iterable[str], columns: Sequence[StructField], uri: str, time_zone: str = "UTC"
) -> dict[str, dict[str, str | None]]:
    """Return the partition values of the files in each directory.

    Args:
        directories: prefixes below the location, such as `year=2024/month=1/`.
        columns: the partition columns, in the order of the directories.
        time_zone: of timestamps in directories that do not name theirs.

    Raises:
        SchemaMismatchError: the directories have other partition columns, or a value is not of its column's type.
    """
    return {directory: _values(directory, columns, uri, time_zone) for directory in directories}


def _values(directory: str, columns: Sequence[StructField], uri: str, time_zone: str) -> dict[str, str | None]:
    found = [pair for part in directory.split("/") if (pair := parse_partition_directory(part)) is not None]
    names = [name for name, _ in found]
    wanted = [column.name for column in columns]
    if len(names) != len(wanted) or any(a.lower() != b.lower() for a, b in zip(names, wanted, strict=True)):
        raise SchemaMismatchError(
            f"{uri} cannot be converted: expecting {_listed(wanted)}, but {directory or 'its own directory'!r} has "
            f"{_listed(names)}. Say with partitionSchema which columns its directories are named after, and of which "
            "types they are."
        )
    return {c.name: _checked(text, c, directory, uri, time_zone) for c, (_, text) in zip(columns, found, strict=True)}


def _listed(names: list[str]) -> str:
    count = f"{len(names)} partition column{'' if len(names) == 1 else 's'}"
    return f"{count} ({', '.join(names)})" if names else count


def _checked(text: str | None, column: StructField, directory: str, uri: str, time_zone: str) -> str | None:
    """Return the value as the log has it."""
    if text is None or is_string(column.type):
        return text or None
    try:
        value = parse_text(pa.array([text]), column.type, time_zone).cast(type_to_arrow(column.type))[0]
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"{uri} cannot be converted: {text!r} in {directory!r} is no {column.type}, which the partition column "
            f"{column.name} is declared as ({error})."
        ) from error
    return partition_text(value, column.type, column.name)
