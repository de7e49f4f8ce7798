"""CONVERT TO DELTA: a directory of Parquet files becomes a table, in place and without rewriting any of them.

Files are found by listing in parallel, their schemas and statistics come from their footers (Spark's executors read
them), and partition values from the names of directories. One commit names all files. If it fails, nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidCommitError, SchemaMismatchError, TableNotFoundError
from headwater.features.context import table_context
from headwater.features.table_changes import new_table, set_table
from headwater.log.actions import Add
from headwater.log.draft import Operation
from headwater.log.indexed_columns import DEFAULT_INDEXED_COLUMNS
from headwater.log.opening import open_snapshot
from headwater.log.schema import ArrayType, MapType, StructField, StructType
from headwater.log.transaction import Transaction
from headwater.log.tree import check_no_other_log, list_tree
from headwater.maintenance.table_keys import nested_roots
from headwater.spark.evolution import merged
from headwater.spark.file_names import log_path
from headwater.spark.indexed_columns import DEFAULT_PREFIX_LENGTH
from headwater.spark.maintenance.convert_footers import FooterReader, read_footers
from headwater.spark.maintenance.convert_partitions import partition_values_of
from headwater.spark.time_travel import session_zone
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from headwater.features.table_changes import TableDefinition
    from headwater.log.context import LogContext
    from headwater.log.schema import DataType


def convert(
    spark: SparkSession,
    path: str,
    partition_columns: StructType | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Make a Delta table of a directory of Parquet files; a directory that is one already stays as it is.

    Args:
        spark: the session.
        path: the directory.
        partition_columns: the columns that directories are named after, with their types, in order.
        storage_options: options of the object store.

    Raises:
        TableNotFoundError: there are no files.
        TableAlreadyExistsError: there is a search table.
        InvalidCommitError: there is a table in a directory below.
        SchemaMismatchError: the directories have other partition columns, or files contradict each other.
        NotParquetError: a file is not Parquet.
    """
    ctx = table_context(path, storage_options, time_zone=session_zone(spark))
    if _is_table(ctx):
        return
    check_no_other_log(ctx)
    files = _files(ctx)
    columns = () if partition_columns is None else partition_columns.fields
    values = _partition_values(ctx, files, columns)
    read = read_footers(spark, files, _reader(ctx, storage_options))
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
    """The files: all but hidden ones. A directory of a column that starts with an underscore is not hidden."""

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


def _partition_values(
    ctx: LogContext, files: pa.Table, columns: tuple[StructField, ...]
) -> dict[str, dict[str, str | None]]:
    return partition_values_of(_directories(files).unique().to_pylist(), columns, ctx.uri, ctx.time_zone)


def _reader(ctx: LogContext, storage_options: Mapping[str, str] | None) -> FooterReader:
    if parse_uri(ctx.uri).kind == "memory":
        raise InvalidCommitError(f"{ctx.uri} is in the memory of this process, where no executor can read it.")
    options = None if storage_options is None else dict(storage_options)
    return FooterReader(ctx.uri, options, DEFAULT_INDEXED_COLUMNS, DEFAULT_PREFIX_LENGTH)


def _definition(ctx: LogContext, read: pa.Table, columns: tuple[StructField, ...]) -> TableDefinition:
    """The table: the columns of all files, then the partition columns."""
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
