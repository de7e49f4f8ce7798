"""Type widening: reading files that hold the type a column had before it was widened.

Spark's Parquet reader widens by itself, except where a byte or short became a decimal too narrow for every
32-bit integer: Parquet has no 8-bit integers, so to the reader it is one of 32. Such a column is read as a
decimal that is wide enough, and the scan's projection casts it to the type of the table.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.log.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    transform_fields,
)

TYPE_CHANGES_KEY = "delta.typeChanges"
"""The column metadata that lists the types a column had; `fieldPath` leads into arrays and maps."""
_DIGITS_IN_PARQUET = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_MAX_PRECISION = 38


def readable_types(schema: StructType) -> StructType:
    """The schema with types from which Spark's reader can widen everything that files may hold."""

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        type_ = field.type
        for entry in field.metadata.get(TYPE_CHANGES_KEY, ()):
            digits = _DIGITS_IN_PARQUET.get(str(entry.get("fromType")))
            if digits is not None:
                path = str(entry.get("fieldPath") or "")
                type_ = _with_digits(type_, path.split(".") if path else [], digits)
        return field if type_ == field.type else replace(field, type=type_)

    return transform_fields(schema, change)


def _with_digits(type_: DataType, path: list[str], digits: int) -> DataType:
    """The type with room for so many digits before the point in the decimal that the path leads to."""
    match type_:
        case DecimalType(precision=precision, scale=scale) if not path and precision - scale < digits:
            return DecimalType(min(digits + scale, _MAX_PRECISION), scale)
        case ArrayType(element_type=element) if path and path[0] == "element":
            return replace(type_, element_type=_with_digits(element, path[1:], digits))
        case MapType(key_type=key) if path and path[0] == "key":
            return replace(type_, key_type=_with_digits(key, path[1:], digits))
        case MapType(value_type=value) if path and path[0] == "value":
            return replace(type_, value_type=_with_digits(value, path[1:], digits))
    return type_
