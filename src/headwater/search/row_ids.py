"""Row ids: what an index says instead of row numbers, so that indexes can be merged without being written anew.

The upper half of an id is a random number of the split that first had the row, the lower half counts its rows. The ids
of two splits differ, so their segments can live in one index; a table of ranges then leads to the row numbers.
"""

from __future__ import annotations

import secrets
from array import array
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHIFT: Final = 32
MAX_ROWS: Final = 1 << _SHIFT
"""Rows that one split can have."""


def new_first_id() -> int:
    """The id of the first row of a new split."""
    return secrets.randbits(_SHIFT) << _SHIFT


def uint64s(values: Sequence[int]) -> pa.UInt64Array:
    """Numbers as an Arrow array, without the imports that `pa.array` makes."""
    return pa.UInt64Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(array("Q", values))])


def row_numbers(ids: Sequence[int], ranges: Sequence[tuple[int, int]]) -> pa.UInt64Array | None:
    """The row numbers of row ids; None if an id is in none of the ranges.

    Args:
        ids: row ids, in any order.
        ranges: the first id and the number of rows of each range, in the order of the rows.

    >>> row_numbers([3 << 32, 7 << 32 | 1], [(3 << 32, 10), (7 << 32, 2)]).to_pylist()
    [0, 11]
    """
    given = uint64s(ids)
    if len(ranges) == 1:
        first, count = ranges[0]
        numbers = pc.subtract(given, uint64s([first])[0])  # wraps around below `first`, and is too large then
        return numbers if not len(ids) or pc.max(numbers).as_py() < count else None
    owners = pc.index_in(
        pc.shift_right(given, uint64s([_SHIFT])[0]), value_set=uint64s([first >> _SHIFT for first, _ in ranges])
    )
    if owners.null_count:
        return None
    starts, counts, total = [], [], 0
    for _, count in ranges:
        starts.append(total)
        counts.append(count)
        total += count
    within = pc.bit_wise_and(given, uint64s([MAX_ROWS - 1])[0])
    inside = pc.all(pc.less(within, uint64s(counts).take(owners)), min_count=0).as_py()
    return pc.add(within, uint64s(starts).take(owners)) if inside else None
