"""Splits of data files, as Python workers get them, and which rows of a file count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.log.schema.lookup import hidden
from headwater.spark.file_rows import END, PATH, SIZE, START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap64

ONLY_COLUMN = hidden("only_rows")
"""A column of splits: a deletion vector whose rows alone count, or null."""


class Split(NamedTuple):
    """A file, or a part of it."""

    uri: str
    size_bytes: int
    """Of the whole file."""
    start: int
    end: int
    """Row groups that begin between these offsets."""
    values: dict[str, pa.Scalar]
    """What else is known: partition values, deletion vectors, ..."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start == 0 and self.end >= self.size_bytes


def splits_of(batch: pa.RecordBatch) -> Iterator[Split]:
    """The splits that a batch lists."""
    plain = (PATH, SIZE, START, END)
    others = {name: batch.column(name) for name in batch.schema.names if name not in plain}
    columns = [batch.column(name).to_pylist() for name in plain]
    for position, (uri, size_bytes, start, end) in enumerate(zip(*columns, strict=True)):
        yield Split(uri, size_bytes, start, end, {name: column[position] for name, column in others.items()})


@dataclass(frozen=True)
class Counted:
    """Which rows of a file count."""

    deleted: BitMap64 | None
    only: BitMap64 | None

    def has_rows(self, start: int, end: int) -> bool:
        """Whether any row from `start` to before `end` may count: others need not be decoded."""
        return self.only is None or bool(self.only.range_cardinality(start, end))

    def of(self, batch: pa.RecordBatch, first_row: int, *, located: bool) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The rows of a batch that count; its first row is at `first_row`.

        With their positions in the file, if they are wanted.
        """
        if self.only is None and self.deleted is None and not located:
            return batch, None
        from pyroaring import BitMap64

        every = BitMap64(range(first_row, first_row + batch.num_rows))
        rows = every if self.only is None else every & self.only
        rows = rows if self.deleted is None else rows - self.deleted
        positions = _as_array(rows)
        if len(rows) == batch.num_rows:
            return batch, positions
        places = pa.compute.subtract(positions, first_row)
        if 2 * len(rows) < batch.num_rows:
            return batch.take(places), positions
        mask = np.zeros(batch.num_rows, bool)  # quicker than to gather most of the rows
        mask[places.to_numpy()] = True
        return batch.filter(pa.array(mask)), positions


def _as_array(rows: BitMap64) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.to_array())])
