"""What a Python worker does to give rows of a file other values: it writes columns again, and takes the rest over.

A file keeps its rows, in their order, and its row groups. Only columns in which values really change are written;
columns that the file does not have yet are added to it. Columns that are not the table's stay behind: row tracking may
have kept the commit versions of rows in one, and be switched off now, and rows with new values must not keep theirs.
"""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headwater.errors import CorruptLogError
from headwater.log.schema import StructType
from headwater.spark.arrow_rows import ReaderSettings, UnreadableInPythonError, find_columns
from headwater.spark.changed_statistics import joined_statistics
from headwater.spark.data_files import DataFiles
from headwater.spark.file_places import open_places
from headwater.spark.indexed_columns import width
from headwater.spark.old_columns import OldColumn
from headwater.spark.parquet_file import ParquetFile
from headwater.spark.parquet_splice import UnsplicedError, splice
from headwater.spark.task_writer import WrittenFile
from headwater.storage.failures import from_os_error
from headwater.storage.local import LocalStore
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headwater.log.parquet import ParquetObject
    from headwater.log.schema import MappingMode
    from headwater.spark.file_plan import FilePlan
    from headwater.spark.old_columns import Positions

_MAP_WHOLE = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
"""Pages of a file that are all needed are mapped at once, where the system can do that: it takes half the time."""
_MAX_BYTES_IN_MEMORY = 256 * 2**20
"""Columns of larger files are kept on a disk until all of them are written."""


@dataclass(frozen=True)
class OldFile:
    """A file of the table."""

    uri: str
    size_bytes: int
    partition_values: dict[str, str | None]
    """As the log has them."""


class ChangedFile(NamedTuple):
    """A file that takes the place of another."""

    file: WrittenFile
    """Its statistics are those of the columns that were written."""
    columns: list[str]
    """These columns, by their names in statistics."""
    num_rows: int
    """How many rows it has."""


class _NewColumn(NamedTuple):
    """A column that was written."""

    data: pa.Buffer
    """A Parquet file of its own."""
    replaces: str | None
    """The column of the old file in whose place it comes; None if that has none."""
    stats: str | None


class _Spool:
    """Where a column is written before it comes to its place: in memory, or on a disk if the file is large."""

    def __init__(self, size_bytes: int, stack: ExitStack) -> None:
        self._stack = stack
        self._path: str | None = None
        self.sink: pa.NativeFile = pa.BufferOutputStream()
        if size_bytes > _MAX_BYTES_IN_MEMORY:
            self._path = f"{stack.enter_context(TemporaryDirectory(prefix='headwater-'))}/column"
            self.sink = pa.OSFile(self._path, "wb")

    def data(self) -> pa.Buffer:
        """What was written, valid in the context."""
        if self._path is None:
            return self.sink.getvalue()
        self.sink.close()
        return self._stack.enter_context(pa.memory_map(self._path)).read_buffer()


def plans_of_columns(plan: FilePlan, names: Collection[str]) -> list[FilePlan]:
    """How columns of a table's files are written, each of them alone.

    Args:
        plan: how files with all columns are.
        names: the columns.
    """
    return [_plan_of(plan, place) for place, field in enumerate(plan.schema.fields) if field.name in names]


def _plan_of(plan: FilePlan, place: int) -> FilePlan:
    stored = plan.file_schema.fields[place]
    leaves = None
    if plan.leaves is not None:
        before = sum(width(field.type) for field in plan.file_schema.fields[:place])
        own = (leaf for leaf in plan.leaves if leaf.path[0] == stored.name)
        leaves = tuple(replace(leaf, column=leaf.column - before) for leaf in own)
    schema = StructType([plan.schema.fields[place]])
    return replace(plan, schema=schema, file_schema=StructType([stored]), leaves=leaves)


