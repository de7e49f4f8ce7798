"""File actions as columns, in chunks: a row group of a checkpoint, or the adds of the commits after it.

Columns are read when they are first asked for. What is cheap to keep and needed by every plan is kept; statistics as
JSON text are not.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.map_lookup import only_values, values_of_key
from headwater.log.parquet import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions import Add, DeletionVector, Remove
    from headwater.log.parquet import ParquetObject

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
        """Number of file actions."""

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action (a key of `ADD_COLUMNS` or `REMOVE_COLUMNS`)."""

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Some rows of a column, by ascending row numbers."""

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        """The values of one key in a column of maps, null where it is absent."""

    @property
    def has_parsed_statistics(self) -> bool:
        """Whether statistics are there as columns; otherwise they are decoded from text, under the interpreter lock."""

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column that is used once, in batches, so that memory stays bounded."""

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A leaf below `stats_parsed` or `partitionValues_parsed`; None when the file has no such column."""


class MemoryChunk:
    """File actions of commits (or of a checkpoint in JSON), as columns."""

    def __init__(self, actions: Sequence[Add | Remove], types: dict[str, pa.DataType]) -> None:
        self._actions = actions
        self.types = types
        """Of the columns."""
        self._columns: dict[str, pa.ChunkedArray] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._actions)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        if name not in self._columns:
            self._columns[name] = pa.chunked_array([self._build(name)], type=self.types[name])
        return self._columns[name]

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Some rows of a column."""
        return self.column(name).take(numbers)

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        """The values of one key in a column of maps."""
        return _values_of_key(self.column(name), key)

    @property
    def has_parsed_statistics(self) -> bool:
        """No."""
        return False

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        yield from self.column(name).chunks

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:  # noqa: ARG002
        """Nothing: actions of commits have no parsed columns."""
        return None

    def _build(self, name: str) -> pa.Array:
        values = list(map(attrgetter(snake(name)), self._actions))
        type_ = self.types[name]
        if type_ == pa.string():
            return build.strings(values).cast(pa.string())
        if type_ == pa.int64():
            return build.int64s(values)
        if type_ == pa.bool_():
            return build.bools(values)
        if type_ == DELETION_VECTOR:
            return _deletion_vectors(values)
        return build.string_maps(values)


class ParquetChunk:
    """The file actions in one row group of a checkpoint or sidecar; rows of other actions are left out."""

    def __init__(self, source: ParquetObject, group: int, action: str, types: dict[str, pa.DataType]) -> None:
        self._source, self._group, self._action, self._types = source, group, action, types
        self.place = source, group, action
        """The file, the row group and the column, for whoever reads all of it in passing."""
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._passes: Counter[str] = Counter()

    @property
    def num_rows(self) -> int:
        """Number of rows: by the footer where all of them are actions of this kind, else by a small column."""
        if self._source.null_count(self._group, f"{self._action}.path") == 0:
            return int(self._source.metadata.row_group(self._group).num_rows)
        return len(self.column("dataChange"))

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        if name in self._columns:
            return self._columns[name]
        array = self._read_column(name)
        if name in _KEPT:
            self._columns[name] = array
        return array

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Some rows of a column, picked while it passes by in batches.

        A whole column of text is memory that nobody has touched yet, and touching it can cost more than decoding.
        A column that is asked for again and again is kept.
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
        """The values of one key in a column of maps; the maps themselves are not kept."""
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
        """Whether the file has `stats_parsed`."""
        return self._source.has(self._action, "stats_parsed", "numRecords")

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        if not self._source.has(self._action, name):
            yield pa.nulls(self.num_rows, pa.string())
            return
        for values in self._batches((name,), _TEXT_ROWS):
            yield values.cast(pa.string())

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A leaf below `stats_parsed` or `partitionValues_parsed`."""
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
        """Number of rows, for a column that the file does not have."""
        return len(self.column("path")) if "dataChange" not in self._columns else self.num_rows

    def _batches(self, path: tuple[str, ...], batch_rows: int = BATCH_ROWS) -> Iterator[pa.Array]:
        """A (nested) field of the actions, batch by batch."""
        for values, valid in self._passing(path, batch_rows):
            yield _of_actions(values, valid)

    def _passing(
        self, path: tuple[str, ...], batch_rows: int = BATCH_ROWS, *, below: str = "", validate: bool = True
    ) -> Iterator[tuple[pa.Array, pa.Array | None]]:
        """A (nested) field of all rows, batch by batch, and which of them are of this action (None: all).

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
        """Text made from `stats_parsed` for the rows that have no text (a table may ask for structs only)."""
        if not text.null_count or not self._source.has(self._action, "stats_parsed"):
            return text
        from headwater.log.stats_text import json_text

        parsed = self._leaf(("stats_parsed",))
        assert parsed is not None, "the column is there"
        return pc.coalesce(text, pa.chunked_array([json_text(chunk) for chunk in parsed.chunks]))

    def _deletion_vectors(self) -> pa.ChunkedArray:
        if self._group not in self._source.groups_with(f"{self._action}.deletionVector.storageType"):
            return _nulls(DELETION_VECTOR, self._count())
        whole = self._leaf(("deletionVector",))
        assert whole is not None, "groups_with found the column"
        return pa.chunked_array([as_deletion_vectors(chunk) for chunk in whole.chunks], type=DELETION_VECTOR)


