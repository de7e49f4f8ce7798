"""The aggregates of a query that Spark hands over, answered by the splits of a search table one by one.

Taken are those whose partial results are exact whatever the order of rows: counts, sums of whole numbers, and extremes
of types that Spark and Arrow order alike. Floating point numbers (NaN, the order of additions) are left to Spark.

Spark combines the partial results of tasks. Where the driver can ask the splits itself, it asks all of them while the
query is planned, and the plan holds the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

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
from headwater.search.engine.aggregate import aggregate, answer, finish
from headwater.search.engine.aggregate_request import AggregateRequest, ByValue, Metric
from headwater.search.query.tree import All
from headwater.spark.search.splits import can_answer_on_driver, map_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot
    from headwater.search.engine.aggregate_request import Function
    from headwater.search.query.tree import Query
    from headwater.search.split.reader import Split
    from headwater.spark.jvm import JavaObject
    from headwater.spark.search.splits import SplitRef


_WHOLE = frozenset({BYTE, SHORT, INTEGER, LONG})
_ORDERED = _WHOLE | {DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, BOOLEAN}


@dataclass(frozen=True)
class PushedFunction:
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
        return not self.group_by and all(function == PushedFunction("count") for function in self.functions)

    @property
    def columns(self) -> tuple[str, ...]:
        named = (function.column for function in self.functions if function.column is not None)
        return tuple(dict.fromkeys((*self.group_by, *named)))

    def __str__(self) -> str:
        return ", ".join(map(str, self.functions)) + (f" by {', '.join(self.group_by)}" if self.group_by else "")


def pushed_aggregate(aggregation: JavaObject, schema: StructType, *, ansi: bool) -> PushedAggregate | None:
    """Translate Spark's `Aggregation`; None if splits cannot answer it.

    Outside of ANSI mode a sum that is too large must wrap around, which splits do not do.
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
    """Make names unique: a column of the table may be called as a function reads, `count(*)`."""
    if len({field.name.lower() for field in fields}) == len(fields):
        return fields
    return [StructField(f"{number} {field.name}", field.type) for number, field in enumerate(fields)]


class _UnsupportedError(Exception):
    """Not a plain column; never leaves this module."""


def _function(function: JavaObject, schema: StructType, *, ansi: bool) -> tuple[PushedFunction, DataType] | None:
    """Return an aggregate function and the type of its result; None if splits cannot answer it."""
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
    """Return the column that an aggregate function is about, and whether it is about the length of its texts."""
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
    """Return the top-level column that an expression of Spark's interface names."""
    if expression.getClass().getSimpleName() != "FieldReference":
        raise _UnsupportedError
    names = list(expression.fieldNames())
    if len(names) != 1:
        raise _UnsupportedError
    return schema.field(names[0])


def _is_ordered(type_: DataType) -> bool:
    return type_ in _ORDERED or isinstance(type_, DecimalType)


_MAX_GROUPS = 10_000
"""Of a split with more groups the driver does not hold the answer: tasks find them, and Spark merges them."""


def aggregate_split(split: Split, query: Query | None, wanted: PushedAggregate) -> pa.Table:
    """Return a row for each group of the rows that a query (None: all rows) finds in a split; one row without groups.

    Raises:
        SearchQueryError: a sum does not fit into 64 bits, which is an error for Spark in ANSI mode too.
    """
    request = _request(wanted)
    found = finish(aggregate(split, All() if query is None else query, request), request, split.schema)
    return found.rename_columns(list(wanted.shown.names)).combine_chunks()


def aggregate_on_driver(
    spark: SparkSession, snapshot: Snapshot, splits: Sequence[SplitRef], query: Query | None, wanted: PushedAggregate
) -> pa.Table | None:
    """Return the combined result of all splits; None where that is better left to a job."""
    if not can_answer_on_driver(spark, snapshot.uri, splits):
        return None
    request, rows = _request(wanted), All() if query is None else query
    parts: list[pa.Table] = []
    for some in (splits[:1], splits[1:]):
        parts += map_splits(snapshot, some, lambda split: aggregate(split, rows, request))
        if any(part.num_rows > _MAX_GROUPS for part in parts):
            return None
    return answer(parts, request, snapshot.schema).rename_columns(list(wanted.shown.names)).combine_chunks()


def _request(wanted: PushedAggregate) -> AggregateRequest:
    metrics = (
        Metric(cast("Function", function.name), function.column, f"f{number}", function.of_length)
        for number, function in enumerate(wanted.functions)
    )
    groups = (ByValue(column, f"g{i}") for i, column in enumerate(wanted.group_by))
    return AggregateRequest(tuple(metrics), tuple(groups))
