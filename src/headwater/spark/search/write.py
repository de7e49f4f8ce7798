"""Writing a DataFrame to a search table: executors build splits in their final places, one commit names them all.

Nothing is visible before the commit. Splits of a write that fails are removed where that is possible; what is left is
garbage that nobody sees, and PURGE deletes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headwater.errors import DeltaConcurrentModificationException, StorageError, WriteOptionError
from headwater.log.draft import Operation
from headwater.log.split_actions import SplitRemove, read_add
from headwater.log.transaction import Transaction
from headwater.spark.failures import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.search.scan import check_reachable
from headwater.spark.search.split_places import SplitPlaces
from headwater.spark.search.split_rows import split_rows
from headwater.spark.search.task_writer import ADD_SCHEMA, SplitsPlan, write_split_rows
from headwater.spark.violations import explained_violations
from headwater.spark.workers import in_workers
from headwater.spark.write import Written
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headwater.log.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.log.split_actions import SplitAdd
    from headwater.spark.search.opening import OpenTable

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
            # The new rows do not depend on the old ones: whatever somebody else has committed is replaced too.
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
        storage_options=None if table.storage_options is None else dict(table.storage_options),
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
    """The `remove` actions for the splits that may match a condition; for all of them without one."""
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
    """See that splits on a local disk are there for the driver too: a commit must not name what nobody can read."""
    location = parse_uri(table.uri)
    if location.kind != "local":
        return
    places = SplitPlaces(table.uri, table.storage_options)
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
