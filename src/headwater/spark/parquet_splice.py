"""A Parquet file with other values in some of its columns: those are written anew, all others are taken over as bytes.

A column of a row group is a piece of the file, and the footer says where; nothing in the piece itself depends on its
place. So a file that differs from another in one column costs the writing of that column, and copying bytes. What the
footer has to say of the pieces (sizes, statistics, page indexes, bloom filters) comes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.spark.thrift import BINARY, I32, I64, LIST, STRUCT, Field, Items, Struct, ThriftError, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

_MAGIC = b"PAR1"
_SPARK_VERSION = b"org.apache.spark.version"
_SCHEMA_KEYS = frozenset({b"ARROW:schema", b"pandas", b"org.apache.spark.sql.parquet.row.metadata"})
"""Notes of writers on the types of columns: they may not be true any more, and no reader needs them."""


class UnsplicedError(HeadwaterError):
    """A file cannot be taken over piece by piece."""


def splice(
    old: memoryview, new: memoryview, places: Mapping[str, str | None], sink: BinaryIO, spark_version: str = ""
) -> None:
    """Write a file that has the columns of one file with some of another.

    Args:
        old: the file.
        new: a file with nothing but columns that are no structs, lists or maps, and row groups of the same sizes.
        places: for each column of `new`: the column of `old` in whose place it comes; None if it is one more.
        sink: where to write.
        spark_version: noted as that of the writer, if the old file names none.

    Raises:
        UnsplicedError: the file is encrypted, or its footer is not what was expected.
    """
    try:
        _Splice(_footer(old), _footer(new), places).write(old, new, sink, spark_version)
    except (ThriftError, KeyError, IndexError) as error:
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
_COLUMN = {"path": 3, "uncompressed_size": 6, "compressed_size": 7, "data_page": 9, "index_page": 10, "dictionary": 11}
_COLUMN_INDEX, _OFFSET_INDEX, _BLOOM_FILTER = (6, 7), (4, 5), (14, 15)
"""Where further pieces are, and how long: the first two are fields of the chunk, the last ones of the column."""


class _Splice:
    """The footers of both files, and where the columns of the result come from."""

    def __init__(self, old: Struct, new: Struct, places: Mapping[str, str | None]) -> None:
        self._footer = old
        self._new = new
        self._groups: list[Struct] = _items(old, _FOOTER["row_groups"])
        self._new_groups: list[Struct] = _items(new, _FOOTER["row_groups"])
        rows = [[group[_GROUP["num_rows"]].value for group in groups] for groups in (self._groups, self._new_groups)]
        if not rows[0] or rows[0] != rows[1]:
            raise UnsplicedError(f"row groups of {rows[0]} rows cannot take columns of {rows[1]} rows")
        leaves = {name: position for position, name in enumerate(_paths(self._groups[0]))}
        sources = {name[0].decode(): position for position, name in enumerate(_paths(self._new_groups[0]))}
        self._replaced = {leaves[(o.encode(),)]: sources[n] for n, o in places.items() if o is not None}
        """By the place in the old file, the place in the new one."""
        self._added = [sources[name] for name, place in places.items() if place is None]

    def write(self, old: memoryview, new: memoryview, sink: BinaryIO, spark_version: str) -> None:
        """Write the result."""
        out = _Output(sink)
        out.write(_MAGIC)
        chunks = [self._write_group(out, group, old, new) for group in range(len(self._groups))]
        for pieces in (_BLOOM_FILTER, _COLUMN_INDEX, _OFFSET_INDEX):
            for moved in (moved for group in chunks for moved in group):
                moved.write_piece(out, pieces)
        self._change_schema()
        self._note(spark_version)
        footer = encoded(self._footer)
        out.write(footer)
        out.write(len(footer).to_bytes(4, "little"))
        out.write(_MAGIC)

    def _write_group(self, out: _Output, number: int, old: memoryview, new: memoryview) -> list[_Chunk]:
        group, new_columns = self._groups[number], _items(self._new_groups[number], _GROUP["columns"])
        columns = _items(group, _GROUP["columns"])
        if len(columns) != len(_items(self._groups[0], _GROUP["columns"])):
            raise UnsplicedError("row groups have different columns")
        chunks = [
            _Chunk(new, new_columns[self._replaced[place]]) if place in self._replaced else _Chunk(old, column)
            for place, column in enumerate(columns)
        ]
        chunks += [_Chunk(new, new_columns[place]) for place in self._added]
        start = out.position
        for chunk in chunks:
            chunk.write(out)
        group[_GROUP["columns"]] = Field(LIST, Items(STRUCT, [chunk.fields for chunk in chunks]))
        sizes = [
            [chunk.column[_COLUMN[kind]].value for chunk in chunks] for kind in ("uncompressed_size", "compressed_size")
        ]
        group[_GROUP["total_byte_size"]] = Field(I64, sum(sizes[0]))
        group[_GROUP["compressed"]] = Field(I64, sum(sizes[1]))
        group[_GROUP["file_offset"]] = Field(I64, start)
        group.pop(_GROUP["sorting_columns"], None)
        return chunks

    def _change_schema(self) -> None:
        elements = _items(self._footer, _FOOTER["schema"])
        new_elements = _items(self._new, _FOOTER["schema"])[1:]
        places = [place for place, element in enumerate(elements) if _ELEMENT["num_children"] not in element]
        for place, source in self._replaced.items():
            elements[places[place]] = new_elements[source]
        elements += [new_elements[source] for source in self._added]
        children = elements[0][_ELEMENT["num_children"]]
        elements[0][_ELEMENT["num_children"]] = Field(I32, children.value + len(self._added))
        if _FOOTER["column_orders"] in self._footer:
            orders, new_orders = (_items(footer, _FOOTER["column_orders"]) for footer in (self._footer, self._new))
            for place, source in self._replaced.items():
                orders[place] = new_orders[source]
            orders += [new_orders[source] for source in self._added]

    def _note(self, spark_version: str) -> None:
        number = _FOOTER["key_value_metadata"]
        notes = _items(self._footer, number) if number in self._footer else []
        kept = [note for note in notes if note[1].value not in _SCHEMA_KEYS]
        if spark_version and all(note[1].value != _SPARK_VERSION for note in kept):
            kept.append({1: Field(BINARY, _SPARK_VERSION), 2: Field(BINARY, spark_version.encode())})
        self._footer[number] = Field(LIST, Items(STRUCT, kept))


class _Output:
    """A file that is being written."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.position = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes; where they begin."""
        start = self.position
        self._sink.write(data)
        self.position += len(data)
        return start


