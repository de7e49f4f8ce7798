"""The rows part of a split: an Arrow IPC file of small compressed batches, and the ids by which an index names rows.

All batches have the same number of rows but the last, so a row number leads to its batch without a search; a column
that is not wanted is not decompressed.

The upper half of a row id is a random number of the split that first had the row, the lower half counts its rows. The
ids of two splits differ, so their segments can live in one index; a table of ranges then leads to the row numbers.
"""

from __future__ import annotations

import secrets
from array import array
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ColumnNotFoundError, CorruptSplitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


BATCH_ROWS: Final = 512
"""Large enough to compress, small enough that a few hits are cheap to fetch."""
_COMPRESSION: Final = "lz4"


class RowsWriter:
    """Writes the rows part: batches of any size in, batches of `BATCH_ROWS` out."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(
            self._file, schema, options=pa.ipc.IpcWriteOptions(compression=_COMPRESSION, use_threads=False)
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self.num_rows = 0
        self.uncompressed_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.num_rows += batch.num_rows
        self.uncompressed_bytes += batch.get_total_buffer_size()
        if self._pending_rows >= BATCH_ROWS:
            self._flush(self._pending_rows - self._pending_rows % BATCH_ROWS)

    def close(self) -> None:
        """Write the remaining rows, and end the file."""
        if self._pending_rows:
            self._flush(self._pending_rows)
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file, whatever its content."""
        self._file.close()

    def _flush(self, rows: int) -> None:
        whole = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        for start in range(0, rows, BATCH_ROWS):
            self._writer.write_batch(whole.slice(start, min(BATCH_ROWS, rows - start)))
        rest = whole.slice(rows)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows = rest.num_rows


class SplitRows:
    """The rows part of an open split; the numbers are those of the split's metadata."""

    def __init__(self, buffer: pa.Buffer, num_records: int, batch_rows: int, path: str) -> None:
        self._buffer = buffer
        self._num_records = num_records
        self._batch_rows = batch_rows
        self._path = path
        reader = self._reader(None)
        self.schema: pa.Schema = reader.schema
        self._num_batches: int = reader.num_record_batches
        if self._num_batches != -(-num_records // batch_rows):
            raise CorruptSplitError(
                f"the split {path} should have {num_records} rows in batches of {batch_rows}, and has "
                f"{self._num_batches} batches",
                path,
            )

    def read(self, row_numbers: pa.Array | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows by number, or all, as `Split.rows` does."""
        schema = self._projected(columns)
        if not schema.names:
            return _rows_without_columns(self._num_records if row_numbers is None else len(row_numbers))
        reader = self._reader(schema.names)
        if row_numbers is None:
            batches = [reader.get_batch(i) for i in range(self._num_batches)]
            return pa.Table.from_batches(batches, _in_file_order(schema, self.schema)).select(schema.names)
        numbers = row_numbers.cast(pa.uint64())
        batch_rows = uint64s([self._batch_rows])[0]
        owners = pc.divide(numbers, batch_rows)
        needed = pc.unique(owners)
        if len(needed) and pc.max(numbers).as_py() >= self._num_records:
            raise CorruptSplitError(f"the split {self._path} has no row {pc.max(numbers).as_py()}", self._path)
        needed = needed.take(pc.sort_indices(needed))
        table = pa.Table.from_batches(
            [reader.get_batch(i) for i in needed.to_pylist()], _in_file_order(schema, self.schema)
        )
        within = pc.subtract(numbers, pc.multiply(owners, batch_rows))
        place = pc.multiply(pc.index_in(owners, value_set=needed).cast(pa.uint64()), batch_rows)
        return table.take(pc.add(place, within)).select(schema.names)

    def batches(self, columns: Sequence[str] | None, max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, some batches of the file at a time."""
        schema = self._projected(columns)
        if not schema.names:  # Arrow takes an empty list of columns for all of them
            whole = _rows_without_columns(self._num_records)
            yield from whole.to_batches(max_chunksize=max_rows)
            return
        reader = self._reader(schema.names)
        step = max(1, max_rows // self._batch_rows)
        for first in range(0, self._num_batches, step):
            read = [reader.get_batch(i) for i in range(first, min(first + step, self._num_batches))]
            whole = read[0] if len(read) == 1 else pa.concat_batches(read)
            yield whole.select(schema.names)

    def _projected(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        unknown = [name for name in columns if name not in self.schema.names]
        if unknown:
            raise ColumnNotFoundError(
                f"the rows of the split {self._path} have no column {unknown[0]!r}: they have "
                f"{', '.join(map(repr, self.schema.names)) or 'none'} (columns that are only indexed cannot be read)"
            )
        return pa.schema([self.schema.field(name) for name in columns])

    def _reader(self, names: Sequence[str] | None) -> pa.ipc.RecordBatchFileReader:
        included = None if names is None else [self.schema.get_field_index(name) for name in names]
        if included is not None and len(included) == len(self.schema.names):
            included = None
        options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
        try:
            return pa.ipc.open_file(pa.BufferReader(self._buffer), options=options)
        except pa.ArrowInvalid as error:
            raise CorruptSplitError(
                f"the rows of the split {self._path} cannot be read: {error}", self._path
            ) from error


def _in_file_order(wanted: pa.Schema, stored: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in stored if field.name in wanted.names])


def _rows_without_columns(count: int) -> pa.Table:
    return pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), count, [None]))]
    )


_SHIFT: Final = 32
MAX_ROWS: Final = 1 << _SHIFT
"""Rows that one split can have."""


def new_first_id() -> int:
    """Return the id of the first row of a new split."""
    return secrets.randbits(_SHIFT) << _SHIFT


def uint64s(values: Sequence[int]) -> pa.UInt64Array:
    """Return numbers as an Arrow array, without the imports that `pa.array` makes."""
    return pa.UInt64Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(array("Q", values))])


def row_numbers(ids: Sequence[int], ranges: Sequence[tuple[int, int]]) -> pa.UInt64Array | None:
    """Return the row numbers of row ids; None if an id is in none of the ranges.

    `ranges` has the first id and the number of rows of each range, in the order of the rows.

    >>> row_numbers([3 << 32, 7 << 32 | 1], [(3 << 32, 10), (7 << 32, 2)]).to_pylist()
    [0, 11]
    """
    given = uint64s(ids)
    if len(ranges) == 1:
        first, count = ranges[0]
        numbers = pc.subtract(given, uint64s([first])[0])  # wraps around below `first`, and is too large then
        return numbers if not len(ids) or pc.max(numbers).as_py() < count else None
    owners = pc.index_in(
        pc.shift_right(given, uint64s([_SHIFT])[0]), value_set=uint64s([first >> _SHIFT for first, _ in ranges])
    )
    if owners.null_count:
        return None
    starts, counts, total = [], [], 0
    for _, count in ranges:
        starts.append(total)
        counts.append(count)
        total += count
    within = pc.bit_wise_and(given, uint64s([MAX_ROWS - 1])[0])
    inside = pc.all(pc.less(within, uint64s(counts).take(owners)), min_count=0).as_py()
    return pc.add(within, uint64s(starts).take(owners)) if inside else None
