"""Walking through schemas: every field, every type, and which columns of two schemas are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.schema import ArrayType, MapType, StructType
from headwater.log.schema.mapping import COLUMN_ID_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.schema import DataType, StructField

Path = tuple[str, ...]
"""Names from the top; `element`, `key` and `value` lead into arrays and maps."""


def fields_by_path(type_: DataType, path: Path = ()) -> Iterator[tuple[Path, StructField]]:
    """Every field inside a type with the path to it."""
    match type_:
        case StructType(fields=fields):
            for field in fields:
                here = (*path, field.name)
                yield here, field
                yield from fields_by_path(field.type, here)
        case ArrayType(element_type=element):
            yield from fields_by_path(element, (*path, "element"))
        case MapType(key_type=key, value_type=value):
            yield from fields_by_path(key, (*path, "key"))
            yield from fields_by_path(value, (*path, "value"))


def all_types(type_: DataType) -> Iterator[DataType]:
    """A type and every type inside it."""
    yield type_
    match type_:
        case StructType(fields=fields):
            for field in fields:
                yield from all_types(field.type)
        case ArrayType(element_type=element):
            yield from all_types(element)
        case MapType(key_type=key, value_type=value):
            yield from all_types(key)
            yield from all_types(value)


def same_columns(before: StructType, after: StructType) -> Iterator[tuple[Path, StructField, StructField]]:
    """Columns that two schemas share, with the path in the second: by id, or by name where there are no ids."""
    by_path = dict(fields_by_path(before))
    by_id = {field.metadata[COLUMN_ID_KEY]: field for field in by_path.values() if COLUMN_ID_KEY in field.metadata}
    for path, field in fields_by_path(after):
        old = by_id.get(field.metadata.get(COLUMN_ID_KEY)) if by_id else by_path.get(path)
        if old is not None:
            yield path, old, field
