"""Check the rules of a table for every row: NOT NULL, "CHECK Constraints" and "Column Invariants" of the spec.

Each rule is a condition that must be true; null is not. One expression around a column that is written anyway checks
all of them, so the job that makes the rows checks them, and the optimizer can neither drop the check nor move it
below the query that the rows come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import InvalidCommitError
from headwater.features.feature import INVARIANTS_KEY
from headwater.features.registry import supports
from headwater.log.configuration.properties import CONSTRAINT_PREFIX
from headwater.log.schema import ArrayType, MapType, StructField, StructType
from headwater.log.schema.types import dotted, quoted
from headwater.spark.errors import violation
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.log.actions.model import Protocol

Path: TypeAlias = tuple[str, ...]
_MAX_SHOWN = 5
"""How many values of the row a message shows."""


@dataclass(frozen=True)
class Check:
    """A condition on the rows of a table."""

    rule: str
    """The message when a row breaks it."""
    holds: Column
    """Never null."""
    shown: tuple[str, ...] = ()
    """The columns of which the message shows the values."""


@dataclass(frozen=True, slots=True)
class SqlRule:
    """A condition in SQL that must be true for every row."""

    title: str
    expression: str

    def check(self, schema: StructType) -> Check:
        sf = functions()
        rule = f"{self.title} ({self.expression}) is violated."
        holds = sf.coalesce(sf.expr(self.expression).cast("boolean"), sf.lit(False))
        return Check(rule, holds, mentioned_columns(self.expression, schema))


def sql_rules(protocol: Protocol, properties: Mapping[str, str], schema: StructType) -> list[SqlRule]:
    """Return the CHECK constraints and invariants that are in force."""
    rules: list[SqlRule] = []
    if supports(protocol, "checkConstraints"):
        rules += [
            SqlRule(f"CHECK constraint {key[len(CONSTRAINT_PREFIX) :]}", properties[key])
            for key in sorted(properties)
            if key.lower().startswith(CONSTRAINT_PREFIX)
        ]
    if supports(protocol, "invariants"):
        rules += [SqlRule(f"the invariant of column {dotted(path)}", text) for path, text in _invariants(schema, ())]
    return rules


def null_checks(schema: StructType) -> list[Check]:
    """Check NOT NULL, at every level: inside a struct, array or map that is itself null, nothing is missing."""
    sf = functions()
    checks: list[Check] = []
    for field in schema.fields:
        value = sf.col(quoted(field.name))
        for path, is_null in _nulls(field, (field.name,)):
            rule = f"column {dotted(path)} is NOT NULL, and a row has no value for it."
            others = tuple(f.name for f in schema.fields if f is not field)
            checks.append(Check(rule, ~sf.coalesce(is_null(value), sf.lit(False)), others[:_MAX_SHOWN]))
    return checks


def with_checks(
    frame: DataFrame, schema: StructType, checks: list[Check], also: Sequence[str] = (), carrier: str | None = None
) -> DataFrame:
    """Return the rows; the job that reads a row which breaks a rule fails.

    Args:
        schema: the columns that they have.
        checks: the rules.
        also: hidden columns that they have.
        carrier: the column whose values are only there if no rule is broken; it must be read. By default any.
    """
    if not checks:
        return frame
    sf = functions()
    nested = StructType | ArrayType | MapType
    if carrier is None:
        carrier = next((f for f in schema.fields if not isinstance(f.type, nested)), schema.fields[0]).name
    failing: Any = sf
    for check in checks:
        shown = [(dotted((name,)), sf.col(quoted(name))) for name in check.shown]
        failing = failing.when(~check.holds, violation(check.rule, shown))
    checked = failing.otherwise(sf.col(quoted(carrier))).alias(carrier)
    names = [*(field.name for field in schema.fields), *also]
    return frame.select(*(checked if name == carrier else sf.col(quoted(name)) for name in names))


def mentioned_columns(expression: str, schema: StructType) -> tuple[str, ...]:
    """Return the top-level columns that a text in SQL names, as far as it can be parsed.

    >>> from headwater.log.schema import LONG
    >>> mentioned_columns("ID > 0 AND abs(x.y) < 3", StructType([StructField("id", LONG), StructField("z", LONG)]))
    ('id',)
    """
    words = _named(expression) or ()
    return tuple(f.name for f in schema.fields if f.name.lower() in words)[:_MAX_SHOWN]


def may_depend(expression: str, columns: Collection[str]) -> bool:
    """Return whether the value of a text in SQL may change when top-level columns change.

    >>> may_depend("CAST(ts AS DATE)", ["id"]), may_depend("CAST(ts AS DATE)", ["TS"]), may_depend("((", ["id"])
    (False, True, True)
    """
    words = _named(expression)
    return words is None or any(column.lower() in words for column in columns)


def columns_in_sql(expression: str) -> list[tuple[str, ...]] | None:
    """Return the columns that a text in SQL names, as paths; None if it cannot be parsed."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(expression, dialect="spark")
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError):
        return None
    return [tuple(part.name for part in column.parts) for column in tree.find_all(exp.Column)]


def _named(expression: str) -> frozenset[str] | None:
    """Return the top-level columns that a text in SQL names, in lower case; None if it cannot be parsed."""
    paths = columns_in_sql(expression)
    return None if paths is None else frozenset(path[0].lower() for path in paths)


def _invariants(struct: StructType, path: Path) -> Iterator[tuple[Path, str]]:
    for field in struct.fields:
        here = (*path, field.name)
        text = field.metadata.get(INVARIANTS_KEY)
        if text is not None:
            yield here, _invariant(text, here)
        if isinstance(field.type, StructType):
            yield from _invariants(field.type, here)


def _invariant(text: object, path: Path) -> str:
    try:
        expression = json.loads(str(text))["expression"]["expression"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidCommitError(
            f"the invariant of column {dotted(path)} cannot be read ({INVARIANTS_KEY} is {text!r}), so nothing can be "
            "written to the table."
        ) from error
    return str(expression)


_Test: TypeAlias = "Callable[[Column], Column]"
"""Makes a condition of a value."""


def _nulls(field: StructField, path: Path) -> Iterator[tuple[Path, _Test]]:
    """Yield the paths in a column that may not be null, each with the test whether it is, on the column's value."""
    if not field.nullable:
        yield path, lambda value: value.isNull()
    match field.type:
        case StructType(fields=fields):
            for inner in fields:
                for found, test in _nulls(inner, (*path, inner.name)):
                    yield found, _of_field(inner.name, test)
        case ArrayType(element_type=element, contains_null=nullable):
            for found, test in _nulls(StructField("element", element, nullable), (*path, "element")):
                yield found, _of_any(test)
        case MapType(key_type=key, value_type=item, value_contains_null=nullable):
            for found, test in _nulls(StructField("key", key), (*path, "key")):
                yield found, _of_any(test, functions().map_keys)
            for found, test in _nulls(StructField("value", item, nullable), (*path, "value")):
                yield found, _of_any(test, functions().map_values)


def _of_field(name: str, test: _Test) -> _Test:
    return lambda struct: struct.isNotNull() & test(struct[name])


def _of_any(test: _Test, items: _Test | None = None) -> _Test:
    # The lambda must have one parameter: Spark looks at its signature.
    return lambda value: functions().exists(value if items is None else items(value), lambda one: test(one))
