"""From a DataFrame to the rows of the table: columns by name, values by the table's types, rules checked on the way.

Everything is a projection on top of the DataFrame: what is given is converted, what is missing is filled in, then what
is generated is computed, then rules are checked. There is one job, which is that of the writer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ConstraintViolationError, InvalidCommitError
from headwater.log.schema import VOID, StructType
from headwater.log.schema.lookup import check_characters
from headwater.spark.char_types import as_compared, as_written, declared_type
from headwater.spark.column_values import as_partition_value, computed, filled_columns, generation_check
from headwater.spark.columns import quoted
from headwater.spark.conform import conformed, null_of
from headwater.spark.constraints import null_checks, sql_rules, with_checks
from headwater.spark.functions import functions
from headwater.spark.identity import identity_values, with_row_numbers
from headwater.spark.schema_match import by_folded_name, check_fits
from headwater.spark.table_sql import check_table_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.features.table_changes import TableDefinition
    from headwater.log.schema import StructField
    from headwater.spark.column_values import FilledColumns
    from headwater.spark.constraints import SqlRule
    from headwater.spark.identity import Identity


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
    """The rows of a DataFrame as rows of a table.

    Args:
        df: the data.
        data: its schema.
        definition: the table.
        uri: the table's location, for messages.
        rearranges: the rows are the table's own, with the values that they have.
        must_match: a condition that all of them must fulfil.
        also: hidden columns of the data, not in its schema, that rows shall keep. Rules are checked where the first of
            them is read, even if others are not.

    Raises:
        SchemaMismatchError: the columns or types do not fit.
        SchemaError: a column has a name that no column may have.
        ConstraintViolationError: values are given that the table must generate itself.
        InvalidCommitError: Spark does not understand an expression in the definition of the table.
        UntrustedExpressionError: such an expression does more than to compute a value from the row.
    """
    check_table_sql(df.sparkSession, definition, uri)
    schema = definition.schema
    check_characters(schema.names, uri)
    filled = filled_columns(definition.protocol, schema)
    check_fits(data, schema, filled.names, uri)
    given = by_folded_name(data)
    if not rearranges:
        _check_identities(filled, given, uri)
    rules = [*sql_rules(definition.protocol, definition.metadata.configuration, schema)]
    if must_match is not None:
        rules.append(must_match)
    kept = StructType([field for field in schema.fields if field.type != VOID])
    with _explained_expressions(rules, filled, uri):
        partitions = definition.metadata.partition_columns
        frame = as_compared(_completed(df, kept, given, filled, also, partitions), kept, also)
        checks = null_checks(kept)
        checks += [
            generation_check(kept.field(name), expression, kept, partitions)
            for name, expression in filled.generated.items()
            if name.lower() in given
        ]
        checks += [rule.check(kept) for rule in rules]
        frame = as_written(with_checks(frame, kept, checks, also, carrier=next(iter(also), None)), kept, also)
        assert frame.schema is not None  # Spark Connect looks at expressions no earlier
    counted = {name: i for name, i in filled.identities.items() if name.lower() not in given}
    return TableRows(frame, kept, counted)


def _completed(
    df: DataFrame,
    kept: StructType,
    given: dict[str, StructField],
    filled: FilledColumns,
    also: Sequence[str],
    partition_columns: Sequence[str],
) -> DataFrame:
    """The table's columns: what is given, what is filled in, and then what is generated from both."""
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
def _explained_expressions(rules: list[SqlRule], filled: FilledColumns, uri: str) -> Iterator[None]:
    """Say which expressions a table has, when Spark does not understand one of them."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        texts = [f"{rule.title}: {rule.expression}" for rule in rules]
        texts += [f"{name}: {text}" for name, text in (*filled.generated.items(), *filled.defaults.items())]
        raise InvalidCommitError(
            f"{uri}: an expression in the table's definition cannot be evaluated, so nothing can be written to it. "
            f"The expressions: {'; '.join(texts)}. Spark says: {error}"
        ) from error


def _value(field: StructField, given: dict[str, StructField], filled: FilledColumns) -> Column:
    """The value of a column of the table: given, or filled in."""
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
