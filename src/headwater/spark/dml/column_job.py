"""Rows get new values where they are: files are written again, but only the columns in which values change.

One Spark job. Whoever calls brings it new values of few rows, packed by file; they are sent to the task that has their
file, which writes columns and takes the bytes of all others over (`headwater.spark.column_files`). No row changes its
place. Rows that are new may come along: tasks of their own write them into files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.features.type_widening import without_type_changes
from headwater.log.file_uris import file_uris
from headwater.log.schema import mapping_mode
from headwater.spark.arrow_rows import UnreadableInPythonError
from headwater.spark.changed_statistics import changed_statistics
from headwater.spark.column_files import plans_of_columns
from headwater.spark.data_writer import file_plan, write_results_noted
from headwater.spark.dml.column_task import COLUMN_RESULT_SCHEMA, ColumnTask
from headwater.spark.dml.row_packs import ABOUT_FILES, NEW_ROWS, PACKS_SCHEMA, READ_ROWS, Dealer, Sum, gathered, pack
from headwater.spark.functions import functions
from headwater.spark.python_scan import reader_settings
from headwater.spark.task_writer import task_number
from headwater.spark.violations import explained_violations
from headwater.spark.workers import core_count, in_workers, thrifty_memory, unweighed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from headwater.log.actions import Add
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.dml.target_files import TargetFiles
    from headwater.spark.file_plan import FilePlan

_TASKS_PER_CORE = 4
_BYTES_PER_TASK = 256 * 2**20
_NEW_BYTES_PER_TASK = 64 * 2**20
"""As Spark counts the bytes of rows: some times those of a file."""
_LIGHT_PACK_BYTES = 64 * 2**10
HEAVY_ROW_BYTES = 32 * 2**10
"""Batches of so many rows or packs as `unweighed` jobs have must not fill the memory."""


@dataclass(frozen=True)
class ChangedFiles:
    """What was written."""

    numbers: list[int]
    """The files that hold rows with new values."""
    replaced: list[int]
    """Those of them in which values really change."""
    changed: list[Add]
    """What takes the place of these, in the same order."""
    new: list[Add]
    """Files with nothing but new rows."""
    num_updated: int
    """How many rows have new values."""
    num_copied: int
    """How many others are in the files that are replaced."""
    read: Sum
    """What those who packed the rows say that they have read."""


def can_change_columns(target: DmlTarget) -> bool:
    """Whether rows of a table may get new values where they are, and all that changes are columns of the files."""
    if not target.copies_fast or target.uses_vectors or target.tracks_rows or target.records_changes:
        return False
    # New files have the types of the schema: columns that are taken over may have those of before.
    schema = target.definition.schema
    return without_type_changes(schema) == schema and not target.write_target().materialize_partition_columns


@dataclass(frozen=True)
class ColumnJob:
    """A job that gives rows of a table new values.

    Attributes:
        target: the table; `can_change_columns` holds.
        files: candidates of the command.
        numbers: those of them that may hold such rows, ascending. None has a deletion vector. Without any, all rows
            are new, and the table may be any.
        columns: the columns that may get other values, none of which partitions the table.
        new_bytes: how much the new rows are, as Spark counts them.
        is_light: rows that come to be packed are never large (`HEAVY_ROW_BYTES`).
    """

    target: DmlTarget
    files: TargetFiles
    numbers: Sequence[int]
    columns: Sequence[str]
    new_bytes: int = 0
    is_light: bool = False

    @cached_property
    def dealer(self) -> Dealer:
        """Packs rows for this job."""
        size_bytes = pc.sum(self.files.take(self.numbers).column("size")).as_py() or 0
        cores = core_count(self.target.spark)
        num_tasks = min(len(self.numbers), max(_TASKS_PER_CORE * cores, size_bytes // _BYTES_PER_TASK))
        num_new_tasks = -(-self.new_bytes // _NEW_BYTES_PER_TASK)
        dealer = Dealer(np.array(self.numbers, np.int32), num_tasks, num_new_tasks, self._plan.partitions)
        return replace(dealer, pack_bytes=_LIGHT_PACK_BYTES) if self.is_light else dealer

    def located(self, rows: DataFrame) -> DataFrame:
        """Rows with new values, packed.

        Args:
            rows: the number of each row's file, its position, and the columns.
        """
        dealer = self.dealer

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in gathered(batches):
                yield from dealer.packs(table.column(0).to_numpy(), table.remove_column(0))

        return in_workers(rows, packed, PACKS_SCHEMA)

    def new(self, rows: DataFrame) -> DataFrame:
        """New rows, packed.

        Args:
            rows: the table's columns.
        """
        dealer = self.dealer

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for hand, table in enumerate(gathered(batches), task_number()):
                yield from dealer.new_packs(table, hand)

        return in_workers(rows, packed, PACKS_SCHEMA)

    def run(self, packs: DataFrame) -> ChangedFiles | None:
        """Write the files; None if one of them holds what only Spark understands, and nothing was done.

        Args:
            packs: rows of `PACKS_SCHEMA`.

        Raises:
            ConstraintViolationError: a new row breaks a rule of the table.
            ValueConversionError: a value cannot be kept in the type of its column.
            StorageError: a file could not be read or written.
        """
        definition, plan = self.target.definition, self._plan
        mode = mapping_mode(definition.protocol, definition.metadata)
        plans = plans_of_columns(plan, self.columns)
        settings = reader_settings(self.target.spark)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with thrifty_memory():
                yield from ColumnTask(plan, plans, mode, settings).results(batches)

        packs = packs.union(self._descriptions()) if self.numbers else packs
        job = in_workers(self._by_task(packs), write, COLUMN_RESULT_SCHEMA)
        job = unweighed(job) if self.is_light else job
        try:
            with explained_violations(self.target.uri):
                return self._understood(write_results_noted(job, plan))
        except UnreadableInPythonError:
            return None

    @cached_property
    def _plan(self) -> FilePlan:
        return file_plan(self.target.spark, self.target.write_target())

    def _by_task(self, packs: DataFrame) -> DataFrame:
        """What belongs to a task together: first what describes its files, then file by file."""
        num_tasks = self.dealer.num_tasks + self.dealer.num_new_tasks
        if hasattr(packs, "repartitionById"):
            dealt = packs.repartitionById(num_tasks, functions().col("task"))
        else:  # before Spark 4.1; some tasks may share a partition
            dealt = packs.repartition(num_tasks, "task")
        return dealt.sortWithinPartitions("file", "partition")

    def _descriptions(self) -> DataFrame:
        """What tasks must know of their files: a pack for each."""
        dealer, old = self.dealer, self.files.take(self.numbers)
        table = old.select(["size", "partitionValues"])
        table = table.append_column("uri", file_uris(old.column("path"), self.files.snapshot.uri))
        table = table.append_column("file", pa.array(dealer.files))
        hands = [np.arange(task, len(old), dealer.num_tasks) for task in range(dealer.num_tasks)]
        packs = [
            pack(dealer.num_new_tasks + task, ABOUT_FILES, table.take(pa.array(hand)))
            for task, hand in enumerate(hands)
        ]
        return self.target.spark.createDataFrame(pa.Table.from_batches(packs))

    def _understood(self, found: list[tuple[Add | None, Any]]) -> ChangedFiles:
        found.sort(key=lambda pair: int(pair[1].file))
        numbers = [row.file for _, row in found if row.file >= 0]
        replaced = [(file, row) for file, row in found if file is not None and row.file >= 0]
        stats = self.files.take(row.file for _, row in replaced).column("stats").to_pylist()
        changed = [
            msgspec.structs.replace(file, stats=changed_statistics(text, file.stats, row.columns))
            for (file, row), text in zip(replaced, stats, strict=True)
        ]
        new = [file for file, row in found if file is not None and row.file == NEW_ROWS]
        return ChangedFiles(
            numbers,
            [row.file for _, row in replaced],
            changed,
            new,
            sum(row.num_updated or 0 for _, row in found),
            sum(row.num_copied or 0 for _, row in found),
            reduce(add, (Sum(row.num_read, row.check) for _, row in found if row.file == READ_ROWS), Sum()),
        )
