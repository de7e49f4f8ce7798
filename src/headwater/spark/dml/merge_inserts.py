"""The rows that a MERGE inserts: rows of the source that match nothing, as the NOT MATCHED clauses make them.

The view is the source alone. Columns that no clause gives a value for are filled in as for any other write: default,
generated and identity values, or null.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidMergeError
from headwater.log.schema import VOID, StructType
from headwater.spark.column_values import computed
from headwater.spark.columns import quoted
from headwater.spark.conform import null_of
from headwater.spark.dml.assigned_values import new_values
from headwater.spark.dml.merge_clauses import When
from headwater.spark.dml.merge_matches import MATCHED_ROW
from headwater.spark.dml.merge_source import SOURCE_ROW
from headwater.spark.dml.merge_view import CLAUSE, acting
from headwater.spark.functions import functions
from headwater.spark.write_rows import TableRows, table_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.features.table_changes import TableDefinition
    from headwater.log.schema import StructField
    from headwater.spark.dml.merge_clauses import Clause
    from headwater.spark.dml.merge_columns import MergeColumns

Values = dict[int, dict[str, "Column"]]


@dataclass(frozen=True)
class Inserts:
    """The NOT MATCHED clauses of a merge.

    Attributes:
        clauses: all clauses of the merge; a clause is known by its place here.
        columns: of both sides.
        definition: the table after the merge.
        uri: the table's location, for messages.
    """

    clauses: tuple[Clause, ...]
    columns: MergeColumns
    definition: TableDefinition
    uri: str

    def rows(self, source: DataFrame, matched: DataFrame | None, also: tuple[str, ...] = ()) -> TableRows:
        """The new rows, ready for the files.

        Args:
            source: with `SOURCE_ROW`.
            matched: the numbers of those of its rows that match something; None if none does.
            also: hidden columns of the source that they keep.

        Raises:
            InvalidMergeError: clauses differ in which identity columns they give values for.
        """
        sf = functions()
        if matched is not None:
            source = source.join(matched, sf.col(SOURCE_ROW) == sf.col(MATCHED_ROW), "left_anti")
        number = acting(self.clauses, When.NOT_MATCHED, lambda number, _: number)
        frame = source.withColumn(CLAUSE, number).where(sf.col(CLAUSE).isNotNull())
        values = self.values(frame)
        self._check_identities(values)
        given = {name for own in values.values() for name in own}
        fields = [field for field in self.columns.table.fields if field.name in given and field.type != VOID]
        chosen = [self._chosen(field, values).alias(field.name) for field in fields]
        rows = frame.select(*chosen, *(sf.col(name) for name in also), sf.col(CLAUSE))
        rows = self._generated(rows, fields, values).drop(CLAUSE)
        data = StructType.from_spark(rows.drop(*also).schema)
        return table_rows(rows, data, self.definition, self.uri, also=also)

    def values(self, frame: DataFrame) -> Values:
        """What each clause gives values for.

        Args:
            frame: the source's columns.
        """
        return {
            number: new_values(
                frame,
                self.columns.assignments(clause, lambda name: frame[quoted(name)]),
                self.columns.table,
                lambda name: frame[quoted(name)],
                clause.title,
            )
            for number, clause in enumerate(self.clauses)
            if clause.when is When.NOT_MATCHED
        }

    def _check_identities(self, values: Values) -> None:
        for name in self.columns.filled.identities:
            if 0 < sum(name in own for own in values.values()) < len(values):
                raise InvalidMergeError(
                    f"some WHEN NOT MATCHED clauses give values for the identity column {name}, others do not: let all "
                    "of them do, or none."
                )

    def _chosen(self, field: StructField, values: Values) -> Column:
        """The value of a column that some clause gives one for."""
        sf = functions()
        cases: list[tuple[int, Any]] = [(n, own[field.name]) for n, own in values.items() if field.name in own]
        if len(cases) == len(values) == 1:
            only: Column = cases[0][1]
            return only
        default = self.columns.filled.defaults.get(field.name)
        filled = null_of(field.type) if default is None else computed(field, default)
        chosen = reduce(
            lambda so_far, item: so_far.when(sf.col(CLAUSE) == item[0], item[1]),
            cases[1:],
            sf.when(sf.col(CLAUSE) == cases[0][0], cases[0][1]),
        )
        found: Column = chosen.otherwise(filled)
        return found

    def _generated(self, rows: DataFrame, fields: list[StructField], values: Values) -> DataFrame:
        """Generated columns that only some clauses give values for."""
        sf = functions()
        for field in fields:
            own = [number for number, given in values.items() if field.name in given]
            expression = self.columns.filled.generated.get(field.name)
            if expression is not None and len(own) < len(values):
                given = sf.when(sf.col(CLAUSE).isin(*own), sf.col(quoted(field.name)))
                rows = rows.withColumn(field.name, given.otherwise(computed(field, expression)))
        return rows
