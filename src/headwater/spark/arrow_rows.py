"""Rows of a data file in the table's own schema, by Arrow: names or ids resolved, missing columns null, types widened.

This is what Spark's Parquet reader and our projection do on the main road, for files that Python reads. The rules are
Spark's own: whatever it refuses, or takes for something else than Arrow does, is not read here but raises by name, and
so do shredded variants and dates of the old calendar. Those who can then ask Spark itself, so that a command which
rewrites files has the rows of a scan, or fails as a scan does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UnreadableDataFileError
from headwater.log.schema import (
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    column_id,
    physical_name,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.spark.columns import part_in_files
from headwater.spark.widening import readable_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow.parquet as pq

    _Held = dict[bytes | str, list[pa.Field]]

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
    pa.timestamp("us"): pa.scalar(-2_208_988_800_000_000, pa.int64()).cast(pa.timestamp("us")),
}
"""From 1582-10-15 on dates, and from 1900 on timestamps, are the same in the old calendar (and its old time zones)."""
_SMALL_INTEGERS = (pa.int8(), pa.int16(), pa.int32())
_READ_AS = {
    pa.int8(): _SMALL_INTEGERS,
    pa.int16(): (*_SMALL_INTEGERS, pa.uint8()),
    pa.int32(): (*_SMALL_INTEGERS, pa.uint8(), pa.uint16()),
    pa.int64(): (*_SMALL_INTEGERS, pa.uint8(), pa.uint16(), pa.uint32()),
    pa.float64(): (*_SMALL_INTEGERS, pa.float32()),
    pa.timestamp("us"): (pa.date32(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}
"""What Spark reads as another type without a change of its value; it takes numbers for dates and the like as well."""
_INTEGER_DIGITS = {**dict.fromkeys(_SMALL_INTEGERS, 10), pa.int64(): 20}
"""The digits before the point that a decimal must have for Spark to read such integers as one."""


class UnreadableInPythonError(UnreadableDataFileError):
    """A data file holds something that only Spark's own reader understands."""


def find_columns(
    fields: Iterable[StructField], schema: pa.Schema, mode: MappingMode, unmapped: Collection[str] = ()
) -> dict[str, pa.Field | None]:
    """Find the columns of a file that hold columns of the table.

    Args:
        fields: the columns of the table.
        schema: that of the file.
        mode: how the table maps its columns.
        unmapped: columns that have the same name in files, whatever the mode.

    Returns:
        Columns of the file by the name in the table; None for those that the file does not have.

    Raises:
        UnreadableInPythonError: columns cannot be told apart, or one has a type that contradicts the table's.
    """
    held = {each: _by_key(schema, each) for each in (mode, "none")}
    found: dict[str, pa.Field | None] = {}
    for field in readable_types(StructType(list(fields))).fields:
        own_mode: MappingMode = "none" if field.name in unmapped else mode
        if own_mode == "id" and not has_field_ids(schema):
            raise UnreadableInPythonError(
                "it has no field ids, and the table maps its columns by id: nobody can tell them"
            )
        source = _find_column(field, held[own_mode], own_mode)
        if source is not None:
            _check_type(source.type, field.type, own_mode, field.name)
        found[field.name] = source
    return found


def has_field_ids(held: Iterable[pa.Field]) -> bool:
    """Whether any column of a file, at any depth, has a field id."""
    return any(_FIELD_ID in (field.metadata or {}) or has_field_ids(_inner_fields(field.type)) for field in held)


def _inner_fields(type_: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(type_):
        return list(type_.fields)
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.value_field] if pa.types.is_list(type_) else []


def _by_key(held: Iterable[pa.Field], mode: MappingMode) -> _Held:
    """Columns of a file by what tells them apart: their ids, or their names, where case does not count as in Spark."""
    found: _Held = {}
    for field in held:
        key = (field.metadata or {}).get(_FIELD_ID) if mode == "id" else field.name.lower()
        if key is not None:
            found.setdefault(key, []).append(field)
    return found


