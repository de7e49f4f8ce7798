"""Column values as the index has them: whole columns when a split is written, single values when a query names one.

Timestamps are microseconds since the epoch and dates days, both as whole numbers, because tantivy's own dates are only
exact to the second. Decimals of up to 18 digits are their unscaled value; longer ones are texts, which can be found and
not be compared. `-0.0` is `0.0`, as it is for Spark.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.schema import DOUBLE, FLOAT, DataType, DecimalType, UserDefinedType
from headwater.search.analysis import ip_text
from headwater.search.fields import MAX_SCALED_PRECISION, natural_kind

if TYPE_CHECKING:
    from headwater.search.fields import FieldConfig

_MAX_I64: Final = 2**63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_WIDE: Final = Context(prec=1_000)


def index_array(values: pa.Array, data_type: DataType) -> pa.Array:
    """A column of a type whose natural kind is i64, f64, bool or string as int64, float64, boolean or string values.

    Values of floats that are not finite stay what they are: the index cannot have them.
    """
    match data_type:
        case UserDefinedType(sql_type=sql_type):
            return index_array(values, sql_type)
        case DecimalType(precision=precision, scale=scale):
            if precision > MAX_SCALED_PRECISION:
                return values.cast(pa.string())
            return values.cast(pa.decimal64(MAX_SCALED_PRECISION, scale)).view(pa.int64())
    if data_type in (FLOAT, DOUBLE):
        return pc.add(values.cast(pa.float64()), build.float64s([0.0])[0])  # -0.0 + 0.0 is 0.0
    kind = natural_kind(data_type)
    if kind == "i64":
        return _whole_numbers(values)
    return values


def _whole_numbers(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    return values.view(pa.int64())  # timestamps, durations and times of day are 64 bits wide


def index_value(field: FieldConfig, value: Any) -> str | int | float | bool | None:
    """A value of a field's column in the form of the index, to be looked up; None when no row can have it.

    The value must be of Python's type for the column: `datetime` (aware for timestamp, naive for timestamp_ntz),
    `date`, `timedelta`, `Decimal` or `int` for decimals, and so on. A decimal with more digits than the column's scale,
    a number out of the range of its type and text that is no IP address are values that no row can have. Infinity is
    one that a row can have, though the index cannot.

    >>> from datetime import date
    >>> from headwater.log.schema import DATE
    >>> from headwater.search.fields import FieldConfig
    >>> index_value(FieldConfig("day", "day", "i64", DATE), date(1970, 1, 11))
    10
    """
    if field.kind == "ip":
        return ip_text(value)
    if field.kind in ("text", "json") or value is None:
        return None if value is None else str(value)
    return leaf_value(field.data_type, value)


def leaf_value(data_type: DataType, value: Any) -> str | int | float | bool | None:
    """The same for a value inside a JSON field, by the type it has in the column."""
    if isinstance(data_type, UserDefinedType):
        return leaf_value(data_type.sql_type, value)
    kind = natural_kind(data_type)
    if isinstance(data_type, DecimalType):
        return _decimal(data_type, Decimal(value))
    if kind == "i64":
        whole = _whole_number(value)
        return whole if -_MAX_I64 <= whole < _MAX_I64 else None
    if kind == "f64":
        number = float(value)
        return None if number != number else number + 0.0
    return value  # type: ignore[no-any-return]


def _whole_number(value: Any) -> int:
    match value:
        case datetime():
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // _MICROSECOND
        case date():
            return (value - _EPOCH.date()).days
        case timedelta():
            return value // _MICROSECOND
        case time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) * 1_000
        case _:
            return int(value)


def _decimal(data_type: DecimalType, value: Decimal) -> int | str | None:
    if not value.is_finite():
        return None
    unscaled = value.scaleb(data_type.scale, _WIDE)
    if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**data_type.precision:
        return None
    if data_type.precision <= MAX_SCALED_PRECISION:
        return int(unscaled)
    column = pa.array([value], pa.decimal128(data_type.precision, data_type.scale))
    return index_array(column, data_type)[0].as_py()  # type: ignore[no-any-return]
