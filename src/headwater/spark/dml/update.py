"""UPDATE: the rows that match a condition get new values.

With deletion vectors (`delta.enableDeletionVectors`) the old rows are marked as deleted, and the new ones are written
to files of their own. Otherwise the files that hold them are written again: only the columns that are set, where rows
can stay in their places (`headwater.spark.dml.column_job`). Rows keep their ids either way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.features.file_statistics import num_records
from headwater.log.row_changes import RowPlan
from headwater.spark.change_files import CHANGE_TYPE
from headwater.spark.columns import quoted
from headwater.spark.dml.column_job import ColumnJob, can_change_columns
from headwater.spark.dml.condition import read_condition
from headwater.spark.dml.metrics import file_metrics, vector_metrics
from headwater.spark.dml.target import HIDDEN_COLUMNS, DmlTarget
from headwater.spark.dml.touched import find_touched
from headwater.spark.dml.updated_rows import read_update
from headwater.spark.functions import functions, functions_for
from headwater.spark.parallel_jobs import ParallelJobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.actions import Add, AddCdcFile
    from headwater.spark.dml.target_files import TargetFiles
    from headwater.spark.dml.touched import Touched
    from headwater.spark.dml.updated_rows import Update


def update(
    spark: SparkSession,
    path: str | PathLike[str],
    condition: str | Column | None = None,
    values: Mapping[str, str | Column] | None = None,
    *,
    alias: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Give new values to the rows that match a condition, in one commit; there is none if no row matches.

    Args:
        spark: the session.
        path: the table: a path or URI.
        condition: SQL text or a Column, on columns of the table; rows for which it is null stay as they are. By
            default all rows are updated.
        values: by column: SQL texts or Columns, over the values that the row has. Dots lead into structs.
        alias: a name for the table in the condition and the values.
        storage_options: options of the object store.

    Returns:
        What the history says about it: `numUpdatedRows`, `numRemovedFiles`, `numAddedFiles`, ...

    Raises:
        ColumnNotFoundError: the table has no such column.
        SchemaMismatchError: a value is of a type that its column cannot hold.
        ConstraintViolationError: a new row breaks a rule of the table.
        ValueConversionError: a value cannot be kept in the type of its column.
        FilterError: the condition is none, is not deterministic, or has a subquery.
        InvalidCommitError: the table only allows appends.
        DeltaConcurrentModificationException: another writer's commit stands in the way.

    Example:
        >>> update(spark, "/data/events", "city = 'NYC'", {"city": "'New York'"})["numUpdatedRows"]  # doctest: +SKIP
        42
    """
    with functions_for(spark):
        target = DmlTarget.open(spark, path, "UPDATE", storage_options)
        target.check_may_change()
        understood = read_condition(target, condition, alias)
        change = read_update(target, understood, values)
        metrics = _updated_in_place(change)
        return _updated(change, find_touched(target, understood)) if metrics is None else metrics


@dataclass(frozen=True)
class _Files:
    """What was written."""

    new: list[Add]
    """Files with the rows that have new values (and, where these are written together, with others)."""
    copies: list[Add] = field(default_factory=list)
    """Files with nothing but rows that stay as they are."""


def _updated_in_place(change: Update) -> dict[str, int] | None:
    """Write only the columns that change, and commit; None if this way is closed, and nothing was done."""
    target = change.target
    partitions = {name.lower() for name in target.snapshot.partition_columns}
    if not can_change_columns(target) or any(name.lower() in partitions for name in change.changed):
        return None
    if change.condition.given is None and 2 * len(change.changed) > len(target.definition.schema.fields):
        return None  # most of the table is written: Spark does that best by itself
    began_ms = target.elapsed_ms()
    files = target.candidates(change.condition.pruning)
    if not len(files) or files.table.column("deletionVector").null_count < len(files):
        return None
    job = ColumnJob(target, files, range(len(files)), change.changed)
    written = job.run(job.located(change.located_values(change.condition.filtered(target.rows(files)))))
    if written is None:
        return None
    target.reads(files, written.numbers)
    target.remove(files, written.replaced)
    target.add(written.changed)
    own_metrics = {
        **file_metrics(files, written.replaced, written.changed, []),
        "numUpdatedRows": written.num_updated,
        "numCopiedRows": written.num_copied,
        "scanTimeMs": 0,  # rows are found while the others are written
        "rewriteTimeMs": target.elapsed_ms() - began_ms,
    }
    return _committed(change, own_metrics, files, written.replaced)


def _committed(change: Update, own_metrics: dict[str, int], files: TargetFiles, removed: list[int]) -> dict[str, int]:
    """Commit, unless no row has matched; the metrics."""

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
    target.remove(touched.files, removed)
    target.add(added)
    target.add_changes(changes)
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
    """The rows before and after. New values are read back: computed again, they might be others."""
    before = target.rows(touched.files, touched.numbers, only=touched.partial)
    after = target.written_rows(new)
    return target.write_changes(_marked(before, "update_preimage").union(_marked(after, "update_postimage")))


def _marked(frame: DataFrame, change: str) -> DataFrame:
    sf = functions()
    columns = [sf.col(quoted(name)) for name in frame.columns if name not in HIDDEN_COLUMNS]
    return frame.select(*columns, sf.lit(change).alias(CHANGE_TYPE))
