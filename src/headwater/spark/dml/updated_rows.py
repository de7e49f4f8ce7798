"""Rows of a table with new values: set, generated anew where they depend on what was set, and checked by its rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import ConstraintViolationError
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import LONG, VOID, StructType
from headwater.log.schema.lookup import dotted, hidden
from headwater.spark.assignment import spark_type
from headwater.spark.char_types import as_compared, as_written
from headwater.spark.column_values import as_partition_value, computed, filled_columns, generation_check
from headwater.spark.columns import ScanColumns, quoted
from headwater.spark.constraints import may_depend, null_checks, sql_rules, with_checks
from headwater.spark.dml.assigned_values import Assignment, new_values
from headwater.spark.dml.assignments import assignment_paths
from headwater.spark.dml.condition import is_column
from headwater.spark.functions import functions
from headwater.spark.no_rows import no_rows
from headwater.spark.quiet import quiet_analysis
from headwater.spark.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from headwater.spark.table_sql import check_table_sql

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame

    from headwater.spark.dml.condition import Condition
    from headwater.spark.dml.target import DmlTarget

MATCHED = hidden("matched")


@dataclass(frozen=True)
class Update:
    """What an UPDATE does to a row. Use `read_update`."""

    target: DmlTarget
    condition: Condition
    values: dict[str, Column]
    """New values of top-level columns, over rows under the alias."""

    @cached_property
    def _generated(self) -> dict[str, str]:
        """The generated columns, and how they are generated."""
        definition = self.target.definition
        return filled_columns(definition.protocol, definition.schema).generated

    @cached_property
    def _generated_anew(self) -> dict[str, str]:
        """Those of them that may get other values because of what was set."""
        return {
            n: text for n, text in self._generated.items() if n not in self.values and may_depend(text, self.values)
        }

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The columns that may get other values."""
        return (*self.values, *self._generated_anew)

    def located_values(self, frame: DataFrame) -> DataFrame:
        """New values of rows that all match: nothing but the columns that change, and where each row is.

        Args:
            frame: from `DmlTarget.rows`.
        """
        sf = functions()
        rows = self.rows(frame, sf.lit(True), (FILE_COLUMN, ROW_COLUMN))
        return rows.select(FILE_COLUMN, ROW_COLUMN, *(sf.col(quoted(name)) for name in self.changed))

    def rows(self, frame: DataFrame, matched: Column, located: tuple[str, ...] = ()) -> DataFrame:
        """Rows of the table after the update.

        Args:
            frame: from `DmlTarget.rows`.
            matched: which of them get new values; the others stay as they are.
            located: columns that say where a row is and shall be kept: rows that break a rule have no place.

        Returns:
            The table's columns and those of row tracking: a row that gets new values gets a new commit version.
        """
        sf = functions()
        definition = self.target.definition
        schema = StructType([field for field in definition.schema.fields if field.type != VOID])
        partitions = definition.metadata.partition_columns
        columns: list[Column] = []
        for field in schema.fields:
            old = sf.col(quoted(field.name))
            new = self.values.get(field.name)
            if new is not None:
                old = sf.when(matched, as_partition_value(new, field, partitions)).otherwise(old)
            columns.append(old.alias(field.name))
        columns += [sf.col(name) for name in located]
        hidden = [*located]
        if self.target.tracks_rows:
            no_version = sf.lit(None).cast(spark_type(LONG))
            version = sf.when(matched, no_version).otherwise(sf.col(ROW_COMMIT_VERSION))
            columns += [sf.col(ROW_ID), version.alias(ROW_COMMIT_VERSION)]
            hidden += [ROW_ID, ROW_COMMIT_VERSION]
        rows = self.condition.aliased(frame).select(*columns, matched.alias(MATCHED))
        also = [*hidden, MATCHED]
        rows = _generated(as_compared(rows, schema, also), schema, self._generated_anew, also, partitions)
        rows = as_compared(rows, schema, also)
        checks = null_checks(schema)
        checks += [
            generation_check(schema.field(name), text, schema, partitions)
            for name, text in self._generated.items()
            if name in self.values
        ]
        checks += [r.check(schema) for r in sql_rules(definition.protocol, definition.metadata.configuration, schema)]
        is_old = ~sf.col(MATCHED)
        checks = [replace(check, holds=check.holds | is_old) for check in checks]
        return as_written(with_checks(rows, schema, checks, also, carrier=next(iter(located), None)), schema, also)


def read_update(target: DmlTarget, condition: Condition, given: Mapping[str, str | Column] | None) -> Update:
    """Understand the SET of an UPDATE.

    Raises:
        TypeError: it is no dictionary from names to SQL texts or Columns.
        ColumnNotFoundError: the table, or a value, has no such column.
        SchemaError: columns are set twice, or a value does not fit.
        ConstraintViolationError: an identity column is set.
        UntrustedExpressionError: the table wants SQL to be evaluated that is not on the allow-list.
    """
    what = f"{target.uri}: {target.operation}"
    _check_given(given)
    assert given is not None
    check_table_sql(target.spark, target.definition, target.uri)
    schema = target.snapshot.schema
    paths = assignment_paths(schema, list(given), condition.alias, what)
    identities = filled_columns(target.snapshot.protocol, schema).identities
    counted = next((path for path in paths if path[0] in identities), None)
    if counted is not None:
        raise ConstraintViolationError(
            f"{what} sets {dotted(counted)}, an identity column, whose values only the table itself gives."
        )
    sf = functions()
    assignments = [Assignment(path, value) for path, value in zip(paths, given.values(), strict=True)]
    scope = condition.aliased(no_rows(target.spark, ScanColumns(schema, "none", ()).visible))
    with quiet_analysis():
        values = new_values(scope, assignments, schema, lambda name: sf.col(quoted(name)), what)
    return Update(target, condition, values)


def _check_given(given: object) -> None:
    if given is None or not given:
        raise ValueError("update needs `set`: a dictionary of column names and their new values.")
    if not hasattr(given, "items"):
        raise TypeError(f"`set` is a dictionary of column names and values, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"the keys of `set` are column names, not {type(name).__name__}")
        if not isinstance(value, str) and not is_column(value):
            raise TypeError(
                f"the values of `set` are SQL texts or Columns, and that of {name} is {type(value).__name__}: for a "
                "constant, write lit(...)"
            )


def _generated(
    rows: DataFrame, schema: StructType, late: Mapping[str, str], also: list[str], partitions: Collection[str]
) -> DataFrame:
    """The rows with generated columns computed from the new values, where a row has some."""
    if not late:
        return rows
    sf = functions()
    columns = []
    for field in schema.fields:
        old = sf.col(quoted(field.name))
        if field.name in late:
            new = as_partition_value(computed(field, late[field.name]), field, partitions)
            old = sf.when(sf.col(MATCHED), new).otherwise(old).alias(field.name)
        columns.append(old)
    return rows.select(*columns, *(sf.col(quoted(name)) for name in also))
