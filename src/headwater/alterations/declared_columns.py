"""Columns as users declare them: types in SQL, or PySpark's own types and fields. PySpark itself is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import SchemaError
from headwater.log.schema import StructField, StructType
from headwater.log.schema.ddl import parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import types as spark_types

    from headwater.log.schema import DataType


def column_type(dataType: str | spark_types.DataType, name: str) -> DataType:
    """A type in SQL, or one of PySpark's."""
    if isinstance(dataType, str):
        try:
            return parse_type(dataType)
        except SchemaError as error:
            raise SchemaError(f"column {name}: {error}") from error
    try:
        value = dataType.jsonValue()
        return (
            StructType.from_json(
                {"type": "struct", "fields": [{"name": name, "type": value, "nullable": True, "metadata": {}}]}
            )
            .fields[0]
            .type
        )
    except AttributeError as error:
        raise TypeError(f"column {name}: a type is SQL text or a PySpark DataType, not {dataType!r}.") from error


def column_fields(cols: spark_types.StructType | Iterable[spark_types.StructField]) -> list[StructField]:
    """The columns that PySpark's fields declare."""
    fields: list[StructField] = []
    for col in getattr(cols, "fields", cols):
        try:
            declared = col.jsonValue()
        except AttributeError as error:
            raise TypeError(f"columns are given as PySpark's StructType or StructFields, not {col!r}.") from error
        fields += StructType.from_json({"type": "struct", "fields": [declared]}).fields
    return fields