class SubsetChunk:
    """Some rows of another chunk: what a first, cheaper filter left over. Its columns are small, and kept."""

    def __init__(self, chunk: FileChunk, numbers: pa.Array) -> None:
        self._chunk, self._numbers = chunk, numbers
        self._columns: dict[str, pa.ChunkedArray] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._numbers)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        if name not in self._columns:
            self._columns[name] = self._chunk.rows(name, self._numbers)
        return self._columns[name]

    def rows(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Some rows of a column."""
        return self.column(name).take(numbers)

    def map_values(self, name: str, key: str) -> pa.ChunkedArray:
        """The values of one key in a column of maps."""
        return _values_of_key(self.column(name), key)

    @property
    def has_parsed_statistics(self) -> bool:
        """As the whole chunk."""
        return self._chunk.has_parsed_statistics

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        yield from self.column(name).chunks

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A leaf below `stats_parsed` or `partitionValues_parsed`."""
        whole = self._chunk.parsed(path)
        return None if whole is None else build.take_ascending(whole, self._numbers)


def _of_actions(values: pa.Array, valid: pa.Array | None) -> pa.Array:
    """Without the rows of other actions. They go while a batch is small: gathering them out of a whole column later
    would need that much memory again.
    """
    return values if valid is None else values.filter(valid)


def _values_of_key(maps: pa.ChunkedArray, key: str) -> pa.ChunkedArray:
    return pa.chunked_array([values_of_key(chunk, key) for chunk in maps.chunks], type=pa.string())


def unique_ids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The unique id of each deletion vector, an empty string where there is none."""
    offset = pc.struct_field(vectors, ["offset"]).cast(pa.string())
    suffix = pc.if_else(
        offset.is_null(),
        build.EMPTY,
        pc.binary_join_element_wise(_AT, offset, build.EMPTY, null_handling="replace"),
    )
    parts = [pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv")]
    return pc.binary_join_element_wise(*parts, suffix, build.EMPTY, null_handling="replace")


def _deletion_vectors(values: Sequence[DeletionVector | None]) -> pa.Array:
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
    """Deletion vectors of any widths, in ours."""
    fields = list(DELETION_VECTOR)
    children = [child_of(values, field.name).cast(field.type) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=children[0].is_null())


def child_of(values: pa.StructArray, name: str) -> pa.Array:
    """A field of a struct, null where the struct is."""
    return pc.struct_field(values, [values.type.get_field_index(name)])


def _cast(array: _Values, type_: pa.DataType) -> _Values:
    return array if array.type == type_ else array.cast(type_)


def _nulls(type_: pa.DataType, length: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(length, type_)])


def snake(name: str) -> str:
    """The name of a field here, from its name in JSON."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name)
