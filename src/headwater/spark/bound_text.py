"""A bound of a column as it stands in statistics: a JSON value made from what a Parquet footer holds.

Spec: "Per-file Statistics". A lower bound may be too low and an upper one too high, but never the other way; where no
such value can be written, there is no bound, which every reader takes for "not known".
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.log.schema import BOOLEAN, DATE, DOUBLE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ, DecimalType, PrimitiveType
from headwater.log.schema.types import is_string

if TYPE_CHECKING:
    from headwater.log.schema import DataType

_INTEGRAL = frozenset({"byte", "short", "integer", "long"})
_LAST_ASCII = "\x7f"
_LAST_CHARACTER = "\U0010ffff"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: other years have no agreed text."""
_DAY_US = 86_400_000_000


def has_bounds(type_: DataType) -> bool:
    """Whether columns of this type have bounds in statistics."""
    if isinstance(type_, DecimalType) or is_string(type_):
        return True
    return type_ in (BOOLEAN, DATE, DOUBLE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ) or (
        isinstance(type_, PrimitiveType) and type_.name in _INTEGRAL
    )


def bound_value(raw: Any, type_: DataType, *, upper: bool, prefix_length: int) -> Any:
    """A bound for JSON; None when there is none to be written.

    Args:
        raw: the physical value: an integer (for a decimal: all its digits), a float, or bytes.
        type_: the column's type, one that has bounds.
        upper: whether it is the upper bound.
        prefix_length: the characters that are left of a text.

    >>> bound_value(19_000, DATE, upper=False, prefix_length=32)
    '2022-01-08'
    """
    if is_string(type_):
        return _text(raw, prefix_length, upper=upper)
    if isinstance(type_, DecimalType):
        return _decimal(raw, type_)
    if type_ == DATE:
        return _day(raw) if _FIRST_DAY <= raw <= _LAST_DAY else None
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        return _timestamp(raw, zoned=type_ == TIMESTAMP)
    if type_ in (FLOAT, DOUBLE):
        return _floating(raw, upper=upper)
    return raw


def _decimal(unscaled: int, type_: DecimalType) -> msgspec.Raw:
    """All digits, as a number."""
    digits = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -type_.scale))
    return msgspec.Raw(format(digits, "f").encode())


def _floating(value: float, *, upper: bool) -> float | str | None:
    """The value as a double, whatever its width: a reader may or may not cut it to 32 bits.

    Zero gets the sign that makes it a bound for readers that order -0.0 before 0.0.
    """
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return 0.0 if upper else -0.0
    return float(value)


def _timestamp(micros: int, *, zoned: bool) -> str | None:
    """Cut to milliseconds, as the spec says; readers know that the true maximum may be later."""
    days, rest = divmod(micros, _DAY_US)
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return None
    millis = rest // 1_000
    seconds = millis // 1_000
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis % 1_000:03}"
    return f"{_day(days)}T{time}{'Z' if zoned else ''}"


def _day(days: int) -> str:
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _text(raw: bytes, prefix_length: int, *, upper: bool) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= prefix_length:
        return text
    return _cut_upper(text, prefix_length) if upper else text[:prefix_length]


def _cut_upper(text: str, prefix_length: int) -> str | None:
    """A prefix, and a character after it that makes it greater than every text that starts so and is in the file.

    That character is greater than the one it replaces; where none is, the prefix gets longer, up to twice as long.

    >>> _cut_upper("abcd", 2)
    'ab\\x7f'
    """
    for length in range(prefix_length, min(len(text), 2 * prefix_length + 1)):
        if text[length] < _LAST_ASCII:
            return text[:length] + _LAST_ASCII
        if text[length] < _LAST_CHARACTER:
            return text[:length] + _LAST_CHARACTER
    return text if len(text) <= 2 * prefix_length + 1 else None
