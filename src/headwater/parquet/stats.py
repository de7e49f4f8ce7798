"""Build the statistics of a data file from its footer, as the log keeps them (spec: "Per-file Statistics").

Row counts, null counts and bounds come from the Parquet footer, so they cost no pass over the rows. What a footer does
not have (bounds of long texts, null arrays, floating numbers under pyarrow) the writer of the rows adds as `Noted`;
otherwise it stays unknown. A lower bound may be too low and an upper bound too high, but never the other way; where
no such value can be written, there is no bound, which every reader takes for "not known".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.log.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    is_string,
)
from headwater.log.stats.value_text import FIRST_DAY, LAST_DAY, day_text, non_finite_text, timestamp_bound_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow.parquet as pq

    from headwater.log.schema import DataType
    from headwater.log.stats.decode import Leaf


@dataclass
class Noted:
    """What a writer sees of one leaf, beyond what the footer will have."""

    null_count: int | None = None
    """None if the footer counts them."""
    has_nan: bool = False
    bounds: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """By row group: a lower and an upper bound, which replace the footer's."""


@dataclass
class _Summary:
    """The statistics of one leaf over all row groups. A bound is None without values, or if it is not known."""

    nulls: int | None = 0
    lower: Any = None
    upper: Any = None
    lower_known: bool = True
    upper_known: bool = True

    def include(self, low: Any, high: Any) -> None:
        """Widen the bounds. NaN is greater than every number: it cannot be a lower bound, and has no upper bound."""
        if isinstance(high, float) and math.isnan(high):
            self.upper_known = False
            if math.isnan(low):
                return
        self.lower = low if self.lower is None else min(self.lower, low)
        self.upper = high if self.upper is None else max(self.upper, high)


def statistics_json(
    metadata: pq.FileMetaData, leaves: Sequence[Leaf], prefix_length: int, noted: Mapping[Leaf, Noted] | None = None
) -> str:
    """Return the statistics of a file as JSON.

    Args:
        metadata: the footer of the file.
        leaves: the columns that get statistics.
        prefix_length: the number of characters that bounds keep of a text.
        noted: by leaf, what the writer saw; None if Spark wrote the rows.
    """
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    for leaf in leaves:
        found = _summary(groups, leaf, None if noted is None else noted.get(leaf, Noted()))
        if found.nulls is not None:
            _put(nulls, leaf.path, found.nulls)
        if found.lower is not None and found.lower_known:
            _put(lower, leaf.path, bound_value(found.lower, leaf.type, upper=False, prefix_length=prefix_length))
        if found.upper is not None and found.upper_known:
            _put(upper, leaf.path, bound_value(found.upper, leaf.type, upper=True, prefix_length=prefix_length))
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": lower,
        "maxValues": upper,
        "nullCount": nulls,
        "tightBounds": True,
    }
    return msgspec.json.encode(statistics).decode()


def _summary(groups: Sequence[Any], leaf: Leaf, noted: Noted | None) -> _Summary:
    summary = _Summary(nulls=0 if leaf.counts_nulls else None)
    for position, group in enumerate(groups):
        found = group.column(leaf.column).statistics
        counted = found is not None and found.has_null_count
        summary.nulls = summary.nulls + found.null_count if counted and summary.nulls is not None else None
        if not leaf.has_bounds:
            continue
        if noted is not None and position in noted.bounds:
            summary.include(*noted.bounds[position])
        elif found is not None and found.has_min_max:
            summary.include(_comparable(found.min_raw, leaf), _comparable(found.max_raw, leaf))
        elif noted is None or noted.null_count is None:
            # Values without bounds, unless there are no values.
            known = counted and found.null_count == group.num_rows
            summary.lower_known, summary.upper_known = summary.lower_known and known, summary.upper_known and known
    if noted is not None:
        summary.nulls = summary.nulls if noted.null_count is None else noted.null_count
        summary.upper_known = summary.upper_known and not noted.has_nan
    return summary


