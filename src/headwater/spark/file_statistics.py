"""Statistics of a data file from its own footer, as the log keeps them (spec: "Per-file Statistics").

Row counts, null counts and bounds come from what the Parquet writer noted while it wrote, so they cost no pass over the
rows. What a footer does not tell (bounds of long texts, null arrays, floating numbers under pyarrow) whoever writes the
rows adds as `Noted`; otherwise it stays unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.log.schema import DecimalType
from headwater.spark.bound_text import bound_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.parquet as pq

    from headwater.spark.indexed_columns import Leaf


@dataclass
class Noted:
    """What was seen of one leaf while rows were written, beyond what the footer will tell."""

    null_count: int | None = None
    """None if the footer counts them."""
    has_nan: bool = False
    bounds: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """By row group: values at or below, and at or above, all others. They count instead of the footer's."""


@dataclass
class _Summary:
    """The statistics of one leaf over all row groups. A bound of None is not known, or there are no values."""

    nulls: int | None = 0
    lower: Any = None
    upper: Any = None
    lower_known: bool = True
    upper_known: bool = True

    def include(self, low: Any, high: Any) -> None:
        """Widen the bounds. NaN is greater than every number, so it is no lower bound, and has none above it."""
        if isinstance(high, float) and math.isnan(high):
            self.upper_known = False
            if math.isnan(low):
                return
        self.lower = low if self.lower is None else min(self.lower, low)
        self.upper = high if self.upper is None else max(self.upper, high)


def statistics_json(
    metadata: pq.FileMetaData, leaves: Sequence[Leaf], prefix_length: int, noted: Mapping[Leaf, Noted] | None = None
) -> str:
    """The statistics of a file.

    Args:
        metadata: the footer of the file.
        leaves: the columns that get statistics.
        prefix_length: the characters that are left of a text.
        noted: by leaf, what was seen while the rows were written; None if Spark wrote them.
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
    """A physical value in a form whose order is that of the type."""
    if isinstance(leaf.type, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value
