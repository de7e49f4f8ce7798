"""Literals of a filter in the type of the column they are compared with, by Spark's rules.

Where Spark would rather convert the column (a number against a text column), or where the conversion is not exact,
there is no literal of the column's type and the comparison cannot prune: `NotComparableError`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log import columns as build
from headwater.log.schema import DOUBLE, FLOAT
from headwater.log.values import UTC_TIMESTAMP, comparable_type

if TYPE_CHECKING:
    from headwater.log.expressions import CompareOp
    from headwater.log.schema import DataType

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EXACT_INTEGERS_BELOW: dict[DataType, int] = {FLOAT: 2**24, DOUBLE: 2**53}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotComparableError(Exception):
    """The comparison cannot be expressed in the column's own type; never leaves this room."""


def coerce(op: CompareOp, value: Any, type_: DataType) -> tuple[CompareOp, pa.Scalar | None]:
    """The operator and literal in the column's comparable type.

    A fractional number against a whole one changes the operator (`x < 4.5` is `x <= 4`); a literal of None says
    that no value can be equal to it.
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
        days = (_date(value) - _EPOCH.date()).days
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
    if isinstance(value, str) and _DATE.fullmatch(value.strip()):
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            pass
    raise NotComparableError


def _timestamp_us(value: Any, target: pa.DataType) -> int:
    """Microseconds since the epoch; wall-clock values are taken as UTC, as the log's own are."""
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
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
