"""Rows on their way to the tasks that write them, many in one value: Spark only brings them there.

A task gets rows of some files, each with its position in the file, or rows that are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from headwater.log.columns import int64s, order_of
from headwater.spark.partition_text import partition_text, same_value_runs
from headwater.spark.workers import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.spark.file_plan import PartitionColumn

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]

PACKS_SCHEMA = "task int, file int, partition string, rows binary"
_PACKS = pa.schema([("task", pa.int32()), ("file", pa.int32()), ("partition", pa.string()), ("rows", pa.binary())])
READ_ROWS = -3
NEW_ROWS = -2
ABOUT_FILES = -1
"""Where the number of a file would be: the rows say what was read, are new ones, or describe the files of a task."""
_GATHERED_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Sum:
    """How many rows were read, and their hashes together: the same rows have the same, in any order."""

    count: int = 0
    check: int = 0

    @classmethod
    def of(cls, hashes: Numbers) -> Sum:
        """The sum of rows."""
        return cls(len(hashes), int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0)

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.count + other.count, self.check ^ other.check)


@dataclass(frozen=True)
class Dealer:
    """Packs rows for tasks. It travels to the executors."""

    files: Numbers
    """The numbers of the files, ascending."""
    num_tasks: int
    """How many tasks have files."""
    num_new_tasks: int = 0
    """How many have new rows; they come first, for they are few and have more to do."""
    partitions: tuple[PartitionColumn, ...] = ()
    """The columns that partition the table."""
    pack_bytes: int = _GATHERED_BYTES
    """How large packs are, at most and roughly."""

    def packs(self, files: Numbers, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of files, packed by file.

        Args:
            files: the number of each row's file.
            rows: the position of each, and its new values.
        """
        order = np.argsort(files, kind="stable")
        ordered, rows = files[order], rows.take(pa.array(order))
        bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for start, end in pairwise(bounds if len(ordered) else []):
            number = int(ordered[start])
            yield from self._packs(self.task(number), number, rows.slice(start, end - start))

    def task(self, number: int) -> int:
        """The task that has a file."""
        return self.num_new_tasks + int(np.searchsorted(self.files, number)) % self.num_tasks

    def sum_pack(self, read: Sum) -> pa.RecordBatch:
        """What was read, for any task."""
        return pack(0, READ_ROWS, pa.table({"count": int64s([read.count]), "check": int64s([read.check])}))

    def new_packs(self, rows: pa.Table, hand: int) -> Iterator[pa.RecordBatch]:
        """New rows, packed by partition.

        Args:
            rows: the rows.
            hand: how many packs were made before.
        """
        if not rows.num_rows:
            return
        if not self.partitions:
            yield from self._packs(hand % self.num_new_tasks, NEW_ROWS, rows)
            return
        rows = rows.take(order_of([rows.column(partition.name) for partition in self.partitions]))
        columns = [rows.column(partition.name).combine_chunks() for partition in self.partitions]
        for start, end in pairwise(same_value_runs(columns)):
            texts = [
                partition_text(column[start], partition.type, partition.name)
                for column, partition in zip(columns, self.partitions, strict=True)
            ]
            task = crc32(repr(texts).encode()) % self.num_new_tasks
            yield from self._packs(task, NEW_ROWS, rows.slice(start, end - start), repr(texts))

    def _packs(self, task: int, number: int, rows: pa.Table, partition: str = "") -> Iterator[pa.RecordBatch]:
        """Rows in as many packs as they need."""
        count = max(1, -(-rows.nbytes // self.pack_bytes))
        size = -(-rows.num_rows // count)
        for start in range(0, rows.num_rows, size):
            yield pack(task, number, rows.slice(start, size), partition)


def pack(task: int, number: int, rows: pa.RecordBatch | pa.Table, partition: str = "") -> pa.RecordBatch:
    """Rows for a task.

    Args:
        task: the number of the task.
        number: that of the file to which they belong, or what they are instead.
        rows: the rows.
        partition: of a task's new rows, those of a partition come together.
    """
    columns = [pa.array([value], type_) for value, type_ in zip((task, number, partition), _PACKS.types, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, packed(rows).column(0)], schema=_PACKS)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of many batches together, so that packs are not tiny."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= _GATHERED_BYTES:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)
