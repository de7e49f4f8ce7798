"""The cells of `optimize_cells` in Spark: values become ranks on a sample, and rows find their file by expressions.

Nothing but a bounded sample of the ordering columns comes to the driver; every row finds its cell on the JVM, a
projection for each level of the tree, and one shuffle brings the rows of a file together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import WriteOptionError
from headwater.log.schema import DATE, TIMESTAMP, TIMESTAMP_NTZ, DecimalType, is_string
from headwater.log.schema.lookup import dotted, hidden
from headwater.log.schema.types import BYTE, DOUBLE, FLOAT, INTEGER, LONG, SHORT
from headwater.spark.columns import quoted
from headwater.spark.functions import functions
from headwater.spark.maintenance.optimize_cells import grow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.log.schema import DataType
    from headwater.spark.maintenance.optimize_cells import CellTree

FILE = hidden("out_file")
PLACE = hidden("place")
_NODE = hidden("node")
_WHOLE_ROWS = 100_000
"""Of a table with so few rows all are looked at."""
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
        """The value; where types are wider than a long, as a double: what is equal then stays together."""
        sf = functions()
        column: Column = sf.col(".".join(map(quoted, self.path)))
        if self.type == DATE:
            column = sf.unix_date(column)
        elif self.type in (TIMESTAMP, TIMESTAMP_NTZ):
            column = sf.unix_micros(column.cast("timestamp"))
        return column.cast(self.kind)

    def sampled(self) -> Column:
        """The value, as far as the sample needs it."""
        sf = functions()
        value: Column = sf.substring(self.value(), 1, _KEPT_CHARACTERS) if self.kind == "string" else self.value()
        return value


def check_ordering(path: Sequence[str], type_: DataType) -> OrderingColumn:
    """A column to lay rows out by.

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
    """The rows of a frame, each task having those of one file, near ones next to each other.

    Args:
        frame: the rows.
        columns: to order them by.
        num_files: how many tasks there shall be.
        cells_per_file: how many parts of a file are told apart.
        num_rows: about how many rows there are.
    """
    sample = _sample(frame, columns, num_files * cells_per_file, num_rows)
    values = [_distinct(column) for column in sample.columns]
    ranks = [_ranks(column, distinct) for column, distinct in zip(sample.columns, values, strict=True)]
    tree = grow(ranks, num_files, cells_per_file)
    placed = _with_cells(frame, columns, tree, values)
    if hasattr(placed, "repartitionById"):
        dealt = placed.repartitionById(num_files, functions().col(FILE))
    else:  # Spark 4.0: ranges of so few numbers are the numbers themselves
        dealt = placed.repartitionByRange(num_files, FILE)
    return dealt.sortWithinPartitions(PLACE).drop(PLACE, FILE) if cells_per_file > 1 else dealt.drop(PLACE, FILE)


def _sample(frame: DataFrame, columns: Sequence[OrderingColumn], cells: int, num_rows: int) -> pa.Table:
    wanted = min(max(cells * _SAMPLED_PER_CELL, _WHOLE_ROWS), _MAX_SAMPLE)
    keys = frame.select(*(column.sampled().alias(str(i)) for i, column in enumerate(columns)))
    chosen = keys if num_rows <= wanted else keys.sample(wanted / num_rows, _SEED)
    found: pa.Table = chosen.toArrow()
    return found


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """The values, ascending; NaN counts as infinite, as which Spark orders it."""
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
    """The frame with the file and the place of each row."""
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
    """A constant array, made by one call: an element at a time would be as many calls to the JVM."""
    sf = functions()
    constant: Column = sf.from_json(sf.lit(json.dumps(list(values))), f"array<{type_}>")
    return constant
