"""Lay rows out in files, so that a condition on any of some columns reads few files.

A Z-order or Hilbert curve puts rows on a line and cuts the line into files; where the number of files is not a power
of two the cuts run across cells, and a file's bounds cover more than its rows. Here space itself is cut, as in a k-d
tree: into slabs along one column, each slab along the next one, until every cell is one file. All files have the
same number of rows, and no two of them overlap in the column that parts them. With n files and d columns a point
condition on any column reads about n^(1 - 1/d) files, which is the best that a layout can do for all columns alike.

Cuts are chosen on a bounded sample of the ordering columns, by rank: how values are distributed does not matter. Every
row finds its cell on the JVM, by a projection for each level of the tree, and one shuffle brings the rows of a file
together.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import WriteOptionError
from headwater.log.schema import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType, DecimalType, is_string
from headwater.log.schema.types import BYTE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, dotted, hidden, quoted
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame


FILE = hidden("out_file")
PLACE = hidden("place")
_NODE = hidden("node")
_WHOLE_ROWS = 100_000
"""Tables with at most this many rows are not sampled."""
_SAMPLED_PER_CELL = 300
_MAX_SAMPLE = 1_000_000
_SEED = 20_240_131
_KEPT_CHARACTERS = 64
"""Of texts; statistics keep fewer."""


@dataclass(frozen=True)
class OrderingColumn:
    """A column by which rows are laid out, as a value that the driver orders as Spark does."""

    path: tuple[str, ...]
    """Its logical name."""
    type: DataType

    @property
    def kind(self) -> str:
        """Spark's type of the value."""
        if is_string(self.type):
            return "string"
        return "double" if self.type in (FLOAT, DOUBLE) or isinstance(self.type, DecimalType) else "bigint"

    def value(self) -> Column:
        """Return the value; types wider than a long become a double, in which equal values stay together."""
        sf = functions()
        column: Column = sf.col(".".join(map(quoted, self.path)))
        if self.type == DATE:
            column = sf.unix_date(column)
        elif self.type in (TIMESTAMP, TIMESTAMP_NTZ):
            column = sf.unix_micros(column.cast("timestamp"))
        return column.cast(self.kind)

    def sampled(self) -> Column:
        """Return the value, as far as the sample needs it."""
        sf = functions()
        value: Column = sf.substring(self.value(), 1, _KEPT_CHARACTERS) if self.kind == "string" else self.value()
        return value


def check_ordering(path: Sequence[str], type_: DataType) -> OrderingColumn:
    """Return a column to lay rows out by.

    Raises:
        WriteOptionError: values of its type have no bounds in statistics, so their order is of no use.
    """
    ordered = type_ in (BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ)
    if ordered or isinstance(type_, DecimalType) or is_string(type_):
        return OrderingColumn(tuple(path), type_)
    raise WriteOptionError(
        f"rows cannot be ordered by {dotted(tuple(path))}: a column of type {type_} has no minimum and maximum in the "
        "statistics of files, so no reader could skip a file by it."
    )


def laid_out(
    frame: DataFrame, columns: Sequence[OrderingColumn], num_files: int, cells_per_file: int, num_rows: int
) -> DataFrame:
    """Return the rows of a frame, each task having those of one file, with close ones next to each other.

    Args:
        columns: to order them by.
        num_files: how many tasks there are.
        cells_per_file: how many parts of a file are told apart.
        num_rows: about how many rows there are.
    """
    sample = _sample(frame, columns, num_files * cells_per_file, num_rows)
    values = [_distinct(column) for column in sample.columns]
    ranks = [_ranks(column, distinct) for column, distinct in zip(sample.columns, values, strict=True)]
    tree = grow(ranks, num_files, cells_per_file)
    placed = _with_cells(frame, columns, tree, values)
    if hasattr(placed, "repartitionById"):
        grouped = placed.repartitionById(num_files, functions().col(FILE))
    else:  # Spark 4.0: ranges of so few numbers are the numbers themselves
        grouped = placed.repartitionByRange(num_files, FILE)
    return grouped.sortWithinPartitions(PLACE).drop(PLACE, FILE) if cells_per_file > 1 else grouped.drop(PLACE, FILE)


