"""Row groups put together from batches that pass by in another order.

A row group is given out as soon as all its rows have been seen. What arrives in order is given out at once; what does
not waits here, and the caller bounds how much that can be by taking only some of the row groups in one pass.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP_ROWS = 65_536
_POOL = pa.system_memory_pool()


class RowGroupAssembler:
    """Collects the rows whose places are from `first` to before `last`.

    Args:
        first: a multiple of the size of row groups.
        last: another one, or the number of all rows.
        group_rows: the size of row groups.
    """

    def __init__(self, first: int, last: int, group_rows: int) -> None:
        self._first, self._last, self._group_rows = first, last, group_rows
        self._seen: defaultdict[int, int] = defaultdict(int)
        self._waiting: defaultdict[int, list[tuple[pa.RecordBatch, pa.Array]]] = defaultdict(list)

    def add(
        self, batch: pa.RecordBatch, live: pa.Array, places: pa.Array, numbers: pa.Array | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Take what belongs here out of a batch, and give out the row groups that are complete now.

        Args:
            batch: some rows.
            live: which of them still count (booleans); the others only take their place.
            places: the place of each (`uint64`).
            numbers: the rows that have a place, ascending, if not all of them have.
        """
        ascending = pc.all(pc.less(places[:-1], places[1:])).as_py()
        order = None if ascending else pc.sort_indices(places)
        places = places if order is None else places.take(order)
        sorted_places = _numbers(places)
        start, end = bisect_left(sorted_places, self._first), bisect_left(sorted_places, self._last)
        if start == end:
            return
        rows = _range(start, end) if order is None else order.slice(start, end - start)
        rows = rows if numbers is None else numbers.take(rows)
        kept = live.take(rows)
        if kept.true_count == len(batch) and order is None:
            taken, of_taken = batch, places
        else:
            taken, of_taken = (
                pc.take(batch, rows.filter(kept), memory_pool=_POOL),
                places.slice(start, end - start).filter(kept),
            )
        groups = range(sorted_places[start] // self._group_rows, sorted_places[end - 1] // self._group_rows + 1)
        taken_places = _numbers(of_taken)
        for group in groups:
            low, high = group * self._group_rows, min((group + 1) * self._group_rows, self._last)
            self._seen[group] += bisect_left(sorted_places, high) - bisect_left(sorted_places, low)
            a, b = bisect_left(taken_places, low), bisect_left(taken_places, high)
            if b > a:
                self._waiting[group].append((taken.slice(a, b - a), of_taken.slice(a, b - a)))
            if self._seen[group] == high - low:
                yield from self._complete(group)

    def _complete(self, group: int) -> Iterator[pa.RecordBatch]:
        pieces = self._waiting.pop(group, [])
        del self._seen[group]
        if not pieces:
            return
        if len(pieces) == 1:
            yield pieces[0][0]
            return
        whole = pa.concat_batches([batch for batch, _ in pieces], memory_pool=_POOL)
        places = pa.concat_arrays([of_piece for _, of_piece in pieces])
        if pc.all(pc.less(places[:-1], places[1:])).as_py():
            yield whole
        else:
            yield pc.take(whole, pc.sort_indices(places), memory_pool=_POOL)


def _numbers(values: pa.Array) -> memoryview:
    """An array of `uint64` without nulls, for a binary search."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return memoryview(b"").cast("Q")
    return memoryview(data)[values.offset * 8 : (values.offset + len(values)) * 8].cast("Q")


def _range(start: int, end: int) -> pa.Array:
    """The numbers from `start` to before `end`."""
    return pa.Array.from_buffers(pa.uint64(), end - start, [None, pa.py_buffer(array("Q", range(start, end)))])


def in_order(start: int, count: int) -> pa.Array:
    """The places of rows that stay where they are."""
    return _range(start, start + count)
