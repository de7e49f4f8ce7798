"""Look up keys for upserts without a join: Python workers search the table's keys among those of the source.

This serves conditions that are nothing but `t.a = s.a AND ...`, over types whose values are equal for Arrow where they
are for Spark, and sources whose keys are few enough for every worker. The driver gets the keys, as it does for a
broadcast. The result says which row of the table each row of the source matches, so that rows of the source can be
sent to the files of their matches.

Integers and dates are searched in a sorted array. All other keys are joined by Arrow, many rows at a time, because each
join hashes the source's keys again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from headwater.errors import UnreadableInPythonError
from headwater.log.actions.deletion_vectors import to_bitmap
from headwater.log.files.arrow import distinct_rows
from headwater.log.schema import DATE, STRING, DataType, StructType
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.types import hidden
from headwater.spark.dml.in_place import PACKS_SCHEMA, ColumnJob, gathered
from headwater.spark.dml.matched import BITMAP_SCHEMA, bitmap_batch, united
from headwater.spark.errors import explained_failures
from headwater.spark.merge.join import Fate, Matches
from headwater.spark.merge.source import INTEGRAL, SOURCE_ROW, Source
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN
from headwater.spark.scan.python import distributed_ranges, planned_read, read_ranges
from headwater.spark.workers import in_workers
from headwater.spark.write.copies import can_copy
from headwater.spark.write.files import task_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from headwater.spark.dml.target import DmlTarget, TargetFiles
    from headwater.spark.merge.condition import Key

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]
    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


FOUND_SCHEMA = f"{BITMAP_SCHEMA}, keys binary"
"""One row for each file that a task has found rows of; `keys` are the places of their keys, in the same order."""
_KEY = hidden("key")
_MAX_KEYS_BYTES = 32 * 2**20
"""Keys for every worker, in the memory of Arrow."""
_JOINED_ROWS = 2**20
_FEW_RUNS = 1_000


class _Places(NamedTuple):
    """Rows of the table that have a key, and the places of these keys."""

    files: Numbers
    rows: Numbers
    keys: Numbers


@dataclass(frozen=True)
class NumberLookup:
    """Keys that are one integer or date each. It is sent to the executors."""

    column: str
    """The column of the table that they equal."""
    values: Numbers
    """Ascending."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def found(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Return which rows of the table have one of the keys, as rows of `FOUND_SCHEMA`."""
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
    """Keys of any kind. It is sent to the executors."""

    keys: pa.Table
    """By the names of the table's columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.keys.column_names)

    def found(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        # Arrow takes names that begin with a dot or a bracket for paths, so columns are called by their places.
        places = {name: str(place) for place, name in enumerate(self.keys.column_names)}
        keys = self.keys.rename_columns(list(places.values())).append_column(
            _KEY, pa.array(range(self.keys.num_rows), pa.int32())
        )
        types = {field.name: field.type for field in self.keys.schema}
        found: list[_Places] = []
        for rows in gathered(batches, min_rows=max(_JOINED_ROWS, keys.num_rows)):
            fields = [pa.field(places.get(f.name, f.name), types.get(f.name, f.type)) for f in rows.schema]
            typed = rows.rename_columns([field.name for field in fields]).cast(pa.schema(fields))
            both = typed.join(keys, list(places.values()), join_type="inner", use_threads=False)
            found.append(_Places(*(both.column(name).to_numpy() for name in (FILE_COLUMN, ROW_COLUMN, _KEY))))
        return _batch_of(found)


class Lookup(NamedTuple):
    """The keys of a source, in the form in which they are looked up."""

    keys: NumberLookup | JoinLookup
    places: Numbers
    """Of each key, the place of its row among the source's."""
    sources: Numbers
    """The numbers of the source's rows, ascending."""


def lookup_of(keys: pa.Table, sources: Numbers) -> Lookup | None:
    """Prepare the keys of a source to be looked up; None if two rows have the same key.

    Args:
        keys: by the names of the table's columns, in types that Arrow compares as Spark does. Rows with nulls match
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
    """Store small numbers in fewer bytes."""
    largest = int(numbers.max(initial=0))
    return numbers.astype(next((kind for kind in (np.int16, np.int32) if largest <= np.iinfo(kind).max), np.int64))


@dataclass(frozen=True)
class Pairs:
    """Which row of the table each row of the source matches. It is sent to the executors, so it is kept small.

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
        starts = np.flatnonzero(np.diff(sources, prepend=sources[:1] - 2) != 1)
        places = np.append(starts, len(sources))
        return cls(sources[starts], places, _narrow(files), _narrow(rows))

    @property
    def count(self) -> int:
        """How many rows of the source match."""
        return int(np.count_nonzero(self.files >= 0))

    def matched(self, sources: Numbers) -> tuple[Numbers, Numbers]:
        """Return the files (-1 for none) and positions of the rows that some rows of the source match."""
        if not len(self.files):
            return np.full(len(sources), -1, np.int32), np.zeros(len(sources), np.int64)
        runs = np.maximum(np.searchsorted(self.starts, sources, side="right") - 1, 0)
        at = self.places[runs] + (sources - self.starts[runs])
        is_known = (at >= self.places[runs]) & (at < self.places[runs + 1])
        at = np.where(is_known, at, 0)
        return np.where(is_known, self.files[at], -1), self.rows[at].astype(np.int64)


