"""Copying rows from files to files: what a command that rewrites files does with the rows that stay as they are.

Python workers read files and write files with Arrow, and no row passes through Spark: it takes less than half the CPU
of a scan and a write. Spark deals the files out to its executors. The rows are the same as those of a scan: columns by
name or id, types widened, deleted rows left out, row ids kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.log.schema import LONG, StructField
from headwater.spark.arrow_rows import UnreadableInPythonError
from headwater.spark.data_writer import file_plan, write_results
from headwater.spark.python_reader import read_splits
from headwater.spark.python_scan import dealt_splits, planned_read
from headwater.spark.read_filter import Selection, Wanted
from headwater.spark.row_tracking import materialized_names
from headwater.spark.task_writer import RESULT_SCHEMA, write_rows
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.log.actions import Add
    from headwater.log.snapshot import Snapshot
    from headwater.spark.write_target import WriteTarget

__all__ = ["UnreadableInPythonError", "can_copy", "copy_rows"]

_MIN_TASKS = 8
_SMALL_FILE_BYTES = 8 * 2**20


def can_copy(snapshot: Snapshot) -> bool:
    """Whether Python workers surely reach the files: those of object stores may need what only Hadoop is told."""
    return parse_uri(snapshot.uri).kind == "local"


def copy_rows(
    spark: SparkSession,
    snapshot: Snapshot,
    target: WriteTarget,
    *,
    row_tracking: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[Add]:
    """Write the rows of a snapshot, or of a part of one, into new files. One Spark job.

    Args:
        spark: the session, of either kind.
        snapshot: the rows.
        target: where the files go.
        row_tracking: whether rows keep their ids and commit versions.
        storage_options: options of the object store.

    Raises:
        UnreadableInPythonError: a file holds something that only Spark's own reader understands.
        StorageError: a file could not be read or written.
    """
    read_plan, _, rows = planned_read(spark, snapshot, Wanted(Selection(), True, row_tracking, {}, storage_options))
    read_plan = replace(read_plan, located=False)
    names = materialized_names(target.properties) if row_tracking else {}
    plan = file_plan(spark, replace(target, hidden=tuple(StructField(name, LONG) for name in names.values())))

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = read_splits(read_plan, batches)
        return write_rows(plan, (batch.rename_columns([names.get(n, n) for n in batch.schema.names]) for batch in held))

    # Few tasks for little data, because each of them makes a file.
    size_bytes = pc.sum(rows.column("size")).as_py() or 0
    tasks = dealt_splits(spark, rows, min(_MIN_TASKS, 1 + size_bytes // _SMALL_FILE_BYTES))
    return write_results(tasks.mapInArrow(copy, RESULT_SCHEMA), plan)
