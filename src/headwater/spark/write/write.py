"""Write a DataFrame to a table: one Spark job for the files, one commit for the log (`hw.write`).

Each attempt opens the table, decides what it becomes, turns the data into its rows, writes files, and commits. Nothing
is visible before the commit; files of a write that fails are left for VACUUM. Losing the race for a version costs
nothing (`headwater.log.commit.transaction`). Only where the data itself depends on what another writer has changed is
there another attempt, with new files: identity values, `txn`, and a table that both create.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import (
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    InvalidCommitError,
    MetadataChangedException,
    TableAlreadyExistsError,
    TableNotFoundError,
    WriteOptionError,
)
from headwater.features.context import TableRef
from headwater.features.definition import TableDefinition, set_table
from headwater.features.registry import is_active
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.log.actions.model import Add, AddCdcFile, Remove, Txn
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Committed, Transaction
from headwater.log.files.listing import claimed
from headwater.log.files.live import all_files, removals
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.log.stats.add_stats import num_records
from headwater.spark.dml.delete import Replacement, check_condition, inserted, replaced
from headwater.spark.dml.target import write_target
from headwater.spark.errors import explained_violations
from headwater.spark.functions import functions_for
from headwater.spark.session import SparkTable
from headwater.spark.write.constraints import SqlRule
from headwater.spark.write.expression_checks import check_constraints
from headwater.spark.write.files import write_files
from headwater.spark.write.options import WriteOptions, parse_write_options
from headwater.spark.write.overwrite import files_of_partitions
from headwater.spark.write.rows import TableRows, table_rows
from headwater.spark.write.schema import as_data_schema, planned_table
from headwater.spark.write.values import with_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from pyspark.sql import DataFrame

    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.parquet.plan import WriteTarget


_MAX_REWRITES = 20
"""How often data is written again because another writer has changed the table."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write."""

    version: int
    """The version of the table that it made."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    """The metrics of the history: `numFiles`, `numOutputRows`, `numOutputBytes`, `numRemovedFiles`, ..."""


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
        target_file_size: about how many bytes a file gets.
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
        file_sizes={
            "max_records_per_file": max_records_per_file,
            "target_file_size": target_file_size,
            "optimize_write": optimize_write,
            "compression": compression,
        },
    )
    table = SparkTable(df.sparkSession, TableRef(path, storage_options))
    return write_table(WriteRequest(table, df, options))


@dataclass(frozen=True)
class WriteRequest:
    """The rows to write, the table that they go to, and how."""

    table: SparkTable
    rows: DataFrame
    options: WriteOptions


def write_table(request: WriteRequest) -> Written | None:
    """Write rows in one commit; None if nothing has to be written. See `write`."""
    ctx = request.table.context()
    with functions_for(request.rows):
        for number in range(1, _MAX_REWRITES + 1):
            attempt = WriteAttempt(request.rows, ctx, _newest(ctx), request.options)
            try:
                done = attempt.run()
                return None if done is None else _written(request, *done)
            except WriteAgainError as again:
                if number == _MAX_REWRITES:
                    raise again.conflict from None
    raise AssertionError("the last attempt returns or raises")


def _written(request: WriteRequest, committed: Committed, metrics: Mapping[str, int]) -> Written:
    """Return the result of a write, after auto-compaction, if that is on."""
    from headwater.spark.maintenance.optimize import compact_after_write

    if request.options.data_change:
        compact_after_write(request.table.spark, committed.snapshot)
    return Written(committed.version, metrics)


def _newest(ctx: LogContext) -> Snapshot | None:
    try:
        return open_snapshot(ctx)
    except TableNotFoundError:
        return None


class WriteAgainError(Exception):
    """The data must be written again, for the table as it is now. Never leaves this module."""

    def __init__(self, conflict: DeltaConcurrentModificationException) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


@dataclass(frozen=True)
class _Files:
    """The files that the write adds and removes."""

    new: list[Add]
    copies: list[Add] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)
    changes: list[AddCdcFile] = field(default_factory=list)
    keeps_row_ids: bool = True
    deleted_rows: int | None = None
    """How many rows a condition has removed, if there is one and the log knows it."""

    def metrics(self) -> dict[str, int]:
        """Return metrics by the names that delta-spark has."""
        added = [*self.new, *self.copies]
        found = {
            "numFiles": len(added),
            "numOutputRows": sum(num_records(add) or 0 for add in self.new),
            "numOutputBytes": sum(add.size for add in added),
        }
        if self.removes:
            found["numRemovedFiles"] = len(self.removes)
            found["numRemovedBytes"] = sum(remove.size or 0 for remove in self.removes)
        if self.copies:
            found["numCopiedRows"] = sum(num_records(add) or 0 for add in self.copies)
        if self.deleted_rows is not None:
            found["numDeletedRows"] = self.deleted_rows
        if self.changes:
            found["numAddedChangeFiles"] = len(self.changes)
        return found


@dataclass(frozen=True)
class WriteAttempt:
    """A write of some data to one version of a table."""

    df: DataFrame
    ctx: LogContext
    snapshot: Snapshot | None
    """None if there is no table yet."""
    options: WriteOptions

    def run(self) -> tuple[Committed, dict[str, int]] | None:
        """Write and commit; return the commit and its metrics, or None if there is nothing to do.

        Raises:
            WriteAgainError: the table has changed so that the data must be written again.
        """
        transaction = Transaction(self.ctx, self.snapshot)
        if self._is_done(transaction) or not self._is_wanted():
            return None
        data = StructType.from_spark(self.df.schema)
        definition = planned_table(self.ctx, self.snapshot, as_data_schema(data), self.options)
        if self.snapshot is None or definition.metadata != self.snapshot.metadata:
            # Rows could not be checked by a constraint that makes no sense for the columns.
            check_constraints(self.df.sparkSession, definition.schema, definition.metadata.configuration)
        rows = self._rows(data, definition)
        # The files of a new table must lie in a place that no other writer uses.
        with claimed(self.ctx) if self.snapshot is None else nullcontext():
            return self._write(transaction, definition, rows)

    def _write(
        self, transaction: Transaction, definition: TableDefinition, rows: TableRows
    ) -> tuple[Committed, dict[str, int]]:
        target = self._target(rows, definition)
        with explained_violations(self.ctx.uri):
            new = write_files(rows.frame, target)
        definition = _with_marks(definition, rows, new)
        set_table(transaction, definition)
        files = self._replaced(transaction, new, target)
        metrics = files.metrics()
        transaction.add(self._marked(add) for add in (*files.new, *files.copies))
        transaction.remove(files.removes)
        transaction.add_changes(files.changes)
        if self.options.txn is not None:
            app_id, version = self.options.txn
            transaction.record_progress(Txn(app_id, version, self.ctx.clock_ms()))
        return self._commit(transaction, self._operation(definition, metrics, files), rows), metrics

    # --- before anything is written -------------------------------------------------------------------

    def _is_done(self, transaction: Transaction) -> bool:
        """Return whether the application has already written this version."""
        if self.options.txn is None:
            return False
        app_id, version = self.options.txn
        recorded = transaction.progress_of(app_id)
        return recorded is not None and recorded >= version

    def _is_wanted(self) -> bool:
        """Return whether the mode wants the write.

        Raises:
            TableAlreadyExistsError: there must be no table, and there is one.
            InvalidCommitError: the table only allows appends.
        """
        if self.snapshot is None or self.options.mode == "append":
            return True
        if self.options.mode == "ignore":
            return False
        if self.options.mode != "overwrite":
            raise TableAlreadyExistsError(
                f"there is a table at {self.ctx.uri} already (version {self.snapshot.version}). To write to it, say "
                'mode="append" or mode="overwrite"; mode="ignore" leaves it as it is.'
            )
        if self.options.data_change and is_active("appendOnly", self.snapshot.configuration):
            raise InvalidCommitError(
                f"{self.ctx.uri} only allows appends (delta.appendOnly is true), and an overwrite removes rows."
            )
        return True

    def _rows(self, data: StructType, definition: TableDefinition) -> TableRows:
        where = self.options.replace_where
        rule = None
        if where is not None:
            check_condition(where, definition.schema)
            rule = SqlRule("the rows to write must match replace_where, which", where)
        rearranges = not self.options.data_change
        return table_rows(self.df, data, definition, self.ctx.uri, rearranges=rearranges, must_match=rule)

    def _target(self, rows: TableRows, definition: TableDefinition) -> WriteTarget:
        domains = {} if self.snapshot is None else self.snapshot.domain_metadata
        domains |= {domain.domain: domain.configuration for domain in definition.domains}
        return replace(write_target(self.ctx, definition, domains, rows.identities), **self.options.file_sizes)

    # --- after the files are written ------------------------------------------------------------------

    def _replaced(self, transaction: Transaction, new: list[Add], target: WriteTarget) -> _Files:
        """Find the files that the new ones replace."""
        if self.snapshot is None or self.options.mode != "overwrite":
            return _Files(new)
        if self.options.replace_where is not None:
            return self._replaced_where(transaction, new, target, self.options.replace_where)
        is_dynamic = self.options.partition_overwrite == "dynamic" and bool(self.snapshot.partition_columns)
        old = files_of_partitions(self.df.sparkSession, transaction, new) if is_dynamic else all_files(transaction)
        change = self.options.data_change
        return _Files(new, removes=removals(old, self.ctx.clock_ms(), data_change=change), keeps_row_ids=change)

    def _replaced_where(self, transaction: Transaction, new: list[Add], target: WriteTarget, where: str) -> _Files:
        spark = self.df.sparkSession
        change = self.options.data_change
        found: Replacement = replaced(spark, transaction, where, target, data_change=change)
        changes = found.changes
        if found.changes:  # recorded changes stand for the whole commit
            changes = [*changes, *inserted(spark, transaction, new, target)]
        return _Files(new, found.copies, found.removes, changes, change, found.deleted_rows if change else None)

    def _marked(self, add: Add) -> Add:
        return add if self.options.data_change else msgspec.structs.replace(add, data_change=False)

    def _operation(self, definition: TableDefinition, metrics: dict[str, int], files: _Files) -> Operation:
        metadata = definition.metadata
        parameters: dict[str, Any]
        if self.snapshot is None:
            name = "CREATE TABLE AS SELECT"
            parameters = {
                "isManaged": "false",
                "partitionBy": list(metadata.partition_columns),
                "properties": metadata.configuration,
            }
        else:
            name = "WRITE"
            parameters = {"mode": self.options.mode_name, "partitionBy": list(self.options.partition_by or ())}
            if self.options.replace_where is not None:
                parameters["predicate"] = self.options.replace_where
        if self.options.cluster_by:
            parameters["clusterBy"] = list(self.options.cluster_by)
        tags = {}
        if is_active("rowTracking", definition.configuration):
            tags[PRESERVED_TAG] = "true" if files.keeps_row_ids else "false"
        return Operation(name, parameters, metrics, self.options.user_metadata, tags)

    def _commit(self, transaction: Transaction, operation: Operation, rows: TableRows) -> Committed:
        try:
            return transaction.commit(operation)
        except MetadataChangedException as conflict:
            if rows.identities:
                raise WriteAgainError(conflict) from conflict
            raise
        except ConcurrentTransactionException as conflict:
            if self.options.txn is not None:
                raise WriteAgainError(conflict) from conflict
            raise
        except ConcurrentWriteException as conflict:
            if self.snapshot is None:
                raise WriteAgainError(conflict) from conflict
            raise


def _with_marks(definition: TableDefinition, rows: TableRows, files: list[Add]) -> TableDefinition:
    """Return the definition with the high-water marks of the identity columns that were written."""
    if not rows.identities:
        return definition
    mode = definition.mapping_mode
    schema = with_marks(definition.schema, rows.identities, files, mode)
    metadata = msgspec.structs.replace(definition.metadata, schema_string=schema.to_json())
    return replace(definition, configuration=definition.configuration.changed(None, metadata))
