"""Target and source of a MERGE side by side, and which clause acts on a row.

Names in conditions and values mean what Spark makes of them in the view that a clause has: both sides (matched), the
source alone (not matched), or the target alone (not matched by source). So a name that both sides have is only
ambiguous where both can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.schema.lookup import hidden
from headwater.spark.columns import quoted
from headwater.spark.dml.condition import explained
from headwater.spark.dml.merge_source import SOURCE_ROW
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from headwater.spark.dml.merge_clauses import Clause, SqlOrColumn, When

CLAUSE = hidden("clause")
"""What acts on a row: a number that the one who asks chooses; null for nothing."""


@dataclass(frozen=True)
class Joined:
    """Rows of the target with the rows of the source that match them.

    Attributes:
        frame: the columns of both sides.
        target: the left side.
        source: the right side.
    """

    frame: DataFrame
    target: DataFrame
    source: DataFrame

    @property
    def target_columns(self) -> list[Column]:
        """All columns of the target, under its alias."""
        return [self.target[quoted(name)] for name in self.target.columns]

    @property
    def source_columns(self) -> list[Column]:
        """All columns of the source, under its alias."""
        return [self.source[quoted(name)] for name in self.source.columns]

    def with_clause(self, acting: Column) -> DataFrame:
        """The rows of both sides, and what acts on those that match."""
        sf = functions()
        is_match = self.source[SOURCE_ROW].isNotNull()
        return self.frame.select(*self.target_columns, *self.source_columns, sf.when(is_match, acting).alias(CLAUSE))


def joined(
    target: DataFrame, source: DataFrame, condition: SqlOrColumn, *, keeps_target: bool, is_small: bool
) -> Joined:
    """Join target and source.

    Args:
        target: rows of the table, under its alias.
        source: rows of the source.
        condition: when rows match.
        keeps_target: keep the target's rows that match nothing.
        is_small: the source can be sent to all executors.

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
    """The label of the first clause of a kind whose condition holds; null if there is none.

    Args:
        clauses: of the merge.
        when: the kind.
        label: from a clause and its place in `clauses`.
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
    """Raise unless Spark understands the conditions of a kind of clauses, over the rows that they may look at.

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
    """True or false, never null."""
    sf = functions()
    if condition is None:
        held: Column = sf.lit(True)
        return held
    value = sf.expr(condition) if isinstance(condition, str) else condition
    holds: Column = sf.coalesce(value.cast("boolean"), sf.lit(False))
    return holds
