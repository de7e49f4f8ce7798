"""The statistics of a file of which some columns were written again, and the others taken over.

Values stay as they are written in the log: numbers there may be longer than Python's.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class _Statistics(msgspec.Struct, rename="camel"):
    """The statistics of a file."""

    num_records: int = 0
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}
    null_count: dict[str, msgspec.Raw] = {}
    tight_bounds: bool = True

    def without(self, names: Collection[str]) -> _Statistics:
        """The same, but for some columns."""
        lower, upper, nulls = (
            {name: value for name, value in kind.items() if name not in names}
            for kind in (self.min_values, self.max_values, self.null_count)
        )
        return _Statistics(self.num_records, lower, upper, nulls, self.tight_bounds)

    def __or__(self, other: _Statistics) -> _Statistics:
        """The statistics of the columns of both; as many rows as the other has."""
        return _Statistics(
            other.num_records,
            self.min_values | other.min_values,
            self.max_values | other.max_values,
            self.null_count | other.null_count,
            self.tight_bounds and other.tight_bounds,
        )


def joined_statistics(parts: Iterable[str | None], num_rows: int) -> str:
    """Statistics of several columns of a file, each of which was written alone.

    >>> parts = ('{"numRecords":2,"minValues":{"a":1}}', None, '{"numRecords":2,"nullCount":{"b":2}}')
    >>> joined_statistics(parts, 2)
    '{"numRecords":2,"minValues":{"a":1},"maxValues":{},"nullCount":{"b":2},"tightBounds":true}'
    """
    found = (msgspec.json.decode(part, type=_Statistics) for part in parts if part is not None)
    joined = reduce(or_, found, _Statistics())
    joined.num_records = num_rows
    return msgspec.json.encode(joined).decode()


def changed_statistics(old: str | None, new: str | None, names: Collection[str]) -> str | None:
    """The statistics of a file of which columns were written again.

    Args:
        old: those that it had.
        new: those of the columns that were written; None if files have none.
        names: these columns.

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
