"""Bin packing: which small files become one large file.

Files of one partition are taken in the order in which they were written, so that rows which came together stay
together and the bounds of their values stay narrow. Two neighbouring bins never fit into one. Columns of Arrow all the
way: a table may have a million small files.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP, _SIZE, _TIME, _PATH, _NUMBER = "group", "size", "time", "path", "number"


def pack(groups: pa.Array, files: pa.Table, max_bytes: int | None) -> list[pa.Array]:
    """Put files into bins.

    Args:
        groups: a text for each file; only files with the same text may share a bin.
        files: with the columns `size`, `modificationTime` and `path` of the log.
        max_bytes: what a bin may hold (a larger file has a bin of its own); None for one bin a group.

    Returns:
        The numbers of the files in each bin; every file is in just one.
    """
    if not files.num_rows:
        return []
    ordered = pa.table(
        {
            _GROUP: groups,
            _TIME: files.column("modificationTime"),
            _PATH: files.column("path"),
            _SIZE: files.column("size"),
            _NUMBER: pa.array(range(files.num_rows), pa.int64()),
        }
    ).sort_by([(_GROUP, "ascending"), (_TIME, "ascending"), (_PATH, "ascending")])
    ends = pc.cumulative_sum(ordered.column(_SIZE).combine_chunks()).to_pylist()
    numbers = ordered.column(_NUMBER).combine_chunks()
    bins = []
    for start, end in _runs(ordered.column(_GROUP).combine_chunks()):
        for first, last in _cuts(ends, start, end, max_bytes):
            bins.append(numbers.slice(first, last - first))
    return bins


def _runs(groups: pa.Array) -> Iterator[tuple[int, int]]:
    """Where the files of a group begin and end; they stand together."""
    changes = pc.indices_nonzero(pc.not_equal(groups.slice(1), groups.slice(0, len(groups) - 1))).to_pylist()
    bounds = [0, *(change + 1 for change in changes), len(groups)]
    yield from pairwise(bounds)


def _cuts(ends: list[int], start: int, end: int, max_bytes: int | None) -> Iterator[tuple[int, int]]:
    """Where the bins of a group begin and end, by the sums of sizes up to each file."""
    if max_bytes is None:
        yield start, end
        return
    while start < end:
        before = ends[start - 1] if start else 0
        last = max(bisect_right(ends, before + max_bytes, start, end), start + 1)
        yield start, last
        start = last
