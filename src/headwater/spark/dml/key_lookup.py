"""Keys of a source, among which Python workers look the keys of a table's rows up.

Two ways: whole numbers are searched in an ordered array; all others are joined by Arrow, many rows at a time, because
each join hashes the source's keys again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from headwater.log.columns import int32s
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.spark.dml.positions import BITMAP_SCHEMA, bitmap_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]
    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

FOUND_SCHEMA = f"{BITMAP_SCHEMA}, keys binary"
"""One row for each file that a task has found rows of; `keys` are the places of their keys, in the same order."""
_KEY = "__headwater_key"
_JOINED_ROWS = 2**20


class _Places(NamedTuple):
    """Rows of the table that have a key, and the places of these keys."""

    files: Numbers
    rows: Numbers
    keys: Numbers


@dataclass(frozen=True)
class NumberLookup:
    """Keys that are one whole number each. It travels to the executors."""

    column: str
    """The column of the table that they equal."""
    values: Numbers
    """Ascending."""

    def found(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Which rows have one of the keys: rows of `FOUND_SCHEMA`.

        Args:
            batches: rows of the table: the column, file and position.
        """
        return _batch_of([self._places(batch) for batch in batches])

    def _places(self, batch: pa.RecordBatch) -> _Places:
        column = as_numbers(batch.column(self.column))
        wanted = column.fill_null(0).to_numpy()
        at = np.minimum(np.searchsorted(self.values, wanted), len(self.values) - 1)
        is_found = self.values[at] == wanted
        if column.null_count:
            is_found &= column.is_valid().to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(is_found)
        files, rows = (batch.column(name).to_numpy()[hits] for name in (FILE_COLUMN, ROW_COLUMN))
        return _Places(files, rows, at[hits])


@dataclass(frozen=True)
class JoinLookup:
    """Keys of any kind. It travels to the executors."""

    keys: pa.Table
    """By the names of the table's columns."""

    def found(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Which rows have one of the keys: rows of `FOUND_SCHEMA`."""
        keys = self.keys.append_column(_KEY, int32s(range(self.keys.num_rows)))
        types = {field.name: field.type for field in self.keys.schema}
        found: list[_Places] = []
        for rows in _gathered(batches, max(_JOINED_ROWS, keys.num_rows)):
            typed = rows.cast(pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in rows.schema]))
            both = typed.join(keys, list(types), join_type="inner", use_threads=False)
            found.append(_Places(*(both.column(name).to_numpy() for name in (FILE_COLUMN, ROW_COLUMN, _KEY))))
        return _batch_of(found)


class Lookup(NamedTuple):
    """How to look the keys of a source up."""

    keys: NumberLookup | JoinLookup
    places: Numbers
    """Of each key, the place of its row among the source's."""
    sources: Numbers
    """The numbers of the source's rows, ascending."""


def lookup_of(keys: pa.Table, sources: Numbers) -> Lookup | None:
    """How to look the keys of a source up; None if two rows have the same.

    Args:
        keys: by the names of the table's columns, in types that Arrow compares as Spark does. Rows with nulls equal
            nothing, and are left out.
        sources: the numbers of the rows, ascending.
    """
    is_key = reduce(pc.and_, [pc.is_valid(column) for column in keys.columns])
    keys, places = keys.filter(is_key), np.flatnonzero(is_key.to_numpy())
    if keys.num_columns == 1 and keys.num_rows and not pa.types.is_string(keys.schema.field(0).type):
        values = as_numbers(keys.column(0)).to_numpy()
        order = np.argsort(values)
        ascending = values[order]
        if np.any(ascending[1:] == ascending[:-1]):
            return None
        return Lookup(NumberLookup(keys.column_names[0], ascending), places[order], sources)
    if keys.group_by(keys.column_names).aggregate([]).num_rows < keys.num_rows:
        return None
    return Lookup(JoinLookup(keys), places, sources)


class Pairs(NamedTuple):
    """Which row of the table a row of the source matches. It travels to the executors."""

    sources: Numbers
    """The numbers of the source's rows that match one, ascending."""
    files: Numbers
    """The files of the rows that they match."""
    rows: Numbers
    """The positions of these rows."""

    def places(self, sources: Numbers) -> tuple[Mask, Numbers]:
        """Which of the source's rows match one, and the places of these among the pairs."""
        places = np.searchsorted(self.sources, sources)
        is_match = places < len(self.sources)
        is_match[is_match] = self.sources[places[is_match]] == sources[is_match]
        return is_match, places[is_match]


NO_PAIRS = Pairs(*(np.empty(0, np.int64) for _ in range(3)))


def pairs_of_found(found: list[Any], lookup: Lookup) -> Pairs | None:
    """What tasks have found together; None if a row of the source matches several rows.

    Args:
        found: rows of `FOUND_SCHEMA`.
        lookup: what they looked for.
    """
    files = np.full(len(lookup.sources), -1, np.int32)
    rows = np.zeros(len(lookup.sources), np.int64)
    count = 0
    for one in found:
        places = lookup.places[np.frombuffer(one["keys"], np.int32)]
        files[places] = one["file"]
        rows[places] = np.asarray(to_bitmap(bytes(one["rows"])).to_array(), np.int64)
        count += len(places)
    is_match = files >= 0
    if np.count_nonzero(is_match) < count:
        return None
    return Pairs(lookup.sources[is_match], files[is_match], rows[is_match])


def as_numbers(column: pa.Array | pa.ChunkedArray) -> Any:
    """Whole numbers, or dates, as numbers."""
    return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())


def _batch_of(found: list[_Places]) -> pa.RecordBatch:
    """Rows of `FOUND_SCHEMA`."""
    positions: dict[int, BitMap64] = {}
    own_keys: list[bytes] = []
    if found:
        files, rows, keys = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((rows, files))
        files, rows, keys = files[order], rows[order], keys[order].astype(np.int32)
        bounds = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
        for start, end in pairwise(bounds if len(files) else []):
            positions[int(files[start])] = BitMap64(rows[start:end])
            own_keys.append(keys[start:end].tobytes())
    return bitmap_batch(positions).append_column("keys", pa.array(own_keys, pa.binary()))


def _gathered(batches: Iterator[pa.RecordBatch], min_rows: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= min_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
