"""What executors run where Spark has no filesystem for a store: they read data files with Arrow, through `obstore`.

A split is a range of bytes of a file, as in Spark: it stands for the row groups that begin in it. Deleted rows are left
out by their position in the file, partition values are put in, and everything is brought into the table's schema.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.errors import CorruptLogError, HeadwaterError, ObjectNotFoundError
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import LONG, StructField, StructType
from headwater.spark.arrow_rows import (
    ReaderSettings,
    UnreadableInPythonError,
    conform,
    find_columns,
    output_schema,
    refuse_old_dates,
)
from headwater.spark.data_files import DataFiles
from headwater.spark.deletion_vectors import VECTOR_COLUMN, VectorReader, descriptor
from headwater.spark.row_tracking import HIDDEN_COLUMNS, ROW_COMMIT_VERSION, ROW_ID
from headwater.spark.splits import ONLY_COLUMN, Counted, Split, splits_of
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap64

    from headwater.log.parquet import ParquetObject
    from headwater.log.schema import MappingMode

    _Found = dict[str, pa.Field | None]
    """Columns of a file by the names that they have in the result."""


@dataclass(frozen=True)
class ReadPlan:
    """What all splits of one scan have in common. It travels to the executors."""

    uri: str
    storage_options: dict[str, str] | None = dataclasses.field(repr=False)
    schema_json: str
    """The columns of the table that are wanted."""
    mode: MappingMode
    partition_columns: dict[str, str]
    """The columns of the splits that hold partition values, by the name of the table's column."""
    materialized: dict[str, str | None] = dataclasses.field(default_factory=dict)
    """For row tracking: the columns of files that hold row ids and commit versions. Empty when not asked for."""
    unmapped: tuple[str, ...] = ()
    """Columns that have the same name in files, whatever the mode: those that are not the table's own."""
    located: bool = False
    """Whether rows show the number of their file (a column of the splits) and their position in it."""
    settings: ReaderSettings = dataclasses.field(default_factory=ReaderSettings)
    """Of the session that reads (`headwater.spark.python_scan.reader_settings`)."""


_BATCH_BYTES = 16 * 2**20
_MIN_BATCH_ROWS = 1_024
_MAX_BATCH_ROWS = 65_536
_PUT_TOGETHER_ROWS = 16_384
_PUT_TOGETHER_BYTES = 2**20
_TINY_ROWS, _WEIGHED_EVERY = 1_000, 8