def _sample(frame: DataFrame, columns: Sequence[OrderingColumn], cells: int, num_rows: int) -> pa.Table:
    wanted = min(max(cells * _SAMPLED_PER_CELL, _WHOLE_ROWS), _MAX_SAMPLE)
    keys = frame.select(*(column.sampled().alias(str(i)) for i, column in enumerate(columns)))
    chosen = keys if num_rows <= wanted else keys.sample(wanted / num_rows, _SEED)
    found: pa.Table = chosen.toArrow()
    return found


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """Return the values, ascending; NaN counts as infinite, as Spark orders it."""
    return pc.unique(_finite(column)).drop_null().sort()


def _ranks(column: pa.ChunkedArray, distinct: pa.Array) -> pa.Array:
    return pc.fill_null(pc.index_in(_finite(column), value_set=distinct), -1)


def _finite(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # no chunk at all
        values = pa.array([], column.type)
    return pc.if_else(pc.is_nan(values), float("inf"), values) if pa.types.is_floating(values.type) else values


def _with_cells(
    frame: DataFrame, columns: Sequence[OrderingColumn], tree: CellTree, values: Sequence[pa.Array]
) -> DataFrame:
    """Add the file and the place of each row to the frame."""
    sf = functions()
    cuts = [
        _array(
            [
                None if c != number or cut is None else distinct[cut].as_py()
                for c, cut in zip(tree.column, tree.cut, strict=True)
            ],
            column.kind,
        )
        for number, (column, distinct) in enumerate(zip(columns, values, strict=True))
    ]
    child = _array(tree.child, "int")
    frame = frame.withColumn(_NODE, sf.lit(0))
    for level in tree.levels():
        node = sf.col(_NODE)
        goes_right = (columns[number].value() >= sf.get(cuts[number], node) for number in level)
        step = sf.coalesce(*goes_right, sf.lit(False)).cast("int")
        frame = frame.withColumn(_NODE, sf.get(child, node) + step)
    node = sf.col(_NODE)
    file = sf.get(_array(tree.file, "int"), node)
    if any(shared > 1 for shared in tree.files):
        turn = sf.monotonically_increasing_id() % sf.get(_array(tree.files, "int"), node)
        file = file + turn.cast("int")
    place = sf.get(_array(tree.place, "int"), node)
    # Files of leaves only: at inner nodes no row is left.
    return frame.withColumn(FILE, file).withColumn(PLACE, place).drop(_NODE)


def _array(values: Sequence[Any], type_: str) -> Column:
    """Return a constant array in one call: an element at a time would be as many calls to the JVM."""
    sf = functions()
    constant: Column = sf.from_json(sf.lit(json.dumps(list(values))), f"array<{type_}>")
    return constant


@dataclass
class CellTree:
    """A binary tree, as lists with an entry for each node; node 0 is the root.

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
        """Yield the columns that are cut, level after level; [] for none."""
        for level in range(max(self.depth, default=0)):
            cut = (c for c, depth in zip(self.column, self.depth, strict=True) if depth == level and c is not None)
            yield sorted(set(cut))

    def find(self, ranks: Sequence[int]) -> int:
        """Return the leaf of one row, by the ranks of its values; -1 for null."""
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
    """Into how many files, or parts of a file, it is cut."""
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
        """Grow a balanced binary tree over some slabs, beginning with number `first`."""
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
        """Cut a cell along the next column, or along any that has more than one value."""
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
    """Return where slabs begin and end, in rows in the order of a column: rows with equal values stay together."""
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
    """Split a number into nearly equal parts.

    >>> _evenly(10, 3)
    [4, 3, 3]
    """
    whole, rest = divmod(number, parts)
    return [whole + (i < rest) for i in range(parts)]


def shared_out(weights: Sequence[int], number: int) -> list[int]:
    """Split a number by weight; every part gets at least 1.

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