class _Chunk:
    """A column of a row group, on its way from one file to another."""

    def __init__(self, source: memoryview, fields: Struct) -> None:
        if fields.keys() & {_CHUNK["file_path"], _CHUNK["crypto_metadata"], _CHUNK["encrypted"]}:
            raise UnsplicedError("a column is encrypted, or in another file")
        self._source = source
        self._shift = 0
        self.fields = fields
        self.column: Struct = fields[_CHUNK["meta_data"]].value

    def write(self, out: _Output) -> None:
        """Write the pages, and say where they are now."""
        column = self.column
        offsets = [
            number for number in (_COLUMN[n] for n in ("data_page", "index_page", "dictionary")) if number in column
        ]
        # Some writers say 0 where there is no dictionary.
        start = min(column[number].value for number in offsets if column[number].value > 0)
        end = start + column[_COLUMN["compressed_size"]].value
        if end > len(self._source):
            raise UnsplicedError("a column ends behind the end of its file")
        self._shift = out.write(self._source[start:end]) - start
        for number in offsets:
            if column[number].value > 0:
                column[number] = Field(I64, column[number].value + self._shift)
        self.fields[_CHUNK["file_offset"]] = Field(I64, 0)  # it says nothing any more, by the format's definition

    def write_piece(self, out: _Output, where: tuple[int, int]) -> None:
        """Write what else belongs to the column, and say where it is now."""
        holder = self.column if where == _BLOOM_FILTER else self.fields
        offset, length = where
        if offset in holder and length in holder:
            start = holder[offset].value
            piece: bytes | memoryview = self._source[start : start + holder[length].value]
            piece = self._moved(piece) if where == _OFFSET_INDEX else piece
            holder[offset] = Field(I64, out.write(piece))
            holder[length] = Field(I32, len(piece))
        else:
            holder.pop(offset, None)

    def _moved(self, index: bytes | memoryview) -> bytes:
        """An offset index, which says where pages are."""
        found = decoded(index)
        for location in _items(found, 1):
            location[1] = Field(I64, location[1].value + self._shift)
        return encoded(found)


def _items(fields: Struct, number: int) -> list[Any]:
    found: Items = fields[number].value
    return found.values


def _paths(group: Struct) -> Iterator[tuple[bytes, ...]]:
    """The names of a row group's columns."""
    for chunk in _items(group, _GROUP["columns"]):
        yield tuple(_items(chunk[_CHUNK["meta_data"]].value, _COLUMN["path"]))
