"""What an aggregation asks for: metrics, and the keys of the groups. Values that pickle and go to JSON, like queries.

>>> request = AggregateRequest((Metric("count"), Metric("max", "size")), (ByValue("host"), ByTime("at", "1h")))
>>> request.names
('host', 'at', 'count(*)', 'max(size)')
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from headwater.errors import SearchQueryError

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
        """The name of the result's column."""
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
        """How many of which unit."""
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
        """Where the first group after the epoch starts."""
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
        """The names of the result's columns."""
        return (*(g.name or g.column for g in self.groups), *(m.output for m in self.metrics))

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        named = [*(g.column for g in self.groups), *(m.column for m in self.metrics if m.column is not None)]
        return list(dict.fromkeys(named))
