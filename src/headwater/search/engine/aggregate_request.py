"""What an aggregation asks for: metrics, and the keys of groups, as Spark's GROUP BY computes them from columns.

>>> request = AggregateRequest((Metric("count"), Metric("max", "size")), (ByValue("host"), ByTime("at", "1h")))
>>> request.names
('host', 'at', 'count(*)', 'max(size)')
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from headwater.errors import SearchQueryError
from headwater.log.files import arrow as build

Function: TypeAlias = Literal["count", "sum", "avg", "min", "max"]
FUNCTIONS: tuple[Function, ...] = ("count", "sum", "avg", "min", "max")

_INTERVAL = re.compile(r"(\d+)\s*(ms|s|m|h|d|w|month|quarter|year)s?")
_FIXED_US = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 7 * 86_400_000_000,
}
MONDAY_US = 4 * _FIXED_US["d"]
"""The first Monday after the epoch: weeks start on Mondays."""


class Metric(msgspec.Struct, frozen=True):
    """An aggregate function; `count` without a column counts rows, with one its values that are not null."""

    function: Function
    column: str | None = None
    name: str | None = None
    of_length: bool = False
    """Whether it is about how many characters a text has, and not about the text."""

    @property
    def output(self) -> str:
        measured = f"length({self.column})" if self.of_length else self.column or "*"
        return self.name or f"{self.function}({measured})"


class ByValue(msgspec.Struct, frozen=True, tag=True):
    """A group for each value of a column; nulls are a group too, as in SQL."""

    column: str
    name: str | None = None


class ByNumber(msgspec.Struct, frozen=True, tag=True):
    """A histogram: groups of equal width, called by their lower ends `offset + n * interval`."""

    column: str
    interval: int | float
    offset: int | float = 0
    name: str | None = None


class ByTime(msgspec.Struct, frozen=True, tag=True):
    """A date histogram: `15m`, `1h`, `1d`, `1w` (from Monday), `1month`, `3month`, `1quarter`, `1year`, in UTC."""

    column: str
    interval: str
    name: str | None = None

    @property
    def parts(self) -> tuple[int, str]:
        """The number and the unit."""
        m = _INTERVAL.fullmatch(self.interval.strip())
        if m is None or int(m[1]) < 1:
            raise SearchQueryError(
                f"{self.interval!r} is no interval: write 10s, 15m, 1h, 1d, 1w, 1month, 1quarter or 1year"
            )
        return int(m[1]), m[2]

    @property
    def fixed_us(self) -> int | None:
        """The width in microseconds; None for months and longer, which differ in length."""
        count, unit = self.parts
        return count * _FIXED_US[unit] if unit in _FIXED_US else None

    @property
    def offset_us(self) -> int:
        """The start of the first group after the epoch."""
        return MONDAY_US if self.parts[1] == "w" else 0


Group: TypeAlias = ByValue | ByNumber | ByTime


class AggregateRequest(msgspec.Struct, frozen=True):
    """Metrics over all rows that a query finds, or over each group of them."""

    metrics: tuple[Metric, ...]
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric.function not in FUNCTIONS:
                raise SearchQueryError(f"there is no aggregate {metric.function!r}; there are {', '.join(FUNCTIONS)}")
            if metric.column is None and metric.function != "count":
                raise SearchQueryError(f"{metric.function} needs a column")
        for group in self.groups:
            if isinstance(group, ByNumber) and not group.interval > 0:
                raise SearchQueryError(f"the interval of a histogram must be greater than 0: {group.interval}")
            if isinstance(group, ByTime):
                group.parts  # noqa: B018 - raises when it is no interval
        if len(set(self.names)) < len(self.names):
            raise SearchQueryError(f"two results have the same name: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return (*(g.name or g.column for g in self.groups), *(m.output for m in self.metrics))

    @property
    def columns(self) -> list[str]:
        named = [*(g.column for g in self.groups), *(m.column for m in self.metrics if m.column is not None)]
        return list(dict.fromkeys(named))


_DAY_US = 86_400_000_000
_CALENDAR_UNITS = ("month", "quarter", "year")


def group_keys(group: Group, values: pa.Array) -> pa.Array:
    """Return the key of each row's group; null for null."""
    if isinstance(group, ByTime):
        return _times(group, values)
    if isinstance(group, ByNumber):
        return _numbers(group, values)
    if pat.is_nested(values.type):
        raise SearchQueryError(f"column {group.column!r}: rows cannot be grouped by a {values.type}")
    return _one_zero(values) if pat.is_floating(values.type) else values


def steps(group: ByNumber, scale: int = 0) -> tuple[int, int]:
    """Return interval and offset of a histogram over whole numbers (or decimals, in units of their last digit)."""
    found = []
    for number in (group.interval, group.offset):
        scaled = Decimal(str(number)).scaleb(scale)
        if scaled != scaled.to_integral_value():
            raise SearchQueryError(f"column {group.column!r} has no values as fine as {number}: use a whole interval")
        found.append(int(scaled))
    return found[0], found[1]


def floored(values: pa.Int64Array, interval: int, offset: int) -> pa.Int64Array:
    """Return the largest `offset + n * interval` that is not larger than the value."""
    step, zero = build.int64s([interval])[0], build.int64s([0])[0]
    moved = pc.subtract_checked(values, build.int64s([offset])[0])
    rest = pc.subtract(moved, pc.multiply(pc.divide(moved, step), step))  # has the sign of the value
    rest = pc.if_else(pc.less(rest, zero), pc.add(rest, step), rest)
    return pc.subtract_checked(values, rest)


def _one_zero(values: pa.Array) -> pa.Array:
    """Return floats with one zero and one NaN."""
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
