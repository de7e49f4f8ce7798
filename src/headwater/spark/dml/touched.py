"""Which rows a condition matches: whole files where the log can tell, else positions found by a narrow scan.

Candidates are chosen by partition values and statistics. Where the condition needs more, the scan reads its columns
only, and gives back the positions of the rows: from then on they say which rows are meant, so that a condition on the
current time means the same rows throughout the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.spark.dml.partitions import matching_files
from headwater.spark.read_filter import Selection

if TYPE_CHECKING:
    from headwater.spark.dml.condition import Condition
    from headwater.spark.dml.target import DmlTarget, Positions
    from headwater.spark.dml.target_files import TargetFiles

_MANY_ROWS = 100_000
_MANY_TIMES = 4


@dataclass(frozen=True)
class Touched:
    """The rows that match."""

    files: TargetFiles
    """The files that may hold matching rows."""
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
        """How many rows match; None if the log does not say how many rows a whole file has."""
        counts = [self.files.live_rows(number) for number in self.whole]
        if None in counts:
            return None
        return sum(count for count in counts if count is not None) + sum(map(len, self.partial.values()))

    @property
    def copied_rows(self) -> int | None:
        """How many rows of the files do not match; None if the log does not say how many rows they have."""
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


def find_touched(target: DmlTarget, condition: Condition) -> Touched:
    """Find the rows that match. No data file is read for a condition on partition columns alone."""
    began_ms = target.elapsed_ms()
    files = target.candidates(condition.pruning)
    partitions = {name.lower() for name in target.snapshot.partition_columns}
    whole: list[int] = []
    positions: Positions = {}
    if condition.given is None:
        whole = list(range(len(files)))
    elif all(name.lower() in partitions for name in condition.analyzed.columns):
        whole = matching_files(target.spark, target.snapshot, files.table, condition.filtered)
    elif len(files):
        selection = Selection(columns=tuple(sorted(condition.analyzed.columns)))
        found = condition.filtered(target.rows(files, selection=selection))
        positions = target.matched_positions(found)
        whole = [number for number, rows in positions.items() if len(rows) == files.live_rows(number)]
    partial = {number: rows for number, rows in positions.items() if number not in set(whole)}
    return Touched(files, whole, partial, target.elapsed_ms() - began_ms)
