"""Values in a query text, read as values of the column they are compared with, in the form of the index.

A timestamp becomes its microseconds since the epoch (text without a zone is in UTC), a date its days, a decimal its
unscaled value, an IP address its canonical text; a `float` column gets the nearest `float`.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING

from headwater.log.filter_literals import parse_date, parse_timestamp, parse_timestamp_ntz
from headwater.log.schema import DATE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ, DecimalType
from headwater.search.analysis import ip_text
from headwater.search.field_values import leaf_value
from headwater.search.fields import is_day_time_interval, is_time

if TYPE_CHECKING:
    from headwater.log.schema import DataType
    from headwater.search.query_targets import Target

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = Context(prec=20_100)  # exponents of a query have up to 4 digits
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Between:
    """A number that lies strictly between two whole ones: equal to none, but a bound for ranges."""

    below: int


def read_value(target: Target, text: str) -> str | int | float | bool | Between:
    """The value of a text at a target that is not tokenised.

    Raises:
        ValueError: the text is no value of this type; the message says what would be one.
    """
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
    """The first and last address of a network such as `10.0.0.0/8`; None if the text is none."""
    if "/" not in text:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    first, last = ip_text(str(network[0])), ip_text(str(network[-1]))
    return None if first is None or last is None else (first, last)


def json_values(text: str) -> list[int | float | bool]:
    """What else than text a word can be in JSON: a number, true, false.

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


def micros(moment: datetime) -> int:
    """Microseconds since the epoch; a wall-clock time is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def scaled_value(number: Decimal, scale: int) -> int | Between:
    """A number in units of `10 ** -scale`, as whole numbers and decimals are indexed.

    Raises:
        ValueError: it is outside of 64 bits.
    """
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
        return (day - date(1970, 1, 1)).days
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = parse_timestamp(text) if data_type == TIMESTAMP else parse_timestamp_ntz(text)
        if moment is None:
            raise ValueError("expected a timestamp such as 2024-03-01T10:00:00Z")
        return micros(moment)
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
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError("the number is too large for a float") from None
    return single