def read_splits(plan: ReadPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of splits, those of tiny files put together; made for `mapInArrow`."""
    reader = _Reader(plan)
    return _put_together(rows for batch in batches for split in splits_of(batch) for rows in reader.rows(split))


def _put_together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, none of them in batches so small that Spark takes longer for a batch than for its rows."""
    held: list[pa.RecordBatch] = []
    held_rows, held_bytes, weight = 0, 0.0, 0.0
    for number, batch in enumerate(batches):
        held.append(batch)
        held_rows += batch.num_rows
        # To weigh a tiny batch takes as long as to make it: its neighbours will weigh the same.
        if batch.num_rows >= _TINY_ROWS or number % _WEIGHED_EVERY == 0:
            weight = batch.nbytes / max(1, batch.num_rows)
        held_bytes += weight * batch.num_rows
        if held_rows >= _PUT_TOGETHER_ROWS or held_bytes >= _PUT_TOGETHER_BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, held_rows, held_bytes = [], 0, 0.0
    if held:
        yield pa.concat_batches(held)


class _Sources(NamedTuple):
    """Where the columns of the result are in files."""

    found: _Found
    names: list[str]
    """The columns that must be read."""
    is_same: bool
    """Whether what is read is the result as it is."""


class _Reader:
    """Reads the splits that one task gets."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._schema = StructType.from_json(plan.schema_json)
        self._files = DataFiles(plan.uri, plan.storage_options)
        self._vectors = VectorReader(open_store(plan.uri, plan.storage_options), plan.storage_options)
        self._last_sources: tuple[pa.Schema, _Sources] | None = None
        self._counts_rows = plan.located or bool(plan.materialized)
        self._data_fields = [f for f in self._schema.fields if f.name not in plan.partition_columns]
        self._output = output_schema(self._schema)
        for name in plan.materialized:
            self._output = self._output.append(pa.field(name, pa.int64()))
        if plan.located:
            self._output = self._output.append(pa.field(FILE_COLUMN, pa.int32())).append(
                pa.field(ROW_COLUMN, pa.int64())
            )

    def rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        uri = split.uri
        try:
            counted = Counted(self._bitmap(split, VECTOR_COLUMN), self._bitmap(split, ONLY_COLUMN))
            yield from self._decoded(split, counted)
        except HeadwaterError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                # Spark's own words, which the driver turns into our error with version and cause.
                raise type(error)(
                    f"Encountered error while reading file {uri}. File does not exist: {error}"
                ) from error
            raise type(error)(f"while reading file {uri}: {error}") from error

    def _decoded(self, split: Split, counted: Counted) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(split, self._files.open(split.uri, split.size_bytes), counted)
        except CorruptLogError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                raise
            # What Arrow cannot decode, Spark may.
            raise UnreadableInPythonError(str(error)) from error

    def _bitmap(self, split: Split, column: str) -> BitMap64 | None:
        vector = descriptor(split.values[column].as_py()) if column in split.values else None
        return None if vector is None else to_bitmap(self._vectors.read([vector])[0])

    def _rows(self, split: Split, file: ParquetObject, counted: Counted) -> Iterator[pa.RecordBatch]:
        self._plan.settings.check(file.metadata)
        sources = self._sources(file.schema)
        first_row = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            in_split = split.is_whole or split.start <= _offset(file, group) < split.end
            if in_split and counted.has_rows(first_row, first_row + size):
                yield from self._group(file, group, first_row, sources, split.values, counted)
            first_row += size

    def _sources(self, schema: pa.Schema) -> _Sources:
        """Where the columns of the result are in a file; most files of a table are alike."""
        known = self._last_sources
        if known is not None and schema.equals(known[0], check_metadata=True):
            return known[1]
        held = list(schema)
        found = find_columns(self._data_fields, schema, self._plan.mode, self._plan.unmapped)
        tracked = {shown: StructField(name, LONG) for shown, name in self._plan.materialized.items() if name}
        stored = find_columns(tracked.values(), schema, "none")
        found |= {n: stored[tracked[n].name] if n in tracked else None for n in self._plan.materialized}
        names = list(dict.fromkeys(source.name for source in found.values() if source is not None))
        # A batch has the columns in the order of the file.
        same = pa.schema([pa.field(f.name, f.type) for f in held if f.name in names])
        is_plain = not any(pa.types.is_nested(field.type) or "." in field.name for field in same)
        is_same = is_plain and bool(names) and same.equals(self._output)
        sources = _Sources(found, names, is_same)
        self._last_sources = schema, sources
        return sources

    def _group(
        self,
        file: ParquetObject,
        group: int,
        first_row: int,
        sources: _Sources,
        known: dict[str, pa.Scalar],
        counted: Counted,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one row group."""
        end = first_row + file.metadata.row_group(group).num_rows
        is_old = self._plan.settings.may_be_old(file.metadata)
        for batch in _batches(file, group, sources.names):
            count = batch.num_rows
            batch, positions = counted.of(batch, first_row, located=self._counts_rows)
            first_row += count
            if batch.num_rows:
                if sources.is_same:
                    is_right = batch.schema.equals(self._output)
                    result = batch if is_right else pa.RecordBatch.from_arrays(batch.columns, schema=self._output)
                else:
                    result = self._in_table_schema(batch, positions, sources.found, known)
                if is_old:
                    for name in sources.found:
                        refuse_old_dates(result.column(name), name)
                yield result
            if not counted.has_rows(first_row, end):
                return

    def _in_table_schema(
        self, batch: pa.RecordBatch, positions: pa.Array | None, sources: _Found, known: dict[str, pa.Scalar]
    ) -> pa.RecordBatch:
        columns = []
        for field, target in zip(self._schema.fields, self._output, strict=False):
            source = sources.get(field.name)
            if field.name in self._plan.partition_columns:
                value = known[self._plan.partition_columns[field.name]].cast(target.type)
                columns.append(pa.repeat(value, batch.num_rows))
            elif source is None:
                columns.append(pa.nulls(batch.num_rows, target.type))
            else:
                column = batch.column(source.name)
                is_right = column.type == target.type and not pa.types.is_nested(target.type)
                columns.append(column if is_right else conform(column, field.type, self._plan.mode))
        if positions is not None:
            tracked = self._plan.materialized
            columns += [_tracked(name, batch, positions, sources[name], known) for name in tracked]
            columns += [pa.repeat(known[FILE_COLUMN], batch.num_rows), positions] if self._plan.located else []
        if not columns:
            return no_columns(batch.num_rows)
        return pa.RecordBatch.from_arrays(columns, schema=self._output)


def no_columns(count: int) -> pa.RecordBatch:
    """Rows without a column, for those who only count them: made of arrays, a batch would have no rows either."""
    structs: Any = pa.StructArray.from_buffers(pa.struct([]), count, [None])
    return pa.RecordBatch.from_struct_array(structs)


def _tracked(
    name: str, batch: pa.RecordBatch, positions: pa.Array, stored: pa.Field | None, known: dict[str, pa.Scalar]
) -> pa.Array:
    """A column of row tracking: what the file stores, else what follows from the log."""
    hidden = {source: column for column, source in HIDDEN_COLUMNS.items()}
    if name == ROW_ID:
        fresh = pa.compute.add(positions, known[hidden["baseRowId"]])
    else:
        assert name == ROW_COMMIT_VERSION, name
        fresh = pa.repeat(known[hidden["defaultRowCommitVersion"]], batch.num_rows)
    return fresh if stored is None else pa.compute.coalesce(batch.column(stored.name).cast(pa.int64()), fresh)


def _batches(file: ParquetObject, group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    if names:
        for batch in file.batches(names, [group], batch_rows(file, group)):
            # To Arrow a dotted name is a path too, so that more may come than was asked for.
            is_right = batch.num_columns == len(names)
            yield batch if is_right else batch.select([name for name in batch.schema.names if name in names])
    else:
        count = file.metadata.row_group(group).num_rows
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=["nothing"])


def batch_rows(file: ParquetObject, group: int) -> int:
    """So many rows that a batch is neither tiny nor large, whether rows are narrow or wide."""
    metadata = file.metadata.row_group(group)
    row_bytes = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
    return int(max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, _BATCH_BYTES // row_bytes)))


def _offset(file: ParquetObject, group: int) -> int:
    """Where a row group begins in its file."""
    column = file.metadata.row_group(group).column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)
