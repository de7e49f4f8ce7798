"""Check SQL texts that become part of a table: generated columns, CHECK constraints, defaults.

Every later writer must be able to evaluate them with the same result: so they name columns of the table only, have no
subqueries, aggregates or functions of one session, and generated columns depend on nothing but the row.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import ConstraintViolationError, FilterError, InvalidCommitError, UntrustedExpressionError
from headwater.features.feature import GENERATION_KEY
from headwater.log.configuration.properties import CONSTRAINT_PREFIX
from headwater.log.schema import DataType, StructField, StructType, strings_for_chars, transform_fields
from headwater.log.schema.types import dotted, with_nullable_parts
from headwater.spark.errors import explained_violations, first_line, quiet_analysis
from headwater.spark.functions import (
    RANDOM_FUNCTIONS,
    called_functions,
    functions,
    functions_for,
    words,
)
from headwater.spark.write.constraints import mentioned_columns
from headwater.spark.write.table_sql import TableSql, check_texts
from headwater.spark.write.values import computed, declared_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession


_CHANGING_WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user", "session_user"}
)
_CHANGING = _CHANGING_WITHOUT_PARENTHESES | RANDOM_FUNCTIONS
"""Functions whose result depends on more than the row."""
_CHANGING |= {
    "curdate",
    "current_catalog",
    "current_database",
    "current_schema",
    "current_timezone",
    "now",
    "user",
    "version",
}
"""Functions whose answer depends on more than the row."""
_CHANGING_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp"})


def check_generated_columns(spark: SparkSession, schema: StructType) -> None:
    """Raise unless every generated column can be computed from the others.

    Raises:
        InvalidCommitError: an expression is not understood, is not of the column's type, or depends on more than
            ordinary columns of the row.
    """
    generated = {f.name: str(f.metadata[GENERATION_KEY]) for f in schema.fields if GENERATION_KEY in f.metadata}
    ordinary = StructType(f for f in schema.fields if f.name not in generated)
    for name, expression in generated.items():
        what = f"the generated column {name}"
        _check_words(expression, what, constant=True)
        sql = TableSql("generated", what, expression)
        found = _analyzed(spark, ordinary, sql, hint="It may use columns that are not generated.")
        declared = schema.field(name).type
        if _plain(found) != _plain(declared):
            raise InvalidCommitError(
                f"{what} is declared as {declared}, but its expression ({expression}) is of type {found}: change one, "
                f"for example to CAST({expression} AS {str(declared).upper()})."
            )


def check_condition(spark: SparkSession, schema: StructType, name: str, expression: str) -> None:
    """Raise `InvalidCommitError` unless a CHECK constraint is a condition on the rows of the table."""
    what = f"the constraint {name}"
    _check_words(expression, what, constant=False)
    found = _analyzed(spark, schema, TableSql("condition", what, expression))
    if str(found) != "boolean":
        raise InvalidCommitError(f"{what} must be a condition, but ({expression}) is of type {found}.")


def check_constraints(spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> None:
    """Raise `InvalidCommitError` unless every CHECK constraint among some properties is a condition on the table's
    rows.
    """
    for key, expression in properties.items():
        if key.lower().startswith(CONSTRAINT_PREFIX):
            check_condition(spark, schema, key[len(CONSTRAINT_PREFIX) :], expression)


def check_default(spark: SparkSession, field: StructField, expression: str) -> None:
    """Raise unless a default is a value that the column can have.

    Raises:
        InvalidCommitError: the expression is not understood, depends on a row, or its value does not fit.
    """
    what = f"the default of column {field.name}"
    _check_words(expression, what, constant=False)
    sql = TableSql("default", what, expression)
    _analyzed(spark, StructType(()), sql, hint="A default does not depend on other columns.")
    from pyspark.errors import PySparkException

    with _functions_of(spark):
        try:
            with explained_violations(what):
                spark.range(1).select(computed(field, expression).alias("value")).collect()
        except (PySparkException, ConstraintViolationError) as error:
            raise InvalidCommitError(
                f"{what} must be of type {declared_type(field)}, and ({expression}) is not: {first_line(error)}"
            ) from error


def check_rows(frame: DataFrame, condition: str, what: str, schema: StructType) -> None:
    """Raise `ConstraintViolationError` if a row does not fulfil a condition, or it is null; the message shows one."""
    with _functions_of(frame) as sf:
        _check_rows(frame, sf.expr(condition), what, mentioned_columns(condition, schema))


def check_no_nulls(frame: DataFrame, path: tuple[str, ...], schema: StructType) -> None:
    """Raise `ConstraintViolationError` if a row has null in a column; a field of a null struct is not missing."""
    with _functions_of(frame) as sf:
        value = sf.col(dotted_column(path))
        holds = value.isNotNull()
        for depth in range(1, len(path)):
            holds = holds | sf.col(dotted_column(path[:depth])).isNull()
        others = tuple(name for name in schema.names if name != path[0])[:3]
        _check_rows(frame, holds, f"column {dotted(path)} cannot be NOT NULL", others)


def dotted_column(path: tuple[str, ...]) -> str:
    """Return a path as Spark's `col` reads it."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in path)


