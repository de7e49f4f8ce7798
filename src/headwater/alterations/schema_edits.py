"""Schemas with one thing changed: a column added, renamed, moved, dropped, or given another type.

Pure functions on values; whether a table allows the change is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.alterations.column_paths import locate
from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.log.schema import ArrayType, DataType, MapType, StructField, StructType
from headwater.log.schema.lookup import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

TypeChange = Callable[[DataType], DataType]


def change_type(schema: StructType, path: Sequence[str], change: TypeChange) -> StructType:
    """The schema with the type at a path (exact names; the schema itself when empty) replaced."""
    changed = _descend(schema, tuple(path), change)
    assert isinstance(changed, StructType), "the outermost type of a schema stays a struct"
    return changed


def _descend(here: DataType, path: tuple[str, ...], change: TypeChange) -> DataType:
    if not path:
        return change(here)
    match here:
        case StructType(fields=fields, extra=extra):
            new = (replace(f, type=_descend(f.type, path[1:], change)) if f.name == path[0] else f for f in fields)
            return StructType(new, extra=extra)
        case ArrayType(element_type=element):
            return replace(here, element_type=_descend(element, path[1:], change))
        case MapType(key_type=key) if path[0] == "key":
            return replace(here, key_type=_descend(key, path[1:], change))
        case MapType(value_type=value):
            return replace(here, value_type=_descend(value, path[1:], change))
    raise AssertionError(f"{path} was found before, so {here} has parts")


def change_fields(
    schema: StructType, parent: Sequence[str], change: Callable[[list[StructField]], list[StructField]]
) -> StructType:
    """The schema with the fields of one struct replaced; `parent` is the way to it, by any names.

    Raises:
        ColumnNotFoundError: there is no such column, or it is no struct.
    """
    path = locate(schema, parent).path if parent else ()

    def changed(here: DataType) -> DataType:
        if not isinstance(here, StructType):
            raise ColumnNotFoundError(
                f"{dotted(path)} is of type {here}, and only structs have fields."
                + (" Write .element to go into an array." if isinstance(here, ArrayType) else "")
                + (" Write .key or .value to go into a map." if isinstance(here, MapType) else "")
            )
        return StructType(change(list(here.fields)), extra=here.extra)

    return change_type(schema, path, changed)


def change_field(schema: StructType, path: Sequence[str], change: Callable[[StructField], StructField]) -> StructType:
    """The schema with one field replaced; the path is of exact names and ends at a field."""
    return change_fields(schema, path[:-1], lambda fields: [change(f) if f.name == path[-1] else f for f in fields])


def add_field(schema: StructType, parent: Sequence[str], field: StructField, position: str | None) -> StructType:
    """The schema with a new field, at the end or where `position` says (`FIRST`, `AFTER other`).

    Raises:
        SchemaError: there is a field of that name already (in any case), or the position makes no sense.
    """

    def insert(fields: list[StructField]) -> list[StructField]:
        taken = next((f.name for f in fields if f.name.lower() == field.name.lower()), None)
        if taken is not None:
            raise SchemaError(f"there is a column {dotted([*parent, taken])} already.")
        return _placed(fields, field, position)

    return change_fields(schema, parent, insert)


def move_field(schema: StructType, path: Sequence[str], position: str) -> StructType:
    """The schema with a field moved within its struct."""

    def move(fields: list[StructField]) -> list[StructField]:
        moved = next(f for f in fields if f.name == path[-1])
        return _placed([f for f in fields if f is not moved], moved, position)

    return change_fields(schema, path[:-1], move)


def drop_field(schema: StructType, path: Sequence[str]) -> StructType:
    """The schema without a field.

    Raises:
        SchemaError: it is the only one of its struct.
    """

    def drop(fields: list[StructField]) -> list[StructField]:
        if len(fields) == 1:
            of = f"of {dotted(path[:-1])}" if len(path) > 1 else "of the table"
            raise SchemaError(f"{dotted(path)} cannot be dropped: nothing would be left {of}.")
        return [f for f in fields if f.name != path[-1]]

    return change_fields(schema, path[:-1], drop)


def rename_field(schema: StructType, path: Sequence[str], new_name: str) -> StructType:
    """The schema with a field renamed.

    Raises:
        SchemaError: another field of the struct has that name already (in any case).
    """

    def rename(fields: list[StructField]) -> list[StructField]:
        taken = next((f.name for f in fields if f.name.lower() == new_name.lower() and f.name != path[-1]), None)
        if taken is not None:
            raise SchemaError(f"there is a column {dotted([*path[:-1], taken])} already.")
        return [replace(f, name=new_name) if f.name == path[-1] else f for f in fields]

    return change_fields(schema, path[:-1], rename)


def _placed(fields: list[StructField], field: StructField, position: str | None) -> list[StructField]:
    """The fields with one more, at its place."""
    if position is None:
        return [*fields, field]
    word, _, other = position.strip().partition(" ")
    if word.upper() == "FIRST" and not other:
        return [field, *fields]
    other = other.strip()
    if other.startswith("`") and other.endswith("`"):
        other = other[1:-1].replace("``", "`")
    if word.upper() != "AFTER" or not other:
        raise SchemaError(f"{position!r} is no position for a column: write FIRST, or AFTER and the name of another.")
    at = fields.index(StructType(fields).field(other))
    return [*fields[: at + 1], field, *fields[at + 1 :]]
