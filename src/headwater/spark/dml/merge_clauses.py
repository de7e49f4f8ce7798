"""The clauses of a MERGE as values, and the rules for how they go together.

Clauses of a kind are tried in the order in which they were given; the first whose condition holds acts on the row. A
condition or value is SQL text or a Column, resolved over target and source (matched), the source alone (not matched)
or the target alone (not matched by source).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import InvalidMergeError
from headwater.spark.dml.condition import is_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

SqlOrColumn: TypeAlias = "str | Column"


class When(Enum):
    """Which rows a clause is about; the value is SQL's name for them."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class Action(Enum):
    """What a clause does; the value is the name in the table's history."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True)
class Clause:
    """One WHEN clause."""

    when: When
    action: Action
    condition: SqlOrColumn | None = None
    values: Mapping[str, SqlOrColumn] | None = field(default_factory=dict)
    """By column, as the user names it; None stands for the star: every column gets the source's of the same name."""

    @property
    def is_star(self) -> bool:
        """Whether the clause takes all columns of the source."""
        return self.values is None

    @property
    def title(self) -> str:
        """For messages: `WHEN MATCHED THEN UPDATE`."""
        return f"WHEN {self.when.value} THEN {self.action.name}"


def checked_values(values: Mapping[str, SqlOrColumn] | None, what: str) -> dict[str, SqlOrColumn]:
    """The new values of a clause as users give them.

    Args:
        values: by column: `name`, `struct.field`, either perhaps with the target's alias before it.
        what: for messages: whose dictionary it is.

    Raises:
        TypeError: it is no dictionary, or has other things in it than names, and texts or Columns.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{what} must be a dict from names to SQL texts or Columns, not {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"the keys of {what} must be names of columns, not {name!r} of type {type(name).__name__}")
        if not isinstance(value, str) and not is_column(value):
            raise TypeError(
                f"the values of {what} must be SQL texts or Columns, not {value!r} of type {type(value).__name__}: for "
                "a constant, write lit(...)"
            )
    return dict(values)


def check_clauses(clauses: tuple[Clause, ...]) -> None:
    """Raise unless the clauses make a MERGE.

    Raises:
        InvalidMergeError: there is no clause, or one that is not the last of its kind has no condition.
    """
    if not clauses:
        raise InvalidMergeError(
            "a MERGE needs at least one WHEN clause (DELTA_MERGE_MISSING_WHEN): call whenMatchedUpdate, "
            "whenNotMatchedInsert or the like before execute()."
        )
    for when in When:
        own = [clause for clause in clauses if clause.when is when]
        if any(clause.condition is None for clause in own[:-1]):
            raise InvalidMergeError(
                f"of several WHEN {when.value} clauses only the last one may have no condition: no clause after it "
                f"would ever act (DELTA_NON_LAST_{when.name}_CLAUSE_OMIT_CONDITION)."
            )