def _find_column(field: StructField, held: _Held, mode: MappingMode) -> pa.Field | None:
    """The column that holds one of the table."""
    if part_in_files(field.type) is None:
        return None
    if mode == "id":
        found = held.get(str(column_id(field)).encode(), [])
    else:
        found = held.get((physical_name(field) if mode == "name" else field.name).lower(), [])
    if len(found) > 1:
        raise UnreadableInPythonError(
            f"it has {len(found)} columns that may be {field.name}: {', '.join(f.name for f in found)}"
        )
    return found[0] if found else None


def _check_type(held: pa.DataType, type_: DataType, mode: MappingMode, name: str) -> None:
    """Raise unless Arrow surely reads a column as Spark does.

    Raises:
        UnreadableInPythonError: it may not, or Spark does not read it at all.
    """
    match type_:
        case UserDefinedType(sql_type=stored):
            return _check_type(held, stored, mode, name)
        case StructType(fields=fields) if pa.types.is_struct(held):
            inner = _by_key(held.fields, mode)
            for field in fields:
                source = _find_column(field, inner, mode)
                if source is not None:
                    _check_type(source.type, field.type, mode, f"{name}.{field.name}")
            return None
        case ArrayType(element_type=element) if pa.types.is_list(held):
            return _check_type(held.value_type, element, mode, f"{name}.element")
        case MapType(key_type=key, value_type=value) if pa.types.is_map(held):
            _check_type(held.key_type, key, mode, f"{name}.key")
            return _check_type(held.item_type, value, mode, f"{name}.value")
        case _ if type_ == VARIANT and pa.types.is_struct(held):
            return None
        case PrimitiveType() | DecimalType() if _reads_alike(held, type_to_arrow(type_)):
            return None
    raise UnreadableInPythonError(f"it holds column {name} as {held}, and the table has it as {type_}")


def _reads_alike(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a value of a Parquet column means the same to Arrow as to Spark's Parquet reader."""
    if held == wanted:
        return True
    if pa.types.is_decimal(wanted):
        if pa.types.is_decimal128(held):
            more_digits, more_decimals = wanted.precision - held.precision, wanted.scale - held.scale
            return bool(0 <= more_decimals <= more_digits)
        return held in _INTEGER_DIGITS and bool(wanted.precision - wanted.scale >= _INTEGER_DIGITS[held])
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(held):
        return str(held.unit) in ("ms", "us")
    if pa.types.is_fixed_size_binary(held):
        return bool(wanted == pa.binary())
    return held in _READ_AS.get(wanted, ())


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
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
        # Spark counts from the same moment with and without a time zone.
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(target)
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        return array.cast(pa.decimal128(38, target.scale)).cast(target)
    return array.cast(target)


def _conform_struct(array: pa.Array, type_: StructType, mode: MappingMode) -> pa.Array:
    inner = list(array.type.fields)
    held = _by_key(inner, mode)
    children = []
    for field in type_.fields:
        source = _find_column(field, held, mode)
        if source is None:
            children.append(pa.nulls(len(array), row_type(field.type)))
        else:
            place = next(place for place, one in enumerate(inner) if one is source)
            children.append(conform(array.field(place), field.type, mode))
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


@dataclass(frozen=True)
class ReaderSettings:
    """What settings of the session say of files whose writers did not say it themselves."""

    unmarked_is_old: bool = False
    """Whether files that do not say which Spark wrote them may have dates of the old calendar."""
    shifts_int96: bool = False
    """Whether Spark moves timestamps of the oldest form, if others wrote them, from one time zone to another."""

    def may_be_old(self, footer: pq.FileMetaData) -> bool:
        """Whether a Spark that still counted by the old calendar may have written a file."""
        noted = footer.metadata or {}
        if any(key in noted for key in _LEGACY_KEYS):
            return True
        return _is_old_spark(noted[_SPARK_VERSION]) if _SPARK_VERSION in noted else self.unmarked_is_old

    def check(self, footer: pq.FileMetaData) -> None:
        """Raise if the settings make Spark read other values than Arrow.

        Raises:
            UnreadableInPythonError: they do.
        """
        if self.shifts_int96:
            schema = footer.schema
            if any(schema.column(place).physical_type == "INT96" for place in range(footer.num_columns)):
                raise UnreadableInPythonError("it has timestamps that the session's settings move to another time zone")


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
