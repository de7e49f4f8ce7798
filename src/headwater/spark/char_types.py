"""Text with rules of its own: lengths of `char(n)` and `varchar(n)` when rows are written, and how Spark compares it.

Spark keeps the declared type of such a column as text in the column's metadata, nested types in their SQL form. Blanks
at the end that are too many are cut; anything else that is too long is an error. Spark compares `char(n)` padded, and
collated text by its collation, wherever a column says that it is such; values of the log, and rows on their way into
the table, are plain text, so they are made such columns before a condition looks at them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headwater.log.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from headwater.log.schema.chars import CHAR_VARCHAR_KEY, COLLATIONS_KEY, may_be_padded
from headwater.log.schema.ddl import parse_type
from headwater.spark.assignment import spark_type
from headwater.spark.columns import quoted
from headwater.spark.functions import functions, functions_for
from headwater.spark.violations import violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

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


def shows_padding(spark: SparkSession) -> bool:
    """Whether Spark pads what it reads from columns of type `char(n)`: other writers may not have."""
    pads = str(spark.conf.get("spark.sql.readSideCharPadding", "true")).lower() == "true"
    return pads and str(spark.conf.get("spark.sql.legacy.charVarcharAsString", "false")).lower() == "false"


def as_read(value: Column, field: StructField, *, padded: bool) -> Column:
    """Text of a column, as one that Spark compares as it does the table's column.

    Args:
        value: text as the log or a file has it.
        field: the table's column.
        padded: whether `char(n)` is padded.
    """
    if padded and may_be_padded([field]):
        value = _padded(value, declared_type(field))
    shown: Any = StructType([field]).to_spark().fields[0]
    chars = {key: text for key, text in shown.metadata.items() if key == CHAR_VARCHAR_KEY}
    column: Column = value.cast(shown.dataType).alias(field.name, metadata=chars)
    return column


def _padded(value: Column, type_: DataType) -> Column:
    """Text at the length of `char(n)`, at every level, as Spark pads what it reads."""
    sf = functions()
    found: Column
    match type_:
        case StructType(fields=fields):
            parts = [_padded(value[f.name], f.type).alias(f.name) for f in fields]
            found = sf.when(value.isNotNull(), sf.struct(*parts))
        case ArrayType(element_type=element):
            found = sf.transform(value, lambda item: _padded(item, element))
        case MapType(key_type=key, value_type=held):
            keyed = sf.transform_keys(value, lambda name, _: _padded(name, key))
            found = sf.transform_values(keyed, lambda _, item: _padded(item, held))
        case _:
            length = _LENGTH.fullmatch(str(type_))
            if length is None or length[1] != "char":
                return value
            short = sf.char_length(value) < int(length[2])
            found = sf.when(short, sf.rpad(value, int(length[2]), " ")).otherwise(value)
    return found


def padded_rows(frame: DataFrame, schema: StructType) -> DataFrame:
    """Rows that Python has read, with `char(n)` as Spark shows what it reads by itself.

    Args:
        frame: the rows; columns that the table does not have stay as they are.
        schema: the table's.
    """
    chars = {field.name: field for field in schema.fields if may_be_padded([field])}
    if not chars.keys() & set(frame.columns) or not shows_padding(frame.sparkSession):
        return frame
    with functions_for(frame):
        sf = functions()
        columns = [(name, sf.col(quoted(name))) for name in frame.columns]
        return frame.select(*(as_read(v, chars[name], padded=True) if name in chars else v for name, v in columns))


def as_compared(frame: DataFrame, schema: StructType, also: Sequence[str] = ()) -> DataFrame:
    """Rows on their way into a table, in whose columns conditions mean what they mean in the table.

    Args:
        frame: the rows.
        schema: those of the table's columns that the rows have.
        also: further columns of theirs.
    """
    return _with_own_rules(frame, schema, also, lambda value, field: as_read(value, field, padded=False))


def as_written(frame: DataFrame, schema: StructType, also: Sequence[str] = ()) -> DataFrame:
    """The rows of `as_compared` with plain text again, as files have it."""

    def plain(value: Column, field: StructField) -> Column:
        written: Column = value.cast(spark_type(field.type)).alias(field.name, metadata={})
        return written

    return _with_own_rules(frame, schema, also, plain)


def _with_own_rules(
    frame: DataFrame, schema: StructType, also: Sequence[str], change: Callable[[Column, StructField], Column]
) -> DataFrame:
    special = {field.name for field in schema.fields if has_own_rules(field)}
    if not special:
        return frame
    sf = functions()
    columns = []
    for field in schema.fields:
        value = sf.col(quoted(field.name))
        columns.append(change(value, field) if field.name in special else value)
    return frame.select(*columns, *(sf.col(quoted(name)) for name in also))


def has_own_rules(field: StructField) -> bool:
    """Whether a column is, or has in it, text that is not compared byte by byte."""
    return may_be_padded([field]) or COLLATIONS_KEY in StructType([field]).to_json()


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
