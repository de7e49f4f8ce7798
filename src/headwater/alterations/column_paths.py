"""The way to a column: `address.city`, `` `first name` ``, `points.element.x`, `prices.value`.

As in Spark's ALTER TABLE, `element` leads into an array, `key` and `value` into a map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError
from headwater.features.column_names import column_path
from headwater.log.schema import ArrayType, DataType, MapType, StructField, StructType
from headwater.log.schema.lookup import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Location:
    """A column that was found in a schema."""

    path: tuple[str, ...]
    """Its exact names."""
    field: StructField
    """The innermost field on the way."""
    inner: tuple[str, ...]
    """What follows the field: the way into its arrays and maps; empty when the path ends at the field."""
    type: DataType

    @property
    def field_path(self) -> tuple[str, ...]:
        """The way to the innermost field."""
        return self.path[: len(self.path) - len(self.inner)]

    def __str__(self) -> str:
        return dotted(self.path)


def locate(schema: StructType, name: str | Sequence[str]) -> Location:
    """Find a column, in any case, at any depth.

    Raises:
        ColumnNotFoundError: there is no such column.
    """
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
