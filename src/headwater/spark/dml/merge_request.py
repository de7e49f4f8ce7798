"""What a MERGE is asked for, as far as it says something without looking at table or source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import FilterError
from headwater.spark.dml.condition import expression_text
from headwater.spark.sql_words import RANDOM_FUNCTIONS, TIME_FUNCTIONS, called_functions, words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.dml.merge_clauses import Clause, SqlOrColumn, When


@dataclass(frozen=True)
class MergeRequest:
    """What a merge is asked for.

    Attributes:
        source: the rows that are merged into the table.
        condition: when a row of the source matches one of the table.
        clauses: what happens then, in order.
        alias: a name for the table in conditions and values.
        evolves: whether columns that only the source has are added to the table.
    """

    source: DataFrame
    condition: SqlOrColumn
    clauses: tuple[Clause, ...]
    alias: str | None = None
    evolves: bool = False

    def has(self, when: When) -> bool:
        """Whether there is a clause of a kind."""
        return any(clause.when is when for clause in self.clauses)

    @property
    def is_stable(self) -> bool:
        """Whether conditions have the same answer a while later; in doubt not."""
        try:
            return all(TIME_FUNCTIONS.isdisjoint(words(text)) for text in self._texts)
        except FilterError:
            return False

    def check_deterministic(self, uri: str) -> None:
        """Raise if a condition gives another answer each time.

        Raises:
            FilterError: one does.
        """
        for text in self._texts:
            try:
                called = called_functions(text)
            except FilterError:  # the text of a Column need not be SQL; what comes of it is counted after the write
                continue
            if not called.isdisjoint(RANDOM_FUNCTIONS):
                raise FilterError(
                    f"{uri}: a condition of MERGE ({text}) is not deterministic: it may match other rows each time "
                    "that it is evaluated, so nobody can say which rows it means."
                )

    @cached_property
    def _texts(self) -> list[str]:
        """All conditions as texts."""
        conditions = [self.condition, *(clause.condition for clause in self.clauses)]
        return [expression_text(condition) for condition in conditions if condition is not None]
