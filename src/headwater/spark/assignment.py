"""Which types fit into which: Spark's rules of store assignment, made stricter where they would lose something.

A value goes into a column of another type where Spark's ANSI rules let it: numbers into numbers, dates and times into
each other, anything with an exact text into a string. Where a value may not survive that, each one is looked at while
the job runs, and one that would come back changed is an error. Nothing is ever cut or wrapped around.

>>> from headwater.log.schema import INTEGER, LONG, STRING
>>> fit(INTEGER, LONG), fit(LONG, INTEGER), fit(STRING, INTEGER)
(<Fit.SAFE: 'every value fits'>, <Fit.EXACT: 'values must come back unchanged'>, None)
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.log.schema import (
    BINARY,
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
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    is_string,
)

if TYPE_CHECKING:
    from headwater.log.schema import DataType


class Fit(Enum):
    """How well values of one type fit into another."""

    SAME = "the same type"
    SAFE = "every value fits"
    EXACT = "values must come back unchanged"
    ROUNDED = "values are rounded to the nearest, but must not become infinite"


_DIGITS: dict[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 19}
_INTEGRAL = (BYTE, SHORT, INTEGER, LONG)
_EXACT_IN: dict[DataType, tuple[DataType, ...]] = {FLOAT: (BYTE, SHORT), DOUBLE: (BYTE, SHORT, INTEGER)}
"""The whole numbers of which a floating type holds every value."""
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def fit(data: DataType, table: DataType) -> Fit | None:
    """How a value of an atomic type fits into a column; None if it does not."""
    if data == table or (is_string(data) and is_string(table)):
        return Fit.SAME
    if data == VOID:
        return Fit.SAFE
    if _is_number(data) and _is_number(table):
        return _fit_number(data, table)
    if data in _TIMES and table in _TIMES:
        return Fit.EXACT if table == DATE else Fit.SAFE
    has_text = isinstance(data, DecimalType) or (isinstance(data, PrimitiveType) and data.is_known)
    if table == STRING or is_string(table):
        return Fit.SAFE if has_text and data not in (BINARY, VARIANT) else None
    return None


def widens(table: DataType, data: DataType) -> bool:
    """Whether a column may become of the data's type without touching files (type widening, by schema evolution).

    >>> from headwater.log.schema import INTEGER, LONG
    >>> widens(INTEGER, LONG), widens(LONG, INTEGER)
    (True, False)
    """
    if table in _INTEGRAL and data in _INTEGRAL:
        return _DIGITS[table] < _DIGITS[data]
    if isinstance(table, DecimalType) and isinstance(data, DecimalType):
        return table != data and _fit_decimal(table, data) is Fit.SAFE
    return (table, data) in ((FLOAT, DOUBLE), (DATE, TIMESTAMP_NTZ))


def spark_type(type_: DataType) -> Any:
    """A type as PySpark's."""
    return StructType([StructField("value", type_)]).to_spark().fields[0].dataType


def _is_number(type_: DataType) -> bool:
    return type_ in (*_INTEGRAL, FLOAT, DOUBLE) or isinstance(type_, DecimalType)


def _fit_number(data: DataType, table: DataType) -> Fit:
    if table in (FLOAT, DOUBLE):
        if data in _INTEGRAL:
            return Fit.SAFE if data in _EXACT_IN[table] else Fit.EXACT
        return Fit.SAFE if data == FLOAT else Fit.ROUNDED
    if data in _INTEGRAL:
        wide = DecimalType(_DIGITS[data])
        if isinstance(table, DecimalType):
            return _fit_decimal(wide, table)
        return Fit.SAFE if _DIGITS[data] < _DIGITS[table] else Fit.EXACT
    if isinstance(data, DecimalType) and isinstance(table, DecimalType):
        return _fit_decimal(data, table)
    return Fit.EXACT


def _fit_decimal(data: DecimalType, table: DecimalType) -> Fit:
    wide = table.precision - table.scale >= data.precision - data.scale and table.scale >= data.scale
    return Fit.SAFE if wide else Fit.EXACT
