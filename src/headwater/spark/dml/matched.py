"""Find the rows that a condition matches: whole files where the log can tell, else positions found by a narrow scan.

Candidates are chosen by partition values and statistics. Where the condition needs more, a scan reads its columns only.
Tasks turn the positions of matching rows into bitmaps, one a file, so that there is no shuffle and little reaches the
driver. From then on the positions say which rows are meant, so that a condition on the current time means the same rows
throughout the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.actions.deletion_vectors import to_bitmap
from headwater.spark.dml.condition import Condition, matching_files
from headwater.spark.functions import functions
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN
from headwater.spark.workers import in_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

    from headwater.spark.dml.target import DmlTarget, Positions, TargetFiles


_MANY_ROWS = 100_000
_MANY_TIMES = 4


@dataclass(frozen=True)
class Touched:
    """The rows that match."""

    files: TargetFiles
    """The candidates."""
    whole: list[int]
    """Those of which every row matches."""
    partial: Positions
    """The matching rows of others."""
    scan_ms: int
    """How long it took to find them."""

    def __bool__(self) -> bool:
        return bool(self.whole or self.partial)

    @property
    def numbers(self) -> list[int]:
        """All files with matching rows."""
        return sorted([*self.whole, *self.partial])

    @property
    def row_count(self) -> int | None:
        """How many rows match; None if the log does not count the rows of a whole file."""
        counts = [self.files.live_rows(number) for number in self.whole]
        if None in counts:
            return None
        return sum(count for count in counts if count is not None) + sum(map(len, self.partial.values()))

    @property
    def copied_rows(self) -> int | None:
        """How many rows of the partial files do not match; None if the log does not count their rows."""
        counts = [self.files.live_rows(number) for number in self.partial]
        if None in counts:
            return None
        return sum(count for count in counts if count is not None) - sum(map(len, self.partial.values()))

    @property
    def is_sparse(self) -> bool:
        """Whether the files hold many rows that do not match, and far fewer that do."""
        copied = self.copied_rows
        if self.whole or copied is None or copied < _MANY_ROWS:
            return False
        return copied > _MANY_TIMES * sum(map(len, self.partial.values()))


def find_touched(target: DmlTarget, condition: Condition, files: TargetFiles | None = None) -> Touched:
    """Find the rows that match. No data file is read for a condition on partition columns alone.

    Args:
        condition: what the rows match.
        files: the candidates of the condition, if they are known.
    """
    began_ms = target.elapsed_ms()
    files = target.candidates(condition.pruning) if files is None else files
    partitions = {name.lower() for name in target.snapshot.partition_columns}
    whole: list[int] = []
    positions: Positions = {}
    if condition.given is None:
        whole = list(range(len(files)))
    elif all(name.lower() in partitions for name in condition.analyzed.columns):
        whole = matching_files(target.spark, target.snapshot, files.table, condition.filtered)
    elif len(files):
        found = condition.filtered(target.rows(files, columns=sorted(condition.analyzed.columns)))
        positions = matched_positions(found)
        whole = [number for number, rows in positions.items() if len(rows) == files.live_rows(number)]
    partial = {number: rows for number, rows in positions.items() if number not in set(whole)}
    return Touched(files, whole, partial, target.elapsed_ms() - began_ms)


BITMAP_SCHEMA = "file int, rows binary"
"""One row for each file that a task has found rows of."""


def matched_positions(frame: DataFrame) -> dict[int, BitMap64]:
    """Return the positions of all rows of a DataFrame, by the number of their file. One Spark job.

    Args:
        frame: rows with `FILE_COLUMN` and `ROW_COLUMN`; other columns are not read. A row may be there several times.
    """
    sf = functions()
    located = frame.select(sf.col(FILE_COLUMN), sf.col(ROW_COLUMN))
    return united(in_workers(located, _bitmaps, BITMAP_SCHEMA).collect())


def united(found: list[Any]) -> dict[int, BitMap64]:
    """Unite what all tasks found (rows of `BITMAP_SCHEMA`), by the number of the file."""
    positions: dict[int, BitMap64] = {}
    for row in found:
        rows = to_bitmap(bytes(row["rows"]))
        if row["file"] in positions:
            positions[row["file"]] |= rows
        else:
            positions[row["file"]] = rows
    return dict(sorted(positions.items()))


def _bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the bitmaps of the rows of a task; made for `mapInArrow`."""
    import numpy as np
    import pyarrow.compute as pc
    from pyroaring import BitMap64

    found: dict[int, BitMap64] = {}
    for batch in batches:
        files, rows = batch.column(0), batch.column(1)
        for number in pc.unique(files).to_pylist():
            found.setdefault(number, BitMap64()).update(np.asarray(rows.filter(pc.equal(files, number))))
    yield bitmap_batch(found)


def bitmap_batch(found: dict[int, BitMap64]) -> pa.RecordBatch:
    """Return what a task has found as rows of `BITMAP_SCHEMA`."""
    import pyarrow as pa

    for rows in found.values():
        rows.run_optimize()
    numbers = pa.array(list(found), pa.int32())
    data = pa.array([rows.serialize() for rows in found.values()], pa.binary())
    return pa.RecordBatch.from_arrays([numbers, data], ["file", "rows"])
