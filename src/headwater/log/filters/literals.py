"""Literals of a filter: their casts in SQL, and their values in the type of the column they are compared with.

Both follow Spark's rules. Where the result is not certain, or Spark would rather convert the column (a number against
a text column), there is no literal, and the comparison does not prune.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log.files import arrow as build
from headwater.log.schema import DOUBLE, FLOAT
from headwater.log.stats.value_text import (
    BLANKS,
    EPOCH,
    decimal_at_scale,
    epoch_us,
    nearest_float,
    parse_date,
    parse_timestamp,
    parse_timestamp_ntz,
)
from headwater.log.stats.values import UTC_TIMESTAMP, comparable_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.filters.expressions import CompareOp
    from headwater.log.schema import DataType

_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EXACT_DIGITS = 15
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]{1,38}\.?[0-9]{0,38}|\.[0-9]{1,38})")
_PLAIN_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EXACT_INTEGERS_BELOW: dict[DataType, int] = {FLOAT: 2**24, DOUBLE: 2**53}


class NoLiteralError(Exception):
    """A node has no certain literal value; the filter parser catches it."""


class NotComparableError(Exception):
    """A comparison cannot be made in the column's own type; callers of `coerce` catch it."""


def cast(value: object, target: str, precision: int = 10, scale: int = 0) -> object:
    """Convert a literal to a type, given by sqlglot's name for it; None stays None.

    Raises:
        NoLiteralError: the result is not certain, or the conversion fails at run time in Spark.
        ValueError: the text of a date or timestamp is malformed.
    """
    if value is None:
        return None
    result: object | None = None
    if target in _INTEGER_BITS:
        result = _to_integer(value, _INTEGER_BITS[target])
    elif target == "DECIMAL":
        result = _to_decimal(value, precision, scale)
    elif target in _CASTS:
        result = _CASTS[target](value)
    if result is None:
        raise NoLiteralError
    return result


def _to_integer(value: object, bits: int) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip(BLANKS)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        return value
    return None


def _to_decimal(value: object, precision: int, scale: int) -> Decimal | None:
    if isinstance(value, str) and _FRACTION.fullmatch(value.strip(BLANKS)):
        value = Decimal(value.strip(BLANKS))
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= scale <= precision <= 38:
        return None
    return decimal_at_scale(Decimal(value), precision, scale, ROUND_HALF_UP)


def _to_double(value: object) -> float | None:
    if isinstance(value, str) and _FRACTION.fullmatch(value.strip(BLANKS)):
        return float(value)
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > _EXACT_DIGITS:
        return None  # older Java versions do not round these to the nearest double
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return float(value)


def _to_float(value: object) -> float | None:
    # Only from numbers that a double holds exactly: others would be rounded twice.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or float(value) != value:
        return None
    try:
        return nearest_float(float(value))
    except OverflowError:
        return None


def _to_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) or not isinstance(value, str | int | date):
        return None
    return str(value)


def _to_date(value: object) -> date | None:
    if isinstance(value, str):
        return parse_date(value)
    return value if type(value) is date else None


def _to_timestamp(value: object) -> datetime | None:
    if isinstance(value, str):
        return parse_timestamp(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else None
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if isinstance(value, date) else None


def _to_timestamp_ntz(value: object) -> datetime | None:
    if isinstance(value, str):
        return parse_timestamp_ntz(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is None else None
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _to_boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None


def _to_binary(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


_CASTS: dict[str, Callable[[object], object | None]] = {
    "DOUBLE": _to_double,
    "FLOAT": _to_float,
    **dict.fromkeys(("TEXT", "VARCHAR"), _to_text),
    "DATE": _to_date,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"), _to_timestamp),
    "TIMESTAMPNTZ": _to_timestamp_ntz,
    "BOOLEAN": _to_boolean,
    "BINARY": _to_binary,
}


def coerce(op: CompareOp, value: Any, type_: DataType) -> tuple[CompareOp, pa.Scalar | None]:
    """Return the operator and the literal in the column's comparable type.

    A fractional number against a whole one changes the operator (`x < 4.5` is `x <= 4`); a literal of None means
    that no value can be equal to it.

    Raises:
        NotComparableError: the comparison cannot be made in that type.
    """
    target = comparable_type(type_)
    if target is None or value is None:
        raise NotComparableError
    if pa.types.is_integer(target):
        return _coerce_integer(op, value)
    if pa.types.is_floating(target):
        return op, _floating(value, type_)
    if pa.types.is_decimal(target):
        return op, _decimal(value)
    if pa.types.is_date(target):
        days = (_date(value) - EPOCH.date()).days
        return op, build.int32s([days]).cast(target)[0]
    if pa.types.is_timestamp(target):
        return op, build.int64s([_timestamp_us(value, target)], target)[0]
    if pa.types.is_string(target) and isinstance(value, str):
        return op, build.strings([value])[0]
    if pa.types.is_boolean(target) and isinstance(value, bool):
        return op, build.bools([value])[0]
    if pa.types.is_binary(target) and isinstance(value, bytes):
        return op, build.binaries([value])[0]
    raise NotComparableError


def _coerce_integer(op: CompareOp, value: Any) -> tuple[CompareOp, pa.Scalar | None]:
    if isinstance(value, bool):
        raise NotComparableError
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", value):
            raise NotComparableError
        value = int(value)
    if isinstance(value, float):
        # Spark compares as doubles here, which is only exact for integers below 2**53.
        if value != value or abs(value) >= 2**53:
            raise NotComparableError
        value = Decimal(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise NotComparableError
        if value != value.to_integral_value():
            if op in ("=", "<=>", "<>"):
                return op, None
            below = op in ("<", "<=")
            value = value.to_integral_value(ROUND_FLOOR if below else ROUND_CEILING)
            op = "<=" if below else ">="
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise NotComparableError
    return op, build.int64s([value])[0]


def _floating(value: Any, type_: DataType) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or value != value:
        raise NotComparableError
    if isinstance(value, int) and abs(value) > _EXACT_INTEGERS_BELOW[type_]:
        raise NotComparableError
    return build.float64s([float(value)])[0]


def _decimal(value: Any) -> pa.Scalar:
    # Against text, Spark compares decimals as doubles.
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise NotComparableError
    number = Decimal(value)
    if not number.is_finite():
        raise NotComparableError
    try:
        return pa.scalar(number)
    except pa.ArrowInvalid:
        raise NotComparableError from None


def _date(value: Any) -> date:
    if type(value) is date:
        return value
    if isinstance(value, str) and _PLAIN_DATE.fullmatch(value.strip()):
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            pass
    raise NotComparableError


def _timestamp_us(value: Any, target: pa.DataType) -> int:
    # Wall-clock values are taken as UTC, as the log's own are.
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise NotComparableError from None
    elif type(value) is date:
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise NotComparableError
    if value.tzinfo is not None and target != UTC_TIMESTAMP:
        raise NotComparableError  # an instant against a wall clock: depends on the session's zone
    return epoch_us(value)