NO_PAIRS = Pairs.of(*(np.empty(0, np.int64) for _ in range(3)))


def pairs_of_found(found: list[Any], lookup: Lookup) -> Pairs | None:
    """Combine what tasks have found (rows of `FOUND_SCHEMA`); None if a row of the source matches several rows."""
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
    """Return whether values are a few ascending runs, which a stable sort makes use of."""
    return int(np.count_nonzero(values[1:] < values[:-1])) < _FEW_RUNS


def as_numbers(column: pa.Array | pa.ChunkedArray) -> Any:
    """Convert integers or dates to `int64`."""
    return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())


def _batch_of(found: list[_Places]) -> pa.RecordBatch:
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


def can_look_up(target: DmlTarget, source: Source, keys: Sequence[Key]) -> bool:
    """Return whether Python workers can tell which rows are equal in these keys."""
    is_plain = 0 < len({key.target for key in keys}) == len(keys)
    return can_copy(target.snapshot) and is_plain and all(is_exact(target, source, key) for key in keys)


def is_exact(target: DmlTarget, source: Source, key: Key) -> bool:
    """Return whether values of both sides that are equal for Spark are equal bit by bit."""
    schema = target.snapshot.schema
    is_known = len(key.target) == 1 and source.is_comparable(key, schema)
    return is_known and _key_type(schema.field(key.target[0]).type) is not None


class LookedUp(NamedTuple):
    """The rows of the table that have a key of the source."""

    matches: Matches
    pairs: Pairs


def look_up(target: DmlTarget, files: TargetFiles, source: Source, keys: Sequence[Key]) -> LookedUp | None:
    """Find the rows of files whose keys the source has, all of them to be updated. Two Spark jobs.

    Args:
        source: its rows are the same in every job.
        keys: for which `can_look_up` holds.

    Returns:
        None if a join must find them: there are too many keys, a key is in the source twice or in the table twice, or a
        file needs Spark's reader.
    """
    lookup = _source_lookup(source, keys, target.snapshot.schema)
    if lookup is None:
        return None
    if not len(files) or not len(lookup.places):
        return LookedUp(Matches({}, 0, 0), NO_PAIRS)
    request = replace(target.request(files, range(len(files)), columns=lookup.keys.columns), row_tracking=False)
    plan, _, rows = planned_read(target.spark, request)
    values = lookup.keys

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield values.found(read_ranges(plan, batches))

    try:
        with explained_failures():
            splits = distributed_ranges(target.spark, rows, private=True)
            found = in_workers(splits, find, FOUND_SCHEMA).collect()
    except UnreadableInPythonError:
        return None
    pairs = pairs_of_found(found, lookup)
    if pairs is None:
        return None
    positions = united(found)
    count = pairs.count
    return LookedUp(Matches({Fate.UPDATED: positions} if positions else {}, count, count), pairs)


def _source_lookup(source: Source, keys: Sequence[Key], target: StructType) -> Lookup | None:
    """Read the keys of a source."""
    fields = [target.field(key.target[0]) for key in keys]
    columns = [source.column(key.source).alias(f"k{number}") for number, key in enumerate(keys)]
    found = source.frame.select(*columns, SOURCE_ROW).toArrow()
    arrays = [found.column(number).cast(_key_type(field.type)) for number, field in enumerate(fields)]
    table = pa.table(dict(zip((field.name for field in fields), arrays, strict=True)))
    return None if table.nbytes > _MAX_KEYS_BYTES else lookup_of(table, found.column(SOURCE_ROW).to_numpy())


def pack_upserts(job: ColumnJob, rows: DataFrame, pairs: Pairs) -> DataFrame:
    """Pack the rows of an upsert for a job: those that match with the positions of their matches, and new ones.

    Args:
        rows: the table's columns and `SOURCE_ROW`.
        pairs: which of the rows match.
    """
    packer, columns = job.packer, list(job.columns)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for turn, table in enumerate(gathered(batches), task_number()):
            files, places = pairs.matched(table.column(SOURCE_ROW).to_numpy())
            is_match = files >= 0
            if is_match.any():
                values = table.select(columns).filter(pa.array(is_match))
                located = values.add_column(0, ROW_COLUMN, pa.array(places[is_match]))
                yield from packer.update_packs(files[is_match], located)
            if not is_match.all():
                yield from packer.insert_packs(table.drop_columns([SOURCE_ROW]).filter(pa.array(~is_match)), turn)

    return in_workers(rows, pack, PACKS_SCHEMA)


def _key_type(type_: DataType) -> pa.DataType | None:
    """Return the Arrow type in which keys are compared; None if Arrow does not compare them as Spark does."""
    if type_ in INTEGRAL:
        return pa.int64()
    return type_to_arrow(type_) if type_ in (STRING, DATE) else None