def _check_rows(frame: DataFrame, holds: Column, what: str, shown: tuple[str, ...]) -> None:
    sf = functions()
    broken = frame.where(~sf.coalesce(holds.cast("boolean"), sf.lit(False)))
    [count] = broken.select(sf.count(sf.lit(1)).alias("count")).collect()
    if count["count"] == 0:
        return
    example = broken.select(*(sf.col(dotted_column((name,))) for name in shown)).limit(1).collect() if shown else []
    values = f" One of them has {', '.join(f'{k} = {v!r}' for k, v in example[0].asDict().items())}." if example else ""
    rows = "1 row breaks" if count["count"] == 1 else f"{count['count']} rows break"
    raise ConstraintViolationError(f"{what}: {rows} it.{values} Nothing was committed.")


def _analyzed(spark: SparkSession, schema: StructType, sql: TableSql, hint: str = "") -> DataType:
    """Return the type of an expression on columns of a schema, by Spark's analyzer; it must be on the allow-list."""
    from pyspark.errors import PySparkException

    try:
        check_texts(spark, [sql], schema)
    except UntrustedExpressionError:
        raise
    except InvalidCommitError as error:
        more = f" {hint}" if hint and "cannot be resolved" in str(error) else ""
        raise InvalidCommitError(f"{error}{more}") from error
    with _functions_of(spark) as sf:
        try:
            frame = spark.createDataFrame([], schema.to_spark())
            # In a filter, the analyzer refuses aggregates, windows and generators.
            assert frame.where(sf.expr(sql.text).isNull()).schema is not None
            found = frame.select(sf.expr(sql.text).alias("value")).schema
        except PySparkException as error:
            more = f" {hint}" if hint and "UNRESOLVED_COLUMN" in str(error) else ""
            raise InvalidCommitError(f"{sql.title} cannot be ({sql.text}): {first_line(error)}{more}") from error
    return StructType.from_spark(found).fields[0].type


def _check_words(expression: str, what: str, *, constant: bool) -> None:
    """Refuse what the analyzer accepts: subqueries and, in generated columns, functions that change."""
    found = _words(expression)
    if not found:
        raise InvalidCommitError(f"{what} needs an expression.")
    if "select" in found:
        raise InvalidCommitError(f"{what} cannot have a subquery: {expression}")
    if not constant:
        return
    changing = (called_functions(expression) & _CHANGING) | (set(found) & _CHANGING_WITHOUT_PARENTHESES)
    changing |= {a for a, b, c in zip(found, found[1:], found[2:], strict=False) if (b, c) == ("(", ")")} & (
        _CHANGING_WITHOUT_ARGUMENTS
    )
    if changing:
        raise InvalidCommitError(
            f"{what} cannot use {', '.join(sorted(changing))}, whose answer depends on more than the row: {expression}"
        )


def _words(expression: str) -> list[str]:
    try:
        return words(expression)
    except FilterError as error:
        raise InvalidCommitError(str(error)) from error


def _plain(type_: DataType) -> DataType:
    """Return a type without nullability and comments, for comparisons."""

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return StructField(field.name, with_nullable_parts(field.type))

    return transform_fields(strings_for_chars(StructType([StructField("value", type_)])), change).fields[0].type


@contextmanager
def _functions_of(thing: SparkSession | DataFrame) -> Iterator[Any]:
    """Return the column functions for the kind of session."""
    with functions_for(thing), quiet_analysis():
        yield functions()