def _comparable(raw: Any, leaf: Leaf) -> Any:
    """Return a physical value in a form whose order is that of the type."""
    if isinstance(leaf.type, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


_LAST_ASCII = "\x7f"
_LAST_CHARACTER = "\U0010ffff"


def bound_value(raw: Any, type_: DataType, *, upper: bool, prefix_length: int) -> Any:
    """Return a bound for JSON; None when there is none to write.

    Args:
        raw: the physical value: an integer (for a decimal: all its digits), a float, or bytes.
        type_: the column's type, one that has bounds.
        upper: whether it is the upper bound.
        prefix_length: the number of characters that it keeps of a text.

    >>> bound_value(19_000, DATE, upper=False, prefix_length=32)
    '2022-01-08'
    """
    if is_string(type_):
        return _text(raw, prefix_length, upper=upper)
    if isinstance(type_, DecimalType):
        digits = Decimal((raw < 0, tuple(map(int, str(abs(raw)))), -type_.scale))
        return msgspec.Raw(format(digits, "f").encode())  # all digits, as a number
    if type_ == DATE:
        return day_text(raw) if FIRST_DAY <= raw <= LAST_DAY else None
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        return timestamp_bound_text(raw, zoned=type_ == TIMESTAMP)
    if type_ in (FLOAT, DOUBLE):
        return _floating(raw, upper=upper)
    return raw


def _floating(value: float, *, upper: bool) -> float | str | None:
    """Return the value as a double, whatever its width: a reader may or may not cut it to 32 bits.

    Zero gets the sign that makes it a bound for readers that order -0.0 before 0.0.
    """
    if math.isnan(value):
        return None
    if value == 0:
        return 0.0 if upper else -0.0
    return non_finite_text(value) or float(value)


def _text(raw: bytes, prefix_length: int, *, upper: bool) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= prefix_length:
        return text
    return _cut_upper(text, prefix_length) if upper else text[:prefix_length]


def _cut_upper(text: str, prefix_length: int) -> str | None:
    """Return a prefix and a character that is greater than the one it replaces.

    Where there is no greater character, the prefix gets longer, up to twice as long.

    >>> _cut_upper("abcd", 2)
    'ab\\x7f'
    """
    for length in range(prefix_length, min(len(text), 2 * prefix_length + 1)):
        if text[length] < _LAST_ASCII:
            return text[:length] + _LAST_ASCII
        if text[length] < _LAST_CHARACTER:
            return text[:length] + _LAST_CHARACTER
    return text if len(text) <= 2 * prefix_length + 1 else None


class _Statistics(msgspec.Struct, rename="camel"):
    """The statistics of a file. Values stay as the log has them: numbers may be longer than Python's."""

    num_records: int = 0
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}
    null_count: dict[str, msgspec.Raw] = {}
    tight_bounds: bool = True

    def without(self, names: Collection[str]) -> _Statistics:
        lower, upper, nulls = (
            {name: value for name, value in kind.items() if name not in names}
            for kind in (self.min_values, self.max_values, self.null_count)
        )
        return _Statistics(self.num_records, lower, upper, nulls, self.tight_bounds)

    def __or__(self, other: _Statistics) -> _Statistics:
        """Return the statistics of the columns of both, with the row count of the other."""
        return _Statistics(
            other.num_records,
            self.min_values | other.min_values,
            self.max_values | other.max_values,
            self.null_count | other.null_count,
            self.tight_bounds and other.tight_bounds,
        )


def joined_statistics(parts: Iterable[str | None], num_rows: int) -> str:
    """Join the statistics of several columns of a file, each of which was written alone.

    >>> parts = ('{"numRecords":2,"minValues":{"a":1}}', None, '{"numRecords":2,"nullCount":{"b":2}}')
    >>> joined_statistics(parts, 2)
    '{"numRecords":2,"minValues":{"a":1},"maxValues":{},"nullCount":{"b":2},"tightBounds":true}'
    """
    found = (msgspec.json.decode(part, type=_Statistics) for part in parts if part is not None)
    joined = reduce(or_, found, _Statistics())
    joined.num_records = num_rows
    return msgspec.json.encode(joined).decode()


def changed_statistics(old: str | None, new: str | None, names: Collection[str]) -> str | None:
    """Return the statistics of a file of which some columns were rewritten.

    Args:
        old: the statistics of the file before.
        new: the statistics of the rewritten columns; None if files have none.
        names: the rewritten columns.

    >>> old = '{"numRecords":2,"minValues":{"a":1,"b":1.50},"maxValues":{},"nullCount":{"a":0}}'
    >>> changed_statistics(old, '{"numRecords":2,"minValues":{"a":7},"maxValues":{"a":8},"nullCount":{"a":0}}', {"a"})
    '{"numRecords":2,"minValues":{"b":1.50,"a":7},"maxValues":{"a":8},"nullCount":{"a":0},"tightBounds":true}'
    """
    if new is None:
        return None
    try:
        known = msgspec.json.decode(old or "{}", type=_Statistics)
    except (msgspec.DecodeError, RecursionError):
        known = _Statistics()
    return msgspec.json.encode(known.without(names) | msgspec.json.decode(new, type=_Statistics)).decode()
