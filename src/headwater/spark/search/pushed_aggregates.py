"""Aggregates that the splits of a search table answer one by one, and Spark puts together.

Taken are those whose partial results are exact whatever the order of rows: counts, sums of whole numbers, and extremes
of types that Spark and Arrow order alike. Floating point numbers (NaN, the order of additions) are left to Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from headwater.log.schema import DataType
    from headwater.spark.jvm import JavaObject

_WHOLE = frozenset({BYTE, SHORT, INTEGER, LONG})
_ORDERED = _WHOLE | {DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, BOOLEAN}


@dataclass(frozen=True)
class PushedFunction:
    """An aggregate function."""

    name: str
    """`count`, `sum`, `min` or `max`."""
    column: str | None = None
    """None for COUNT(*)."""
    of_length: bool = False
    """Whether it is about how many characters the column's texts have."""

    def __str__(self) -> str:
        return f"{self.name}({f'length({self.column})' if self.of_length else self.column or '*'})"


@dataclass(frozen=True)
class PushedAggregate:
    """`SELECT group_by, functions GROUP BY group_by`, for each split."""

    group_by: tuple[str, ...]
    functions: tuple[PushedFunction, ...]
    shown: StructType
    """The columns of the result: groups, then functions. Spark takes them by their place; no two have the same name."""

    @property
    def is_count_of_all(self) -> bool:
        """Whether only the number of rows is asked for."""
        return not self.group_by and all(function == PushedFunction("count") for function in self.functions)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of the table that is needed."""
        named = (function.column for function in self.functions if function.column is not None)
        return tuple(dict.fromkeys((*self.group_by, *named)))

    def __str__(self) -> str:
        return ", ".join(map(str, self.functions)) + (f" by {', '.join(self.group_by)}" if self.group_by else "")


def pushed_aggregate(aggregation: JavaObject, schema: StructType, *, ansi: bool) -> PushedAggregate | None:
    """What Spark asks for, if splits can answer it; None otherwise.

    Args:
        aggregation: Spark's `Aggregation`.
        schema: the columns of the table.
        ansi: whether the session is in ANSI mode; outside of it a sum that is too large must wrap around.
    """
    functions: list[PushedFunction] = []
    fields: list[StructField] = []
    try:
        groups = [_field(schema, expression) for expression in aggregation.groupByExpressions()]
        if not all(_is_ordered(field.type) for field in groups):
            return None
        for function in aggregation.aggregateExpressions():
            found = _function(function, schema, ansi=ansi)
            if found is None:
                return None
            functions.append(found[0])
            fields.append(StructField(str(found[0]), found[1]))
    except (_UnsupportedError, ColumnNotFoundError):
        return None
    shown = _with_own_names([*(StructField(field.name, field.type) for field in groups), *fields])
    return PushedAggregate(tuple(f.name for f in groups), tuple(functions), StructType(shown))


def _with_own_names(fields: list[StructField]) -> list[StructField]:
    """The same with names of their own: a column of the table may be called as a function reads, `count(*)`."""
    if len({field.name.lower() for field in fields}) == len(fields):
        return fields
    return [StructField(f"{number} {field.name}", field.type) for number, field in enumerate(fields)]


class _UnsupportedError(Exception):
    """Not a plain column; never leaves this module."""


def _function(function: JavaObject, schema: StructType, *, ansi: bool) -> tuple[PushedFunction, DataType] | None:
    """An aggregate function, and the type of its result."""
    kind = function.getClass().getSimpleName()
    if kind == "CountStar":
        return PushedFunction("count"), LONG
    if kind not in ("Count", "Sum", "Min", "Max") or (kind in ("Count", "Sum") and function.isDistinct()):
        return None
    field, of_length = _measured(schema, function.column())
    measured = INTEGER if of_length else field.type
    found = PushedFunction(kind.lower(), field.name, of_length)
    match kind:
        case "Count":
            return found, LONG
        case "Sum" if measured in _WHOLE and (ansi or measured != LONG):
            return found, LONG
        case "Min" | "Max" if _is_ordered(measured):
            return found, measured
    return None


def _measured(schema: StructType, expression: JavaObject) -> tuple[StructField, bool]:
    """The column that an aggregate function is about, and whether it is about the length of its texts."""
    if expression.getClass().getSimpleName() != "GeneralScalarExpression":
        return _field(schema, expression), False
    operands = list(expression.children())
    if expression.name() != "CHAR_LENGTH" or len(operands) != 1:
        raise _UnsupportedError
    field = _field(schema, operands[0])
    if field.type != STRING:  # of bytes it is how many they are, and padded texts have the length of their type
        raise _UnsupportedError
    return field, True


def _field(schema: StructType, expression: JavaObject) -> StructField:
    """The top-level column that an expression of Spark's interface names."""
    if expression.getClass().getSimpleName() != "FieldReference":
        raise _UnsupportedError
    names = list(expression.fieldNames())
    if len(names) != 1:
        raise _UnsupportedError
    return schema.field(names[0])


def _is_ordered(type_: DataType) -> bool:
    return type_ in _ORDERED or isinstance(type_, DecimalType)
