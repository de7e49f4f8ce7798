"""What a Python worker does with the rows of one task: it writes them to data files, and says which it wrote.

Rows of a partitioned table come sorted, so that one file is open at a time however many partitions there are. Every
attempt of a task writes files of its own; only what the successful attempt returns reaches the log.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.spark.file_columns import to_file_batch
from headwater.spark.file_places import open_places
from headwater.spark.parquet_file import ParquetFile
from headwater.spark.partition_text import partition_text, same_value_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.spark.file_plan import FilePlan

RESULT_SCHEMA = "key string, partition_values string, size_bytes long, modified_ms long, stats string"
"""One row for each file; the partition values are JSON, by their keys in the log."""
_RESULT_TYPES = pa.schema(
    [
        (name, pa.int64() if kind == "long" else pa.string())
        for name, kind in (column.split() for column in RESULT_SCHEMA.split(", "))
    ]
)
_GUESSED_RATIO = 1.0


@dataclass(frozen=True)
class WrittenFile:
    """A complete file."""

    key: str
    """Its path below the table, not encoded."""
    partition_values: dict[str, str | None]
    size_bytes: int
    modified_ms: int
    stats: str | None


def write_rows(plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; made for `mapInArrow`. One row of `RESULT_SCHEMA` for each file."""
    writer = TaskWriter(plan, task_number())
    try:
        for batch in batches:
            writer.write(batch)
        files = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    yield result_batch(files)


def task_number() -> int:
    """The number of the task that this worker has; 0 where there is none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def result_batch(files: list[WrittenFile]) -> pa.RecordBatch:
    """Files as rows of `RESULT_SCHEMA`."""
    columns: list[list[object]] = [
        [file.key for file in files],
        [json.dumps(file.partition_values) for file in files],
        [file.size_bytes for file in files],
        [file.modified_ms for file in files],
        [file.stats for file in files],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _RESULT_TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT_TYPES)


class TaskWriter:
    """Writes the rows of one task, file after file."""

    def __init__(self, plan: FilePlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._schema = plan.file_schema.to_arrow()
        self._places = open_places(plan.uri, plan.storage_options)
        self._finished: list[WrittenFile] = []
        self._open: tuple[str, ParquetFile] | None = None
        self._values: tuple[str | None, ...] = ()
        self._ratio = _GUESSED_RATIO

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, in the schema of the DataFrame."""
        if not batch.num_rows:
            return
        rows = to_file_batch(batch, self._plan, self._schema)
        if not self._plan.partitions:
            self._append(rows)
            return
        columns = [batch.column(partition.name) for partition in self._plan.partitions]
        runs = same_value_runs(columns)
        for start, end in pairwise(runs):
            values = tuple(
                partition_text(column[start], partition.type, partition.name)
                for column, partition in zip(columns, self._plan.partitions, strict=True)
            )
            if values != self._values:
                self._close()
                self._values = values
            self._append(rows.slice(start, end - start))

    def finish(self) -> list[WrittenFile]:
        """Close the last file; all files of the task."""
        self._close()
        return self._finished

    def abandon(self) -> None:
        """Remove the files of an attempt that failed, as far as that is possible."""
        if self._open is not None:
            _, file = self._open
            with contextlib.suppress(Exception):  # the attempt has failed already, and that is what to report
                file.abandon()
            with contextlib.suppress(OSError):
                os.unlink(file.path)
        for written in self._finished:
            self._places.remove(written.key)

    def _append(self, rows: pa.RecordBatch) -> None:
        """Add rows with the same partition values, to as many files as limits demand."""
        limit = self._plan.max_records
        while rows.num_rows:
            file = self._current()
            fitting = rows if limit is None else rows.slice(0, limit - file.num_rows)
            file.add(fitting)
            rows = rows.slice(fitting.num_rows)
            if (limit is not None and file.num_rows >= limit) or self._is_large(file):
                self._close()

    def _is_large(self, file: ParquetFile) -> bool:
        """Whether the file has reached its target size. The first time rows are written to see how they compress."""
        target = self._plan.target_size_bytes
        if target is None or file.size_bytes(self._ratio) < target:
            return False
        file.flush()
        self._ratio = file.measured_ratio
        return file.size_bytes(self._ratio) >= target

    def _current(self) -> ParquetFile:
        if self._open is None:
            named = {p.name: text for p, text in zip(self._plan.partitions, self._values, strict=True)}
            key = self._plan.names.new_key(self._task, len(self._finished), named)
            self._open = key, ParquetFile(self._places.path(key), self._plan, self._schema)
        return self._open[1]

    def _close(self) -> None:
        if self._open is None:
            return
        key, file = self._open
        stats = file.close()
        stored = self._places.finish(key, file.path)
        values = {p.key: text for p, text in zip(self._plan.partitions, self._values, strict=True)}
        self._finished.append(WrittenFile(key, values, stored.size_bytes, stored.modified_ms, stats))
        self._open = None
