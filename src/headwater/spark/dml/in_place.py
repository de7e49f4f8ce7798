"""Rewrite only the columns of data files in which values change, for UPDATE and MERGE.

`column_job` is the only entry: it decides whether a table allows this, and `COLUMN_REWRITE_SETTING` turns it off. The
job is one Spark job. It packs the new values of rows into Arrow IPC blobs by file, so that the shuffle moves them as
single binary values; the task that owns a file writes its changed columns and copies the bytes of all others
(`headwater.parquet.splice.columns`). No row changes its position. New rows may come along: other tasks of the same job
write them to new files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UnreadableInPythonError
from headwater.features.type_widening import without_type_changes
from headwater.log.actions.paths import file_uris
from headwater.log.files.arrow import order_of, same_value_runs
from headwater.log.stats.values import partition_text
from headwater.parquet.splice.columns import ColumnWriter, OldFile, RewrittenFile, plans_of_columns
from headwater.parquet.stats import changed_statistics
from headwater.spark.errors import explained_violations
from headwater.spark.functions import functions
from headwater.spark.scan.python import reader_settings
from headwater.spark.workers import core_count, in_workers, jemalloc_pool, packed, unpacked
from headwater.spark.write.files import (
    RESULT_SCHEMA,
    TaskWriter,
    file_plan,
    result_batch,
    task_number,
    write_results_noted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from headwater.log.actions.model import Add
    from headwater.log.schema import MappingMode
    from headwater.parquet.plan import FilePlan, PartitionColumn
    from headwater.parquet.read import ReaderSettings
    from headwater.parquet.write import WrittenFile
    from headwater.spark.dml.target import DmlTarget, TargetFiles

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]


COLUMN_REWRITE_SETTING = "spark.headwater.columnRewrite.enabled"
"""The setting that turns the rewrite of single columns off; files are then written as a whole."""
PACKS_SCHEMA = "task int, file int, partition string, rows binary"
_PACKS = pa.schema([("task", pa.int32()), ("file", pa.int32()), ("partition", pa.string()), ("rows", pa.binary())])
NEW_ROWS = -2
_FILE_DESCRIPTIONS = -1
"""Take the place of a file's number in packs of new rows, and in packs that describe the files of a task."""
_PACK_BYTES = 16 * 2**20
_TASKS_PER_CORE = 4
_BYTES_PER_TASK = 256 * 2**20
_NEW_BYTES_PER_TASK = 64 * 2**20
"""As Spark counts the bytes of rows, several times those of a file."""

_RESULT_SCHEMA = f"file int, num_updated long, num_copied long, columns array<string>, {RESULT_SCHEMA}"
"""One row for each file that has rows with new values (without a key if they equal the old ones), and for each file
with new rows."""
_NOTES = pa.schema(
    [("file", pa.int32()), ("num_updated", pa.int64()), ("num_copied", pa.int64()), ("columns", pa.list_(pa.string()))]
)


@dataclass(frozen=True)
class ColumnJobResult:
    """The files that a `ColumnJob` wrote."""

    numbers: list[int]
    """The files that hold rows with new values."""
    replaced: list[int]
    """Those of them in which a value differs from the old one."""
    changed: list[Add]
    """The files that replace these, in the same order."""
    new: list[Add]
    """Files of new rows only."""
    num_updated: int
    num_copied: int
    """How many other rows the replaced files have."""


def column_job(
    target: DmlTarget, files: TargetFiles, numbers: Sequence[int], columns: Sequence[str], new_bytes: int = 0
) -> ColumnJob | None:
    """Return a job that gives rows of files new values in place; None if these files must be written as a whole.

    Args:
        files: candidates of the command.
        numbers: those of them that may hold rows with new values, ascending.
        columns: the columns that may get new values.
        new_bytes: how large the new rows are that come along, as Spark counts.
    """
    is_enabled = str(target.spark.conf.get(COLUMN_REWRITE_SETTING, "true")).lower() == "true"
    if not is_enabled or not numbers or not _allows_column_rewrite(target):
        return None
    partitions = {name.lower() for name in target.snapshot.partition_columns}
    moves_rows = any(name.lower() in partitions for name in columns)
    has_vectors = files.take(numbers).column("deletionVector").null_count < len(numbers)
    return None if moves_rows or has_vectors else ColumnJob(target, files, numbers, columns, new_bytes)


def _allows_column_rewrite(target: DmlTarget) -> bool:
    if not target.copies_fast or target.uses_vectors or target.tracks_rows or target.records_changes:
        return False
    # New files have the types of the schema; columns that are copied may still have an older, narrower type.
    schema = target.definition.schema
    return without_type_changes(schema) == schema and not target.write_target().materialize_partition_columns


