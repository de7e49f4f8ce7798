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
class PushedAggregate:
    """`SELECT group_by, functions GROUP BY group_by`, for each split."""

    group_by: tuple[str, ...]
    functions: tuple[tuple[str, str | None], ...]
    """`count`, `sum`, `min` or `max`, and the column; no column for COUNT(*)."""
    shown: StructType
    """The columns of the result: groups, then functions."""

    @property
    def is_count_of_all(self) -> bool:
        """Whether only the number of rows is asked for."""
        return not self.group_by and all(function == ("count", None) for function in self.functions)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of the table that is needed."""
        named = (column for _, column in self.functions if column is not None)
        return tuple(dict.fromkeys((*self.group_by, *named)))

    def __str__(self) -> str:
        texts = [f"{name}({column or '*'})" for name, column in self.functions]
        return ", ".join(texts) + (f" by {', '.join(self.group_by)}" if self.group_by else "")


def pushed_aggregate(aggregation: JavaObject, schema: StructType, *, ansi: bool) -> PushedAggregate | None:
    """What Spark asks for, if splits can answer it; None otherwise.

    Args:
        aggregation: Spark's `Aggregation`.
        schema: the columns of the table.
        ansi: whether the session is in ANSI mode; outside of it a sum that is too large must wrap around.
    """
    functions: list[tuple[str, str | None]] = []
    fields: list[StructField] = []
    try:
        groups = [_field(schema, expression) for expression in aggregation.groupByExpressions()]
        if not all(_is_ordered(field.type) for field in groups):
            return None
        for function in aggregation.aggregateExpressions():
            found = _function(function, schema, ansi=ansi)
            if found is None:
                return None
            name, field, type_ = found
            functions.append((name, None if field is None else field.name))
            fields.append(StructField(f"{name}({functions[-1][1] or '*'})", type_))
    except (_UnsupportedError, ColumnNotFoundError):
        return None
    group_fields = [StructField(field.name, field.type) for field in groups]
    return PushedAggregate(tuple(f.name for f in groups), tuple(functions), StructType([*group_fields, *fields]))


class _UnsupportedError(Exception):
    """Not a plain column; never leaves this module."""


def _function(
    function: JavaObject, schema: StructType, *, ansi: bool
) -> tuple[str, StructField | None, DataType] | None:
    """The name, column and result type of an aggregate function."""
    kind = function.getClass().getSimpleName()
    if kind == "CountStar":
        return "count", None, LONG
    if kind not in ("Count", "Sum", "Min", "Max") or (kind in ("Count", "Sum") and function.isDistinct()):
        return None
    field = _field(schema, function.column())
    match kind:
        case "Count":
            return "count", field, LONG
        case "Sum" if field.type in _WHOLE and (ansi or field.type != LONG):
            return "sum", field, LONG
        case "Min" | "Max" if _is_ordered(field.type):
            return kind.lower(), field, field.type
    return None


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
