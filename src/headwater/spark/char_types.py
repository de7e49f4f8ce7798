"""`char(n)` and `varchar(n)` when rows are written: lengths are checked, `char(n)` is padded, as Spark does it.

Spark keeps the declared type of such a column as text in the column's metadata, nested types in their SQL form. Blanks
at the end that are too many are cut; anything else that is too long is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.log.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from headwater.log.schema.chars import CHAR_VARCHAR_KEY
from headwater.log.schema.ddl import parse_type
from headwater.spark.functions import functions
from headwater.spark.violations import violation

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.log.schema import DataType

_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


def declared_type(field: StructField) -> DataType:
    """The type of a column with its `char(n)` and `varchar(n)` in it.

    >>> field = StructField("codes", ArrayType(PrimitiveType("string")), metadata={CHAR_VARCHAR_KEY: "array<char(3)>"})
    >>> declared_type(field).element_type
    PrimitiveType(name='char(3)')
    """
    declared = field.metadata.get(CHAR_VARCHAR_KEY)
    return field.type if not isinstance(declared, str) else _merged(field.type, parse_type(declared))


def with_length(value: Column, type_: DataType, column: str) -> Column:
    """The text of a column, at its declared length; as it is for a type without one."""
    found = _LENGTH.fullmatch(str(type_))
    if found is None:
        return value
    sf = functions()
    length = int(found[2])
    short = sf.rpad(value, length, " ") if found[1] == "char" else value
    too_long = violation(f"a value is too long for column {column}, which is {type_}.", [(column, value)])
    return (
        sf.when(value.isNull(), value)
        .when(sf.char_length(value) <= length, short)
        .when(sf.char_length(sf.rtrim(value)) <= length, sf.substring(value, 1, length))
        .otherwise(too_long)
    )


def _merged(stored: DataType, declared: DataType) -> DataType:
    """The stored type, with the lengths of the declared one: names and nullability are the schema's."""
    match stored, declared:
        case ArrayType(), ArrayType():
            return ArrayType(_merged(stored.element_type, declared.element_type), stored.contains_null)
        case MapType(), MapType():
            key = _merged(stored.key_type, declared.key_type)
            return MapType(key, _merged(stored.value_type, declared.value_type), stored.value_contains_null)
        case StructType(), StructType():
            lengths = {f.name.lower(): f.type for f in declared.fields}
            return StructType(
                StructField(f.name, _merged(f.type, lengths.get(f.name.lower(), f.type)), f.nullable, f.metadata)
                for f in stored.fields
            )
        case PrimitiveType(name="string"), PrimitiveType():
            return declared
    return stored
