"""The first pass of a MERGE: which rows of the target match, and what happens to them.

A narrow join (Spark reads only the columns of the conditions) gives pairs of rows: where the target's row is, which
row of the source matches it, and what a clause does about it. The driver gets positions, as bitmaps. From then on
these say which rows of the target are meant.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING

from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema.lookup import hidden
from headwater.spark.dml.merge_clauses import Action, When
from headwater.spark.dml.merge_source import SOURCE_ROW
from headwater.spark.dml.merge_view import CLAUSE, acting
from headwater.spark.dml.positions import matched_positions
from headwater.spark.functions import functions, observation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

    from headwater.spark.dml.merge_clauses import Clause
    from headwater.spark.dml.merge_view import Joined
    from headwater.spark.dml.target import Positions

MATCHED_ROW = hidden("matched_row")
"""The number of a source's row that matches something."""


class Fate(IntEnum):
    """What happens to a row of the target."""

    STAYS = 0
    """It matches, and no clause acts on it."""
    UPDATED = 1
    DELETED = 2
    UPDATED_UNMATCHED = 3
    """By a clause for rows that match nothing in the source."""
    DELETED_UNMATCHED = 4


_MATCHED = (Fate.UPDATED, Fate.DELETED)
SOURCE_NUMBER = -1
"""In the place of a file's number: the row is one of the source."""


@dataclass(frozen=True)
class Matches:
    """What the first pass has found.

    Attributes:
        positions: rows of the target, by what happens to them.
        pairs: how many times a row of the source acts on a matching row of the target.
        source_rows: how many rows of the source match something, if that was asked for.
    """

    positions: dict[Fate, Positions]
    pairs: int
    source_rows: int | None = None

    def rows(self, *fates: Fate) -> Positions:
        """The rows of the target that have one of these fates."""
        found: dict[int, BitMap64] = {}
        for fate in fates:
            for number, rows in self.positions.get(fate, {}).items():
                found[number] = found[number] | rows if number in found else rows
        return dict(sorted(found.items()))

    def count(self, *fates: Fate) -> int:
        """How many they are."""
        return sum(map(len, self.rows(*fates).values()))

    @property
    def updated(self) -> Positions:
        """All rows that get new values."""
        return self.rows(Fate.UPDATED, Fate.UPDATED_UNMATCHED)

    @property
    def deleted(self) -> Positions:
        """All rows that go."""
        return self.rows(Fate.DELETED, Fate.DELETED_UNMATCHED)

    @property
    def changed(self) -> Positions:
        """All rows that do not stay as they are."""
        return self.rows(*list(Fate)[1:])

    @property
    def is_ambiguous(self) -> bool:
        """Whether several rows of the source act on one row of the target."""
        return self.pairs > self.count(*_MATCHED)

    @property
    def is_one_to_one(self) -> bool:
        """Whether every row of the source surely acts on one row of the target at most, and the other way round."""
        return self.pairs == self.source_rows == self.count(*_MATCHED)


def pairs_of(view: Joined, clauses: tuple[Clause, ...], *, only_changes: bool) -> DataFrame:
    """Where rows of the target are, what happens to them, and the row of the source that they match, if they do.

    Args:
        view: target and source; with the target's rows that match nothing, if there are clauses for them.
        clauses: of the merge.
        only_changes: leave out the rows that stay as they are.
    """
    sf = functions()
    frame = view.with_clause(sf.coalesce(acting(clauses, When.MATCHED, _fate), sf.lit(int(Fate.STAYS))))
    fate = sf.col(CLAUSE)
    if any(clause.when is When.NOT_MATCHED_BY_SOURCE for clause in clauses):
        frame = frame.select(*view.target_columns, sf.col(SOURCE_ROW), fate)
        unmatched = acting(clauses, When.NOT_MATCHED_BY_SOURCE, _fate)
        fate = sf.when(sf.col(SOURCE_ROW).isNull(), unmatched).otherwise(fate)
    found = frame.select(sf.col(FILE_COLUMN), sf.col(ROW_COLUMN), sf.col(SOURCE_ROW), fate.alias(CLAUSE))
    return found.where(sf.col(CLAUSE) > int(Fate.STAYS) if only_changes else sf.col(CLAUSE).isNotNull())


def find_matches(pairs: DataFrame, *, counts_source: bool = False) -> Matches:
    """Collect the positions of the rows in pairs. One Spark job.

    Args:
        pairs: from `pairs_of`.
        counts_source: find out as well how many rows of the source are in pairs.
    """
    sf = functions()
    counted = _Counted(pairs)
    kinds = len(Fate)
    # The bitmaps are by file; here one file has a bitmap for each fate, and the source is one more.
    located = counted.frame.select(
        (sf.col(FILE_COLUMN) * kinds + sf.col(CLAUSE)).cast("int").alias(FILE_COLUMN), sf.col(ROW_COLUMN), SOURCE_ROW
    )
    if counts_source:
        row = sf.struct(sf.col(FILE_COLUMN), sf.col(ROW_COLUMN))
        source = sf.struct(sf.lit(SOURCE_NUMBER).alias(FILE_COLUMN), sf.col(SOURCE_ROW).alias(ROW_COLUMN))
        located = located.select(sf.inline(sf.array(row, source)))
    found = matched_positions(located)
    source_rows = len(found.pop(SOURCE_NUMBER, ())) if counts_source else None
    positions: dict[Fate, Positions] = {}
    for number, rows in found.items():
        positions.setdefault(Fate(number % kinds), {})[number // kinds] = rows
    return Matches(positions, counted.pairs if positions else 0, source_rows)


@contextmanager
def kept(pairs: DataFrame) -> Iterator[DataFrame]:
    """Pairs that are used more than once."""
    cached = pairs.persist()
    try:
        yield cached
    finally:
        cached.unpersist()


def matched_source_rows(pairs: DataFrame) -> DataFrame:
    """The numbers of the source's rows that match something, in a column `MATCHED_ROW`."""
    sf = functions()
    return pairs.where(sf.col(SOURCE_ROW).isNotNull()).select(sf.col(SOURCE_ROW).alias(MATCHED_ROW))


class _Counted:
    """Counts pairs in passing: bitmaps do not tell how often a row was there."""

    def __init__(self, pairs: DataFrame) -> None:
        sf = functions()
        self._observation = observation(pairs)
        is_counted = reduce(lambda one, other: one | other, [sf.col(CLAUSE) == int(fate) for fate in _MATCHED])
        self.frame = pairs.observe(self._observation, sf.count_if(is_counted).alias("pairs"))

    @property
    def pairs(self) -> int:
        """How many; known once the job has run."""
        return int(self._observation.get["pairs"])


def _fate(_number: int, clause: Clause) -> int:
    updates = clause.action is Action.UPDATE
    if clause.when is When.MATCHED:
        return int(Fate.UPDATED if updates else Fate.DELETED)
    return int(Fate.UPDATED_UNMATCHED if updates else Fate.DELETED_UNMATCHED)
