"""Rows as Spark hands them to Python, in the schema of data files.

Columns get their physical names and ids at all levels, voids vanish, and types become those that Parquet shall hold
(spec: "Delta Data Type to Parquet Type Mappings"): timestamps in UTC with microseconds, plain strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import VARIANT, ArrayType, DataType, MapType, StructType, UserDefinedType
from headwater.spark.columns import part_in_files

if TYPE_CHECKING:
    from headwater.spark.file_plan import FilePlan


def to_file_batch(batch: pa.RecordBatch, plan: FilePlan, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the schema of the files.

    Args:
        batch: it has at least the columns of the plan, by their logical names.
        plan: of the write.
        schema: `plan.file_schema` in Arrow.
    """
    columns = [
        _in_file(batch.column(field.name), field.type, target.type)
        for field, target in zip(plan.schema.fields, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_file(array: pa.Array, type_: DataType, target: pa.DataType) -> pa.Array:
    match type_:
        case _ if array.type == target:
            return array
        case UserDefinedType(sql_type=stored):
            return _in_file(array, stored, target)
        case StructType():
            return _struct(array, type_, target)
        case ArrayType(element_type=element):
            return _with_elements(array, target, _in_file(array.values, element, target.value_type))
        case MapType(key_type=key, value_type=value):
            parts = [_in_file(array.keys, key, target.key_type), _in_file(array.items, value, target.item_type)]
            entries = pa.StructArray.from_arrays(parts, fields=[target.key_field, target.item_field])
            return _with_elements(array, target, entries)
    if type_ == VARIANT:
        return _variant(array, target)
    return array.cast(target)


def _struct(array: pa.Array, type_: StructType, target: pa.DataType) -> pa.Array:
    """A struct with other names. Fields are told by their place: those of files lack the voids."""
    held = [position for position, field in enumerate(type_.fields) if part_in_files(field.type) is not None]
    children = [
        _in_file(array.field(position), type_.fields[position].type, target.field(place).type)
        for place, position in enumerate(held)
    ]
    return pa.StructArray.from_arrays(children, fields=list(target.fields), mask=array.is_null())


def _variant(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Spark hands the two parts over in the other order, and null for both where the variant is null."""
    children = [pc.fill_null(array.field(field.name).cast(field.type), b"") for field in target.fields]
    return pa.StructArray.from_arrays(children, fields=list(target.fields), mask=array.is_null())


def _with_elements(array: pa.Array, target: pa.DataType, elements: pa.Array) -> pa.Array:
    """A list or map with the same lengths and other elements."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, array.offset, [elements])
