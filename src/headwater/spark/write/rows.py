"""Turn a DataFrame into rows of the table: columns by name, values in the table's types, rules checked.

Everything is a projection on top of the DataFrame: given values are converted, missing ones filled in, generated ones
computed, then rules are checked. There is one job, that of the writer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ConstraintViolationError, InvalidCommitError
from headwater.log.schema import VOID, StructField, StructType
from headwater.log.schema.types import check_characters, quoted
from headwater.spark.functions import functions
from headwater.spark.write.constraints import Check, SqlRule, null_checks, sql_rules, with_checks
from headwater.spark.write.schema import by_folded_name, check_fits
from headwater.spark.write.table_sql import check_table_sql
from headwater.spark.write.values import (
    FilledColumns,
    Identity,
    as_compared,
    as_partition_value,
    as_written,
    computed,
    conformed,
    declared_type,
    filled_columns,
    generation_check,
    identity_values,
    null_of,
    with_row_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.features.definition import TableDefinition


@dataclass(frozen=True)
class TableRows:
    """The rows that a write brings, ready for the files."""

    frame: DataFrame
    schema: StructType
    """The columns of the frame: those of the table that files can hold."""
    identities: dict[str, Identity]
    """The identity columns that get their values here."""


def table_rows(
    df: DataFrame,
    data: StructType,
    definition: TableDefinition,
    uri: str,
    *,
    rearranges: bool = False,
    must_match: SqlRule | None = None,
    also: Sequence[str] = (),
) -> TableRows:
    """Return the rows of a DataFrame as rows of a table.

    Args:
        rearranges: the rows are the table's own, with the values that they have.
        must_match: a condition that all of them must fulfil.
        also: hidden columns of the data, not in its schema, to keep. Rules are checked where the first of them is read,
            even if others are not.

    Raises:
        SchemaMismatchError: the columns or types do not fit.
        SchemaError: a column has a name that is not allowed.
        ConstraintViolationError: values are given that the table must generate itself.
        InvalidCommitError: Spark does not understand an expression in the definition of the table.
        UntrustedExpressionError: such an expression does more than compute a value from the row.
    """
    check_table_sql(df.sparkSession, definition, uri)
    schema = definition.schema
    check_characters(schema.names, uri)
    filled = filled_columns(definition.protocol, schema)
    check_fits(data, schema, filled.names, uri)
    given = by_folded_name(data)
    if not rearranges:
        _check_identities(filled, given, uri)
    kept = stored_columns(schema)
    with _explained_expressions(definition, must_match, uri):
        partitions = definition.metadata.partition_columns
        frame = as_compared(_completed(df, kept, given, filled, also, partitions), kept, also)
        checks = row_checks(definition, {name for name in filled.generated if name.lower() in given})
        checks += [] if must_match is None else [must_match.check(kept)]
        frame = as_written(with_checks(frame, kept, checks, also, carrier=next(iter(also), None)), kept, also)
        assert frame.schema is not None  # Spark Connect looks at expressions no earlier
    counted = {name: i for name, i in filled.identities.items() if name.lower() not in given}
    return TableRows(frame, kept, counted)


def stored_columns(schema: StructType) -> StructType:
    """Return the columns that rows have: those of type void are in no file."""
    return StructType([field for field in schema.fields if field.type != VOID])


def row_checks(definition: TableDefinition, given: Collection[str]) -> list[Check]:
    """Return the checks of a table: NOT NULL, given values of generated columns, constraints and invariants."""
    schema, partitions = stored_columns(definition.schema), definition.metadata.partition_columns
    generated = filled_columns(definition.protocol, definition.schema).generated
    return [
        *null_checks(schema),
        *(generation_check(schema.field(n), text, schema, partitions) for n, text in generated.items() if n in given),
        *(rule.check(schema) for rule in _rules(definition)),
    ]


def recomputed(
    rows: DataFrame, definition: TableDefinition, stale: Mapping[str, Column | None], also: Sequence[str]
) -> DataFrame:
    """Compute generated columns again, from the other columns of the rows.

    Args:
        rows: the columns that rows of the table have.
        stale: the generated columns, and in which rows they are computed again; None for all rows.
        also: further columns of the rows.
    """
    if not stale:
        return rows
    generated = filled_columns(definition.protocol, definition.schema).generated
    columns = []
    for field in stored_columns(definition.schema).fields:
        value = _column(field.name)
        if field.name in stale:
            new = computed(field, generated[field.name])
            new = as_partition_value(new, field, definition.metadata.partition_columns)
            is_stale = stale[field.name]
            value = (new if is_stale is None else functions().when(is_stale, new).otherwise(value)).alias(field.name)
        columns.append(value)
    return rows.select(*columns, *map(_column, also))


def _rules(definition: TableDefinition) -> list[SqlRule]:
    return sql_rules(definition.protocol, definition.metadata.configuration, definition.schema)


def _completed(
    df: DataFrame,
    kept: StructType,
    given: dict[str, StructField],
    filled: FilledColumns,
    also: Sequence[str],
    partition_columns: Sequence[str],
) -> DataFrame:
    """Return the table's columns: given, filled in, and then generated from both."""
    counts = any(name.lower() not in given for name in filled.identities)
    source = with_row_numbers(df) if counts else df
    late = {name for name in filled.generated if name.lower() not in given}
    hidden = [_column(name) for name in also]
    early = StructType([f for f in kept.fields if f.name not in late])
    values = {f.name: as_partition_value(_value(f, given, filled), f, partition_columns) for f in early.fields}
    frame = source.select(*(value.alias(name) for name, value in values.items()), *hidden)
    if not late:
        return frame
    frame = as_compared(frame, early, also)
    columns = {name: _column(name) for name in values}
    for field in kept.fields:
        if field.name in late:
            columns[field.name] = as_partition_value(
                computed(field, filled.generated[field.name]), field, partition_columns
            )
    return frame.select(*(columns[f.name].alias(f.name) for f in kept.fields), *hidden)


@contextmanager
def _explained_expressions(definition: TableDefinition, must_match: SqlRule | None, uri: str) -> Iterator[None]:
    """Name the table's expressions when Spark does not understand one of them."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        rules = [*_rules(definition), *([] if must_match is None else [must_match])]
        filled = filled_columns(definition.protocol, definition.schema)
        texts = [f"{rule.title}: {rule.expression}" for rule in rules]
        texts += [f"{name}: {text}" for name, text in (*filled.generated.items(), *filled.defaults.items())]
        raise InvalidCommitError(
            f"{uri}: an expression in the table's definition cannot be evaluated, so nothing can be written to it. "
            f"The expressions: {'; '.join(texts)}. Spark says: {error}"
        ) from error


def _value(field: StructField, given: dict[str, StructField], filled: FilledColumns) -> Column:
    own = given.get(field.name.lower())
    if own is not None:
        return conformed(_column(own.name), own.type, declared_type(field), (field.name,))
    if field.name in filled.identities:
        return identity_values(field.name, filled.identities[field.name])
    if field.name in filled.defaults:
        return computed(field, filled.defaults[field.name])
    return null_of(field.type)


def _check_identities(filled: FilledColumns, given: dict[str, StructField], uri: str) -> None:
    for name, identity in filled.identities.items():
        if name.lower() in given and not identity.allows_explicit:
            raise ConstraintViolationError(
                f"{uri}: column {name} is GENERATED ALWAYS AS IDENTITY, so the table makes its values, and the "
                f"DataFrame must not have it: df.drop({name!r}). Nothing was committed."
            )


def _column(name: str) -> Column:
    column: Column = functions().col(quoted(name))
    return column
