"""What a Python worker does with the rows of one task: it indexes them in splits, and says which it wrote.

Rows of a partitioned table come sorted, so that one split is open at a time. Every attempt of a task writes splits of
its own; only what the successful attempt returns reaches the log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema import StructType
from headwater.spark.file_places import open_places
from headwater.spark.partition_text import partition_directory, partition_text, same_value_runs
from headwater.spark.search.split_places import absolute_path
from headwater.storage.durable import sync_directory, sync_file
from headwater.storage.failures import from_os_error
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.search.built_split import BuiltSplit
    from headwater.search.split_writer import SplitWriter

ADD_SCHEMA = "add string"
"""One row for each split: its `add` action as JSON."""


@dataclass(frozen=True)
class SplitsPlan:
    """What all tasks of one write have in common. It travels to the executors."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    schema_json: str
    doc_mapping: str
    partition_columns: tuple[str, ...]
    max_records: int | None = None
    """A split gets no more rows than this."""


def write_split_rows(plan: SplitsPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Index the rows of a task; made for `mapInArrow`. One row of `ADD_SCHEMA` for each split."""
    from pyspark import TaskContext

    context = TaskContext.get()
    with tempfile.TemporaryDirectory(prefix="headwater-splits-") as directory:
        writer = SplitTask(plan, 0 if context is None else context.partitionId(), directory)
        try:
            for batch in batches:
                writer.write(batch.rename_columns(writer.names))
            adds = writer.finish()
        except BaseException:
            writer.abandon()
            raise
    yield adds_batch(adds)


def adds_batch(adds: list[str]) -> pa.RecordBatch:
    """Actions as rows of `ADD_SCHEMA`."""
    return pa.RecordBatch.from_arrays([pa.array(adds, pa.string())], names=["add"])


class SplitTask:
    """Writes the splits of one task, one after the other."""

    def __init__(self, plan: SplitsPlan, task: int, directory: str) -> None:
        from headwater.search.fields import IndexConfig

        self._plan = plan
        self._task = task
        self._directory = directory
        self._schema = StructType.from_json(plan.schema_json)
        self._config = IndexConfig.from_json(plan.doc_mapping)
        self._placer = SplitPlacer(plan.uri, plan.storage_options)
        self._adds: list[str] = []
        self._open: SplitWriter | None = None
        self._rows = 0
        self._values: tuple[str | None, ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns of the table, in order."""
        return list(self._schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, in the schema of the table."""
        if not batch.num_rows:
            return
        names = self._plan.partition_columns
        if not names:
            self._append(batch)
            return
        columns = [batch.column(name) for name in names]
        for start, end in pairwise(same_value_runs(columns)):
            values = tuple(
                partition_text(column[start], self._schema.field(name).type, name)
                for column, name in zip(columns, names, strict=True)
            )
            if values != self._values:
                self._close()
                self._values = values
            self._append(batch.slice(start, end - start))

    def finish(self) -> list[str]:
        """Close the last split; all `add` actions of the task."""
        self._close()
        return self._adds

    def abandon(self) -> None:
        """Remove the splits of an attempt that failed, as far as that is possible."""
        if self._open is not None:
            self._open.abandon()
        self._placer.remove_all()

    def _append(self, rows: pa.RecordBatch) -> None:
        """Add rows with the same partition values, to as many splits as the limit demands."""
        limit = self._plan.max_records
        while rows.num_rows:
            fitting = rows if limit is None else rows.slice(0, limit - self._rows)
            self._current().add(fitting)
            self._rows += fitting.num_rows
            rows = rows.slice(fitting.num_rows)
            if limit is not None and self._rows >= limit:
                self._close()

    def _current(self) -> SplitWriter:
        if self._open is None:
            from headwater.search.split_writer import SplitWriter

            self._open = SplitWriter(self._config, self._schema, self._directory)
            self._rows = 0
        return self._open

    def _close(self) -> None:
        if self._open is None:
            return
        built = self._open.finish()
        self._open = None
        self._rows = 0
        values = dict(zip(self._plan.partition_columns, self._values, strict=True))
        self._adds.append(self._placer.place(built, self._task, values))


class SplitPlacer:
    """Brings complete splits to their place below a table."""

    def __init__(self, uri: str, storage_options: dict[str, str] | None) -> None:
        location = parse_uri(uri)
        self._root = location.path.rstrip("/") if location.kind == "local" else None
        self._uri = uri
        self._places = open_places(uri, storage_options)
        self._placed: list[str] = []

    def place(self, built: BuiltSplit, task: int, values: dict[str, str | None], *, data_change: bool = True) -> str:
        """Put a split under a name that nobody else has.

        Args:
            built: the split; its file is gone afterwards.
            task: the number of the task, for the name.
            values: the partition values.
            data_change: False if its rows are those of other splits of the table.

        Returns:
            Its `add` action, as JSON.
        """
        import msgspec

        key = new_key(task, values)
        self._placed.append(key)
        if self._root is None:
            stored = self._places.finish(key, built.path)
        else:
            path = self._places.path(key)
            try:
                _move(built.path, path)
            except OSError as error:
                raise from_os_error(error, "write", path, writing=True) from error
            stored = self._places.finish(key, path)
        add = built.to_add(
            absolute_path(self._uri, key), values, modified_ms=stored.modified_ms, data_change=data_change
        )
        return msgspec.json.encode(add).decode()

    def remove_all(self) -> None:
        """Remove what was placed, as far as that is possible: no log names it."""
        for key in self._placed:
            self._places.remove(key)


def new_key(task: int, values: dict[str, str | None]) -> str:
    """The key of a new split, relative to the table.

    >>> new_key(3, {"day": "2024-01-31"})  # doctest: +ELLIPSIS
    'day=2024-01-31/part-00003-....split'
    """
    name = f"part-{task:05}-{uuid.uuid4()}.split"
    directory = partition_directory(values)
    return f"{directory}/{name}" if directory else name


def _move(source: str, target: str) -> None:
    """Move a file onto an empty one, and flush it: a commit that is durable must not name less."""
    try:
        os.replace(source, target)
    except OSError:  # another disk
        shutil.copyfile(source, target)
        with contextlib.suppress(OSError):
            os.unlink(source)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(os.path.dirname(target))
