"""Write a Parquet file with new values in some columns: encode these, and copy the bytes of all other columns.

A column of a row group is a range of bytes, which the footer locates; nothing in it depends on its position. Copying a
column takes along what belongs to it: sizes, statistics, page indexes and bloom filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.parquet.splice.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Struct,
    ThriftError,
    decoded,
    encoded,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import BinaryIO

_MAGIC = b"PAR1"
_SPARK_VERSION = b"org.apache.spark.version"
_SCHEMA_KEYS = frozenset({b"ARROW:schema", b"pandas", b"org.apache.spark.sql.parquet.row.metadata"})
"""Notes of writers on the types of columns, which may be outdated; readers do not need them."""
_MALFORMED = (ThriftError, LookupError, TypeError, AttributeError, RecursionError)
"""What a footer raises that lacks fields, or has them with other types."""


class UnsplicedError(Exception):
    """Columns of a file cannot be copied as bytes."""


def splice(
    old: memoryview,
    new: Sequence[tuple[memoryview, str | None]],
    sink: BinaryIO,
    spark_version: str = "",
    *,
    kept: Collection[str] | None = None,
) -> None:
    """Write a file that has columns of one file, and some of others.

    Args:
        new: files with one column each and row groups of the same sizes, and the column of `old` that it replaces; None
            if it is added. A column is a top-level one, with all that is below it.
        sink: where to write.
        spark_version: noted as that of the writer, if the old file names none.
        kept: the columns of `old` to copy; all of them by default.
    """
    try:
        file = _File(old)
        places = {name.encode(): _File(data) for data, name in new if name is not None}
        added = [_File(data) for data, name in new if name is None]
        _Splice(file, places, added, kept).write(sink, spark_version)
    except _MALFORMED as error:
        raise UnsplicedError(f"the footer of a file is not as it should be: {error!r}") from error


def _footer(data: memoryview) -> Struct:
    if len(data) < 12 or bytes(data[-4:]) != _MAGIC:
        raise UnsplicedError("a file is encrypted, or is no Parquet file")
    length = int.from_bytes(data[-8:-4], "little")
    footer = decoded(data[-8 - length : -8])
    if _FOOTER["encryption_algorithm"] in footer:
        raise UnsplicedError("a file is encrypted")
    return footer


# The numbers of fields, by the names that the definition of the format has for them.
_FOOTER = {"schema": 2, "row_groups": 4, "key_value_metadata": 5, "column_orders": 7, "encryption_algorithm": 8}
_ELEMENT = {"name": 4, "num_children": 5}
_GROUP = {"columns": 1, "total_byte_size": 2, "num_rows": 3, "sorting_columns": 4, "file_offset": 5, "compressed": 6}
_CHUNK = {"file_path": 1, "file_offset": 2, "meta_data": 3, "crypto_metadata": 8, "encrypted": 9}
_COLUMN = {"uncompressed_size": 6, "compressed_size": 7, "data_page": 9, "index_page": 10, "dictionary": 11}
_COLUMN_INDEX, _OFFSET_INDEX, _BLOOM_FILTER = (6, 7), (4, 5), (14, 15)
"""Offset and length of further pieces: the first two are fields of the chunk, the last one of the column."""


@dataclass(frozen=True)
class _Column:
    """A top-level column of a file."""

    file: _File
    elements: list[Struct]
    """Its part of the schema."""
    leaves: range
    """Its positions among the columns of a row group."""

    @property
    def name(self) -> bytes:
        found: bytes = self.elements[0][_ELEMENT["name"]].value
        return found


class _File:
    """A file, and its decoded footer."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.footer = _footer(data)
        self.groups: list[Struct] = _items(self.footer, _FOOTER["row_groups"])
        if not self.groups:
            raise UnsplicedError("a file has no row groups")

    @cached_property
    def columns(self) -> list[_Column]:
        elements: list[Struct] = _items(self.footer, _FOOTER["schema"])
        found: list[_Column] = []
        place, leaf = 1, 0
        while place < len(elements):
            end = _end(elements, place)
            leaves = sum(_ELEMENT["num_children"] not in element for element in elements[place:end])
            found.append(_Column(self, elements[place:end], range(leaf, leaf + leaves)))
            place, leaf = end, leaf + leaves
        if any(len(_items(group, _GROUP["columns"])) != leaf for group in self.groups):
            raise UnsplicedError("a row group has other columns than the schema")
        return found

    @property
    def rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [group[_GROUP["num_rows"]].value for group in self.groups]


def _end(elements: list[Struct], place: int) -> int:
    """Return where the description of a column ends; those of its children follow it."""
    children = elements[place].get(_ELEMENT["num_children"])
    place += 1
    for _ in range(0 if children is None else children.value):
        place = _end(elements, place)
    return place


