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

from headwater.log.columns import distinct_rows, int32s
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema.lookup import hidden
from headwater.spark.dml.positions import BITMAP_SCHEMA, bitmap_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]
    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

FOUND_SCHEMA = f"{BITMAP_SCHEMA}, keys binary"
"""One row for each file that a task has found rows of; `keys` are the places of their keys, in the same order."""
_KEY = hidden("key")
_JOINED_ROWS = 2**20
_FEW_RUNS = 1_000


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
        # Arrow takes names that begin with a dot or a bracket for paths, so columns are called by their places.
        places = {name: str(place) for place, name in enumerate(self.keys.column_names)}
        keys = self.keys.rename_columns(list(places.values())).append_column(_KEY, int32s(range(self.keys.num_rows)))
        types = {field.name: field.type for field in self.keys.schema}
        found: list[_Places] = []
        for rows in _gathered(batches, max(_JOINED_ROWS, keys.num_rows)):
            fields = [pa.field(places.get(f.name, f.name), types.get(f.name, f.type)) for f in rows.schema]
            typed = rows.rename_columns([field.name for field in fields]).cast(pa.schema(fields))
            both = typed.join(keys, list(places.values()), join_type="inner", use_threads=False)
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
        order = np.argsort(values, kind="stable" if _is_almost_ascending(values) else None)
        ascending = values[order]
        if np.any(ascending[1:] == ascending[:-1]):
            return None
        return Lookup(NumberLookup(keys.column_names[0], ascending), places[order], sources)
    if distinct_rows(keys).num_rows < keys.num_rows:
        return None
    return Lookup(JoinLookup(keys), places, sources)


def _narrow(numbers: Numbers) -> Numbers:
    """The same numbers in fewer bytes, if they are small."""
    largest = int(numbers.max(initial=0))
    return numbers.astype(next((kind for kind in (np.int16, np.int32) if largest <= np.iinfo(kind).max), np.int64))


@dataclass(frozen=True)
class Pairs:
    """Which row of the table each row of the source matches. It travels to the executors, so it is kept small.

    Attributes:
        starts: the source's rows are numbered in runs, one for each of its partitions: the first numbers, ascending.
        places: of these among all rows of the source, and how many those are.
        files: for each row of the source, the file of the row that it matches; -1 if it matches none.
        rows: the position of that row.
    """

    starts: Numbers
    places: Numbers
    files: Numbers
    rows: Numbers

    @classmethod
    def of(cls, sources: Numbers, files: Numbers, rows: Numbers) -> Pairs:
        """For rows of the source by their numbers, ascending."""
        starts = np.flatnonzero(np.diff(sources, prepend=sources[:1] - 2) != 1)
        places = np.append(starts, len(sources))
        return cls(sources[starts], places, _narrow(files), _narrow(rows))

    @property
    def count(self) -> int:
        """How many rows of the source match."""
        return int(np.count_nonzero(self.files >= 0))

    def matched(self, sources: Numbers) -> tuple[Numbers, Numbers]:
        """The files, -1 where there is none, and positions of the rows that some rows of the source match."""
        if not len(self.files):
            return np.full(len(sources), -1, np.int32), np.zeros(len(sources), np.int64)
        runs = np.maximum(np.searchsorted(self.starts, sources, side="right") - 1, 0)
        at = self.places[runs] + (sources - self.starts[runs])
        is_known = (at >= self.places[runs]) & (at < self.places[runs + 1])
        at = np.where(is_known, at, 0)
        return np.where(is_known, self.files[at], -1), self.rows[at].astype(np.int64)


NO_PAIRS = Pairs.of(*(np.empty(0, np.int64) for _ in range(3)))


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
    pairs = Pairs.of(lookup.sources, files, rows)
    return pairs if pairs.count == count else None


def _is_almost_ascending(values: Numbers) -> bool:
    """Whether values are a few ascending runs, which a stable sort makes use of."""
    return int(np.count_nonzero(values[1:] < values[:-1])) < _FEW_RUNS


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
