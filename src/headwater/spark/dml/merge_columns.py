"""The columns of a MERGE: what the star stands for, and how the table's schema grows by the source's columns.

Columns go together by name, in any case. Without schema evolution the star needs all columns of the table in the
source; with it, new columns of the source, nested ones too, become columns of the table, and columns that the source
lacks stay as they are (update) or are null (insert).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import InvalidMergeError
from headwater.features.column_names import column_path
from headwater.log.schema import StructType
from headwater.log.schema.lookup import dotted
from headwater.spark.dml.assigned_values import Assignment
from headwater.spark.dml.assignments import assignment_paths
from headwater.spark.dml.merge_clauses import Action
from headwater.spark.evolution import as_data_schema
from headwater.spark.schema_match import by_folded_name
from headwater.spark.table_plan import planned_table
from headwater.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column

    from headwater.features.table_changes import TableDefinition
    from headwater.log.schema import StructField
    from headwater.spark.column_values import FilledColumns
    from headwater.spark.dml.merge_clauses import Clause
    from headwater.spark.dml.target import DmlTarget

SourceColumn: TypeAlias = "Callable[[str], Column]"
"""A column of the source, by its name, in some view of the rows."""


def evolved_table(
    target: DmlTarget, source: StructType, clauses: tuple[Clause, ...], alias: str | None, *, evolves: bool
) -> tuple[TableDefinition, bool]:
    """The table as the merge makes it, and whether its schema may grow at all.

    Args:
        target: the table.
        source: the source's columns.
        clauses: of the merge: only what they assign is added.
        alias: of the table.
        evolves: whether the merge itself asks for schema evolution; the session's settings may as well.
    """
    options = parse_write_options(
        target.spark,
        mode="append",
        partition_by=None,
        cluster_by=None,
        replace_where=None,
        partition_overwrite=None,
        merge_schema=True if evolves else None,
        overwrite_schema=False,
        properties=None,
        txn=None,
        user_metadata=None,
        data_change=True,
        storage_options=target.storage_options,
    )
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
        """What a clause assigns; the star written out.

        Args:
            clause: an UPDATE or INSERT.
            column: gives a column of the source.

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
    """The columns of the source that clauses bring into the table."""
    if any(clause.is_star for clause in clauses):
        return list(source.fields)
    paths = [column_path(name) for clause in clauses for name in clause.values or ()]
    names = {path[-1].lower() for path in paths if len(path) == 1 or _is_aliased(path, alias)}
    return [field for field in source.fields if field.name.lower() in names]


def _is_aliased(path: tuple[str, ...], alias: str | None) -> bool:
    return alias is not None and len(path) == 2 and path[0].lower() == alias.lower()


def _leaves(field: StructField, own: StructField, value: Column, path: tuple[str, ...] = ()) -> Iterator[Assignment]:
    """Assignments for what the source has of a struct: other fields of the table's keep their values."""
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
