"""Find columns in a schema, change one thing about them, and find the rules that depend on them.

The functions are pure; whether a table allows a change is decided elsewhere. As in Spark's ALTER TABLE, `element` leads
into an array, and `key` and `value` into a map. Rules (CHECK constraints, generated columns, invariants) are SQL texts.
A text that cannot be parsed counts as naming every column whose name is a word of it: it is better to refuse a change
than to leave a rule behind that no writer can evaluate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError, InvalidCommitError, SchemaError
from headwater.features.column_mapping import column_path
from headwater.features.feature import GENERATION_KEY, INVARIANTS_KEY, fields_by_path
from headwater.log.configuration.properties import CONSTRAINT_PREFIX
from headwater.log.schema import ArrayType, DataType, MapType, StructField, StructType
from headwater.log.schema.types import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions.model import Metadata


TypeChange = Callable[[DataType], DataType]


def change_type(schema: StructType, path: Sequence[str], change: TypeChange) -> StructType:
    """Replace the type at a path of exact names; an empty path is the schema itself."""
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
    """Replace the fields of one struct; `parent` leads to it, in any case."""
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
    """Replace one field; the path has exact names and ends at a field."""
    return change_fields(schema, path[:-1], lambda fields: [change(f) if f.name == path[-1] else f for f in fields])


def add_field(schema: StructType, parent: Sequence[str], field: StructField, position: str | None) -> StructType:
    """Add a field at the end, or where `position` says (`FIRST`, `AFTER other`)."""

    def insert(fields: list[StructField]) -> list[StructField]:
        taken = next((f.name for f in fields if f.name.lower() == field.name.lower()), None)
        if taken is not None:
            raise SchemaError(f"there is a column {dotted([*parent, taken])} already.")
        return _placed(fields, field, position)

    return change_fields(schema, parent, insert)


def move_field(schema: StructType, path: Sequence[str], position: str) -> StructType:
    def move(fields: list[StructField]) -> list[StructField]:
        moved = next(f for f in fields if f.name == path[-1])
        return _placed([f for f in fields if f is not moved], moved, position)

    return change_fields(schema, path[:-1], move)


def drop_field(schema: StructType, path: Sequence[str]) -> StructType:
    def drop(fields: list[StructField]) -> list[StructField]:
        if len(fields) == 1:
            of = f"of {dotted(path[:-1])}" if len(path) > 1 else "of the table"
            raise SchemaError(f"{dotted(path)} cannot be dropped: nothing would be left {of}.")
        return [f for f in fields if f.name != path[-1]]

    return change_fields(schema, path[:-1], drop)


def rename_field(schema: StructType, path: Sequence[str], new_name: str) -> StructType:
    def rename(fields: list[StructField]) -> list[StructField]:
        taken = next((f.name for f in fields if f.name.lower() == new_name.lower() and f.name != path[-1]), None)
        if taken is not None:
            raise SchemaError(f"there is a column {dotted([*path[:-1], taken])} already.")
        return [replace(f, name=new_name) if f.name == path[-1] else f for f in fields]

    return change_fields(schema, path[:-1], rename)


def _placed(fields: list[StructField], field: StructField, position: str | None) -> list[StructField]:
    if position is None:
        return [*fields, field]
    word, _, other = position.strip().partition(" ")
    if word.upper() == "FIRST" and not other:
        return [field, *fields]
    other = other.strip()
    if other.startswith("`") and other.endswith("`"):
        other = other[1:-1].replace("``", "`")
    if word.upper() != "AFTER" or not other:
        raise SchemaError(
            f"there is no position {position!r} for a column: write FIRST, or AFTER and the name of another."
        )
    at = fields.index(StructType(fields).field(other))
    return [*fields[: at + 1], field, *fields[at + 1 :]]


_INNER = frozenset({"element", "key", "value"})


def check_independent(metadata: Metadata, schema: StructType, path: Sequence[str], what: str) -> None:
    """Raise if a rule of the table names the column at a path of exact names, or something inside it.

    `what` is what is to be done to it, for the message: `dropped`, `renamed`, ...
    """
    blocking = [
        f"{rule} ({expression})"
        for owner, rule, expression in _rules(metadata, schema)
        if owner[: len(path)] != tuple(path) and names_column(expression, path)
    ]
    if blocking:
        raise InvalidCommitError(
            f"column {dotted(path)} cannot be {what}, because these depend on it: {'; '.join(blocking)}. "
            "Drop them first, and add them again afterwards."
        )


def _rules(metadata: Metadata, schema: StructType) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Return every rule of a table: the column that owns it, what to call it, and its SQL."""
    for key, expression in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            yield (), f"the constraint {key[len(CONSTRAINT_PREFIX) :]}", expression
    for path, field in fields_by_path(schema):
        if GENERATION_KEY in field.metadata:
            yield path, f"the generated column {dotted(path)}", str(field.metadata[GENERATION_KEY])
        if INVARIANTS_KEY in field.metadata:
            yield path, f"the invariant of {dotted(path)}", invariant_expression(str(field.metadata[INVARIANTS_KEY]))


