"""DELETE: the rows that match a condition leave the table.

Where all rows of a file match, the file is removed; nothing is read for that if the condition is on partition columns
alone. Of other files the rows are marked as deleted (`delta.enableDeletionVectors`), or the file is written again
without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.row_changes import RowPlan
from headwater.spark.change_files import CHANGE_TYPE
from headwater.spark.dml.condition import read_condition
from headwater.spark.dml.metrics import file_metrics, known, vector_metrics
from headwater.spark.dml.target import DmlTarget
from headwater.spark.dml.touched import find_touched
from headwater.spark.functions import functions, functions_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.actions import Add, AddCdcFile
    from headwater.spark.dml.condition import Condition
    from headwater.spark.dml.touched import Touched


def delete(
    spark: SparkSession,
    path: str | PathLike[str],
    condition: str | Column | None = None,
    *,
    alias: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Delete the rows that match a condition, in one commit; there is none if no row matches.

    Args:
        spark: the session.
        path: the table: a path or URI.
        condition: SQL text or a Column, on columns of the table; rows for which it is null stay. By default all rows
            are deleted.
        alias: a name for the table in the condition.
        storage_options: options of the object store.

    Returns:
        What the history says about it: `numDeletedRows`, `numRemovedFiles`, `numAddedFiles`, ...

    Raises:
        ColumnNotFoundError: the table has no such column.
        FilterError: it is no condition, is not deterministic, or has a subquery.
        InvalidCommitError: the table only allows appends.
        DeltaConcurrentModificationException: another writer's commit stands in the way.

    Example:
        >>> delete(spark, "/data/events", "date < '2024-01-01'")["numDeletedRows"]  # doctest: +SKIP
        42
    """
    with functions_for(spark):
        target = DmlTarget.open(spark, path, "DELETE", storage_options)
        target.check_may_change()
        understood = read_condition(target, condition, alias)
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
            changes = target.write_changes(_gone(target, touched))
    target.remove(touched.files, removed)
    target.add(copies)
    target.add_changes(changes)
    own_metrics = {
        **file_metrics(touched.files, removed, copies, changes),
        **known(numDeletedRows=touched.row_count, numCopiedRows=touched.copied_rows if copies else 0),
        "scanTimeMs": touched.scan_ms,
        "rewriteTimeMs": target.elapsed_ms() - began_ms,
    }

    def metrics(planned: RowPlan) -> dict[str, int]:
        return {**own_metrics, **vector_metrics(planned, touched.files, removed)}

    return target.commit({"predicate": [condition.text]}, metrics) if touched else metrics(RowPlan())


def _gone(target: DmlTarget, touched: Touched) -> DataFrame:
    """The deleted rows. Those of whole files are there too: recorded changes stand for the whole commit."""
    rows = target.rows(touched.files, touched.numbers, only=touched.partial)
    return rows.withColumn(CHANGE_TYPE, functions().lit("delete"))