class _Splice:
    """The columns of the result and the files that they come from."""

    def __init__(
        self, old: _File, places: Mapping[bytes, _File], added: Sequence[_File], kept: Collection[str] | None
    ) -> None:
        self._old = old
        for file in (*places.values(), *added):
            if file.rows != old.rows or len(file.columns) != 1:
                raise UnsplicedError(f"row groups of {old.rows} rows cannot take a column of {file.rows} rows")
        names = {column.name for column in old.columns}
        if not places.keys() <= names:
            raise UnsplicedError(f"a file has no column {b', '.join(places.keys() - names).decode()}")
        stays = names if kept is None else {*places, *(name.encode() for name in kept)}
        self._columns = [places[c.name].columns[0] if c.name in places else c for c in old.columns if c.name in stays]
        self._columns += [file.columns[0] for file in added]
        if len({column.name for column in self._columns}) < len(self._columns):
            raise UnsplicedError("two columns of a file would have the same name")

    def write(self, sink: BinaryIO, spark_version: str) -> None:
        sink.write(_MAGIC)
        chunks = [chunk for group in range(len(self._old.groups)) for chunk in self._write_group(sink, group)]
        for pieces in (_BLOOM_FILTER, _COLUMN_INDEX, _OFFSET_INDEX):
            for chunk in chunks:
                chunk.write_piece(sink, pieces)
        self._change_schema()
        self._note(spark_version)
        footer = encoded(self._old.footer)
        sink.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _write_group(self, sink: BinaryIO, number: int) -> list[_Chunk]:
        chunks = [
            _Chunk(column.file.data, _items(column.file.groups[number], _GROUP["columns"])[leaf])
            for column in self._columns
            for leaf in column.leaves
        ]
        start = sink.tell()
        for chunk in chunks:
            chunk.write(sink)
        group = self._old.groups[number]
        group[_GROUP["columns"]] = Field(LIST, Items(STRUCT, [chunk.fields for chunk in chunks]))
        group[_GROUP["total_byte_size"]] = Field(I64, sum(c.column[_COLUMN["uncompressed_size"]].value for c in chunks))
        group[_GROUP["compressed"]] = Field(I64, sum(c.column[_COLUMN["compressed_size"]].value for c in chunks))
        group[_GROUP["file_offset"]] = Field(I64, start)
        group.pop(_GROUP["sorting_columns"], None)
        return chunks

    def _change_schema(self) -> None:
        footer, number = self._old.footer, _FOOTER["column_orders"]
        root = _items(footer, _FOOTER["schema"])[0]
        root[_ELEMENT["num_children"]] = Field(I32, len(self._columns))
        if number in footer:
            orders = [_items(c.file.footer, number)[leaf] for c in self._columns for leaf in c.leaves]
            footer[number] = Field(LIST, Items(STRUCT, orders))
        elements = [root, *(element for column in self._columns for element in column.elements)]
        footer[_FOOTER["schema"]] = Field(LIST, Items(STRUCT, elements))

    def _note(self, spark_version: str) -> None:
        footer, number = self._old.footer, _FOOTER["key_value_metadata"]
        notes = _items(footer, number) if number in footer else []
        kept = [note for note in notes if note[1].value not in _SCHEMA_KEYS]
        if spark_version and all(note[1].value != _SPARK_VERSION for note in kept):
            kept.append({1: Field(BINARY, _SPARK_VERSION), 2: Field(BINARY, spark_version.encode())})
        footer[number] = Field(LIST, Items(STRUCT, kept))


class _Chunk:
    """A column of a row group that is copied from one file to another."""

    def __init__(self, source: memoryview, fields: Struct) -> None:
        if fields.keys() & {_CHUNK["file_path"], _CHUNK["crypto_metadata"], _CHUNK["encrypted"]}:
            raise UnsplicedError("a column is encrypted, or in another file")
        self._source = source
        self._shift = 0
        self.fields = fields
        self.column: Struct = fields[_CHUNK["meta_data"]].value

    def write(self, sink: BinaryIO) -> None:
        """Write the pages, and adjust their offsets."""
        column = self.column
        offsets = [
            number for number in (_COLUMN[n] for n in ("data_page", "index_page", "dictionary")) if number in column
        ]
        # Some writers say 0 where there is no dictionary.
        start = min((column[number].value for number in offsets if column[number].value > 0), default=0)
        pages = _piece(self._source, start, column[_COLUMN["compressed_size"]].value)
        self._shift = _append(sink, pages) - start
        for number in offsets:
            if column[number].value > 0:
                column[number] = Field(I64, column[number].value + self._shift)
        self.fields[_CHUNK["file_offset"]] = Field(I64, 0)  # it says nothing any more, by the format's definition

    def write_piece(self, sink: BinaryIO, where: tuple[int, int]) -> None:
        """Write a page index or bloom filter, and adjust its offset."""
        holder = self.column if where == _BLOOM_FILTER else self.fields
        offset, length = where
        if offset in holder and length in holder:
            piece: bytes | memoryview = _piece(self._source, holder[offset].value, holder[length].value)
            piece = self._moved(piece) if where == _OFFSET_INDEX else piece
            holder[offset] = Field(I64, _append(sink, piece))
            holder[length] = Field(I32, len(piece))
        else:
            holder.pop(offset, None)

    def _moved(self, index: bytes | memoryview) -> bytes:
        """Adjust the page offsets in an offset index."""
        found = decoded(index)
        for location in _items(found, 1):
            location[1] = Field(I64, location[1].value + self._shift)
        return encoded(found)


def _append(sink: BinaryIO, data: bytes | memoryview) -> int:
    """Write bytes; return where they begin."""
    start = sink.tell()
    sink.write(data)
    return start


def _piece(source: memoryview, start: int, length: int) -> memoryview:
    if length and not 0 < start < start + length <= len(source):  # row groups without rows need no pages
        raise UnsplicedError("a piece of a file is not in the file")
    return source[start : start + length]


def _items(fields: Struct, number: int) -> list[Any]:
    found: Items = fields[number].value
    return found.values
