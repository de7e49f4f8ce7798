"""Rewrite columns of data files in a Python worker, and copy all other columns as bytes.

A file keeps its rows, in their order, and its row groups. Only columns in which values differ are written; columns that
the file lacks are added to it. Columns that the table does not have are left out: row tracking, now switched off, may
have kept the commit versions of rows in one, and rows with new values must not keep theirs.
"""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, UnreadableInPythonError
from headwater.log.schema import STRING, MappingMode, StructType
from headwater.parquet.plan import FilePlan, width
from headwater.parquet.read import DataFiles, ReaderSettings, batch_rows, conform, find_columns, row_type
from headwater.parquet.splice.file import UnsplicedError, splice
from headwater.parquet.stats import joined_statistics
from headwater.parquet.write import ParquetFile, WrittenFile, open_places, to_file_batch
from headwater.storage.errors import from_os_error
from headwater.storage.local import LocalStore
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from headwater.log.files.parquet import ParquetObject

    Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


_MAP_WHOLE = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
"""Map all pages at once, where the system can do that: it takes half the time."""
_MAX_BYTES_IN_MEMORY = 256 * 2**20
"""Columns of larger files are kept on a disk until all of them are written."""


@dataclass(frozen=True)
class OldFile:
    uri: str
    size_bytes: int
    partition_values: dict[str, str | None]
    """As the log has them."""


class RewrittenFile(NamedTuple):
    """A file that replaces another."""

    file: WrittenFile
    """Its statistics are those of the columns that were written."""
    columns: list[str]
    """These columns, by their names in statistics."""
    num_rows: int


class _NewColumn(NamedTuple):
    """A column that was written, as a Parquet file of its own."""

    data: pa.Buffer
    replaces: str | None
    """The column of the old file that it replaces; None if that lacks it."""
    stats: str | None


class _Spool:
    """Holds a column before it is spliced: in memory, or on a disk if the file is large."""

    def __init__(self, size_bytes: int, stack: ExitStack) -> None:
        self._stack = stack
        self._path: str | None = None
        self.sink: pa.NativeFile = pa.BufferOutputStream()
        if size_bytes > _MAX_BYTES_IN_MEMORY:
            self._path = f"{stack.enter_context(TemporaryDirectory(prefix='headwater-'))}/column"
            self.sink = pa.OSFile(self._path, "wb")

    def data(self) -> pa.Buffer:
        """Return what was written, valid in the context."""
        if self._path is None:
            return self.sink.getvalue()
        self.sink.close()
        return self._stack.enter_context(pa.memory_map(self._path)).read_buffer()


def plans_of_columns(plan: FilePlan, names: Collection[str]) -> list[FilePlan]:
    """Plan how columns of a table's files are written, each of them alone.

    Args:
        plan: how files with all columns are written.
    """
    return [_plan_of(plan, place) for place, field in enumerate(plan.schema.fields) if field.name in names]


def _plan_of(plan: FilePlan, place: int) -> FilePlan:
    stored = plan.file_schema.fields[place]
    leaves = None
    if plan.leaves is not None:
        before = sum(width(field.type) for field in plan.file_schema.fields[:place])
        own = (leaf for leaf in plan.leaves if leaf.path[0] == stored.name)
        leaves = tuple(leaf._replace(column=leaf.column - before) for leaf in own)
    schema = StructType([plan.schema.fields[place]])
    return replace(plan, schema=schema, file_schema=StructType([stored]), leaves=leaves)


class ColumnWriter:
    """Writes files that differ from others in some rows and columns.

    Args:
        plan: how files with all columns are written.
        plans: from `plans_of_columns`: the columns in which they may differ.
        task: the number of the task.
        settings: how the session reads files.
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

    def write(self, old: OldFile, rows: Positions, values: pa.RecordBatch) -> RewrittenFile | None:
        """Write a file with new values in some rows; None if these rows have the values already.

        Args:
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
        """Find the table's columns in a file; most files of a table are alike."""
        if self._last_sources is None or not schema.equals(self._last_sources[0], check_metadata=True):
            self._last_sources = schema, find_columns(self._plan.schema.fields, schema, self._mode)
        return self._last_sources[1]

    def _changed(self, old: OldFile, path: str, rows: Positions, values: pa.RecordBatch) -> RewrittenFile | None:
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
        return RewrittenFile(replace(written, stats=stats), list(changed), file.metadata.num_rows)

    def abandon(self) -> None:
        """Remove the files of a failed attempt, if possible."""
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
        """Write a column with the new values, valid in the context; None if they equal the old ones."""
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


