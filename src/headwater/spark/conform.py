"""Values of a DataFrame in the types of the table's columns, at every level (see `assignment` for what fits).

Structs are put together by name; what the data lacks is null. A value that would not survive the conversion stops the
job with a message that names the column and shows the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.schema import STRING, ArrayType, MapType, StructType, is_char
from headwater.log.schema.lookup import dotted
from headwater.spark.assignment import Fit, fit, spark_type
from headwater.spark.char_types import with_length
from headwater.spark.functions import functions
from headwater.spark.schema_match import by_folded_name, stored
from headwater.spark.violations import conversion_failure

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.log.schema import DataType

Path = tuple[str, ...]


def conformed(value: Column, data: DataType, table: DataType, path: Path) -> Column:
    """A value as one of the table's column. The types fit (`schema_match.check_fits`).

    Args:
        value: of the data.
        data: its type.
        table: the column's type, with `char(n)` and `varchar(n)` where they were declared.
        path: the column, for messages.
    """
    sf = functions()
    if _same(data, table):
        return value
    match data, table:
        case StructType(), StructType():
            return _struct(value, data, table, path)
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            return sf.transform(value, lambda item: conformed(item, given, wanted, (*path, "element")))
        case MapType(), MapType():
            return _map(value, data, table, path)
    return with_length(_leaf(value, stored(data), stored(table), path), table, dotted(path))


def null_of(type_: DataType) -> Column:
    """NULL of a type."""
    return functions().lit(None).cast(spark_type(type_))


def _struct(value: Column, data: StructType, table: StructType, path: Path) -> Column:
    sf = functions()
    given = by_folded_name(data)
    parts = []
    for field in table.fields:
        own = given.get(field.name.lower())
        if own is None:
            part = null_of(field.type)
        else:
            part = conformed(value[own.name], own.type, field.type, (*path, field.name))
        parts.append(part.alias(field.name))
    return sf.when(value.isNotNull(), sf.struct(*parts))


def _map(value: Column, data: MapType, table: MapType, path: Path) -> Column:
    sf = functions()
    if not _same(data.key_type, table.key_type):
        value = sf.transform_keys(value, lambda key, _: conformed(key, data.key_type, table.key_type, (*path, "key")))
    if not _same(data.value_type, table.value_type):
        value = sf.transform_values(
            value, lambda _, item: conformed(item, data.value_type, table.value_type, (*path, "value"))
        )
    return value


def _leaf(value: Column, data: DataType, table: DataType, path: Path) -> Column:
    sf = functions()
    target = STRING if is_char(table) else table
    kind = fit(data, target)
    if kind is Fit.SAME:
        return value
    if kind is Fit.SAFE:
        return value.cast(spark_type(target))
    # Not the session's cast: outside ANSI mode it wraps around.
    there = value.try_cast(spark_type(target))
    if kind is Fit.ROUNDED:
        infinite = sf.lit(float("inf"))
        survives = (sf.abs(there) != infinite) | (sf.abs(value) == infinite)
    else:
        survives = there.try_cast(spark_type(data)) == value
    column = dotted(path)
    failure = conversion_failure(
        f"a value of type {data} cannot be kept in column {column}, which is {target}.", [(column, value)]
    )
    return sf.when(value.isNull(), sf.lit(None)).when(survives, there).otherwise(failure)


def _same(data: DataType, table: DataType) -> bool:
    """Whether values are those of the column as they are."""
    match data, table:
        case StructType(fields=given), StructType(fields=wanted):
            return len(given) == len(wanted) and all(
                one.name == other.name and _same(one.type, other.type) for one, other in zip(given, wanted, strict=True)
            )
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            return _same(given, wanted)
        case MapType(), MapType():
            return _same(data.key_type, table.key_type) and _same(data.value_type, table.value_type)
    return data == table
