"""Copy rows from files to files, for commands that rewrite files with rows that stay as they are.

Python workers read files and write files with Arrow, and no row passes through Spark: it takes less than half the CPU
of a scan and a write. The rows are those of a scan: columns by name or id, types widened, deleted rows left out, row
ids kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.errors import UnreadableInPythonError
from headwater.log.files.arrow import order_of
from headwater.log.schema import LONG, StructField
from headwater.parquet.read import SIZE
from headwater.spark.scan.columns import materialized_names
from headwater.spark.scan.python import distributed_ranges, planned_read, read_ranges, scan_in_python
from headwater.spark.workers import (
    PACKED_SCHEMA,
    core_count,
    in_small_batches,
    in_workers,
    jemalloc_pool,
    packed,
    unpacked,
)
from headwater.spark.write.files import RESULT_SCHEMA, file_plan, write_results, write_rows
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions.model import Add
    from headwater.log.snapshot import Snapshot
    from headwater.parquet.plan import FilePlan, WriteTarget
    from headwater.spark.scan.request import ScanRequest
    from headwater.spark.workers import Work


_TASKS_PER_CORE = 2
_GATHERING_TASKS_PER_CORE = 4
_SMALL_FILE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Copies:
    """Rows to copy.

    Attributes:
        spark: the session, of either kind.
        request: the rows.
        target: where the files go.
    """

    spark: SparkSession
    request: ScanRequest
    target: WriteTarget

    def write(self, by_spark: Callable[[], list[Add]], *, num_tasks: int | None = None) -> list[Add]:
        """Write the rows into new files. One Spark job.

        Args:
            by_spark: writes the same rows by Spark's reader and writer, which understand what Arrow does not.
            num_tasks: how many tasks share the work, each writing its own files; by default it depends on the size.

        Raises:
            StorageError: a file could not be read or written.
        """
        return self._tried(lambda: self._written(num_tasks), by_spark)

    def gather(self, by_spark: Callable[[], list[Add]]) -> list[Add]:
        """Write the rows of many tiny files into one: all workers read, and one of them writes. One Spark job.

        The rows pass through Spark's shuffle as Arrow IPC blobs.
        """
        return self._tried(self._gathered, by_spark)

    def read(self, write: Callable[[DataFrame], list[Add]], by_spark: Callable[[], list[Add]]) -> list[Add]:
        """Let Python workers read the rows, and Spark do the rest: they open tiny files several times faster.

        Args:
            write: writes the rows.
            by_spark: reads and writes them by Spark, which understands what Arrow does not.
        """
        return self._tried(lambda: write(scan_in_python(self.spark, self.request)), by_spark)

    def _tried(self, fast: Callable[[], list[Add]], by_spark: Callable[[], list[Add]]) -> list[Add]:
        if not can_copy(self.request.snapshot):
            return by_spark()
        try:
            return fast()
        except UnreadableInPythonError:
            return by_spark()

    def _planned(self) -> tuple[Work, FilePlan, pa.Table]:
        """Return how file ranges become rows for the files, how these are written, and the files to read."""
        read_plan, _, rows = planned_read(self.spark, self.request)
        read_plan = replace(read_plan, located=False)
        names = materialized_names(self.target.properties) if self.request.row_tracking else {}
        hidden = tuple(StructField(name, LONG) for name in names.values())

        def read(splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in read_ranges(read_plan, splits):
                yield batch.rename_columns([names.get(name, name) for name in batch.schema.names])

        if read_plan.partition_columns:
            rows = rows.take(order_of([rows.column(name) for name in read_plan.partition_columns.values()]))
        return read, file_plan(self.spark, replace(self.target, hidden=hidden)), rows

    def _gathered(self) -> list[Add]:
        read, plan, rows = self._planned()

        def pack(splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (packed(batch) for batch in read(splits))

        def write(packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            values = (value.as_buffer() for pack in packs for value in pack.column(0))
            with jemalloc_pool():
                yield from write_rows(plan, (batch for value in values for batch in unpacked(value).to_batches()))

        most = _GATHERING_TASKS_PER_CORE * core_count(self.spark)
        splits = distributed_ranges(self.spark, rows, most, most, private=True)
        together = in_workers(splits, pack, PACKED_SCHEMA).repartition(1)
        return write_results(in_small_batches(in_workers(together, write, RESULT_SCHEMA)), plan)

    def _written(self, num_tasks: int | None) -> list[Add]:
        read, plan, rows = self._planned()

        def copy(splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with jemalloc_pool():
                yield from write_rows(plan, read(splits))

        least, most = _task_limits(self.spark, rows, num_tasks)
        # A task that has all files of a partition writes one for them.
        splits = distributed_ranges(self.spark, rows, least, most, private=True, in_runs=bool(plan.partitions))
        return write_results(in_workers(splits, copy, RESULT_SCHEMA), plan)


def can_copy(snapshot: Snapshot) -> bool:
    """Return whether Python workers surely reach the files: object stores may need credentials that only Hadoop has."""
    return parse_uri(snapshot.uri).kind == "local"


def _task_limits(spark: SparkSession, rows: pa.Table, num_tasks: int | None) -> tuple[int, int | None]:
    """Return the least and the largest number of tasks: few for little data, because each of them makes a file."""
    if num_tasks is not None:
        return num_tasks, num_tasks
    size_bytes = pc.sum(rows.column(SIZE)).as_py() or 0
    return min(_TASKS_PER_CORE * core_count(spark), 1 + size_bytes // _SMALL_FILE_BYTES), None
