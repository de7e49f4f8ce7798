"""Describe the clauses of a MERGE as values, check how they go together, and resolve their columns.

Clauses of a kind are tried in the order in which they were given; the first whose condition holds acts on the row. A
condition or value is SQL text or a Column, resolved over target and source (matched), the source alone (not matched)
or the target alone (not matched by source).

Columns are matched by name, in any case. Without schema evolution the star needs all columns of the table in the
source; with it, new columns of the source, nested ones too, become columns of the table, and columns that the source
lacks stay as they are (update) or are null (insert).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import InvalidMergeError
from headwater.features.column_mapping import column_path
from headwater.log.schema import StructField, StructType
from headwater.log.schema.types import dotted
from headwater.spark.dml.assignments import Assignment, assignment_paths
from headwater.spark.write.options import parse_write_options
from headwater.spark.write.schema import as_data_schema, by_folded_name, planned_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column

    from headwater.features.definition import TableDefinition
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.write.values import FilledColumns


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
    when: When
    action: Action
    condition: SqlOrColumn | None = None
    values: Mapping[str, SqlOrColumn] | None = dataclasses.field(default_factory=dict)
    """By column, as the user names it; None stands for the star: every column gets the source's of the same name."""

    @property
    def is_star(self) -> bool:
        return self.values is None

    @property
    def title(self) -> str:
        """For messages: `WHEN MATCHED THEN UPDATE`."""
        return f"WHEN {self.when.value} THEN {self.action.name}"


def check_clauses(clauses: tuple[Clause, ...]) -> None:
    """Raise `InvalidMergeError` if there is no clause, or one that is not the last of its kind has no condition."""
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


SourceColumn: TypeAlias = "Callable[[str], Column]"
"""Returns a column of the source by its name, in some view of the rows."""


def evolved_table(
    target: DmlTarget, source: StructType, clauses: tuple[Clause, ...], alias: str | None, *, evolves: bool
) -> tuple[TableDefinition, bool]:
    """Return the table as the merge makes it, and whether its schema may grow at all.

    Args:
        clauses: of the merge: only what they assign is added.
        evolves: whether the merge itself asks for schema evolution; the session's settings may as well.
    """
    options = parse_write_options(target.spark, mode="append", merge_schema=True if evolves else None)
    wanted = StructType(_assigned(source, clauses, alias))
    definition = planned_table(target.transaction.ctx, target.snapshot, as_data_schema(wanted), options)
    return definition, options.merge_schema


@dataclass(frozen=True)
class MergeColumns:
    """The columns of both sides.

    Attributes:
        table: the table's, after schema evolution.
        alias: of the table.
        source: the source's.
        filled: columns of the table that get values by themselves.
        evolves: whether the source may lack columns of the table.
    """

    table: StructType
    alias: str | None
    source: StructType
    filled: FilledColumns
    evolves: bool

    def assignments(self, clause: Clause, column: SourceColumn) -> list[Assignment]:
        """Return what an UPDATE or INSERT clause assigns, with the star written out.

        Raises:
            ColumnNotFoundError: the table has no such column.
            SchemaError: a column is assigned to twice.
            InvalidMergeError: the source lacks a column for the star, or an assignment is not allowed.
        """
        if clause.values is None:
            found = self._star(clause, column)
        else:
            paths = assignment_paths(self.table, list(clause.values), self.alias, clause.title)
            found = [Assignment(path, value) for path, value in zip(paths, clause.values.values(), strict=True)]
        for assignment in found:
            self._check(clause, assignment)
        return found

    def _check(self, clause: Clause, assignment: Assignment) -> None:
        name = dotted(assignment.path)
        if clause.action is Action.INSERT and len(assignment.path) > 1:
            raise InvalidMergeError(f"{clause.title} gives a value for {name}: a new row needs whole columns.")
        if clause.action is Action.UPDATE and assignment.path[0] in self.filled.identities:
            raise InvalidMergeError(
                f"{clause.title} assigns to {name}, an identity column, whose values only the table itself gives "
                "(DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED). Name the columns that are to be assigned."
            )

    def _star(self, clause: Clause, column: SourceColumn) -> list[Assignment]:
        given = by_folded_name(self.source)
        found: list[Assignment] = []
        for field in self.table.fields:
            own = given.get(field.name.lower())
            if own is not None:
                keeps = self.evolves and clause.action is Action.UPDATE
                whole = [Assignment((field.name,), column(own.name))]
                found += _leaves(field, own, column(own.name)) if keeps else whole
            elif not self.evolves and field.name not in self.filled.names:
                raise InvalidMergeError(
                    f"{clause.title} *: the source has no column {field.name}. It has "
                    f"{', '.join(self.source.names)}. Name the columns that are to be assigned, or merge with schema "
                    "evolution (withSchemaEvolution()), which leaves columns that the source lacks as they are."
                )
        return found


def _assigned(source: StructType, clauses: tuple[Clause, ...], alias: str | None) -> list[StructField]:
    """Return the columns of the source that clauses bring into the table."""
    if any(clause.is_star for clause in clauses):
        return list(source.fields)
    paths = [column_path(name) for clause in clauses for name in clause.values or ()]
    names = {path[-1].lower() for path in paths if len(path) == 1 or _is_aliased(path, alias)}
    return [field for field in source.fields if field.name.lower() in names]


def _is_aliased(path: tuple[str, ...], alias: str | None) -> bool:
    return alias is not None and len(path) == 2 and path[0].lower() == alias.lower()


def _leaves(field: StructField, own: StructField, value: Column, path: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """Yield assignments for the fields that the source has of a struct: others of the table's keep their values."""
    here = (*path, field.name)
    if not (isinstance(field.type, StructType) and isinstance(own.type, StructType)):
        yield Assignment(here, value)
        return
    given = by_folded_name(own.type)
    if all(inner.name.lower() in given for inner in field.type.fields):
        yield Assignment(here, value)  # nothing of the old value is left
        return
    for inner in field.type.fields:
        part = given.get(inner.name.lower())
        if part is not None:
            yield from _leaves(inner, part, value[part.name], here)
