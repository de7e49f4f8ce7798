"""File actions as columns, in chunks: a row group of a checkpoint, or the adds of the commits after it.

Columns are read when they are first asked for. What is cheap to keep and needed by every plan is kept; statistics as
JSON text are not.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions import Add, DeletionVector, Remove
    from headwater.log.parquet import ParquetObject

_STRING_MAP = pa.map_(pa.string(), pa.string())

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
    "partitionValues": _STRING_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _STRING_MAP,
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
    "partitionValues": _STRING_MAP,
    "size": pa.int64(),
    "deletionVector": DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}

_AT = build.strings(["@"])[0]
_KEPT = frozenset({"path", "size", "dataChange", "deletionVector", "deletionTimestamp"})


class FileChunk(Protocol):
    """Some file actions of one kind, all `add` or all `remove`."""

    @property
    def num_rows(self) -> int:
        """Number of file actions."""

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action (a key of `ADD_COLUMNS` or `REMOVE_COLUMNS`)."""

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
        self._types = types
        self._columns: dict[str, pa.ChunkedArray] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._actions)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        if name not in self._columns:
            self._columns[name] = pa.chunked_array([self._build(name)], type=self._types[name])
        return self._columns[name]

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
        values = list(map(attrgetter(_snake(name)), self._actions))
        type_ = self._types[name]
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
        self._columns: dict[str, pa.ChunkedArray] = {}

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

    @property
    def has_parsed_statistics(self) -> bool:
        """Whether the file has `stats_parsed`."""
        return self._source.has(self._action, "stats_parsed", "numRecords")

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        if not self._source.has(self._action, name):
            yield pa.nulls(self.num_rows, pa.string())
            return
        for values in self._batches((name,)):
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

    def _count(self) -> int:
        """Number of rows, for a column that the file does not have."""
        return len(self.column("path")) if "dataChange" not in self._columns else self.num_rows

    def _batches(self, path: tuple[str, ...]) -> Iterator[pa.Array]:
        """A (nested) field of the actions, batch by batch.

        Rows of other actions go while a batch is small: gathering them out of a whole column later would need
        that much memory again.
        """
        for batch in self._source.batches([".".join((self._action, *path))], [self._group]):
            actions = leaf = batch.column(0)
            for part in path:
                leaf = _child(leaf, part)
            yield leaf.filter(actions.is_valid()) if actions.null_count else leaf

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
        return pa.chunked_array([_as_deletion_vectors(chunk) for chunk in whole.chunks], type=DELETION_VECTOR)


class SubsetChunk:
    """Some rows of another chunk: what a first, cheaper filter left over."""

    def __init__(self, chunk: FileChunk, rows: pa.Array) -> None:
        self._chunk, self._rows = chunk, rows

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        return build.take_ascending(self._chunk.column(name), self._rows)

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
        return None if whole is None else build.take_ascending(whole, self._rows)


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


def _as_deletion_vectors(values: pa.StructArray) -> pa.Array:
    fields = list(DELETION_VECTOR)
    children = [_child(values, field.name).cast(field.type) for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=children[0].is_null())


def _child(values: pa.StructArray, name: str) -> pa.Array:
    """A field of a struct, null where the struct is."""
    return pc.struct_field(values, [values.type.get_field_index(name)])


def _cast(array: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return array if array.type == type_ else array.cast(type_)


def _nulls(type_: pa.DataType, length: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(length, type_)])


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)
