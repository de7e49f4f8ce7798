"""File actions as columns, in chunks: a row group of a checkpoint, or the adds of the commits after it.

Columns are read when they are first asked for. What is cheap to keep and needed by every plan is kept; statistics as
JSON text are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.files.arrow import child_of
from headwater.log.files.parquet import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions.model import Add, DeletionVector, Remove
    from headwater.log.files.parquet import ParquetObject


_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)

STRING_MAP = pa.map_(pa.string(), pa.string())

DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

ADD_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": STRING_MAP,
    "deletionVector": DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
}

REMOVE_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "deletionVector": DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}

_AT = build.strings(["@"])[0]
_TEXT_ROWS = 16_384
"""Texts that are read together while the ones before are decoded: with fewer, the two threads hinder each other."""
_SMALL_ROWS = 131_072
"""A row group up to this size is kept, column by column, when it is first read."""
_PASSES = 2
"""How often a few rows are picked out of a column before the whole of it is kept."""
_KEPT = frozenset({"path", "size", "dataChange", "deletionVector", "deletionTimestamp"})


class FileChunk(Protocol):
    """Some file actions of one kind, all `add` or all `remove`."""

    @property
    def num_rows(self) -> int:
        """The number of file actions."""

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of the action (a key of `ADD_COLUMNS` or `REMOVE_COLUMNS`)."""

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Return some rows of a column, by ascending row numbers."""

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        """Return the values of one key in a column of maps, null where it is absent."""

    @property
    def has_parsed_statistics(self) -> bool:
        """Whether statistics are there as columns; otherwise they are decoded from text, under the interpreter lock."""

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """Yield a text column that is used once, in batches, so that memory stays bounded."""

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """Return a leaf below `stats_parsed` or `partitionValues_parsed`; None when the file has no such column."""


class _KeptColumns(ABC):
    """The part of a chunk that builds each column when it is first asked for, and keeps it."""

    def __init__(self) -> None:
        self._columns: dict[str, pa.ChunkedArray] = {}

    @abstractmethod
    def _build(self, name: str) -> pa.ChunkedArray: ...

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self._columns:
            self._columns[name] = self._build(name)
        return self._columns[name]

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        return self.column(name).take(numbers)

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        return pa.chunked_array([values_of_key(maps, key) for maps in self.column(name).chunks], type=pa.string())

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        yield from self.column(name).chunks


class MemoryChunk(_KeptColumns):
    """File actions of commits (or of a checkpoint in JSON), as columns."""

    has_parsed_statistics = False

    def __init__(self, actions: Sequence[Add | Remove], types: dict[str, pa.DataType]) -> None:
        super().__init__()
        self._actions = actions
        self.types = types
        """Of the columns."""

    @property
    def num_rows(self) -> int:
        return len(self._actions)

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:  # noqa: ARG002
        return None

    def _build(self, name: str) -> pa.ChunkedArray:
        return pa.chunked_array([self._array(name)], type=self.types[name])

    def _array(self, name: str) -> pa.Array:
        values = list(map(attrgetter(snake(name)), self._actions))
        type_ = self.types[name]
        if type_ == pa.string():
            return build.strings(values).cast(pa.string())
        if type_ == pa.int64():
            return build.int64s(values)
        if type_ == pa.bool_():
            return build.bools(values)
        if type_ == DELETION_VECTOR:
            return deletion_vectors(values)
        return build.string_maps(values)


class ParquetChunk:
    """The file actions in one row group of a checkpoint or sidecar; rows of other actions are left out."""

    def __init__(self, source: ParquetObject, group: int, action: str, types: dict[str, pa.DataType]) -> None:
        self._source, self._group, self._action, self._types = source, group, action, types
        self.place = source, group, action
        """The file, the row group and the column, for readers of all of it."""
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._passes: Counter[str] = Counter()

    @property
    def num_rows(self) -> int:
        """The number of rows: by the footer where all of them are actions of this kind, else by a small column."""
        if self._source.null_count(self._group, f"{self._action}.path") == 0:
            return int(self._source.metadata.row_group(self._group).num_rows)
        return len(self.column("dataChange"))

    def column(self, name: str) -> pa.ChunkedArray:
        if name in self._columns:
            return self._columns[name]
        array = self._read_column(name)
        if name in _KEPT:
            self._columns[name] = array
        return array

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Pick rows of a column from its batches as they are decoded.

        A whole column of text needs new memory, and touching it can cost more than decoding. A column that is asked for
        repeatedly is kept.
        """
        made_of_others = name in ("deletionVector", "stats") or not self._source.has(self._action, name)
        kept = name in self._columns or (name in _KEPT and (self._is_small or self._passes[name] == _PASSES))
        if made_of_others or kept:
            return build.take_ascending(self.column(name), numbers)
        self._passes[name] += 1
        type_ = self._types[name]
        taken, first, last = [], 0, 0
        for values, valid in self._passing((name,), validate=False):
            start, last = last, last + (len(values) if valid is None else valid.true_count)
            some, first = build.numbers_between(numbers, first, start, last)
            if len(some):
                places = some if valid is None else pc.indices_nonzero(valid).take(some)
                taken.append(self._source.validated(_cast(values.take(places), type_)))
        return pa.chunked_array(taken, type=type_)

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        """Return the values of one key in a column of maps; the maps themselves are not kept."""
        if not self._source.has(self._action, name):
            return _nulls(pa.string(), self._count())
        if self._source.only_value(self._group, f"{self._action}.{name}.key_value.key") == key:
            passing = self._passing((name,), below=".key_value.value")
            found = [only_values(maps, valid) for maps, valid in passing]
        else:
            found = [_of_actions(values_of_key(maps, key), valid) for maps, valid in self._passing((name,))]
        return pa.chunked_array(found, type=pa.string())

    @property
    def has_parsed_statistics(self) -> bool:
        return self._source.has(self._action, "stats_parsed", "numRecords")

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        if not self._source.has(self._action, name):
            yield pa.nulls(self.num_rows, pa.string())
            return
        for values in self._batches((name,), _TEXT_ROWS):
            yield values.cast(pa.string())

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        return self._leaf(path)

    def _read_column(self, name: str) -> pa.ChunkedArray:
        type_ = self._types[name]
        if name == "deletionVector":
            return self._deletion_vectors()
        leaf = self._leaf((name,))
        array = _nulls(type_, self._count()) if leaf is None else _cast(leaf, type_)
        return self._with_parsed_statistics(array) if name == "stats" else array

    @property
    def _is_small(self) -> bool:
        return bool(self._source.metadata.row_group(self._group).num_rows <= _SMALL_ROWS)

    def _count(self) -> int:
        """Return the number of rows, for a column that the file does not have."""
        return len(self.column("path")) if "dataChange" not in self._columns else self.num_rows

    def _batches(self, path: tuple[str, ...], batch_rows: int = BATCH_ROWS) -> Iterator[pa.Array]:
        """Yield a (nested) field of the actions, batch by batch."""
        for values, valid in self._passing(path, batch_rows):
            yield _of_actions(values, valid)

    def _passing(
        self, path: tuple[str, ...], batch_rows: int = BATCH_ROWS, *, below: str = "", validate: bool = True
    ) -> Iterator[tuple[pa.Array, pa.Array | None]]:
        """Yield a (nested) field of all rows, batch by batch, and which of them are of this action (None: all).

        `below` names the one leaf of a map that is read.
        """
        leaf_name = ".".join((self._action, *path)) + below
        for batch in self._source.batches([leaf_name], [self._group], batch_rows, validate=validate):
            actions = leaf = batch.column(0)
            for part in path:
                leaf = child_of(leaf, part)
            yield leaf, actions.is_valid() if actions.null_count else None

    def _leaf(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        return pa.chunked_array(list(self._batches(path))) if self._source.has(self._action, *path) else None

    def _with_parsed_statistics(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Fill in text from `stats_parsed` for rows that have none (a table may ask for structs only)."""
        if not text.null_count or not self._source.has(self._action, "stats_parsed"):
            return text
        from headwater.log.stats.encode import json_text

        parsed = self._leaf(("stats_parsed",))
        assert parsed is not None, "the column is there"
        return pc.coalesce(text, pa.chunked_array([json_text(chunk) for chunk in parsed.chunks]))

    def _deletion_vectors(self) -> pa.ChunkedArray:
        if self._group not in self._source.groups_with(f"{self._action}.deletionVector.storageType"):
            return _nulls(DELETION_VECTOR, self._count())
        whole = self._leaf(("deletionVector",))
        assert whole is not None, "groups_with found the column"
        return pa.chunked_array([as_deletion_vectors(chunk) for chunk in whole.chunks], type=DELETION_VECTOR)


class SubsetChunk(_KeptColumns):
    """Some rows of another chunk: what a first, cheaper filter left over. Its columns are small, and kept."""

    def __init__(self, chunk: FileChunk, numbers: pa.Array) -> None:
        super().__init__()
        self._chunk, self._numbers = chunk, numbers

    @property
    def num_rows(self) -> int:
        return len(self._numbers)

    @property
    def has_parsed_statistics(self) -> bool:
        return self._chunk.has_parsed_statistics

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        whole = self._chunk.parsed(path)
        return None if whole is None else build.take_ascending(whole, self._numbers)

    def _build(self, name: str) -> pa.ChunkedArray:
        return self._chunk.rows(name, self._numbers)


def _of_actions(values: pa.Array, valid: pa.Array | None) -> pa.Array:
    """Leave out the rows of other actions. They go while a batch is small: gathering them out of a whole column later
    would need that much memory again.
    """
    return values if valid is None else values.filter(valid)


def unique_ids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the unique id of each deletion vector, an empty string where there is none."""
    offset = pc.struct_field(vectors, ["offset"]).cast(pa.string())
    suffix = pc.if_else(
        offset.is_null(),
        build.EMPTY,
        pc.binary_join_element_wise(_AT, offset, build.EMPTY, null_handling="replace"),
    )
    parts = [pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv")]
    return pc.binary_join_element_wise(*parts, suffix, build.EMPTY, null_handling="replace")


def deletion_vectors(values: Sequence[DeletionVector | None]) -> pa.Array:
    """Return descriptors as a column of `Snapshot.files` has them."""

    def each(name: str) -> list[object]:
        return [None if v is None else getattr(v, name) for v in values]

    children = {
        "storageType": build.strings(each("storage_type")),  # type: ignore[arg-type]
        "pathOrInlineDv": build.strings(each("path_or_inline_dv")),  # type: ignore[arg-type]
        "offset": build.int32s(each("offset")),  # type: ignore[arg-type]
        "sizeInBytes": build.int32s(each("size_in_bytes")),  # type: ignore[arg-type]
        "cardinality": build.int64s(each("cardinality")),  # type: ignore[arg-type]
    }
    return build.structs(children, valid=[v is not None for v in values])


def as_deletion_vectors(values: pa.StructArray) -> pa.Array:
    """Cast descriptors with integers of other widths to `DELETION_VECTOR`."""
    fields = list(DELETION_VECTOR)
    children = [child_of(values, field.name).cast(field.type) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=children[0].is_null())


def _cast(array: _Values, type_: pa.DataType) -> _Values:
    return array if array.type == type_ else array.cast(type_)


def _nulls(type_: pa.DataType, length: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(length, type_)])


def snake(name: str) -> str:
    """Return the Python name of a field from its name in JSON."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def values_of_key(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the value of the key in each map; null where it is absent.

    Maps of a table nearly always have the same keys in the same order: then the flat items array, taken with a
    stride, is two orders of magnitude faster than a lookup in each map.
    """
    count = len(maps) - maps.null_count
    keys = maps.keys
    if count and maps.offset == 0 and len(keys) % count == 0:
        width = len(keys) // count
        first = keys[:width].to_pylist()
        if key in first and _repeats(maps, keys, width):
            items = maps.items
            values = items if width == 1 else items.take(_stride(first.index(key), count, width))
            return build.spread(values, maps.is_valid()) if maps.null_count else values
    found = pc.map_lookup(maps, query_key=build.strings([key])[0], occurrence="first")
    return found.cast(pa.string())


def only_values(maps: pa.ListArray, valid: pa.Array | None) -> pa.Array:
    """Return the value in each valid map, where all keys are the same and were not read.

    A map that lacks the key is empty; of one that has it twice, the first value counts.
    """
    values = pc.struct_field(maps.values, [0])
    lengths = pc.list_value_length(maps)
    count = len(maps) if valid is None else valid.true_count
    shortest, longest = pc.min_max(lengths).values()
    if maps.offset == 0 and len(values) == len(maps) - maps.null_count == count and shortest == longest == build.ONE32:
        return values
    first = pc.if_else(pc.equal(lengths, build.int32s([0])[0]), build.int32s([None])[0], maps.offsets[:-1])
    found = values.take(first)
    return found if valid is None else found.filter(valid)


def _repeats(maps: pa.MapArray, keys: pa.Array, width: int) -> bool:
    """Say whether every map (that is not null) has exactly the keys of the first one, in the same order."""
    offsets = maps.offsets
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    expected = pc.if_else(maps.is_valid(), build.int32s([width])[0], build.int32s([0])[0])
    if not lengths.equals(expected):
        return False
    repeats: bool = keys[width:].equals(keys[: len(keys) - width])
    return repeats


def _stride(start: int, count: int, width: int) -> pa.Array:
    return build.int64s(range(start, start + count * width, width))
