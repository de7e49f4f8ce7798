"""Run UPDATE: the rows that match a condition get new values.

With deletion vectors (`delta.enableDeletionVectors`) the old rows are marked as deleted, and the new ones are
written to new files. Otherwise the files that hold them are written again: only the columns that are set, where that
is possible (`headwater.spark.dml.in_place`). Generated columns follow the new values, and the rules of the table are
checked. Rows keep their ids.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import ConstraintViolationError
from headwater.log.commit.row_changes import RowPlan
from headwater.log.schema import LONG
from headwater.log.schema.types import dotted, hidden, quoted
from headwater.log.stats.add_stats import num_records
from headwater.spark.dml.assignments import Assignment, assignment_paths, checked_values, new_values
from headwater.spark.dml.condition import Condition, read_condition
from headwater.spark.dml.delete import file_metrics, vector_metrics
from headwater.spark.dml.in_place import column_job
from headwater.spark.dml.matched import Touched, find_touched
from headwater.spark.dml.target import DmlTarget, TargetFiles, with_change_type
from headwater.spark.errors import quiet_analysis
from headwater.spark.functions import functions, functions_for, no_rows
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN, ROW_COMMIT_VERSION, ROW_ID, ScanColumns
from headwater.spark.workers import ParallelJobs
from headwater.spark.write.constraints import may_depend, with_checks
from headwater.spark.write.rows import recomputed, row_checks, stored_columns
from headwater.spark.write.schema import spark_type
from headwater.spark.write.table_sql import check_table_sql
from headwater.spark.write.values import as_compared, as_partition_value, as_written, filled_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from headwater.log.actions.model import Add, AddCdcFile
    from headwater.spark.session import SparkTable


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """Which rows to update, and with what values.

    Attributes:
        table: the table.
        condition: SQL text or a Column, on columns of the table; rows for which it is null stay as they are. None for
            all rows.
        values: by column: SQL texts or Columns, over the values that the row has. Dots lead into structs.
        alias: a name for the table in the condition and the values.
    """

    table: SparkTable
    condition: str | Column | None = None
    values: Mapping[str, str | Column] | None = None
    alias: str | None = None


def update(request: UpdateRequest) -> dict[str, int]:
    """Give new values to the rows that match a condition, in one commit; there is none if no row matches.

    Returns:
        The metrics of the history: `numUpdatedRows`, `numRemovedFiles`, `numAddedFiles`, ...

    Raises:
        ColumnNotFoundError: the table has no such column.
        SchemaMismatchError: a value is of a type that its column cannot hold.
        ConstraintViolationError: a new row breaks a rule of the table.
        ValueConversionError: a value cannot be kept in the type of its column.
        FilterError: it is not a condition, is not deterministic, or has a subquery.
        InvalidCommitError: the table only allows appends.
        DeltaConcurrentModificationException: another writer's commit stands in the way.

    Example:
        >>> update(UpdateRequest(table, "city = 'NYC'", {"city": "'New York'"}))["numUpdatedRows"]  # doctest: +SKIP
        42
    """
    with functions_for(request.table.spark):
        target = DmlTarget.open(request.table, "UPDATE")
        target.check_may_change()
        understood = read_condition(target, request.condition, request.alias)
        change = read_update(target, understood, request.values)
        files = target.candidates(understood.pruning)
        metrics = _updated_in_place(change, files)
        return _updated(change, find_touched(target, understood, files)) if metrics is None else metrics


@dataclass(frozen=True)
class _Files:
    """The files that were written."""

    new: list[Add]
    """Files with the rows that have new values (and, where these are written together, with others)."""
    copies: list[Add] = dataclasses.field(default_factory=list)
    """Files with only rows that stay as they are."""


def _updated_in_place(change: Update, files: TargetFiles) -> dict[str, int] | None:
    """Write only the columns that change, and commit; None if files must be written as a whole."""
    target = change.target
    if change.condition.given is None and 2 * len(change.changed) > len(target.definition.schema.fields):
        return None  # most of the table is written: Spark does that best by itself
    began_ms = target.elapsed_ms()
    job = column_job(target, files, range(len(files)), change.changed)
    if job is None:
        return None
    written = job.run(job.pack_updates(change.located_values(change.condition.filtered(target.rows(files)))))
    if written is None:
        return None
    target.reads(files, written.numbers)
    target.replace_files(files, written.replaced, written.changed)
    own_metrics = {
        **file_metrics(files, written.replaced, written.changed, []),
        "numUpdatedRows": written.num_updated,
        "numCopiedRows": written.num_copied,
        "scanTimeMs": 0,  # rows are found while the others are written
        "rewriteTimeMs": target.elapsed_ms() - began_ms,
    }
    return _committed(change, own_metrics, files, written.replaced)


def _committed(change: Update, own_metrics: dict[str, int], files: TargetFiles, removed: list[int]) -> dict[str, int]:
    """Commit, unless no row has matched; return the metrics."""

    def metrics(planned: RowPlan) -> dict[str, int]:
        return {**own_metrics, **vector_metrics(planned, files, removed)}

    if not own_metrics["numUpdatedRows"]:
        return metrics(RowPlan())
    predicate = [] if change.condition.given is None else [change.condition.text]
    return change.target.commit({"predicate": predicate}, metrics)


def _updated(change: Update, touched: Touched) -> dict[str, int]:
    target = change.target
    began_ms = target.elapsed_ms()
    rewrites = bool(touched.partial) and not target.uses_vectors
    files = _written(change, touched, rewrites=rewrites) if touched else _Files([])
    changes = _changes(target, touched, files.new) if touched and target.records_changes else []
    removed = touched.numbers if rewrites else touched.whole
    if touched.partial and not rewrites:
        target.delete_rows(touched.files, touched.partial)
    added = [*files.new, *files.copies]
    target.replace_files(touched.files, removed, added, changes)
    written = sum(num_records(add) or 0 for add in added)
    # Where the log does not know how many rows its files have, all of them are updated.
    count = written if touched.row_count is None else touched.row_count
    own_metrics = {
        # As delta-spark counts: files of which rows are marked are among those removed.
        **file_metrics(touched.files, touched.numbers, added, changes),
        "numUpdatedRows": count,
        "numCopiedRows": written - count,
        "scanTimeMs": touched.scan_ms,
        "rewriteTimeMs": target.elapsed_ms() - began_ms,
    }
    return _committed(change, own_metrics, touched.files, removed)


def _written(change: Update, touched: Touched, *, rewrites: bool) -> _Files:
    """Write the rows with new values; and those that share a file with them, if files are written again."""
    target, condition = change.target, change.condition
    apart = target.records_changes or not condition.is_stable or (target.copies_fast and touched.is_sparse)
    if rewrites and not apart:
        rows = target.rows(touched.files, touched.numbers)
        return _Files(target.write_new(change.rows(rows, condition.matches())))
    found = target.rows(touched.files, touched.numbers, only=touched.partial)
    if condition.is_stable:
        found = condition.filtered(found)  # says nothing new, but lets Spark skip parts of files
    changed = change.rows(found, functions().lit(True))
    if not rewrites:
        return _Files(target.write_new(changed))
    with ParallelJobs(target.spark, "update", 1) as jobs:
        new = jobs.submit(lambda: target.write_new(changed))
        copies = target.write_copies(touched.files, touched.partial)
        return _Files(new.result(), copies)


def _changes(target: DmlTarget, touched: Touched, new: list[Add]) -> list[AddCdcFile]:
    """Write the rows before and after. New values are read back: computing them twice may give other values."""
    before = target.rows(touched.files, touched.numbers, only=touched.partial)
    after = target.written_rows(new)
    both = with_change_type(before, "update_preimage").union(with_change_type(after, "update_postimage"))
    return target.write_changes(both)


MATCHED = hidden("matched")


@dataclass(frozen=True)
class Update:
    """What an UPDATE does to a row. Use `read_update`."""

    target: DmlTarget
    condition: Condition
    values: dict[str, Column]
    """New values of top-level columns, over rows under the alias."""

    @cached_property
    def _recomputed(self) -> list[str]:
        """The generated columns whose values may depend on columns that are set."""
        definition = self.target.definition
        generated = filled_columns(definition.protocol, definition.schema).generated
        return [n for n, text in generated.items() if n not in self.values and may_depend(text, self.values)]

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The columns that may get new values."""
        return (*self.values, *self._recomputed)

    def located_values(self, frame: DataFrame) -> DataFrame:
        """Return the positions of rows that all match, and the new values of the columns that change."""
        sf = functions()
        rows = self.rows(frame, sf.lit(True), (FILE_COLUMN, ROW_COLUMN))
        return rows.select(FILE_COLUMN, ROW_COLUMN, *(sf.col(quoted(name)) for name in self.changed))

    def rows(self, frame: DataFrame, matched: Column, located: tuple[str, ...] = ()) -> DataFrame:
        """Return rows of the table after the update.

        Args:
            frame: from `DmlTarget.rows`.
            matched: which of them get new values; the others stay as they are.
            located: columns with the position of a row to keep; rows that break a rule fail when these are read.

        Returns:
            The table's columns and those of row tracking: a row that gets new values gets a new commit version.
        """
        sf = functions()
        definition = self.target.definition
        schema = stored_columns(definition.schema)
        partitions = definition.metadata.partition_columns
        columns: list[Column] = []
        for field in schema.fields:
            old = sf.col(quoted(field.name))
            new = self.values.get(field.name)
            if new is not None:
                old = sf.when(matched, as_partition_value(new, field, partitions)).otherwise(old)
            columns.append(old.alias(field.name))
        columns += [sf.col(name) for name in located]
        hidden = [*located]
        if self.target.tracks_rows:
            no_version = sf.lit(None).cast(spark_type(LONG))
            version = sf.when(matched, no_version).otherwise(sf.col(ROW_COMMIT_VERSION))
            columns += [sf.col(ROW_ID), version.alias(ROW_COMMIT_VERSION)]
            hidden += [ROW_ID, ROW_COMMIT_VERSION]
        rows = self.condition.aliased(frame).select(*columns, matched.alias(MATCHED))
        also = [*hidden, MATCHED]
        stale = dict.fromkeys(self._recomputed, sf.col(MATCHED))
        rows = as_compared(recomputed(as_compared(rows, schema, also), definition, stale, also), schema, also)
        is_old = ~sf.col(MATCHED)
        checks = [replace(check, holds=check.holds | is_old) for check in row_checks(definition, self.values)]
        return as_written(with_checks(rows, schema, checks, also, carrier=next(iter(located), None)), schema, also)


