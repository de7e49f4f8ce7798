"""Cells: how rows are dealt out to files so that a condition on any of some columns meets few files.

A Z-order or Hilbert curve puts rows on a line and cuts the line into files; where the number of files is no power of
two the cuts run across cells, and a file's bounds cover more than its rows. Here space itself is cut, as in a k-d tree:
into slabs along one column, each slab along the next one, until every cell is one file. All files are of the same
number of rows, and no two of them overlap in the column that parts them. With n files and d columns a point condition
on any column meets about n^(1 - 1/d) files, which is the best that a layout can do for all columns alike.

Cuts are chosen on a sample of the rows, by rank: how values are distributed does not matter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass
class CellTree:
    """A binary tree, as lists with a place for each node; node 0 is the root.

    A row at a node goes to `child` if its value is less than the cut (nulls are less than everything), else to the node
    after that.
    """

    column: list[int | None] = field(default_factory=list)
    """The column that a node cuts; None for leaves."""
    cut: list[int | None] = field(default_factory=list)
    """The rank of the least value that goes right."""
    child: list[int] = field(default_factory=list)
    """The left child; the right one is next to it. A leaf is its own child."""
    file: list[int] = field(default_factory=list)
    """Of a leaf: the number of the (first) file for its rows."""
    files: list[int] = field(default_factory=list)
    """Of a leaf: how many files share its rows, which no column can tell apart."""
    place: list[int] = field(default_factory=list)
    """Of a leaf: its place in the order of all leaves; neighbours are close to each other."""
    depth: list[int] = field(default_factory=list)
    num_files: int = 0

    def levels(self) -> Iterator[list[int]]:
        """The columns that are cut, level after level; [] at none."""
        for level in range(max(self.depth, default=0)):
            cut = (c for c, depth in zip(self.column, self.depth, strict=True) if depth == level and c is not None)
            yield sorted(set(cut))

    def find(self, ranks: Sequence[int]) -> int:
        """The leaf of one row, by the ranks of its values; -1 for null."""
        node = 0
        while (column := self.column[node]) is not None:
            cut = self.cut[node]
            assert cut is not None, "an inner node has a cut"
            node = self.child[node] + (ranks[column] >= cut)
        return node


def grow(ranks: Sequence[pa.Array], num_files: int, cells_per_file: int = 1) -> CellTree:
    """Cut space into cells.

    Args:
        ranks: for each column the rank of its value in each row of a sample, -1 for null; the first column is cut into
            more parts than the others, where the number of files does not allow for the same.
        num_files: how many files to fill evenly.
        cells_per_file: how many parts each file has, which are close together in it.
    """
    assert num_files >= 1
    assert cells_per_file >= 1
    grower = _Grower(ranks, cells_per_file)
    rows = pa.array(range(len(ranks[0])), pa.int64())
    grower.grow(grower.new_node(0), _Cell(rows, num_files, grower.all_columns, None))
    grower.tree.num_files = num_files
    return grower.tree


@dataclass(frozen=True, slots=True)
class _Cell:
    """A part of space that is still to be cut."""

    rows: pa.Array
    """The rows of the sample in it."""
    parts: int
    """Into how many parts: files, or parts of a file."""
    columns: tuple[int, ...]
    """Those that it was not cut along in this round."""
    file: int | None
    """The file that it is a part of, once that is known."""


@dataclass(frozen=True, slots=True)
class _Slabs:
    column: int
    rows: list[pa.Array]
    cuts: list[int]
    """The least ranks of all slabs but the first."""
    parts: list[int]
    """For each slab, into how many parts it is cut further."""


class _Grower:
    def __init__(self, ranks: Sequence[pa.Array], cells_per_file: int) -> None:
        self.tree = CellTree()
        self.all_columns = tuple(range(len(ranks)))
        self._ranks = ranks
        self._cells_per_file = cells_per_file
        self._next_file = 0
        self._next_place = 0

    def new_node(self, depth: int) -> int:
        tree = self.tree
        node = len(tree.child)
        tree.column.append(None)
        tree.cut.append(None)
        tree.child.append(node)
        for values in (tree.file, tree.files, tree.place):
            values.append(0)
        tree.depth.append(depth)
        return node

    def grow(self, node: int, cell: _Cell) -> None:
        if cell.parts == 1:
            if cell.file is None and self._cells_per_file > 1:
                file = self._take_files(1)
                self.grow(node, _Cell(cell.rows, self._cells_per_file, self.all_columns, file))
            else:
                self._leaf(node, cell)
            return
        slabs = self._slabs(cell)
        if slabs is None:  # no column tells these rows apart
            self._leaf(node, cell)
            return
        rest = tuple(column for column in cell.columns if column != slabs.column)
        cells = [
            _Cell(rows, parts, rest or self.all_columns, cell.file)
            for rows, parts in zip(slabs.rows, slabs.parts, strict=True)
        ]
        self._branch(node, slabs, cells, 0)

    def _branch(self, node: int, slabs: _Slabs, cells: list[_Cell], first: int) -> None:
        """A balanced binary tree over some slabs, of which the first has the given number."""
        if len(cells) == 1:
            self.grow(node, cells[0])
            return
        middle = len(cells) // 2
        depth = self.tree.depth[node] + 1
        left, right = self.new_node(depth), self.new_node(depth)
        self.tree.column[node] = slabs.column
        self.tree.cut[node] = slabs.cuts[first + middle - 1]
        self.tree.child[node] = left
        self._branch(left, slabs, cells[:middle], first)
        self._branch(right, slabs, cells[middle:], first + middle)

    def _leaf(self, node: int, cell: _Cell) -> None:
        shared = cell.parts if cell.file is None else 1
        self.tree.file[node] = self._take_files(shared) if cell.file is None else cell.file
        self.tree.files[node] = shared
        self.tree.place[node] = self._next_place
        self._next_place += 1

    def _take_files(self, number: int) -> int:
        first = self._next_file
        self._next_file += number
        return first

    def _slabs(self, cell: _Cell) -> _Slabs | None:
        """The slabs of a cell along the column whose turn it is, or along any that has more than one value."""
        left = list(cell.columns)
        while left:
            # From the last column to the first: what does not come out even goes to the first one.
            wanted = cell.parts if len(left) == 1 else round(cell.parts ** (1 / len(left)))
            column = left.pop()
            found = self._cut(cell, column, wanted) if wanted > 1 else None
            if found is not None:
                return found
        for column in self.all_columns:
            found = self._cut(cell, column, cell.parts)
            if found is not None:
                return found
        return None

    def _cut(self, cell: _Cell, column: int, wanted: int) -> _Slabs | None:
        values = self._ranks[column].take(cell.rows)
        order = pc.sort_indices(values)
        ascending = values.take(order).to_pylist()
        if not ascending or ascending[0] == ascending[-1]:
            return None
        bounds = _bounds(ascending, wanted, cell.parts)
        rows = cell.rows.take(order)
        parts = shared_out([end - start for start, end in pairwise(bounds)], cell.parts)
        return _Slabs(
            column,
            [rows.slice(start, end - start) for start, end in pairwise(bounds)],
            [ascending[bound] for bound in bounds[1:-1]],
            parts,
        )


def _bounds(ascending: list[int], wanted: int, parts: int) -> list[int]:
    """Where slabs begin and end, in rows in the order of a column: rows with equal values stay together."""
    total = len(ascending)
    bounds = [0]
    for before in list(accumulate(_evenly(parts, wanted)))[:-1]:
        ideal = min(total * before // parts, total - 1)
        value = ascending[ideal]
        start, end = bisect_left(ascending, value), bisect_right(ascending, value)
        bound = start if ideal - start <= end - ideal else end
        if bounds[-1] < bound < total:
            bounds.append(bound)
    if len(bounds) == 1:  # every cut would have been nearer to an end than to a change of values
        bounds.append(bisect_right(ascending, ascending[0]))
    return [*bounds, total]


def _evenly(number: int, parts: int) -> list[int]:
    """A number as a sum of nearly equal ones.

    >>> _evenly(10, 3)
    [4, 3, 3]
    """
    whole, rest = divmod(number, parts)
    return [whole + (i < rest) for i in range(parts)]


def shared_out(weights: Sequence[int], number: int) -> list[int]:
    """A number as a sum, by weight; no part gets nothing.

    >>> shared_out([10, 10, 30], 5)
    [1, 1, 3]
    """
    assert number >= len(weights)
    total = sum(weights)
    exact = [number * weight / total for weight in weights]
    shares = [max(1, int(share)) for share in exact]
    step = 1 if sum(shares) < number else -1
    # The part that is furthest from its due gets one more, or gives one.
    waiting = [
        (step * (share - due), i)
        for i, (share, due) in enumerate(zip(shares, exact, strict=True))
        if step > 0 or share > 1
    ]
    heapify(waiting)
    for _ in range(abs(number - sum(shares))):
        distance, chosen = heappop(waiting)
        shares[chosen] += step
        if step > 0 or shares[chosen] > 1:
            heappush(waiting, (distance + 1, chosen))
    return shares
