"""One attempt to write a DataFrame to the table as it is now: plan, rows, files, commit.

Losing the race for a version costs nothing (`headwater.log.transaction`). Only where the data itself depends on what
another writer has changed is there another attempt, with new files: identity values, and a table that both create.
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
)
from headwater.features.activation import is_active
from headwater.features.file_statistics import num_records
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.features.table_changes import set_table
from headwater.log.actions import Txn
from headwater.log.draft import Operation
from headwater.log.schema import StructType, mapping_mode
from headwater.log.transaction import Transaction
from headwater.log.tree import claimed
from headwater.spark.constraints import SqlRule
from headwater.spark.data_writer import write_files
from headwater.spark.dml.row_files import write_target
from headwater.spark.evolution import as_data_schema
from headwater.spark.expression_checks import check_constraints
from headwater.spark.identity import with_marks
from headwater.spark.overwrite import all_files, files_of_partitions, removals
from headwater.spark.replace_where import Replacement, check_condition, inserted, replaced
from headwater.spark.table_plan import planned_table
from headwater.spark.violations import explained_violations
from headwater.spark.write_rows import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.features.table_changes import TableDefinition
    from headwater.log.actions import Add, AddCdcFile, Remove
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed
    from headwater.spark.write_options import WriteOptions
    from headwater.spark.write_rows import TableRows
    from headwater.spark.write_target import WriteTarget


class WriteAgainError(Exception):
    """The data must be written again, for the table as it is now. Never leaves this room."""

    def __init__(self, conflict: DeltaConcurrentModificationException) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class FileSizes:
    """How large files shall be; see `headwater.spark.write_target.WriteTarget`."""

    max_records_per_file: int | None = None
    target_file_size: int | None = None
    optimize_write: bool | None = None
    compression: str | None = None


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
        """As the history of delta-spark has them."""
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
    sizes: FileSizes

    def run(self) -> tuple[Committed, dict[str, int]] | None:
        """Write and commit; the commit and its metrics, or None if there is nothing to do.

        Raises:
            WriteAgainError: the table has changed so that the data must be written anew.
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
        # Files of a table that does not exist yet lie in a place that nobody else uses.
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
        """Whether the application has already written this version."""
        if self.options.txn is None:
            return False
        app_id, version = self.options.txn
        recorded = transaction.progress_of(app_id)
        return recorded is not None and recorded >= version

    def _is_wanted(self) -> bool:
        """Whether the mode wants the write.

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
        if self.options.data_change and is_active("appendOnly", self.snapshot.protocol, self.snapshot.metadata):
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
        target = write_target(self.ctx.uri, definition, domains, self.options.storage_options, rows.identities)
        return replace(
            target,
            max_records_per_file=self.sizes.max_records_per_file,
            target_file_size=self.sizes.target_file_size,
            optimize_write=self.sizes.optimize_write,
            compression=self.sizes.compression,
        )

    # --- after the files are written ------------------------------------------------------------------

    def _replaced(self, transaction: Transaction, new: list[Add], target: WriteTarget) -> _Files:
        """The files that the new ones take the place of."""
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
        if is_active("rowTracking", definition.protocol, metadata):
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
    """The definition with the high-water marks of the identity columns that were written."""
    if not rows.identities:
        return definition
    mode = mapping_mode(definition.protocol, definition.metadata)
    schema = with_marks(definition.schema, rows.identities, files, mode)
    metadata = msgspec.structs.replace(definition.metadata, schema_string=schema.to_json())
    return replace(definition, metadata=metadata)