class ColumnWriter:
    """Writes files that differ from others in some rows and columns.

    Args:
        plan: how files with all columns are.
        plans: from `plans_of_columns`: the columns in which they may differ.
        mode: how the table maps its columns.
        task: the number of the task.
        settings: of the session that reads.
    """

    def __init__(
        self,
        plan: FilePlan,
        plans: Sequence[FilePlan],
        mode: MappingMode,
        task: int,
        settings: ReaderSettings | None = None,
    ) -> None:
        self._plan = plan
        self._plans = plans
        self._mode = mode
        self._task = task
        self._settings = settings or ReaderSettings()
        self._files = DataFiles(self._plan.uri, self._plan.storage_options)
        self._places = open_places(self._plan.uri, self._plan.storage_options)
        self._written: list[str] = []
        self._differing: set[str] = set()
        self._last_sources: tuple[pa.Schema, dict[str, pa.Field | None]] | None = None

    def write(self, old: OldFile, rows: Positions, values: pa.RecordBatch) -> ChangedFile | None:
        """Write a file with new values in some rows; None if these rows have the values already.

        Args:
            old: the file.
            rows: the positions of the rows in it, ascending.
            values: their values, by the names and types of the table's rows.

        Raises:
            UnreadableInPythonError: the file holds something that only Spark understands.
            StorageError: the file could not be written.
        """
        if parse_uri(old.uri).kind != "local":
            raise UnreadableInPythonError(f"{old.uri} is not on a disk")
        store, key = self._files.locate(old.uri)
        assert isinstance(store, LocalStore), "a file on a disk"
        try:
            return self._changed(old, store.local_path(key), rows, values)
        except (UnreadableInPythonError, CorruptLogError) as error:
            raise UnreadableInPythonError(f"while reading file {old.uri}: {error}") from error

    def _sources_in(self, schema: pa.Schema) -> dict[str, pa.Field | None]:
        """Where a file has the table's columns; most files of a table are alike."""
        if self._last_sources is None or not schema.equals(self._last_sources[0], check_metadata=True):
            self._last_sources = schema, find_columns(self._plan.schema.fields, schema, self._mode)
        return self._last_sources[1]

    def _changed(self, old: OldFile, path: str, rows: Positions, values: pa.RecordBatch) -> ChangedFile | None:
        file = self._files.open(old.uri, old.size_bytes)
        self._settings.check(file.metadata)
        if self._settings.may_be_old(file.metadata):
            raise UnreadableInPythonError("it may have dates in the old calendar, which new ones cannot join")
        # All columns, also those that are taken over as bytes: a file that a scan refuses is not rewritten.
        sources = self._sources_in(file.schema)
        with ExitStack() as stack:
            changed = {
                plan.file_schema.names[0]: column
                for plan in self._plans
                if (column := self._column(plan, file, sources, rows, values, stack)) is not None
            }
            if not changed:
                return None
            kept = [source.name for source in sources.values() if source is not None]
            written = self._spliced(old, path, list(changed.values()), kept)
        stats = None
        if self._plan.leaves is not None:
            stats = joined_statistics([column.stats for column in changed.values()], file.metadata.num_rows)
        return ChangedFile(replace(written, stats=stats), list(changed), file.metadata.num_rows)

    def abandon(self) -> None:
        """Remove the files of an attempt that failed, as far as that is possible."""
        for key in self._written:
            self._places.remove(key)

    def _spliced(self, old: OldFile, old_path: str, columns: list[_NewColumn], kept: list[str]) -> WrittenFile:
        named = {p.name: old.partition_values.get(p.key) or None for p in self._plan.partitions}
        key = self._plan.names.new_key(self._task, len(self._written), named)
        path = self._places.path(key)
        self._written.append(key)
        pieces = [(memoryview(column.data), column.replaces) for column in columns]
        try:
            with open(old_path, "rb") as source, open(path, "wb") as sink:
                mapped = mmap.mmap(source.fileno(), 0, flags=_MAP_WHOLE, prot=mmap.PROT_READ)
                splice(memoryview(mapped), pieces, sink, self._plan.spark_version, kept=kept)
        except UnsplicedError as error:
            raise UnreadableInPythonError(str(error)) from error
        except OSError as error:
            raise from_os_error(error, "write", path, writing=True) from error
        stored = self._places.finish(key, path)
        return WrittenFile(key, old.partition_values, stored.size_bytes, stored.modified_ms, None)

    def _column(
        self,
        plan: FilePlan,
        file: ParquetObject,
        sources: Mapping[str, pa.Field | None],
        rows: Positions,
        values: pa.RecordBatch,
        stack: ExitStack,
    ) -> _NewColumn | None:
        """A column with the new values, valid in the context; None if they are those that it has."""
        name = plan.schema.fields[0].name
        old = OldColumn(plan, file, sources[name], self._mode, rows, values)
        # What differed in the last file will differ in this one: then it need not be decoded twice.
        is_expected = name in self._differing
        is_changed = not is_expected and old.differs()
        if not (is_changed or is_expected):
            return None
        spool = _Spool(file.meta.size_bytes, stack)
        written = ParquetFile("", plan, old.schema, spool.sink)
        for parts in map(list, old.groups()):
            is_changed = is_changed or any(part.changes() for part in parts)
            columns = [part.replaced() for part in parts]
            written.add_group([pa.RecordBatch.from_arrays([column], schema=old.schema) for column in columns])
        stats = written.close()
        if not is_changed:
            self._differing.remove(name)
            return None
        self._differing.add(name)
        return _NewColumn(spool.data(), old.name, stats)