_LOOKED_AT_ROWS = 16_384
"""Compare this many rows at a time: where many values change, one of the first does."""
_LENGTH_BYTES = 4
"""The bytes of a text's length in a file."""


class Part(NamedTuple):
    """Some rows of a column."""

    old: pa.Array
    """The values that they have; texts may be dictionary codes."""
    places: Positions
    """The positions of those that get new values."""
    new: pa.Array

    def changes(self) -> bool:
        """Return whether any new value differs from the old one."""
        if pa.types.is_nested(self.new.type):
            return len(self.places) > 0
        return not _is_same(_written_out(self.old.take(pa.array(self.places))), self.new)

    def replaced(self) -> pa.Array:
        """Return all values, with the new ones in their places, in the type of the old ones."""
        if not len(self.places):
            return self.old
        if pa.types.is_dictionary(self.old.type):
            return self._recoded()
        if len(self.places) == len(self.old):
            return self.new
        if pa.types.is_nested(self.old.type):
            order = np.arange(len(self.old))
            order[self.places] = len(self.old) + np.arange(len(self.places))
            return pa.concat_arrays([self.old, self.new]).take(pa.array(order))
        return _put(self.old, self.places, self.new)

    def _recoded(self) -> pa.Array:
        """Do the same for dictionary codes; texts that the dictionary lacks are added to it."""
        known = self.old.dictionary
        codes = pc.index_in(self.new, known)
        added = self.new.filter(pc.and_(codes.is_null(), self.new.is_valid())).unique()
        if len(added):
            codes = pc.coalesce(codes, pc.add(pc.index_in(self.new, added), pa.scalar(len(known), pa.int32())))
        return pa.DictionaryArray.from_arrays(
            _put(self.old.indices, self.places, codes), pa.concat_arrays([known, added]) if len(added) else known
        )


def _put(old: pa.Array, places: Positions, new: pa.Array) -> pa.Array:
    mask = np.zeros(len(old), bool)
    mask[places] = True
    return pc.replace_with_mask(old, pa.array(mask), new)


