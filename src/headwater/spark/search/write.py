"""Writing a DataFrame to a search table: executors build splits in their final places, one commit names them all.

Nothing is visible before the commit. Splits of a write that fails are removed where that is possible; PURGE
deletes the rest, which no version names. Every attempt of a task writes splits of its own; only what the successful
attempt returns reaches the log.

Columns are matched by name. A search table's schema never changes (spec 002, "Schema Evolution"), so what the table has
no column for is refused. Rows of a partitioned table come sorted, so that one split is open at a time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headwater.errors import DeltaConcurrentModificationException, SchemaMismatchError, StorageError, WriteOptionError
from headwater.log.actions.paths import partition_directory
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.files.arrow import same_value_runs
from headwater.log.indextables.actions import SplitRemove, read_add
from headwater.log.schema import STRING, StructType
from headwater.log.schema.types import quoted
from headwater.log.stats.values import partition_text
from headwater.parquet.write import open_places
from headwater.search.config import IndexConfig
from headwater.search.split.build import SplitWriter
from headwater.spark.errors import explained_failures, explained_violations
from headwater.spark.functions import functions, functions_for
from headwater.spark.search.splits import SplitPlaces, absolute_path, check_reachable
from headwater.spark.workers import in_workers
from headwater.spark.write.constraints import null_checks, with_checks
from headwater.spark.write.schema import as_table, by_folded_name, differences
from headwater.spark.write.values import conformed, declared_type, null_of
from headwater.spark.write.write import Written
from headwater.storage.durable import sync_directory, sync_file
from headwater.storage.errors import from_os_error
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.log.filters.expressions import Expression
    from headwater.log.indextables.actions import SplitAdd
    from headwater.log.schema import StructField
    from headwater.log.snapshot import Snapshot
    from headwater.search.split.build import BuiltSplit
    from headwater.spark.search.table import OpenTable


_MODES = ("append", "overwrite")
_MAX_COMMITS = 20


def write(
    df: DataFrame,
    table: OpenTable,
    *,
    mode: str = "append",
    max_records_per_split: int | None = None,
    user_metadata: str | None = None,
) -> Written:
    """Index the rows of a DataFrame, in one commit; see `SearchTable.write`."""
    _check(df, mode, max_records_per_split)
    check_reachable(table.uri)
    adds = build_splits(df, table, max_records_per_split)
    return commit_splits(table.snapshot, adds, mode, user_metadata)


def commit_splits(snapshot: Snapshot, adds: list[SplitAdd], mode: str, user_metadata: str | None) -> Written:
    """Make new splits visible, in the place of all others if they overwrite the table."""
    metrics = {
        "numFiles": len(adds),
        "numOutputRows": sum(add.num_records or 0 for add in adds),
        "numOutputBytes": sum(add.size for add in adds),
    }
    for attempts_left in reversed(range(_MAX_COMMITS)):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add(adds)
        if mode == "overwrite":
            removes = removes_of(snapshot, None, reason="overwrite")
            transaction.reads_whole_table()
            transaction.remove(removes)
            metrics["numRemovedFiles"] = len(removes)
        operation = Operation("WRITE", {"mode": mode.capitalize()}, metrics, user_metadata)
        try:
            return Written(transaction.commit(operation).version, metrics)
        except DeltaConcurrentModificationException:
            # The new rows do not depend on the old ones: what others have committed is replaced too.
            if mode != "overwrite" or not attempts_left:
                raise
            snapshot = snapshot.refresh()
    raise AssertionError("the last attempt returns or raises")


def build_splits(df: DataFrame, table: OpenTable, max_records_per_split: int | None = None) -> list[SplitAdd]:
    """Index the rows of a DataFrame; the log does not name the splits yet.

    When it returns, the splits are complete and, on a local disk, flushed: a commit may name them.
    """
    snapshot = table.snapshot
    partition_columns = tuple(snapshot.schema.field(name).name for name in snapshot.partition_columns)
    plan = SplitsPlan(
        uri=snapshot.uri,
        storage_options=snapshot.ctx.storage_options,
        schema_json=snapshot.schema.to_json(),
        doc_mapping=table.config.to_json(),
        partition_columns=partition_columns,
        max_records=max_records_per_split,
    )

    def index(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_split_rows(plan, batches)

    with (
        functions_for(df),
        explained_violations(snapshot.uri),
        explained_failures(f"write the splits of {snapshot.uri}"),
    ):
        rows = split_rows(df, snapshot.schema, partition_columns, snapshot.uri)
        written = in_workers(rows, index, ADD_SCHEMA).collect()
    adds = [read_add(row.add.encode(), "the result of a task") for row in written]
    check_shared(table, adds)
    return adds


def removes_of(snapshot: Snapshot, where: Expression | None, **tags: str) -> list[SplitRemove]:
    """Return the `remove` actions for the splits that may match a condition; for all of them without one."""
    files = snapshot.files(where, ["path", "partitionValues", "size"])
    now_ms = snapshot.ctx.clock_ms()
    return [
        SplitRemove(
            path,
            data_change=True,
            deletion_timestamp=now_ms,
            partition_values=dict(values or ()),
            size=size,
            tags=dict(tags) or None,
        )
        for path, values, size in zip(*(files.column(name).to_pylist() for name in files.column_names), strict=True)
    ]


def check_shared(table: OpenTable, adds: list[SplitAdd]) -> None:
    """Raise unless the driver finds the splits on a local disk too: a commit must not name what others cannot read."""
    location = parse_uri(table.uri)
    if location.kind != "local":
        return
    places = SplitPlaces(table.uri, table.snapshot.ctx.storage_options)
    for add in adds:
        _, key = places.place(add.path)
        path = f"{location.path.rstrip('/')}/{key}"
        if not os.path.exists(path) or os.path.getsize(path) != add.size:
            raise StorageError(
                f"an executor wrote {path}, and it is not there for the driver: a table on a local path must be on a "
                "disk that the driver and all executors share"
            )


def _check(df: Any, mode: str, max_records_per_split: int | None) -> None:
    if not hasattr(df, "sparkSession"):
        raise WriteOptionError(
            f"a search table takes a Spark DataFrame, not {type(df).__name__}: make one of it first."
        )
    if df.isStreaming:
        raise WriteOptionError("a search table takes a DataFrame that is complete: write a stream batch by batch.")
    if mode not in _MODES:
        raise WriteOptionError(f"the mode of a write to a search table is append or overwrite, not {mode!r}.")
    if max_records_per_split is not None and (type(max_records_per_split) is not int or max_records_per_split < 1):
        raise WriteOptionError(f"max_records_per_split is a positive whole number, not {max_records_per_split!r}.")


def split_rows(df: DataFrame, schema: StructType, partition_columns: Sequence[str], uri: str) -> DataFrame:
    """Return the rows of a DataFrame with exactly the columns and types of a search table, sorted for its splits.

    The columns are named by their number, because PySpark does not give columns with dots in their names to a function.
    """
    data = StructType.from_spark(df.schema)
    found = list(differences(data, schema))
    if found:
        raise SchemaMismatchError(
            f"the DataFrame does not fit the search table {uri}, whose schema cannot change:\n{as_table(found)}"
        )
    given = by_folded_name(data)
    frame = df.select(*(_value(field, given, partition_columns).alias(field.name) for field in schema.fields))
    frame = with_checks(frame, schema, null_checks(schema))
    if partition_columns:
        # One open split at a time, however many partitions a task meets.
        frame = frame.sortWithinPartitions(*(functions().col(quoted(name)) for name in partition_columns))
    return frame.toDF(*(f"c{number}" for number in range(len(schema))))


def _value(field: StructField, given: dict[str, StructField], partition_columns: Sequence[str]) -> Column:
    own = given.get(field.name.lower())
    if own is None:
        return null_of(field.type)
    sf = functions()
    value: Column = conformed(sf.col(quoted(own.name)), own.type, declared_type(field), (field.name,))
    if field.name in partition_columns and field.type == STRING:
        # The log has no text for empty text: it is null there, so it is null in the rows.
        return sf.nullif(value, sf.lit(""))
    return value


ADD_SCHEMA = "add string"
"""One row for each split: its `add` action as JSON."""


@dataclass(frozen=True)
class SplitsPlan:
    """What all tasks of one write have in common. It travels to the executors."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    schema_json: str
    doc_mapping: str
    partition_columns: tuple[str, ...]
    max_records: int | None = None
    """A split gets no more rows than this."""


