"""The PySpark form of a schema, both ways, through Spark's own JSON.

PySpark is imported only when one of these functions is called, so that the log works without it. Two kinds of
types are changed on the way, because that is how Spark itself keeps them:

- `char(n)` and `varchar(n)` become strings with the declared type in the column metadata, in both directions:
  DataFrames accept nothing else, and other readers of the log know only strings;
- user-defined types are given to Spark as what they are stored as, except the few of PySpark itself: to build one,
  PySpark imports whatever module the table names, and versions before 4.2 unpickle what the table holds.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from headwater.errors import SchemaError
from headwater.log.schema.chars import strings_for_chars
from headwater.log.schema.json_format import encode_json, type_to_value
from headwater.log.schema.transform import transform_fields
from headwater.log.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
)

_OWN_UDTS = frozenset(f"pyspark.{ml}.linalg.{kind}UDT" for ml in ("ml", "mllib") for kind in ("Vector", "Matrix"))


def schema_to_spark(schema: StructType) -> Any:
    """The schema as a `pyspark.sql.types.StructType`; see `StructType.to_spark`.

    Raises:
        SchemaError: PySpark does not know the type of a column, or PySpark is not installed.
    """
    types = _pyspark_types()
    return types.StructType([_field_to_spark(f, types) for f in _for_spark(schema).fields])


def schema_from_spark(schema: Any) -> StructType:
    """The schema of a `pyspark.sql.types.StructType`; see `StructType.from_spark`.

    Raises:
        SchemaError: it is no such schema.
    """
    types = _pyspark_types()
    if not isinstance(schema, types.StructType):
        raise SchemaError(f"expected a pyspark.sql.types.StructType, not {type(schema).__name__}")
    return strings_for_chars(StructType.from_json(encode_json(schema.jsonValue())))


def _pyspark_types() -> Any:
    try:
        return importlib.import_module("pyspark.sql.types")
    except ImportError as e:
        raise SchemaError(
            'the Spark form of a schema needs PySpark: install it with pip install "headwater[spark]"'
        ) from e


def _field_to_spark(field: StructField, types: Any) -> Any:
    value = type_to_value(StructType([field]))
    assert isinstance(value, dict)
    try:
        return types.StructField.fromJson(value["fields"][0])
    except Exception as e:  # PySpark raises assertion, key, type and value errors of its own here
        raise SchemaError(f"column {field.name}: PySpark cannot represent type {field.type}: {e}") from e


def _for_spark(schema: StructType) -> StructType:
    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return replace(field, type=_without_foreign_udts(field.type))

    return transform_fields(strings_for_chars(schema), change)


def _without_foreign_udts(data_type: DataType) -> DataType:
    match data_type:
        case UserDefinedType(sql_type=sql_type, properties=properties):
            ours = properties.get("pyClass") in _OWN_UDTS
            return data_type if ours else _without_foreign_udts(sql_type)
        case ArrayType(element_type=element):
            return replace(data_type, element_type=_without_foreign_udts(element))
        case MapType(key_type=key, value_type=value):
            return replace(data_type, key_type=_without_foreign_udts(key), value_type=_without_foreign_udts(value))
        case _:
            return data_type
