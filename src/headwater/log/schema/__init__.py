"""The schema of a table: its types, its JSON, and its forms in Arrow and Spark.

>>> schema = StructType.from_json('{"type":"struct","fields":[{"name":"id","type":"long","nullable":false}]}')
>>> schema.field("ID").type
PrimitiveType(name='long')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.schema.json_format import parse_schema, schema_to_dict, schema_to_json
from headwater.log.schema.mapping import (
    MappingMode,
    column_id,
    drop_field_ids,
    mapping_mode,
    nested_ids,
    physical_name,
    physical_path,
    to_physical,
)
from headwater.log.schema.spark import schema_from_spark, schema_to_spark
from headwater.log.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    INTEGRAL_TYPES,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    Conversions,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    compares_as_is,
    is_char,
    is_string,
    may_be_padded,
    strings_for_chars,
    transform_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BINARY",
    "BOOLEAN",
    "BYTE",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "INTEGRAL_TYPES",
    "LONG",
    "SHORT",
    "STRING",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "VARIANT",
    "VOID",
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "MappingMode",
    "PrimitiveType",
    "StructField",
    "StructType",
    "UserDefinedType",
    "column_id",
    "compares_as_is",
    "drop_field_ids",
    "is_char",
    "is_string",
    "mapping_mode",
    "may_be_padded",
    "nested_ids",
    "physical_name",
    "physical_path",
    "strings_for_chars",
    "to_physical",
    "transform_fields",
]


def _from_arrow(schema: pa.Schema) -> StructType:
    from headwater.log.schema.arrow import schema_from_arrow  # here, as most commands need no pyarrow

    return schema_from_arrow(schema)


def _to_arrow(schema: StructType) -> pa.Schema:
    from headwater.log.schema.arrow import schema_to_arrow

    return schema_to_arrow(schema)


StructType.conversions = Conversions(
    parse_schema, schema_to_dict, schema_to_json, _from_arrow, _to_arrow, schema_from_spark, schema_to_spark
)
