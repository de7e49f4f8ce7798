"""Rewriting the fields of a schema at all levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from headwater.log.schema.types import ArrayType, DataType, MapType, StructField, StructType

FieldChange: TypeAlias = Callable[[StructField, tuple[str, ...]], StructField]
"""Gets a field whose type is already rewritten, and the path to it in the original names."""


def transform_fields(struct: StructType, change: FieldChange, path: tuple[str, ...] = ()) -> StructType:
    """A struct with every field in it changed, from the innermost to the outermost.

    The storage of user-defined types is left alone: its fields are Spark's and no columns of the table.
    """
    return StructType((_field(f, change, (*path, f.name)) for f in struct.fields), extra=struct.extra)


def _field(field: StructField, change: FieldChange, path: tuple[str, ...]) -> StructField:
    return change(replace(field, type=_type(field.type, change, path)), path)


def _type(data_type: DataType, change: FieldChange, path: tuple[str, ...]) -> DataType:
    match data_type:
        case StructType():
            return transform_fields(data_type, change, path)
        case ArrayType(element_type=element):
            return replace(data_type, element_type=_type(element, change, (*path, "element")))
        case MapType(key_type=key, value_type=value):
            return replace(
                data_type,
                key_type=_type(key, change, (*path, "key")),
                value_type=_type(value, change, (*path, "value")),
            )
        case _:
            return data_type