def write_split_rows(plan: SplitsPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Index the rows of a task, in a Python worker; the result is a row of `ADD_SCHEMA` for each split."""
    from pyspark import TaskContext

    context = TaskContext.get()
    with tempfile.TemporaryDirectory(prefix="headwater-splits-") as directory:
        writer = SplitTask(plan, 0 if context is None else context.partitionId(), directory)
        try:
            for batch in batches:
                writer.write(batch.rename_columns(writer.names))
            adds = writer.finish()
        except BaseException:
            writer.abandon()
            raise
    yield adds_batch(adds)


def adds_batch(adds: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(adds, pa.string())], names=["add"])


class SplitTask:
    """Writes the splits of one task, one after the other."""

    def __init__(self, plan: SplitsPlan, task: int, directory: str) -> None:
        self._plan = plan
        self._task = task
        self._directory = directory
        self._schema = StructType.from_json(plan.schema_json)
        self._config = IndexConfig.from_json(plan.doc_mapping)
        self._placer = SplitPlacer(plan.uri, plan.storage_options)
        self._adds: list[str] = []
        self._open: SplitWriter | None = None
        self._rows = 0
        self._values: tuple[str | None, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self._schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        names = self._plan.partition_columns
        if not names:
            self._append(batch)
            return
        columns = [batch.column(name) for name in names]
        for start, end in pairwise(same_value_runs(columns)):
            values = tuple(
                partition_text(column[start], self._schema.field(name).type, name)
                for column, name in zip(columns, names, strict=True)
            )
            if values != self._values:
                self._close()
                self._values = values
            self._append(batch.slice(start, end - start))

    def finish(self) -> list[str]:
        """Close the last split, and return all `add` actions of the task."""
        self._close()
        return self._adds

    def abandon(self) -> None:
        """Remove the splits of an attempt that failed, as far as that is possible."""
        if self._open is not None:
            self._open.abandon()
        self._placer.remove_all()

    def _append(self, rows: pa.RecordBatch) -> None:
        """Add rows with the same partition values, to as many splits as the limit demands."""
        limit = self._plan.max_records
        while rows.num_rows:
            fitting = rows if limit is None else rows.slice(0, limit - self._rows)
            self._current().add(fitting)
            self._rows += fitting.num_rows
            rows = rows.slice(fitting.num_rows)
            if limit is not None and self._rows >= limit:
                self._close()

    def _current(self) -> SplitWriter:
        if self._open is None:
            self._open = SplitWriter(self._config, self._schema, self._directory)
            self._rows = 0
        return self._open

    def _close(self) -> None:
        if self._open is None:
            return
        built = self._open.finish()
        self._open = None
        self._rows = 0
        values = dict(zip(self._plan.partition_columns, self._values, strict=True))
        self._adds.append(self._placer.place(built, self._task, values))


class SplitPlacer:
    """Puts complete splits to their place below a table."""

    def __init__(self, uri: str, storage_options: dict[str, str] | None) -> None:
        location = parse_uri(uri)
        self._root = location.path.rstrip("/") if location.kind == "local" else None
        self._uri = uri
        self._places = open_places(uri, storage_options)
        self._placed: list[str] = []

    def place(self, built: BuiltSplit, task: int, values: dict[str, str | None], *, data_change: bool = True) -> str:
        """Move a split to a new unique name, and return its `add` action as JSON.

        `task` is the number of the task, for the name; `data_change` is False if the rows are those of other splits.
        """
        key = new_key(task, values)
        self._placed.append(key)
        if self._root is None:
            stored = self._places.finish(key, built.path)
        else:
            path = self._places.path(key)
            try:
                _move(built.path, path)
            except OSError as error:
                raise from_os_error(error, "write", path, writing=True) from error
            stored = self._places.finish(key, path)
        add = built.to_add(
            absolute_path(self._uri, key), values, modified_ms=stored.modified_ms, data_change=data_change
        )
        return msgspec.json.encode(add).decode()

    def remove_all(self) -> None:
        """Remove what was placed, as far as that is possible: no log names it."""
        for key in self._placed:
            self._places.remove(key)


def new_key(task: int, values: dict[str, str | None]) -> str:
    """Return the key of a new split, relative to the table.

    >>> new_key(3, {"day": "2024-01-31"})  # doctest: +ELLIPSIS
    'day=2024-01-31/part-00003-....split'
    """
    name = f"part-{task:05}-{uuid.uuid4()}.split"
    directory = partition_directory(values)
    return f"{directory}/{name}" if directory else name


def _move(source: str, target: str) -> None:
    """Move a file onto an empty one, and flush it: a commit that is durable must not name less."""
    try:
        os.replace(source, target)
    except OSError:  # another disk
        shutil.copyfile(source, target)
        with contextlib.suppress(OSError):
            os.unlink(source)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(os.path.dirname(target))
