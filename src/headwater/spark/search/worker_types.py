"""The Arrow types in which a Python worker hands rows of splits to Spark: those of the splits, with variants marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema import VARIANT, ArrayType, MapType, StructType, UserDefinedType
from headwater.search.row_types import row_schema

if TYPE_CHECKING:
    from headwater.log.schema import DataType

_VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
)
"""As Spark itself hands variants to Arrow: it takes the two by their place."""


def worker_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of some columns, as Spark expects it of a Python worker."""
    plain = row_schema(schema)
    return pa.schema([pa.field(f.name, _marked(f.type, plain.field(f.name).type)) for f in schema.fields])


def _marked(data_type: DataType, arrow: pa.DataType) -> pa.DataType:
    match data_type:
        case UserDefinedType(sql_type=stored):
            return _marked(stored, arrow)
        case StructType(fields=fields):
            return pa.struct([pa.field(f.name, _marked(f.type, arrow.field(f.name).type)) for f in fields])
        case ArrayType(element_type=element):
            return pa.list_(pa.field("element", _marked(element, arrow.value_type)))
        case MapType(key_type=key, value_type=value):
            key_field = pa.field("key", _marked(key, arrow.key_type), nullable=False)
            return pa.map_(key_field, pa.field("value", _marked(value, arrow.item_type)))
    return _VARIANT if data_type == VARIANT else arrow
