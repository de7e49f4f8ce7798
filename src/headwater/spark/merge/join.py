"""Run the first pass of a MERGE: which rows of the target match, and what happens to them.

A narrow join (Spark reads only the columns of the conditions) gives pairs of rows: where the target's row is, which
row of the source matches it, and which clause acts. The driver gets positions, as bitmaps; from then on these say which
rows of the target are meant.

Names in conditions and values are resolved by Spark in the view that a clause has: both sides (matched), the source
alone (not matched), or the target alone (not matched by source). So a name that both sides have is only ambiguous where
both are visible.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from headwater.log.schema.types import hidden, quoted
from headwater.spark.dml.condition import explained
from headwater.spark.dml.matched import matched_positions
from headwater.spark.functions import functions, observation
from headwater.spark.merge.clauses import Action, Clause, SqlOrColumn, When
from headwater.spark.merge.source import SOURCE_ROW
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyroaring import BitMap64
    from pyspark.sql import Column, DataFrame

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
"""Takes the place of a file's number for rows of the source."""


@dataclass(frozen=True)
class Matches:
    """What the first pass has found.

    Attributes:
        positions: rows of the target, by what happens to them.
        pairs: how many times a row of the source acts on a matching row of the target.
        source_rows: how many rows of the source match something, if they were counted.
    """

    positions: dict[Fate, Positions]
    pairs: int
    source_rows: int | None = None

    def rows(self, *fates: Fate) -> Positions:
        """Return the rows of the target that have one of these fates."""
        found: dict[int, BitMap64] = {}
        for fate in fates:
            for number, rows in self.positions.get(fate, {}).items():
                found[number] = found[number] | rows if number in found else rows
        return dict(sorted(found.items()))

    def count(self, *fates: Fate) -> int:
        return sum(map(len, self.rows(*fates).values()))

    @property
    def updated(self) -> Positions:
        return self.rows(Fate.UPDATED, Fate.UPDATED_UNMATCHED)

    @property
    def deleted(self) -> Positions:
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
        """Whether every row of the source acts on one row of the target at most, and the other way round."""
        return self.pairs == self.source_rows == self.count(*_MATCHED)


def pairs_of(view: Joined, clauses: tuple[Clause, ...], *, only_changes: bool) -> DataFrame:
    """Return positions of the target's rows, what happens to them, and the row of the source that they match, if any.

    Args:
        view: target and source; with the target's rows that match nothing, if there are clauses for them.
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
        counts_source: also count the rows of the source that are in pairs.
    """
    sf = functions()
    counted = observation(pairs)  # bitmaps do not tell how often a row was there
    is_counted = sf.col(CLAUSE).isin(*map(int, _MATCHED))
    pairs = pairs.observe(counted, sf.count_if(is_counted).alias("pairs"))
    kinds = len(Fate)
    # The bitmaps are by file; here one file has a bitmap for each fate, and the source is one more.
    located = pairs.select(
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
    return Matches(positions, int(counted.get["pairs"]) if positions else 0, source_rows)


@contextmanager
def kept(pairs: DataFrame) -> Iterator[DataFrame]:
    """Cache pairs that are used more than once."""
    cached = pairs.persist()
    try:
        yield cached
    finally:
        cached.unpersist()


def matched_source_rows(pairs: DataFrame) -> DataFrame:
    """Return the numbers of the source's rows that match something, in a column `MATCHED_ROW`."""
    sf = functions()
    return pairs.where(sf.col(SOURCE_ROW).isNotNull()).select(sf.col(SOURCE_ROW).alias(MATCHED_ROW))


def _fate(_number: int, clause: Clause) -> int:
    updates = clause.action is Action.UPDATE
    if clause.when is When.MATCHED:
        return int(Fate.UPDATED if updates else Fate.DELETED)
    return int(Fate.UPDATED_UNMATCHED if updates else Fate.DELETED_UNMATCHED)


CLAUSE = hidden("clause")
"""What acts on a row: a number that the caller chooses; null for nothing."""


@dataclass(frozen=True)
class Joined:
    """Rows of the target with the rows of the source that match them."""

    frame: DataFrame
    target: DataFrame
    source: DataFrame

    @property
    def target_columns(self) -> list[Column]:
        return [self.target[quoted(name)] for name in self.target.columns]

    @property
    def source_columns(self) -> list[Column]:
        return [self.source[quoted(name)] for name in self.source.columns]

    def with_clause(self, acting: Column) -> DataFrame:
        """Return the rows of both sides, and what acts on those that match."""
        sf = functions()
        is_match = self.source[SOURCE_ROW].isNotNull()
        return self.frame.select(*self.target_columns, *self.source_columns, sf.when(is_match, acting).alias(CLAUSE))


def joined(
    target: DataFrame, source: DataFrame, condition: SqlOrColumn, *, keeps_target: bool, is_small: bool
) -> Joined:
    """Join target and source.

    Args:
        target: rows of the table, under its alias.
        condition: when rows match.
        keeps_target: keep the target's rows that match nothing.
        is_small: broadcast the source.

    Raises:
        ColumnNotFoundError: the condition names a column that neither side has.
        FilterError: Spark does not understand the condition.
    """
    from pyspark.errors import PySparkException

    sf = functions()
    on = (sf.expr(condition) if isinstance(condition, str) else condition).cast("boolean")
    other = sf.broadcast(source) if is_small else source
    try:
        frame = target.join(other, on, "left" if keeps_target else "inner")
        assert frame.schema is not None  # Spark Connect looks at expressions no earlier
    except PySparkException as error:
        raise explained(error, "the condition of MERGE") from error
    return Joined(frame, target, source)


def acting(clauses: tuple[Clause, ...], when: When, label: Callable[[int, Clause], int]) -> Column:
    """Return the label of the first clause of a kind whose condition holds; null if there is none.

    Args:
        label: from a clause and its position in `clauses`.
    """
    sf = functions()
    chosen: Any = None
    for number, clause in enumerate(clauses):
        if clause.when is when:
            value = sf.lit(label(number, clause))
            holds = _holds(clause.condition)
            chosen = sf.when(holds, value) if chosen is None else chosen.when(holds, value)
    return sf.lit(None).cast("int") if chosen is None else chosen


def check_conditions(view: DataFrame, clauses: tuple[Clause, ...], when: When) -> None:
    """Raise unless Spark understands the conditions of a kind of clauses, over the rows that they may use.

    Raises:
        ColumnNotFoundError: a condition names a column that is not there.
        FilterError: Spark does not understand a condition.
    """
    from pyspark.errors import PySparkException

    for clause in clauses:
        if clause.when is not when or clause.condition is None:
            continue
        try:
            assert view.select(_holds(clause.condition).alias("holds")).schema is not None
        except PySparkException as error:
            raise explained(error, f"the condition of {clause.title}") from error


def _holds(condition: SqlOrColumn | None) -> Column:
    sf = functions()
    if condition is None:
        held: Column = sf.lit(True)
        return held
    value = sf.expr(condition) if isinstance(condition, str) else condition
    holds: Column = sf.coalesce(value.cast("boolean"), sf.lit(False))
    return holds
