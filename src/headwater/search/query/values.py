"""Values in the form of the index: texts of a query, whole columns when a split is written, single values of a filter.

Timestamps are microseconds since the epoch (text without a zone is in UTC) and dates days, both as whole numbers,
because tantivy's own dates are only exact to the second. Decimals of up to 18 digits are their unscaled value; longer
ones are texts, which can be found and not be compared. An IP address is its canonical text, a value of a `float` column
the nearest `float`, and `-0.0` is `0.0`, as it is for Spark.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.schema import DATE, DOUBLE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ, DataType, DecimalType, UserDefinedType
from headwater.log.stats.value_text import (
    EPOCH,
    epoch_us,
    nearest_float,
    parse_date,
    parse_timestamp,
    parse_timestamp_ntz,
)
from headwater.search.analysis import ip_text
from headwater.search.config import MAX_SCALED_PRECISION, natural_kind
from headwater.search.types import is_day_time_interval, is_time

if TYPE_CHECKING:
    from headwater.search.query.targets import Target


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_WIDE = Context(prec=20_100)  # exponents of a query have up to 4 digits
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Between:
    """A number that lies strictly between two whole ones: equal to none, but a bound for ranges."""

    below: int


def read_value(target: Target, text: str) -> str | int | float | bool | Between:
    """Read the text of a value at a target that is not tokenised."""
    match target.kind:
        case "i64":
            return _whole(text, target.data_type)
        case "f64":
            return _floating(text, target.data_type)
        case "bool":
            folded = text.lower()
            if folded not in ("true", "false"):
                raise ValueError("expected true or false")
            return folded == "true"
        case "ip":
            canonical = ip_text(text)
            if canonical is None:
                raise ValueError("expected an IP address such as 10.0.0.1, or a network such as 10.0.0.0/8")
            return canonical
        case "string" if isinstance(target.data_type, DecimalType):
            value = leaf_value(target.data_type, _decimal(text))
            if value is None:
                raise ValueError(f"it does not fit {target.data_type}")
            return value
        case _:
            return text


def network_bounds(text: str) -> tuple[str, str] | None:
    """Return the first and last address of a network such as `10.0.0.0/8`; None for any other text."""
    if "/" not in text:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    first, last = ip_text(str(network[0])), ip_text(str(network[-1]))
    return None if first is None or last is None else (first, last)


def json_values(text: str) -> list[int | float | bool]:
    """Return what a word can be in JSON beside text: a number, true, false.

    >>> json_values("5"), json_values("5.5"), json_values("true"), json_values("x")
    ([5], [5.5], [True], [])
    """
    if text in ("true", "false"):
        return [text == "true"]
    if not _NUMBER.fullmatch(text):
        return []
    number = Decimal(text)
    if number == number.to_integral_value() and INT64_MIN <= number <= INT64_MAX:
        return [int(number)]
    return [float(number)] if math.isfinite(float(number)) else []


def scaled_value(number: Decimal, scale: int) -> int | Between:
    """Return a number in units of `10 ** -scale`, as whole numbers and decimals are indexed."""
    shifted = number.scaleb(scale, context=_WIDE)
    whole = int(shifted.to_integral_value(rounding="ROUND_FLOOR", context=_WIDE))
    if not INT64_MIN <= whole <= INT64_MAX:
        raise ValueError("the number is too large for 64 bits")
    return whole if whole == shifted else Between(whole)


def _whole(text: str, data_type: DataType | None) -> int | Between:
    if data_type == DATE:
        day = parse_date(text)
        if day is None:
            raise ValueError("expected a date such as 2024-03-01")
        return (day - EPOCH.date()).days
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = parse_timestamp(text) if data_type == TIMESTAMP else parse_timestamp_ntz(text)
        if moment is None:
            raise ValueError("expected a timestamp such as 2024-03-01T10:00:00Z")
        return epoch_us(moment)
    if data_type is not None and (is_day_time_interval(data_type) or is_time(data_type)):
        if not re.fullmatch(r"[+-]?\d+", text):
            raise ValueError(f"expected a {data_type} as a whole number of microseconds")
        return int(text)
    return scaled_value(_decimal(text), data_type.scale if isinstance(data_type, DecimalType) else 0)


def _decimal(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError("expected a number")
    return Decimal(text)


def _floating(text: str, data_type: DataType | None) -> float:
    if infinite := _INFINITY.fullmatch(text):
        return -math.inf if infinite[1] == "-" else math.inf
    value = float(_decimal(text))
    if math.isinf(value):
        raise ValueError("the number is too large for a double")
    if data_type != FLOAT:
        return value
    try:
        return nearest_float(value)
    except OverflowError:
        raise ValueError("the number is too large for a float") from None


def index_array(values: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a column whose natural kind is i64, f64, bool or string to int64, float64, boolean or string values.

    Floats that are not finite stay as they are, though the index cannot have them.
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


def leaf_value(data_type: DataType, value: Any) -> str | int | float | bool | None:
    """Convert a value, as Python has it, to the form of the index, to look it up; None when no row can have it.

    No row has a decimal with more digits than the column's scale, or a number out of the range of its type. Infinity is
    a value that a row can have, though the index cannot.
    """
    if isinstance(data_type, UserDefinedType):
        return leaf_value(data_type.sql_type, value)
    kind = natural_kind(data_type)
    if isinstance(data_type, DecimalType):
        return _scaled_decimal(data_type, Decimal(value))
    if kind == "i64":
        whole = _whole_number(value)
        return whole if INT64_MIN <= whole <= INT64_MAX else None
    if kind == "f64":
        number = float(value)
        return None if number != number else number + 0.0
    return value  # type: ignore[no-any-return]


def _whole_number(value: Any) -> int:
    match value:
        case datetime():
            return epoch_us(value)
        case date():
            return (value - EPOCH.date()).days
        case timedelta():
            return value // timedelta(microseconds=1)
        case time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) * 1_000
        case _:
            return int(value)


def _scaled_decimal(data_type: DecimalType, value: Decimal) -> int | str | None:
    if not value.is_finite():
        return None
    unscaled = value.scaleb(data_type.scale, _WIDE)
    if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**data_type.precision:
        return None
    if data_type.precision <= MAX_SCALED_PRECISION:
        return int(unscaled)
    column = pa.array([value], pa.decimal128(data_type.precision, data_type.scale))
    return index_array(column, data_type)[0].as_py()  # type: ignore[no-any-return]