@dataclass(frozen=True)
class ColumnJob:
    """A job that writes new values of rows, and new rows; see `column_job` for its attributes."""

    target: DmlTarget
    files: TargetFiles
    numbers: Sequence[int]
    columns: Sequence[str]
    new_bytes: int

    @cached_property
    def packer(self) -> RowPacker:
        size_bytes = pc.sum(self.files.take(self.numbers).column("size")).as_py() or 0
        cores = core_count(self.target.spark)
        num_tasks = min(len(self.numbers), max(_TASKS_PER_CORE * cores, size_bytes // _BYTES_PER_TASK))
        num_new_tasks = -(-self.new_bytes // _NEW_BYTES_PER_TASK)
        return RowPacker(np.array(self.numbers, np.int32), num_tasks, num_new_tasks, self._plan.partitions)

    def pack_updates(self, rows: DataFrame) -> DataFrame:
        """Pack rows with new values: the number of each row's file, its position, and the columns."""
        packer = self.packer

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in gathered(batches):
                yield from packer.update_packs(table.column(0).to_numpy(), table.remove_column(0))

        return in_workers(rows, pack, PACKS_SCHEMA)

    def pack_inserts(self, rows: DataFrame) -> DataFrame:
        """Pack new rows of the table."""
        packer = self.packer

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for turn, table in enumerate(gathered(batches), task_number()):
                yield from packer.insert_packs(table, turn)

        return in_workers(rows, pack, PACKS_SCHEMA)

    def run(self, packs: DataFrame) -> ColumnJobResult | None:
        """Write the files; None if one of them holds something that only Spark reads, and nothing was done.

        Args:
            packs: rows of `PACKS_SCHEMA`.

        Raises:
            ConstraintViolationError: a new row breaks a rule of the table.
            ValueConversionError: a value does not fit the type of its column.
            StorageError: a file could not be read or written.
        """
        definition, plan = self.target.definition, self._plan
        mode = definition.mapping_mode
        plans = plans_of_columns(plan, self.columns)
        settings = reader_settings(self.target.spark)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with jemalloc_pool():
                yield from ColumnTask(plan, plans, mode, settings).results(batches)

        job = in_workers(self._by_task(packs.union(self._descriptions())), write, _RESULT_SCHEMA)
        try:
            with explained_violations(self.target.uri):
                return self._result(write_results_noted(job, plan))
        except UnreadableInPythonError:
            return None

    @cached_property
    def _plan(self) -> FilePlan:
        return file_plan(self.target.spark, self.target.write_target())

    def _by_task(self, packs: DataFrame) -> DataFrame:
        """Bring the packs of a task together: first those that describe its files, then file by file."""
        num_tasks = self.packer.num_tasks + self.packer.num_new_tasks
        if hasattr(packs, "repartitionById"):
            grouped = packs.repartitionById(num_tasks, functions().col("task"))
        else:  # before Spark 4.1; some tasks may share a partition
            grouped = packs.repartition(num_tasks, "task")
        return grouped.sortWithinPartitions("file", "partition")

    def _descriptions(self) -> DataFrame:
        """Describe to each task its files, in a pack."""
        packer, old = self.packer, self.files.take(self.numbers)
        table = old.select(["size", "partitionValues"])
        table = table.append_column("uri", file_uris(old.column("path"), self.files.snapshot.uri))
        table = table.append_column("file", pa.array(packer.files))
        shares = [np.arange(task, len(old), packer.num_tasks) for task in range(packer.num_tasks)]
        packs = [
            _pack(packer.num_new_tasks + task, _FILE_DESCRIPTIONS, table.take(pa.array(share)))
            for task, share in enumerate(shares)
        ]
        return self.target.spark.createDataFrame(pa.Table.from_batches(packs))

    def _result(self, found: list[tuple[Add | None, Any]]) -> ColumnJobResult:
        found.sort(key=lambda pair: int(pair[1].file))
        replaced = [(file, row) for file, row in found if file is not None and row.file >= 0]
        stats = self.files.take(row.file for _, row in replaced).column("stats").to_pylist()
        changed = [
            msgspec.structs.replace(file, stats=changed_statistics(text, file.stats, row.columns))
            for (file, row), text in zip(replaced, stats, strict=True)
        ]
        return ColumnJobResult(
            [row.file for _, row in found if row.file >= 0],
            [row.file for _, row in replaced],
            changed,
            [file for file, row in found if file is not None and row.file == NEW_ROWS],
            sum(row.num_updated or 0 for _, row in found),
            sum(row.num_copied or 0 for _, row in found),
        )


@dataclass(frozen=True)
class RowPacker:
    """Packs rows for tasks. It is sent to the executors."""

    files: Numbers
    """The numbers of the files, ascending."""
    num_tasks: int
    """How many tasks have files."""
    num_new_tasks: int = 0
    """How many have new rows; they come first, for they are few and have more to do."""
    partitions: tuple[PartitionColumn, ...] = ()

    def task(self, number: int) -> int:
        """Return the task that has a file."""
        return self.num_new_tasks + int(np.searchsorted(self.files, number)) % self.num_tasks

    def update_packs(self, files: Numbers, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Pack rows by file.

        Args:
            files: the number of each row's file.
            rows: the position of each, and its new values.
        """
        order = np.argsort(files, kind="stable")
        ordered, rows = files[order], rows.take(pa.array(order))
        bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for start, end in pairwise(bounds if len(ordered) else []):
            number = int(ordered[start])
            yield from _packs(self.task(number), number, rows.slice(start, end - start))

    def insert_packs(self, rows: pa.Table, turn: int) -> Iterator[pa.RecordBatch]:
        """Pack new rows by partition; in a table without partitions, the tasks get them in turn."""
        if not rows.num_rows:
            return
        if not self.partitions:
            yield from _packs(turn % self.num_new_tasks, NEW_ROWS, rows)
            return
        rows = rows.take(order_of([rows.column(partition.name) for partition in self.partitions]))
        columns = [rows.column(partition.name).combine_chunks() for partition in self.partitions]
        for start, end in pairwise(same_value_runs(columns)):
            texts = [
                partition_text(column[start], partition.type, partition.name)
                for column, partition in zip(columns, self.partitions, strict=True)
            ]
            task = crc32(repr(texts).encode()) % self.num_new_tasks
            yield from _packs(task, NEW_ROWS, rows.slice(start, end - start), repr(texts))


def _packs(task: int, number: int, rows: pa.Table, partition: str = "") -> Iterator[pa.RecordBatch]:
    count = max(1, -(-rows.nbytes // _PACK_BYTES))
    size = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield _pack(task, number, rows.slice(start, size), partition)


def _pack(task: int, number: int, rows: pa.Table, partition: str = "") -> pa.RecordBatch:
    """Pack rows for a task; its new rows are sorted by the text of their partition."""
    columns = [pa.array([value], type_) for value, type_ in zip((task, number, partition), _PACKS.types, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, packed(rows).column(0)], schema=_PACKS)


def gathered(batches: Iterator[pa.RecordBatch], min_rows: int | None = None) -> Iterator[pa.Table]:
    """Join batches, up to the size of a pack or a number of rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes if min_rows is None else batch.num_rows
        if size >= (_PACK_BYTES if min_rows is None else min_rows):
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


class ColumnTask:
    """Writes the files of one task.

    Args:
        plan: how files with all columns are written.
        plans: the columns that may get new values (`headwater.parquet.splice.columns.plans_of_columns`).
        settings: how the session reads files.
    """

    def __init__(self, plan: FilePlan, plans: Sequence[FilePlan], mode: MappingMode, settings: ReaderSettings) -> None:
        self._columns = ColumnWriter(plan, plans, mode, task_number(), settings)
        self._rows = TaskWriter(plan, task_number())
        self._known: dict[int, OldFile] = {}
        self._changed: dict[int, tuple[int, RewrittenFile | None]] = {}

    def results(self, packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files, and yield rows of `_RESULT_SCHEMA`. Made for `mapInArrow`.

        Args:
            packs: rows of `PACKS_SCHEMA`, those of a file together, after the descriptions of all files.
        """
        values = (
            (number, value.as_buffer())
            for batch in packs
            for number, value in zip(batch.column("file").to_pylist(), batch.column("rows"), strict=True)
        )
        try:
            for number, own in groupby(values, itemgetter(0)):
                self._take(number, (unpacked(data) for _, data in own))
            new = self._rows.finish()
        except BaseException:
            self._columns.abandon()
            self._rows.abandon()
            raise
        yield self._batch(new)

    def _take(self, number: int, tables: Iterable[pa.Table]) -> None:
        if number == NEW_ROWS:
            for batch in (batch for table in tables for batch in table.to_batches()):
                self._rows.write(batch)
            return
        table = pa.concat_tables(tables)
        if number == _FILE_DESCRIPTIONS:
            found = table.to_pylist(maps_as_pydicts="strict")
            self._known |= {r["file"]: OldFile(r["uri"], r["size"], r["partitionValues"] or {}) for r in found}
            return
        rows = table.column(0).to_numpy()
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows)
            rows, table = rows[order], table.take(pa.array(order))
        [values] = table.remove_column(0).combine_chunks().to_batches()
        self._changed[number] = len(rows), self._columns.write(self._known[number], rows, values)

    def _batch(self, new: list[WrittenFile]) -> pa.RecordBatch:
        noted: list[tuple[WrittenFile | None, dict[str, Any]]] = []
        for number, (count, changed) in self._changed.items():
            note = {"file": number, "num_updated": count}
            if changed is None:
                noted.append((None, note))
            else:
                columns, copied = changed.columns, changed.num_rows - count
                noted.append((changed.file, {**note, "num_copied": copied, "columns": columns}))
        noted += [(file, {"file": NEW_ROWS}) for file in new]
        written = [file for file, _ in noted if file is not None]
        places = iter(range(len(written)))
        order = [None if file is None else next(places) for file, _ in noted]
        files = result_batch(written).take(pa.array(order, pa.int64()))
        notes = pa.RecordBatch.from_pylist([note for _, note in noted], schema=_NOTES)
        names = [*notes.schema.names, *files.schema.names]
        return pa.RecordBatch.from_arrays([*notes.columns, *files.columns], names=names)
