"""Run DELETE, and replace the rows that match a condition (`replace_where` of a write).

Where all rows of a file match, the file is removed; nothing is read for that if the condition is on partition columns
alone. Of other files the rows are marked as deleted (`delta.enableDeletionVectors`), or the file is written again
without them, with row ids and recorded changes where the table has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.commit.row_changes import RowPlan
from headwater.log.files.live import removals
from headwater.log.filters.sql import parse_filter
from headwater.spark.dml.condition import Condition, read_condition
from headwater.spark.dml.matched import Touched, find_touched
from headwater.spark.dml.target import DmlTarget, TargetFiles, with_change_type, write_change_rows, write_table_rows
from headwater.spark.functions import functions_for

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.actions.model import Add, AddCdcFile, Remove
    from headwater.log.commit.transaction import Transaction
    from headwater.log.schema import StructType
    from headwater.parquet.plan import WriteTarget
    from headwater.spark.session import SparkTable


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Which rows to delete.

    Attributes:
        table: the table.
        condition: SQL text or a Column, on columns of the table; rows for which it is null stay. None for all rows.
        alias: a name for the table in the condition.
    """

    table: SparkTable
    condition: str | Column | None = None
    alias: str | None = None


def delete(request: DeleteRequest) -> dict[str, int]:
    """Delete the rows that match a condition, in one commit; there is none if no row matches.

    Returns:
        The metrics of the history: `numDeletedRows`, `numRemovedFiles`, `numAddedFiles`, ...

    Raises:
        ColumnNotFoundError: the table has no such column.
        FilterError: it is not a condition, is not deterministic, or has a subquery.
        InvalidCommitError: the table only allows appends.
        DeltaConcurrentModificationException: another writer's commit stands in the way.

    Example:
        >>> delete(DeleteRequest(table, "date < '2024-01-01'"))["numDeletedRows"]  # doctest: +SKIP
        42
    """
    with functions_for(request.table.spark):
        target = DmlTarget.open(request.table, "DELETE")
        target.check_may_change()
        understood = read_condition(target, request.condition, request.alias)
        touched = find_touched(target, understood)
        return _deleted(target, understood, touched)


def _deleted(target: DmlTarget, condition: Condition, touched: Touched) -> dict[str, int]:
    began_ms = target.elapsed_ms()
    copies: list[Add] = []
    changes: list[AddCdcFile] = []
    removed = list(touched.whole)
    if touched.partial and target.uses_vectors:
        target.delete_rows(touched.files, touched.partial)
    elif touched.partial:
        removed = touched.numbers
        copies = target.write_copies(touched.files, touched.partial)
        if target.records_changes:
            changes = target.write_changes(_deleted_rows(target, touched))
    target.replace_files(touched.files, removed, copies, changes)
    own_metrics = {
        **file_metrics(touched.files, removed, copies, changes),
        **known(numDeletedRows=touched.row_count, numCopiedRows=touched.copied_rows if copies else 0),
        "scanTimeMs": touched.scan_ms,
        "rewriteTimeMs": target.elapsed_ms() - began_ms,
    }

    def metrics(planned: RowPlan) -> dict[str, int]:
        return {**own_metrics, **vector_metrics(planned, touched.files, removed)}

    return target.commit({"predicate": [condition.text]}, metrics) if touched else metrics(RowPlan())


def _deleted_rows(target: DmlTarget, touched: Touched) -> DataFrame:
    """Return the deleted rows as changes; those of whole files too, because changes describe the whole commit."""
    return with_change_type(target.rows(touched.files, touched.numbers, only=touched.partial), "delete")


def file_metrics(
    files: TargetFiles, removed: Collection[int], added: Sequence[Add], changes: Sequence[AddCdcFile]
) -> dict[str, int]:
    """Return counts and sizes of the files that a command adds and removes, by the names that Delta users know."""
    import pyarrow.compute as pc

    return {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": pc.sum(files.take(removed).column("size")).as_py() or 0,
        "numAddedFiles": len(added),
        "numAddedBytes": sum(add.size for add in added),
        "numAddedChangeFiles": len(changes),
    }


def vector_metrics(planned: RowPlan, files: TargetFiles, removed: Collection[int]) -> dict[str, int]:
    """Return counts of the deletion vectors that a command adds, removes and enlarges."""
    return {
        "numDeletionVectorsAdded": planned.vectors_added,
        "numDeletionVectorsRemoved": planned.vectors_removed
        + sum(files.vectors[number] is not None for number in removed),
        "numDeletionVectorsUpdated": planned.vectors_updated,
    }


def known(**counts: int | None) -> dict[str, int]:
    """Leave out metrics that are None: the log need not say how many rows a file has.

    >>> known(numDeletedRows=None, numCopiedRows=3)
    {'numCopiedRows': 3}
    """
    return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True)
class Replacement:
    """What replacing rows changes in the files that are there."""

    removes: list[Remove]
    copies: list[Add]
    """Files with the rows that stay."""
    changes: list[AddCdcFile]
    """The deleted rows; the inserted ones come with the new rows."""
    deleted_rows: int | None
    """How many rows match; None if the log does not say it."""


def check_condition(where: str, schema: StructType) -> None:
    """Raise unless the text is a condition on columns of the table.

    Raises:
        FilterError: it is not a condition.
        ColumnNotFoundError: the table has no such column.
    """
    from sqlglot import exp, parse_one

    parse_filter(where)
    for column in parse_one(where, dialect="spark").find_all(exp.Column):
        schema.field(column.parts[0].name)


def replaced(
    spark: SparkSession, transaction: Transaction, where: str, target: WriteTarget, *, data_change: bool
) -> Replacement:
    """Remove the matching rows from the table.

    Args:
        target: how files of the table are written.
        data_change: False when the new rows are the old ones in another arrangement.
    """
    table = DmlTarget(spark, transaction, "WRITE")
    touched = find_touched(table, read_condition(table, where, None))
    old = touched.files.take(touched.numbers)
    transaction.reads_paths(old.column("path").to_pylist())
    removes = removals(old, transaction.ctx.clock_ms(), data_change=data_change)
    if not touched.partial:
        return Replacement(removes, [], [], touched.row_count)
    copies = write_table_rows(table.rows(touched.files, touched.partial, without=touched.partial), target)
    changes: list[AddCdcFile] = []
    if data_change and table.records_changes:
        changes = write_change_rows(_deleted_rows(table, touched), target)
    return Replacement(removes, copies, changes, touched.row_count)


def inserted(spark: SparkSession, transaction: Transaction, adds: list[Add], target: WriteTarget) -> list[AddCdcFile]:
    """Write the change data files for new rows, read back from their files: values computed twice may differ."""
    if not adds:
        return []
    rows = DmlTarget(spark, transaction, "WRITE").written_rows(adds)
    return write_change_rows(with_change_type(rows, "insert"), target)