def invariant_expression(text: str) -> str:
    """Return the SQL of `delta.invariants`: at `expression.expression` of its JSON, or the text itself."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        return text


def names_column(expression: str, path: Sequence[str]) -> bool:
    """Tell whether a SQL expression names a column, something inside it, or a column around it.

    >>> names_column("upper(address.city) = 'X'", ["address", "city"])
    True
    >>> names_column("upper(address.city) = 'X'", ["address", "street"])
    False
    """
    # What follows an array or a map is reached by index or by lambda: take the whole column.
    wanted = [part.lower() for part in path]
    cut = next((i for i, part in enumerate(wanted) if i > 0 and part in _INNER), len(wanted))
    wanted = wanted[:cut]
    named = _named_columns(expression)
    if named is None:
        return re.search(rf"(?<!\w){re.escape(wanted[-1])}(?!\w)", expression.lower()) is not None
    return any(all(a == b for a, b in zip(parts, wanted, strict=False)) for parts in named)


def _named_columns(expression: str) -> list[list[str]] | None:
    """Return the columns that an expression names, with the fields that follow; None if it cannot be parsed."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(expression, dialect="spark")
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError):
        return None
    found: list[list[str]] = []
    for column in tree.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        around = column.parent
        while isinstance(around, exp.Dot):
            parts.append(around.expression.name.lower())
            around = around.parent
        found.append(parts)
    return found


@dataclass(frozen=True, slots=True)
class Location:
    """A column in a schema."""

    path: tuple[str, ...]
    """Its exact names."""
    field: StructField
    """The innermost field on the way."""
    inner: tuple[str, ...]
    """What follows the field: the way into its arrays and maps; empty when the path ends at the field."""
    type: DataType

    @property
    def field_path(self) -> tuple[str, ...]:
        return self.path[: len(self.path) - len(self.inner)]

    def __str__(self) -> str:
        return dotted(self.path)


def locate(schema: StructType, name: str | Sequence[str]) -> Location:
    """Find a column, in any case, at any depth."""
    found: list[str] = []
    inner: tuple[str, ...] = ()
    field: StructField | None = None
    here: DataType = schema
    for part in column_path(name):
        if isinstance(here, StructType):
            field = _field(here, part, found)
            found.append(field.name)
            inner, here = (), field.type
            continue
        here = _inner(here, part, found)
        inner = (*inner, part.lower())
        found.append(part.lower())
    if field is None:
        raise ColumnNotFoundError("a column needs a name: the path is empty.")
    return Location(tuple(found), field, inner, here)


def _field(struct: StructType, name: str, parents: list[str]) -> StructField:
    try:
        return struct.field(name)
    except ColumnNotFoundError as error:
        if not parents:
            raise
        raise ColumnNotFoundError(f"in {dotted(parents)}: {error}") from error


def _inner(data_type: DataType, part: str, parents: list[str]) -> DataType:
    match data_type, part.lower():
        case ArrayType(element_type=element), "element":
            return element
        case MapType(key_type=key), "key":
            return key
        case MapType(value_type=value), "value":
            return value
    hint = {"array": " Write .element to go into an array.", "map": " Write .key or .value to go into a map."}
    raise ColumnNotFoundError(
        f"there is no column {dotted([*parents, part])}: {dotted(parents)} is of type {data_type}."
        f"{hint.get(data_type.json_name, '')}"
    )
