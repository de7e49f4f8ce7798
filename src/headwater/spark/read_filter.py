"""What a read is asked to leave out from the start: rows (`where`) and columns (`columns`).

On the main road later filters and projections reach the scan by themselves. On the others they do not: there `where`
is the way to skip files by statistics, and `columns` the way to fetch less. The result is the same on every road: Spark
itself evaluates the filter, and the log only prunes by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.expressions import (
    And,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    Unknown,
    columns_of,
)
from headwater.log.filter_sql import parse_filter
from headwater.log.schema import TIMESTAMP, VOID, StructType, compares_as_is
from headwater.log.schema.lookup import resolve
from headwater.spark.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


@dataclass(frozen=True)
class Selection:
    """The rows and columns that a read wants."""

    where: str | None = None
    """A condition in Spark's SQL."""
    columns: tuple[str, ...] | None = None
    """Top-level columns of the table, in the order wanted; None for all of them."""

    def __post_init__(self) -> None:
        if self.where is not None and not isinstance(self.where, str):
            raise FilterError(f"where is a condition in SQL, not {type(self.where).__name__}")

    def pruning(self, spark: SparkSession, schema: StructType) -> Expression:
        """What the log can prune by: `where`, as far as this session reads it as the log does."""
        if self.where is None:
            return Constant(True)
        return prunable(spark, parse_filter(self.where), schema)

    def needed(self, schema: StructType) -> tuple[str, ...] | None:
        """The columns that must be read for the filter and the result; None for all.

        There is always one: PySpark 4.0 forgets how many rows a batch without columns has.

        Raises:
            ColumnNotFoundError: the table has no such column.
        """
        if self.columns is None:
            return None
        names = [schema.field(name).name for name in self.columns]
        if self.where is not None:
            parsed = parse_filter(self.where)
            if _has_unknown(_prunable(parsed, schema, in_utc=True)):
                return None
            names += [resolve(schema, column.parts)[0].name for column in columns_of(parsed)]
        names = names or [field.name for field in schema.fields if field.type != VOID][:1]
        return tuple(dict.fromkeys(names))

    def apply(self, frame: DataFrame, schema: StructType, also: Sequence[str] = ()) -> DataFrame:
        """The wanted rows and columns of a DataFrame of the table, and the columns `also`."""
        if self.where is not None:
            frame = frame.where(self.where)
        if self.columns is None:
            return frame
        return frame.select(*(quoted(name) for name in (*(schema.field(n).name for n in self.columns), *also)))


@dataclass(frozen=True)
class Wanted:
    """What a scan on another than the main road is asked for."""

    selection: Selection
    has_vectors: bool
    """Whether any live file has a deletion vector."""
    row_tracking: bool
    options: Mapping[str, str]
    """Of Spark's Parquet reader."""
    storage_options: Mapping[str, str] | None = field(repr=False)


def prunable(spark: SparkSession, parsed: Expression, schema: StructType) -> Expression:
    """The part of a filter that means the same to the session and to the log; the rest is unknown."""
    if str(spark.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        return Unknown("the session's types are compared by other rules")
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return _prunable(parsed, schema, in_utc=zone in _UTC)


def known_part(expr: Expression, schema: StructType) -> Expression:
    """The part of a filter that is about columns of a schema; the rest is unknown."""
    return _prunable(expr, schema, in_utc=True)


def _has_unknown(expr: Expression) -> bool:
    match expr:
        case Unknown():
            return True
        case Not(operand=inner):
            return _has_unknown(inner)
        case And(operands=parts) | Or(operands=parts):
            return any(_has_unknown(part) for part in parts)
    return False


def _prunable(expr: Expression, schema: StructType, *, in_utc: bool) -> Expression:
    """The part of a filter that means the same to the session and to the log; the rest is unknown.

    The log reads timestamps without a zone in UTC, the session in its own zone. Text with rules of its own is compared
    by the session only. Columns that the table does not have may be those that a scan adds.
    """
    match expr:
        case Not(operand=inner):
            return Not(_prunable(inner, schema, in_utc=in_utc))
        case And(operands=parts):
            return And(tuple(_prunable(part, schema, in_utc=in_utc) for part in parts))
        case Or(operands=parts):
            return Or(tuple(_prunable(part, schema, in_utc=in_utc) for part in parts))
        case Constant() | Unknown():
            return expr
    (column,) = columns_of(expr)
    try:
        fields = resolve(schema, column.parts)
    except ColumnNotFoundError:
        return Unknown(str(expr))
    if not isinstance(expr, IsNull) and not compares_as_is(fields):
        return Unknown(str(expr))
    is_instant = fields[-1].type == TIMESTAMP
    literals = expr.values if isinstance(expr, In) else (expr.right,) if isinstance(expr, Compare) else ()
    zoned = any(getattr(literal.value, "tzinfo", None) is not None for literal in literals)
    if in_utc or isinstance(expr, IsNull) or not (is_instant or zoned):
        return expr
    return Unknown(str(expr))
