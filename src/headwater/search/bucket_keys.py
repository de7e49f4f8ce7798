"""The keys of groups, computed from columns as Spark's GROUP BY sees them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from headwater.errors import SearchQueryError
from headwater.log import columns as build
from headwater.search.aggregation_request import ByNumber, ByTime

if TYPE_CHECKING:
    from headwater.search.aggregation_request import Group

_DAY_US = 86_400_000_000
_CALENDAR_UNITS = ("month", "quarter", "year")


def group_keys(group: Group, values: pa.Array) -> pa.Array:
    """The key of each row's group; null for null.

    Raises:
        SearchQueryError: the column's type does not go with the group.
    """
    if isinstance(group, ByTime):
        return _times(group, values)
    if isinstance(group, ByNumber):
        return _numbers(group, values)
    if pat.is_nested(values.type):
        raise SearchQueryError(f"column {group.column!r}: rows cannot be grouped by a {values.type}")
    return _one_zero(values) if pat.is_floating(values.type) else values


def steps(group: ByNumber, scale: int = 0) -> tuple[int, int]:
    """Interval and offset of a histogram over whole numbers (or decimals, in units of their last digit).

    Raises:
        SearchQueryError: they are finer than the column.
    """
    found = []
    for number in (group.interval, group.offset):
        scaled = Decimal(str(number)).scaleb(scale)
        if scaled != scaled.to_integral_value():
            raise SearchQueryError(f"column {group.column!r} has no values as fine as {number}: use a whole interval")
        found.append(int(scaled))
    return found[0], found[1]


def floored(values: pa.Int64Array, interval: int, offset: int) -> pa.Int64Array:
    """The largest `offset + n * interval` that is not larger than the value."""
    step, zero = build.int64s([interval])[0], build.int64s([0])[0]
    moved = pc.subtract_checked(values, build.int64s([offset])[0])
    rest = pc.subtract(moved, pc.multiply(pc.divide(moved, step), step))  # has the sign of the value
    rest = pc.if_else(pc.less(rest, zero), pc.add(rest, step), rest)
    return pc.subtract_checked(values, rest)


def _one_zero(values: pa.Array) -> pa.Array:
    """Floats with one zero and one NaN."""
    plain = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), values.type), plain)


def _numbers(group: ByNumber, values: pa.Array) -> pa.Array:
    if pat.is_integer(values.type):
        return floored(values.cast(pa.int64()), *steps(group))
    if pat.is_floating(values.type):
        interval, offset = (build.float64s([float(n)])[0] for n in (group.interval, group.offset))
        units = pc.floor(pc.divide(pc.subtract(values.cast(pa.float64()), offset), interval))
        return _one_zero(pc.add(pc.multiply(units, interval), offset))
    if pat.is_decimal(values.type) and values.type.precision <= 18:
        scale = values.type.scale
        unscaled = values.cast(pa.decimal64(18, scale)).view(pa.int64())
        return floored(unscaled, *steps(group, scale)).view(pa.decimal64(18, scale)).cast(pa.decimal128(38, scale))
    raise SearchQueryError(f"column {group.column!r} is a {values.type}: a histogram needs numbers of up to 18 digits")


def _times(group: ByTime, values: pa.Array) -> pa.Array:
    if not pat.is_timestamp(values.type) and not pat.is_date32(values.type):
        raise SearchQueryError(
            f"column {group.column!r} is a {values.type}: a date histogram needs dates or timestamps"
        )
    count, unit = group.parts
    if unit in _CALENDAR_UNITS:
        return pc.floor_temporal(values, multiple=count, unit=unit)
    width = group.fixed_us
    assert width is not None
    if pat.is_date32(values.type):
        if width % _DAY_US:
            raise SearchQueryError(
                f"column {group.column!r} has dates: the interval {group.interval!r} is finer than a day"
            )
        days = floored(values.view(pa.int32()).cast(pa.int64()), width // _DAY_US, group.offset_us // _DAY_US)
        return days.cast(pa.int32()).view(pa.date32())
    return floored(values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64()), width, group.offset_us).view(
        pa.timestamp("us", values.type.tz)
    )