def read_update(target: DmlTarget, condition: Condition, given: Mapping[str, str | Column] | None) -> Update:
    """Check and resolve the SET of an UPDATE.

    Raises:
        TypeError: it is not a dictionary from names to SQL texts or Columns.
        ColumnNotFoundError: the table, or a value, has no such column.
        SchemaError: columns are set twice, or a value does not fit.
        ConstraintViolationError: an identity column is set.
        UntrustedExpressionError: the table has SQL that is not on the allow-list.
    """
    what = f"{target.uri}: {target.operation}"
    if not given:
        raise ValueError("update needs `set`: a dictionary of column names and their new values.")
    given = checked_values(given, "`set`")
    check_table_sql(target.spark, target.definition, target.uri)
    schema = target.snapshot.schema
    paths = assignment_paths(schema, list(given), condition.alias, what)
    identities = filled_columns(target.snapshot.protocol, schema).identities
    counted = next((path for path in paths if path[0] in identities), None)
    if counted is not None:
        raise ConstraintViolationError(
            f"{what} sets {dotted(counted)}, an identity column, whose values only the table itself gives."
        )
    sf = functions()
    assignments = [Assignment(path, value) for path, value in zip(paths, given.values(), strict=True)]
    scope = condition.aliased(no_rows(target.spark, ScanColumns(schema, "none", ()).visible))
    with quiet_analysis():
        values = new_values(scope, assignments, schema, lambda name: sf.col(quoted(name)), what)
    return Update(target, condition, values)
