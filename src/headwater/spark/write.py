"""Writing a DataFrame to a table: one Spark job for the files, one commit for the log (`hw.write`).

A write is: open the table, decide what it shall become, turn the data into its rows, write files, and commit. Nothing
is visible before the commit; files of a write that fails are left for VACUUM.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import TableNotFoundError, WriteOptionError
from headwater.features.context import table_context
from headwater.log.opening import open_snapshot
from headwater.spark.functions import functions_for_connect, is_connect
from headwater.spark.time_travel import session_zone
from headwater.spark.write_attempt import FileSizes, WriteAgainError, WriteAttempt
from headwater.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from pyspark.sql import DataFrame

    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed
    from headwater.spark.write_options import WriteOptions

_MAX_REWRITES = 20
"""How often data is written again for a table that another writer has changed: each time somebody else succeeded."""


@dataclass(frozen=True, slots=True)
class Written:
    """A write that has happened."""

    version: int
    """The version of the table that it made."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    """What the history says about it: `numFiles`, `numOutputRows`, `numOutputBytes`, `numRemovedFiles`, ..."""


def write(
    df: DataFrame,
    path: str | PathLike[str],
    mode: str = "error",
    *,
    partition_by: str | Sequence[str] | None = None,
    cluster_by: str | Sequence[str] | None = None,
    replace_where: str | None = None,
    partition_overwrite: str | None = None,
    merge_schema: bool | None = None,
    overwrite_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    data_change: bool = True,
    max_records_per_file: int | None = None,
    target_file_size: int | None = None,
    optimize_write: bool | None = None,
    compression: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Written | None:
    """Write a DataFrame to a Delta table, in one commit. Creates the table if there is none.

    Columns are matched by name, in any case. Those that the table has and the data lacks become null, or get their
    default, generated or identity value. Values are converted where none is lost by it.

    Args:
        df: the data.
        path: the table: a path or URI.
        mode: `append`, `overwrite`, `error` (or `errorifexists`: there must be no table yet), or `ignore` (do nothing
            if there is one).
        partition_by: the partition columns of a table that is created or replaced.
        cluster_by: its clustering columns; a table has one or the other.
        replace_where: with `overwrite`: replace only the rows that match this condition in SQL. All rows of the data
            must match it. A condition on partition columns removes whole files; any other one rewrites files.
        partition_overwrite: with `overwrite`: `dynamic` replaces only the partitions that the data has rows for. By
            default what `spark.sql.sources.partitionOverwriteMode` says.
        merge_schema: add columns that the table lacks, and widen types where the table allows it
            (`delta.enableTypeWidening`). By default what `spark.databricks.delta.schema.autoMerge.enabled` says.
        overwrite_schema: with `overwrite`: replace schema and partitioning of the table by the data's.
        properties: table properties of a table that is created or replaced (`delta.appendOnly`, ...).
        txn: an application id and a version: the write is skipped if this application has already written this
            version or a later one. So a job that is run again writes nothing twice.
        user_metadata: a note for the history.
        data_change: False says that the rows are those of the table (or of `replace_where`) in another arrangement.
        max_records_per_file: a file gets no more rows than this.
        target_file_size: about how many bytes a file shall have.
        optimize_write: shuffle the rows first, so that there are fewer and larger files.
        compression: of the Parquet files: `snappy`, `zstd`, ...
        storage_options: options of the object store.

    Returns:
        The version that was made and its metrics; None if nothing had to be written (`ignore`, `txn`).

    Raises:
        SchemaMismatchError: columns or types do not fit the table's; the message lists the differences.
        ConstraintViolationError: a row breaks a rule of the table.
        ValueConversionError: a value cannot be kept in the type of its column.
        TableAlreadyExistsError: the mode is `error`, and there is a table; or there is a search table.
        InvalidCommitError: there is no table, but there are files, such as those of a directory of plain Parquet
            (`DeltaTable.convertToDelta` makes a table of it); or the table only allows appends.
        DeltaConcurrentModificationException: another writer's commit stands in the way.
        WriteOptionError: the options contradict each other, or the table.

    Example:
        >>> write(df, "/data/events", mode="append", partition_by="date").version  # doctest: +SKIP
        0
    """
    if not hasattr(df, "sparkSession"):
        raise WriteOptionError(f"hw.write writes a Spark DataFrame, not {type(df).__name__}: make one of it first.")
    if df.isStreaming:
        raise WriteOptionError("hw.write writes a DataFrame that is complete: write a stream batch by batch.")
    options = parse_write_options(
        df.sparkSession,
        mode=mode,
        partition_by=partition_by,
        cluster_by=cluster_by,
        replace_where=replace_where,
        partition_overwrite=partition_overwrite,
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        properties=properties,
        txn=txn,
        user_metadata=user_metadata,
        data_change=data_change,
        storage_options=storage_options,
    )
    sizes = FileSizes(max_records_per_file, target_file_size, optimize_write, compression)
    ctx = table_context(path, storage_options, time_zone=session_zone(df.sparkSession))
    with functions_for_connect() if is_connect(df) else nullcontext():
        for number in range(1, _MAX_REWRITES + 1):
            attempt = WriteAttempt(df, ctx, _newest(ctx), options, sizes)
            try:
                done = attempt.run()
                return None if done is None else _written(df, *done, options)
            except WriteAgainError as again:
                if number == _MAX_REWRITES:
                    raise again.conflict from None
    raise AssertionError("the last attempt returns or raises")


def _written(df: DataFrame, committed: Committed, metrics: Mapping[str, int], options: WriteOptions) -> Written:
    """The result of a write, after what a write may bring with it: many small files are joined, if that is wanted."""
    from headwater.spark.maintenance.optimize_auto import compact_after_write

    if options.data_change:
        compact_after_write(df.sparkSession, committed.snapshot, options.storage_options)
    return Written(committed.version, metrics)


def _newest(ctx: LogContext) -> Snapshot | None:
    try:
        return open_snapshot(ctx)
    except TableNotFoundError:
        return None
