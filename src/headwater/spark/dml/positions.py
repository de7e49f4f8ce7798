"""Which rows a command has found: their positions, as one bitmap a file.

The rows come from a scan that knows where they are (`headwater.spark.row_locations`). Tasks turn their positions into
bitmaps, so that there is no shuffle and little reaches the driver, which only unites them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.log.deletion_vectors import to_bitmap
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.spark.functions import functions
from headwater.spark.workers import in_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

BITMAP_SCHEMA = "file int, rows binary"
"""One row for each file that a task has found rows of."""


def matched_positions(frame: DataFrame) -> dict[int, BitMap64]:
    """The positions of all rows of a DataFrame, by the number of their file. One Spark job.

    Args:
        frame: rows of the table with the columns that say where they are; the other columns are not read.
            A row may be there several times.
    """
    sf = functions()
    located = frame.select(sf.col(FILE_COLUMN), sf.col(ROW_COLUMN))
    return united(in_workers(located, _bitmaps, BITMAP_SCHEMA).collect())


def united(found: list[Any]) -> dict[int, BitMap64]:
    """What all tasks have found together, by the number of the file.

    Args:
        found: rows of `BITMAP_SCHEMA`.
    """
    positions: dict[int, BitMap64] = {}
    for row in found:
        rows = to_bitmap(bytes(row["rows"]))
        if row["file"] in positions:
            positions[row["file"]] |= rows
        else:
            positions[row["file"]] = rows
    return dict(sorted(positions.items()))


def _bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The bitmaps of the rows that a task meets; made for `mapInArrow`."""
    found: dict[int, BitMap64] = {}
    for batch in batches:
        add_positions(found, batch.column(0), batch.column(1))
    yield bitmap_batch(found)


def add_positions(
    found: dict[int, BitMap64], files: pa.Array | pa.ChunkedArray, rows: pa.Array | pa.ChunkedArray
) -> None:
    """Add rows to what a task has found.

    Args:
        found: positions by the number of the file.
        files: the number of each row's file.
        rows: the position of each row.
    """
    import numpy as np
    import pyarrow.compute as pc
    from pyroaring import BitMap64

    for number in pc.unique(files).to_pylist():
        own = rows.filter(pc.equal(files, number))
        found.setdefault(number, BitMap64()).update(np.asarray(own))


def bitmap_batch(found: dict[int, BitMap64]) -> pa.RecordBatch:
    """What a task has found, as rows of `BITMAP_SCHEMA`."""
    import pyarrow as pa

    for rows in found.values():
        rows.run_optimize()
    numbers = pa.array(list(found), pa.int32())
    data = pa.array([rows.serialize() for rows in found.values()], pa.binary())
    return pa.RecordBatch.from_arrays([numbers, data], ["file", "rows"])