def _written_out(values: pa.Array) -> pa.Array:
    """Decode values that may be dictionary codes."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


class OldColumn:
    """A column of a file, and new values for some of its rows.

    Args:
        plan: how the column is written (`plans_of_columns`).
        source: the column of the file (`headwater.parquet.read.find_columns`); None if it lacks it.
        rows: the positions of the rows, ascending.
        values: their new values, by the names and types of the table's rows.
    """

    def __init__(
        self,
        plan: FilePlan,
        file: ParquetObject,
        source: pa.Field | None,
        mode: MappingMode,
        rows: Positions,
        values: pa.RecordBatch,
    ) -> None:
        self._plan = plan
        self._file = file
        self._mode = mode
        self._field = plan.schema.fields[0]
        self._source = source
        self._schema = plan.file_schema.to_arrow()
        self._rows, self._new = rows, self._in_file(values)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes]).tolist()

    @property
    def name(self) -> str | None:
        """Its name in the file; None if the file lacks it."""
        return None if self._source is None else self._source.name

    @property
    def schema(self) -> pa.Schema:
        """The schema of the values in `groups`, and of the file that they make."""
        if not self._is_coded:
            return self._schema
        field = self._schema.field(0)
        return self._schema.set(0, field.with_type(pa.dictionary(pa.int32(), field.type)))

    def differs(self) -> bool:
        """Return whether a new value differs from the old one; in doubt, it does."""
        if self._source is None or pa.types.is_nested(self._new.type):
            return True
        for group, first_row in enumerate(self._starts[:-1]):
            begin, end = np.searchsorted(self._rows, [first_row, self._starts[group + 1]])
            places, new = self._rows[begin:end] - first_row, self._new.slice(begin, end - begin)
            if len(places) and not self._has(group, places, new):
                return True
        return False

    def groups(self) -> Iterator[Iterator[Part]]:
        """Yield the column with the new values, row group by row group.

        If texts of one row group are dictionary codes, those of all are, and a row group has one dictionary.
        """
        return (self._parts(group, first_row) for group, first_row in enumerate(self._starts[:-1]))

    def _has(self, group: int, places: Positions, new: pa.Array) -> bool:
        """Return whether rows of a row group have these values."""
        assert self._source is not None
        name = self._source.name
        dictionaries = (name,) if self._has_dictionary(group) else ()
        first_row = 0
        # Not validated: what equals new values is sound, and what does not is read again.
        size = min(_LOOKED_AT_ROWS, batch_rows(self._file, group))
        for batch in self._file.batches([name], [group], size, validate=False, dictionaries=dictionaries):
            begin, end = np.searchsorted(places, [first_row, first_row + batch.num_rows])
            picked = _written_out(batch.column(name).take(pa.array(places[begin:end] - first_row)))
            if not _is_same(self._conformed(picked), new.slice(begin, end - begin)):
                return False
            first_row += batch.num_rows
        return True

    @cached_property
    def _is_coded(self) -> bool:
        """Whether texts are read as dictionary codes."""
        return self._source is not None and all(map(self._has_dictionary, range(self._file.num_row_groups)))

    def _has_dictionary(self, group: int) -> bool:
        """Return whether texts take so few bytes in the file that most of them must be dictionary codes."""
        if self._field.type != STRING or self._source is None:
            return False
        return 2 * self._file.bytes_per_value(group, self._source.name) < self._written_out_bytes

    @cached_property
    def _written_out_bytes(self) -> float:
        """The bytes of a text in a file without a dictionary."""
        return _LENGTH_BYTES + (pc.mean(pc.binary_length(self._new)).as_py() or 0.0)

    def _parts(self, group: int, first_row: int) -> Iterator[Part]:
        for old in self._codes(group) if self._is_coded else self._values(group):
            begin, end = np.searchsorted(self._rows, [first_row, first_row + len(old)])
            yield Part(old, self._rows[begin:end] - first_row, self._new.slice(begin, end - begin))
            first_row += len(old)

    def _values(self, group: int) -> Iterator[pa.Array]:
        """Yield the values of a row group; nulls if the file lacks the column."""
        if self._source is None:
            count = self._starts[group + 1] - self._starts[group]
            yield self._conformed(pa.nulls(count, row_type(self._field.type)))
            return
        for batch in self._file.batches([self._source.name], [group], batch_rows(self._file, group)):
            # By its name, which Arrow takes for a path as well if it has dots.
            yield self._conformed(batch.column(self._source.name))

    def _codes(self, group: int) -> Iterator[pa.Array]:
        """Yield the texts of a row group as dictionary codes; nothing if it has no rows."""
        assert self._source is not None
        name = self._source.name
        size = max(1, self._file.metadata.row_group(group).num_rows)
        batches = self._file.batches([name], [group], size, dictionaries=(name,))
        if chunks := [batch.column(name) for batch in batches]:
            coded = pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
            [codes] = coded.chunks if isinstance(coded, pa.ChunkedArray) else [coded]
            yield pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(self._schema.field(0).type))

    def _conformed(self, values: pa.Array) -> pa.Array:
        """Convert values of the file to the types that files have now."""
        conformed = conform(values, self._field.type, self._mode)
        return self._in_file(pa.RecordBatch.from_arrays([conformed], names=[self._field.name]))

    def _in_file(self, values: pa.RecordBatch) -> pa.Array:
        """Convert values of the table's rows to the types that files have."""
        return to_file_batch(values, self._plan, self._schema).column(0)


def _is_same(old: pa.Array, new: pa.Array) -> bool:
    """Return whether values are equal bit by bit."""
    if pa.types.is_floating(old.type):  # there are two zeros, and many NaNs
        bits = {32: pa.int32(), 64: pa.int64()}[old.type.bit_width]
        old, new = old.view(bits), new.view(bits)
    return bool(old.equals(new))
