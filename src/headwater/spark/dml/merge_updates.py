"""The rows that a MERGE updates, with their new values.

The first pass has said where these rows are, so only they are read, and joined with the source again for its values.
Rows that the source matches get theirs in a view of both sides; rows that it does not, in a view of the target alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import LONG, VOID, StructType
from headwater.log.schema.lookup import hidden
from headwater.spark.assignment import spark_type
from headwater.spark.char_types import as_compared, as_written
from headwater.spark.column_values import as_partition_value, computed, generation_check
from headwater.spark.columns import quoted
from headwater.spark.constraints import null_checks, sql_rules, with_checks
from headwater.spark.dml.assigned_values import new_values
from headwater.spark.dml.merge_clauses import Action, When
from headwater.spark.dml.merge_source import SOURCE_ROW
from headwater.spark.dml.merge_view import CLAUSE, acting
from headwater.spark.functions import functions
from headwater.spark.row_tracking import ROW_COMMIT_VERSION, ROW_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.features.table_changes import TableDefinition
    from headwater.log.schema import StructField
    from headwater.spark.dml.merge_clauses import Clause
    from headwater.spark.dml.merge_columns import MergeColumns
    from headwater.spark.dml.merge_view import Joined

_NEW = hidden("new_")
Values = dict[int, dict[str, "Column"]]
"""The new values of columns, by the place of the clause."""


@dataclass(frozen=True)
class Updates:
    """The UPDATE clauses of a merge.

    Attributes:
        clauses: all clauses of the merge; a clause is known by its place here.
        columns: of both sides.
        definition: the table after the merge.
        tracks_rows: whether rows have ids, which they keep.
    """

    clauses: tuple[Clause, ...]
    columns: MergeColumns
    definition: TableDefinition
    tracks_rows: bool

    def of(self, when: When) -> dict[int, Clause]:
        """The UPDATE clauses of a kind."""
        return {
            number: clause
            for number, clause in enumerate(self.clauses)
            if clause.when is when and clause.action is Action.UPDATE
        }

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The columns of the table that may get other values."""
        sf = functions()
        clauses = (*self.of(When.MATCHED).values(), *self.of(When.NOT_MATCHED_BY_SOURCE).values())
        given = (self.columns.assignments(clause, lambda name: sf.col(quoted(name))) for clause in clauses)
        assigned = [assignment.path[0] for assignments in given for assignment in assignments]
        names = dict.fromkeys((*assigned, *self.columns.filled.generated))
        return tuple(name for name in names if self.columns.table.field(name).type != VOID)

    def located_values(self, view: Joined) -> DataFrame:
        """New values of the updated rows: nothing but the columns that may change, and where each row is."""
        sf = functions()
        rows = self.rows(view, (FILE_COLUMN, ROW_COLUMN))
        return rows.select(FILE_COLUMN, ROW_COLUMN, *(sf.col(quoted(name)) for name in self.changed))

    def rows(self, view: Joined, located: tuple[str, ...] = ()) -> DataFrame:
        """The updated rows: the table's columns, and those of row tracking, where the table has them.

        Args:
            view: the rows to update, joined with the source; with rows that match nothing, if clauses are for them.
            located: columns that say where a row is and shall be kept: rows that break a rule have no place.
        """
        sf = functions()
        stored = StructType([field for field in self.columns.table.fields if field.type != VOID])
        both = self._matched(view)
        matched = self._values(both, When.MATCHED, view)
        frame = both.select(
            *view.target_columns,
            sf.col(SOURCE_ROW),
            sf.col(CLAUSE),
            *(self._chosen(field.name, matched, view).alias(_NEW + field.name) for field in stored.fields),
        )
        given = dict(matched)
        if unmatched_clauses := self.of(When.NOT_MATCHED_BY_SOURCE):
            frame = self._unmatched(frame, view, unmatched_clauses)
            values = self._values(frame, When.NOT_MATCHED_BY_SOURCE, view)
            given |= values
            new = {f.name: sf.col(quoted(_NEW + f.name)) for f in stored.fields}
            chosen = {name: _by_clause(name, values, default) for name, default in new.items()}
        else:
            chosen = {f.name: sf.col(quoted(_NEW + f.name)) for f in stored.fields}
        hidden = {name: view.target[name] for name in located}
        if self.tracks_rows:
            no_version = sf.lit(None).cast(spark_type(LONG)).alias(ROW_COMMIT_VERSION)
            hidden |= {ROW_ID: view.target[ROW_ID], ROW_COMMIT_VERSION: no_version}
        columns = [self._stored(value, stored.field(name)).alias(name) for name, value in chosen.items()]
        also = [*hidden, CLAUSE]
        frame = as_compared(frame.select(*columns, *hidden.values(), sf.col(CLAUSE)), stored, also)
        frame = as_compared(self._generated(frame, stored, given, also), stored, also)
        checked = self._checked(frame, stored, given, also, next(iter(located), None))
        return as_written(checked, stored, also).drop(CLAUSE)

    def _stored(self, value: Column, field: StructField) -> Column:
        return as_partition_value(value, field, self.definition.metadata.partition_columns)

    def _matched(self, view: Joined) -> DataFrame:
        """The pairs that an UPDATE clause acts on, and rows that match nothing."""
        sf = functions()
        frame = view.with_clause(acting(self.clauses, When.MATCHED, lambda number, _: number))
        is_update = sf.col(CLAUSE).isin(*self.of(When.MATCHED)) if self.of(When.MATCHED) else sf.lit(False)
        return frame.where(view.source[SOURCE_ROW].isNull() | is_update)

    def _unmatched(self, frame: DataFrame, view: Joined, clauses: dict[int, Clause]) -> DataFrame:
        """The same rows, of those that match nothing only the ones that an UPDATE clause acts on."""
        sf = functions()
        number = acting(self.clauses, When.NOT_MATCHED_BY_SOURCE, lambda number, _: number)
        clause = sf.when(sf.col(SOURCE_ROW).isNull(), number).otherwise(sf.col(CLAUSE))
        names = [name for name in frame.columns if name.startswith(_NEW)]
        chosen = frame.select(*view.target_columns, *(sf.col(quoted(n)) for n in names), clause.alias(CLAUSE))
        return chosen.where(sf.col(CLAUSE).isin(*self.of(When.MATCHED), *clauses))

    def _values(self, frame: DataFrame, when: When, view: Joined) -> Values:
        return {
            number: new_values(
                frame,
                self.columns.assignments(clause, lambda name: view.source[quoted(name)]),
                self.columns.table,
                lambda name: view.target[quoted(name)],
                clause.title,
            )
            for number, clause in self.of(when).items()
        }

    @staticmethod
    def _chosen(name: str, values: Values, view: Joined) -> Column:
        return _by_clause(name, values, view.target[quoted(name)])

    def _generated(self, frame: DataFrame, stored: StructType, given: Values, also: list[str]) -> DataFrame:
        """Generated columns follow the new values, unless a clause gives them values of their own."""
        generated = self.columns.filled.generated
        if not generated:
            return frame
        sf = functions()
        columns = []
        for field in stored.fields:
            value = sf.col(quoted(field.name))
            if field.name in generated:
                own = [number for number, values in given.items() if field.name in values]
                anew = self._stored(computed(field, generated[field.name]), field)
                value = sf.when(sf.col(CLAUSE).isin(*own), value).otherwise(anew) if own else anew
            columns.append(value.alias(field.name))
        return frame.select(*columns, *(sf.col(name) for name in also))

    def _checked(
        self, frame: DataFrame, stored: StructType, given: Values, also: list[str], carrier: str | None
    ) -> DataFrame:
        protocol, configuration = self.definition.protocol, self.definition.metadata.configuration
        assigned = {name for values in given.values() for name in values}
        checks = null_checks(stored)
        checks += [
            generation_check(stored.field(name), text, stored, self.definition.metadata.partition_columns)
            for name, text in self.columns.filled.generated.items()
            if name in assigned
        ]
        checks += [rule.check(stored) for rule in sql_rules(protocol, configuration, stored)]
        return with_checks(frame, stored, checks, also, carrier)


def _by_clause(name: str, values: Values, default: Column) -> Column:
    """The value that the acting clause gives to a column."""
    sf = functions()
    own = [(number, given[name]) for number, given in values.items() if name in given]
    if not own:
        return default
    chosen = reduce(
        lambda so_far, item: so_far.when(sf.col(CLAUSE) == item[0], item[1]),
        own[1:],
        sf.when(sf.col(CLAUSE) == own[0][0], own[0][1]),
    )
    found: Column = chosen.otherwise(default)
    return found
