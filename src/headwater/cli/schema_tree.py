"""A table's schema as a tree: names, types, and what is special about each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.formats import clean, plain
from headwater.log.schema import ArrayType, MapType, StructField, StructType, UserDefinedType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headwater.log.schema import DataType

_UNICODE = ("├── ", "└── ", "│   ", "    ")
_ASCII = ("|-- ", "`-- ", "|   ", "    ")


class Row(NamedTuple):
    """One line of the tree."""

    guide: str
    name: str
    type: str
    notes: tuple[str, ...]
    comment: str
    is_partition: bool


def schema_rows(schema: StructType, partition_columns: Collection[str], *, ascii_only: bool = False) -> Iterator[Row]:
    """The lines of the tree, from top to bottom."""
    guides = _ASCII if ascii_only else _UNICODE
    return _rows(list(schema.fields), "", guides, {name.lower() for name in partition_columns})


def _rows(
    fields: list[StructField], indent: str, guides: tuple[str, ...], partitions: Collection[str]
) -> Iterator[Row]:
    branch, last, down, blank = guides
    for index, field in enumerate(fields):
        is_last = index == len(fields) - 1
        is_partition = field.name.lower() in partitions
        notes = (*(("partition",) if is_partition else ()), *_notes(field))
        comment = clean(str(field.metadata.get("comment") or ""))
        yield Row(
            indent + (last if is_last else branch),
            clean(field.name),
            label(field),
            notes,
            comment,
            is_partition,
        )
        yield from _rows(_children(field.type), indent + (blank if is_last else down), guides, ())


def label(field: StructField) -> str:
    """The type of a field, by the names of the schema's JSON; what structs hold is shown below them.

    >>> from headwater.log.schema import LONG, STRING
    >>> label(StructField("x", MapType(STRING, ArrayType(StructType([StructField("y", LONG)])))))
    'map<string, array<struct>>'
    """
    declared = field.metadata.get("__CHAR_VARCHAR_TYPE_STRING")
    return clean(declared if isinstance(declared, str) else _type_label(field.type))


def _type_label(data_type: DataType) -> str:
    if isinstance(data_type, ArrayType):
        return f"array<{_type_label(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"map<{_type_label(data_type.key_type)}, {_type_label(data_type.value_type)}>"
    return data_type.json_name


def _children(data_type: DataType) -> list[StructField]:
    if isinstance(data_type, StructType):
        return list(data_type.fields)
    if isinstance(data_type, ArrayType):
        return _children(data_type.element_type)
    if isinstance(data_type, UserDefinedType):
        return _children(data_type.sql_type)
    if isinstance(data_type, MapType):
        if not _children(data_type.key_type):
            return _children(data_type.value_type)
        return [
            StructField("key", data_type.key_type, nullable=False),
            StructField("value", data_type.value_type, data_type.value_contains_null),
        ]
    return []


def _notes(field: StructField) -> Iterator[str]:
    if not field.nullable:
        yield "not null"
    if "delta.generationExpression" in field.metadata:
        yield f"generated: {plain(field.metadata['delta.generationExpression'])}"
    if "delta.identity.start" in field.metadata:
        yield "identity"
    if "CURRENT_DEFAULT" in field.metadata:
        yield f"default {plain(field.metadata['CURRENT_DEFAULT'])}"
