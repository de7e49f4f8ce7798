"""The schema of a table: its types, its JSON, and its forms in Arrow and Spark.

>>> schema = StructType.from_json('{"type":"struct","fields":[{"name":"id","type":"long","nullable":false}]}')
>>> schema.field("ID").type
PrimitiveType(name='long')
"""

from headwater.log.schema.chars import compares_as_is, may_be_padded, strings_for_chars
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
from headwater.log.schema.transform import transform_fields
from headwater.log.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    is_char,
    is_string,
)

__all__ = [
    "BINARY",
    "BOOLEAN",
    "BYTE",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
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
