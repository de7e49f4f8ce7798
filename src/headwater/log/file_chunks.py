"""File actions as columns, in chunks: a row group of a checkpoint, or the adds of the commits after it.

A chunk is as long as its row group and has null where a row is some other action; columns are read when they
are first asked for. What is cheap to keep and needed by every plan is kept; statistics as JSON text are not.
"""

from __future__ import annotations

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
_KEPT = frozenset({"path", "size", "deletionVector", "deletionTimestamp"})


class FileChunk(Protocol):
    """Some rows of file actions, all `add` or all `remove` (other rows are null)."""

    @property
    def num_rows(self) -> int:
        """Number of rows, those of other actions included."""

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action (a key of `ADD_COLUMNS` or `REMOVE_COLUMNS`)."""

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

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        yield from self.column(name).chunks

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:  # noqa: ARG002
        """Nothing: actions of commits have no parsed columns."""
        return None

    def _build(self, name: str) -> pa.Array:
        values = [getattr(action, _snake(name)) for action in self._actions]
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
    """The file actions in one row group of a checkpoint or sidecar."""

    def __init__(self, source: ParquetObject, group: int, action: str, types: dict[str, pa.DataType]) -> None:
        self._source, self._group, self._action, self._types = source, group, action, types
        self._columns: dict[str, pa.ChunkedArray] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._source.metadata.row_group(self._group).num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the action."""
        if name in self._columns:
            return self._columns[name]
        type_ = self._types[name]
        if name == "deletionVector":
            array = self._deletion_vectors()
        else:
            leaf = self._leaf((name,))
            array = _nulls(type_, self.num_rows) if leaf is None else _cast(leaf, type_)
        if name == "stats":
            array = self._with_parsed_statistics(array)
        if name in _KEPT:
            self._columns[name] = array
        return array

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        if not self._source.has(self._action, name):
            yield pa.nulls(self.num_rows, pa.string())
            return
        for batch in self._source.batches([f"{self._action}.{name}"], [self._group]):
            yield batch.column(0).flatten()[0].cast(pa.string())

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A leaf below `stats_parsed` or `partitionValues_parsed`."""
        return self._leaf(path)

    def _leaf(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        if not self._source.has(self._action, *path):
            return None
        leaf = self._source.read(".".join((self._action, *path)), [self._group])
        for part in path:
            # Not every file has `a.b` as the only match of that dotted name: select again by field.
            leaf = pc.struct_field(leaf, [leaf.type.get_field_index(part)])
        return leaf

    def _with_parsed_statistics(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Text made from `stats_parsed` for the rows that have no text (a table may ask for structs only)."""
        rows = self._source.has(self._action, "stats_parsed") and self._missing(text)
        if not rows:
            return text
        from headwater.log.stats_text import json_text

        parsed = self._leaf(("stats_parsed",))
        assert parsed is not None, "the column is there"
        return pc.coalesce(text, pa.chunked_array([json_text(chunk) for chunk in parsed.chunks]))

    def _missing(self, text: pa.ChunkedArray) -> bool:
        """Whether some file has no statistics as text."""
        return bool(pc.any(pc.and_(self.column("path").is_valid(), text.is_null())).as_py())

    def _deletion_vectors(self) -> pa.ChunkedArray:
        path = f"{self._action}.deletionVector.storageType"
        if self._group not in self._source.groups_with(path):
            return _nulls(DELETION_VECTOR, self.num_rows)
        whole = self._leaf(("deletionVector",))
        assert whole is not None, "groups_with found the column"
        fields = {f.name: _cast(pc.struct_field(whole, [f.name]), f.type) for f in DELETION_VECTOR}
        arrays = {name: column.combine_chunks() for name, column in fields.items()}
        valid = arrays["storageType"].is_valid()
        return pa.chunked_array(
            [pa.StructArray.from_arrays(list(arrays.values()), fields=list(DELETION_VECTOR), mask=pc.invert(valid))]
        )


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
        return self._chunk.column(name).take(self._rows)

    def text_batches(self, name: str) -> Iterator[pa.Array]:
        """A text column, in batches."""
        yield from self.column(name).chunks

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A leaf below `stats_parsed` or `partitionValues_parsed`."""
        whole = self._chunk.parsed(path)
        return None if whole is None else whole.take(self._rows)


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


def _cast(array: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return array if array.type == type_ else array.cast(type_)


def _nulls(type_: pa.DataType, length: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(length, type_)])


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)
