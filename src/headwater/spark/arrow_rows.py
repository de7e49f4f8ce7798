"""Rows of a data file in the table's own schema, by Arrow: names or ids resolved, missing columns null, types widened.

This is what Spark's Parquet reader and our projection do on the main road, for files that Python reads. What cannot be
done exactly raises by name: shredded variants, and dates of the old calendar.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import HeadwaterError
from headwater.log.schema import (
    VARIANT,
    ArrayType,
    DataType,
    MappingMode,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    column_id,
    physical_name,
)
from headwater.log.schema.arrow import type_to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELD_ID = b"PARQUET:field_id"
_SPARK_VERSION = b"org.apache.spark.version"
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
)
"""As Spark itself hands variants to Arrow: it takes the two by their place."""
_GREGORIAN = {
    pa.date32(): pa.scalar(-141_427, pa.int32()).cast(pa.date32()),
    pa.timestamp("us", "UTC"): pa.scalar(-2_208_988_800_000_000, pa.int64()).cast(pa.timestamp("us", "UTC")),
}
"""From 1582-10-15 on dates, and from 1900 on timestamps, are the same in the old calendar (and its old time zones)."""


class UnreadableInPythonError(HeadwaterError):
    """A data file holds something that only Spark's own reader understands."""


def find_column(field: StructField, held: Sequence[pa.Field], mode: MappingMode) -> pa.Field | None:
    """The column of a file that holds a column of the table; None when the file has none.

    Names that differ only in case are the same, as for Spark by default.
    """
    if mode == "id":
        wanted = str(column_id(field)).encode()
        return next((f for f in held if (f.metadata or {}).get(_FIELD_ID) == wanted), None)
    name = physical_name(field) if mode == "name" else field.name
    exact = next((f for f in held if f.name == name), None)
    return exact or next((f for f in held if f.name.lower() == name.lower()), None)


def conform(array: pa.Array, type_: DataType, mode: MappingMode) -> pa.Array:
    """An array of a file in the type of the table.

    Raises:
        UnreadableInPythonError: a value cannot be expressed in that type.
    """
    target = row_type(type_)
    match type_:
        case UserDefinedType(sql_type=stored):
            return conform(array, stored, mode)
        case StructType():
            return _conform_struct(array, type_, mode)
        case ArrayType(element_type=element):
            if pa.types.is_large_list(array.type):
                array = array.cast(pa.list_(array.type.value_type))
            return _with_elements(array, target, conform(array.values, element, mode))
        case MapType(key_type=key, value_type=value):
            pair = [conform(array.keys, key, mode), conform(array.items, value, mode)]
            entries = pa.StructArray.from_arrays(pair, fields=[target.key_field, target.item_field])
            return _with_elements(array, target, entries)
    if type_ == VARIANT:
        return _conform_variant(array)
    try:
        return array if array.type == target else _cast(array, target)
    except pa.ArrowException as error:
        raise UnreadableInPythonError(f"a column of type {array.type} cannot be read as {type_}: {error}") from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        # Spark cuts what is finer than a microsecond off.
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type) and array.type.tz != target.tz:
        return array.cast(pa.int64()).cast(target) if array.type.unit == "us" else array.cast(target)
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        return array.cast(pa.decimal128(38, target.scale)).cast(target)
    return array.cast(target)


def _conform_struct(array: pa.Array, type_: StructType, mode: MappingMode) -> pa.Array:
    held = list(array.type.fields)
    children = []
    for field in type_.fields:
        source = find_column(field, held, mode)
        if source is None:
            children.append(pa.nulls(len(array), row_type(field.type)))
        else:
            children.append(conform(array.field(held.index(source)), field.type, mode))
    fields = list(row_type(type_).fields)
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _conform_variant(array: pa.Array) -> pa.Array:
    names = {field.name: position for position, field in enumerate(array.type.fields)}
    if set(names) != {"metadata", "value"}:
        raise UnreadableInPythonError(
            f"a variant is stored shredded (as {', '.join(names)}), which cannot be read in Python: configure a Hadoop "
            "filesystem for the store in Spark"
        )
    children = [array.field(names[field.name]).cast(pa.binary()) for field in _VARIANT.fields]
    return pa.StructArray.from_arrays(children, fields=list(_VARIANT.fields), mask=array.is_null())


def _with_elements(array: pa.Array, target: pa.DataType, elements: pa.Array) -> pa.Array:
    """A list or map with the same lengths and other elements."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, array.offset, [elements])


def written_in_old_calendar(metadata: dict[bytes, bytes] | None) -> bool:
    """Whether a Spark that still counted by the old calendar may have written a file.

    Args:
        metadata: the key-value metadata of the file's footer.
    """
    if not metadata:
        return False
    return any(key in metadata for key in _LEGACY_KEYS) or _is_old_spark(metadata.get(_SPARK_VERSION, b""))


@lru_cache
def _is_old_spark(text: bytes) -> bool:
    version = re.match(rb"(\d+)\.(\d+)", text)
    return version is not None and (int(version[1]), int(version[2])) < (3, 1)


def refuse_old_dates(array: pa.Array, name: str) -> None:
    """Raise for dates and timestamps, at any depth, that mean something else in the old calendar."""
    type_ = array.type
    if pa.types.is_struct(type_):
        for position in range(type_.num_fields):
            refuse_old_dates(array.field(position), name)
    elif pa.types.is_map(type_):
        refuse_old_dates(array.keys, name)
        refuse_old_dates(array.items, name)
    elif pa.types.is_list(type_):
        refuse_old_dates(array.values, name)
    elif type_ in _GREGORIAN and pc.any(pc.less(array, _GREGORIAN[type_])).as_py():
        raise UnreadableInPythonError(
            f"column {name} holds dates before 1900, and an old Spark wrote them in the old calendar, which cannot be "
            "read in Python: configure a Hadoop filesystem for the store in Spark"
        )


def output_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows: everything may be null, as for Spark's file sources."""
    return pa.schema([pa.field(f.name, row_type(f.type)) for f in schema.fields])


def row_type(type_: DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values of a type of the table."""
    match type_:
        case UserDefinedType(sql_type=stored):
            return row_type(stored)
        case StructType(fields=fields):
            return pa.struct([pa.field(f.name, row_type(f.type)) for f in fields])
        case ArrayType(element_type=element):
            return pa.list_(pa.field("element", row_type(element)))
        case MapType(key_type=key, value_type=value):
            return pa.map_(row_type(key), row_type(value))
    return _VARIANT if type_ == VARIANT else type_to_arrow(type_)
