"""Replacing the rows that match a condition (`replace_where`): new rows in, matching old rows out, in one commit.

A condition on partition columns removes whole files, and reads none. Any other condition is looked for in the files
that may hold matching rows by the log's statistics; those that do are removed, and the rows in them that do not match
are written again, with their row ids where the table tracks them. Where the table records changes, so are they.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.filter_sql import parse_filter
from headwater.spark.change_files import CHANGE_TYPE
from headwater.spark.dml.condition import read_condition
from headwater.spark.dml.row_files import RowFiles
from headwater.spark.dml.target import DmlTarget
from headwater.spark.dml.touched import find_touched
from headwater.spark.functions import functions
from headwater.spark.overwrite import removals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.actions import Add, AddCdcFile, Remove
    from headwater.log.schema import StructType
    from headwater.log.transaction import Transaction
    from headwater.spark.write_target import WriteTarget


@dataclass(frozen=True)
class Replacement:
    """What a condition makes of the files that are there."""

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
        FilterError: it is no condition.
        ColumnNotFoundError: the table has no such column.
    """
    from sqlglot import exp, parse_one

    parse_filter(where)
    for column in parse_one(where, dialect="spark").find_all(exp.Column):
        schema.field(column.parts[0].name)


def replaced(
    spark: SparkSession, transaction: Transaction, where: str, target: WriteTarget, *, data_change: bool
) -> Replacement:
    """Take the matching rows out of the table.

    Args:
        spark: the session.
        transaction: of the write; what is read is noted in it.
        where: the condition.
        target: how files of the table are written.
        data_change: False when the new rows are the old ones in another arrangement.
    """
    table = DmlTarget(spark, transaction, "WRITE", target.storage_options)
    touched = find_touched(table, read_condition(table, where, None))
    old = touched.files.take(touched.numbers)
    transaction.reads_paths(old.column("path").to_pylist())
    removes = removals(old, transaction.ctx.clock_ms(), data_change=data_change)
    if not touched.partial:
        return Replacement(removes, [], [], touched.row_count)
    files = RowFiles(target)
    copies = files.write_rows(table.rows(touched.files, touched.partial, without=touched.partial))
    changes: list[AddCdcFile] = []
    if data_change and table.records_changes:
        gone = table.rows(touched.files, touched.numbers, only=touched.partial)
        changes = files.write_changes(gone.withColumn(CHANGE_TYPE, functions().lit("delete")))
    return Replacement(removes, copies, changes, touched.row_count)


def inserted(spark: SparkSession, transaction: Transaction, adds: list[Add], target: WriteTarget) -> list[AddCdcFile]:
    """The change data files for new rows, read back from the files that hold them: a DataFrame may not say it twice."""
    if not adds:
        return []
    rows = DmlTarget(spark, transaction, "WRITE", target.storage_options).written_rows(adds)
    return RowFiles(target).write_changes(rows.withColumn(CHANGE_TYPE, functions().lit("insert")))
