"""Analyze conditions on Spark Connect: the columns in them, and what the log can prune by.

Text is parsed as for `hw.read(where=...)`. A Column is a tree of the client, of which plain comparisons are understood.
What is not understood prunes nothing; Spark evaluates the condition in any case.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.filters.expressions import (
    FLIPPED,
    And,
    Column,
    Compare,
    CompareOp,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
    rename_columns,
)
from headwater.log.filters.sql import parse_filter
from headwater.log.schema.types import resolve
from headwater.spark.scan.request import prunable
from headwater.spark.write.constraints import columns_in_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.schema import StructType

_COMPARISONS: dict[str, CompareOp] = {"==": "=", "=": "=", "<=>": "<=>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def connect_pruning(spark: SparkSession, schema: StructType, alias: str | None, given: Any) -> Expression:
    """Return the part of a condition that the log can prune by."""
    try:
        parsed = parse_filter(given) if isinstance(given, str) else _predicate(given._expr)
    except FilterError:
        return Unknown("not understood")
    return prunable(spark, _own(parsed, schema, alias), schema)


def columns_in(given: Any, schema: StructType, alias: str | None) -> frozenset[str] | None:
    """Return the top-level columns of the table in an expression; None if they cannot be determined."""
    paths = columns_in_sql(given) if isinstance(given, str) else _paths_in_tree(given._expr)
    if paths is None:
        return None
    found = [_column(path, schema, alias) for path in paths]
    return None if None in found else frozenset(name for name in found if name is not None)


def _paths_in_tree(node: Any) -> list[tuple[str, ...]] | None:
    kind = type(node).__name__
    if kind == "ColumnReference":
        return [_parts(node._unparsed_identifier)]
    if kind == "SQLExpression":
        return columns_in_sql(node._expr)
    if kind in ("UnresolvedStar", "UnresolvedRegex", "SubqueryExpression"):
        return None
    found: list[tuple[str, ...]] = []
    for child in node.children:
        inner = _paths_in_tree(child)
        if inner is None:
            return None
        found += inner
    return found


def _parts(identifier: str) -> tuple[str, ...]:
    """Split `a.b` or `` `a.b`.c `` into names."""
    from headwater.features.column_mapping import column_path

    return tuple(column_path(identifier))


def _column(path: tuple[str, ...], schema: StructType, alias: str | None) -> str | None:
    own = _without_alias(path, schema, alias)
    try:
        return resolve(schema, own[:1])[0].name
    except ColumnNotFoundError:
        return None


def _without_alias(path: tuple[str, ...], schema: StructType, alias: str | None) -> tuple[str, ...]:
    """Strip the table's alias from a column; a column of that name takes precedence, as in Spark."""
    if alias is None or len(path) < 2 or path[0].lower() != alias.lower():
        return path
    try:
        resolve(schema, path)
    except ColumnNotFoundError:
        return path[1:]
    return path


def _own(expr: Expression, schema: StructType, alias: str | None) -> Expression:
    return rename_columns(expr, lambda column: Column(_without_alias(column.parts, schema, alias)))


def _predicate(node: Any) -> Expression:
    """Convert a tree of the client, as far as it is understood."""
    kind = type(node).__name__
    if kind == "SQLExpression":
        return parse_filter(node._expr)
    if kind != "UnresolvedFunction":
        return Unknown(str(node))
    arguments = node._args
    match node._name.lower():
        case "and":
            return And(tuple(_predicate(argument) for argument in arguments))
        case "or":
            return Or(tuple(_predicate(argument) for argument in arguments))
        case "not" | "!":
            return Not(_predicate(arguments[0]))
    return _leaf(node._name, arguments) or Unknown(str(node))


def _leaf(name: str, arguments: list[Any]) -> Expression | None:
    names = [_reference(argument) for argument in arguments]
    values = [_literal(argument) for argument in arguments]
    if name.lower() == "isnull" and names[0] is not None:
        return IsNull(names[0])
    if name.lower() == "isnotnull" and names[0] is not None:
        return Not(IsNull(names[0]))
    if name.lower() == "in" and names[0] is not None and None not in values[1:]:
        return In(names[0], tuple(value for value in values[1:] if value is not None))
    if name.lower() == "startswith" and names[0] is not None and values[1] is not None:
        return StartsWith(names[0], str(values[1].value)) if isinstance(values[1].value, str) else None
    op = _COMPARISONS.get(name)
    if op is None or len(arguments) != 2:
        return None
    if names[0] is not None and values[1] is not None:
        return Compare(op, names[0], values[1])
    if names[1] is not None and values[0] is not None:
        return Compare(FLIPPED[op], names[1], values[0])
    return None


def _reference(node: Any) -> Column | None:
    if type(node).__name__ != "ColumnReference":
        return None
    return Column(_parts(node._unparsed_identifier))


def _literal(node: Any) -> Literal | None:
    """Convert a literal of a type that is compared alike everywhere; never null."""
    if type(node).__name__ != "LiteralExpression" or node._value is None:
        return None
    match node._dataType.typeName():
        case "byte" | "short" | "integer" | "long" | "string" | "boolean" | "double" | "decimal":
            return Literal(node._value)
        case "date":
            return Literal((_EPOCH + timedelta(days=node._value)).date())
        case "timestamp":
            return Literal(_EPOCH + timedelta(microseconds=node._value))
    return None
