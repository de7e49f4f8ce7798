"""Read the source of a MERGE: its rows, which must be the same in every job, and the values of its keys.

The source is read several times, so it is materialised once, unless reading it again surely gives the same rows. What
is materialised has no lineage: an executor that is lost with its rows makes the merge fail, not match other rows.
Each row gets a number, by which rows that match nothing are found.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.log.filters.expressions import And, Column, Compare, Constant, Expression, In, Literal
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
    DataType,
    DecimalType,
    StructType,
    compares_as_is,
)
from headwater.log.schema.types import check_characters, hidden, quoted, resolve
from headwater.spark.functions import functions, observation, query_execution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from headwater.spark.merge.condition import Key

SOURCE_ROW = hidden("source_row")
"""The number of a row of the source."""
INTEGRAL = (BYTE, SHORT, INTEGER, LONG)
_ORDERED = (BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING)
_FEW_VALUES = 100
"""Up to this many distinct values of a key, files are skipped by each of them, not only by the bounds."""
_STABLE_NODES = frozenset({"SubqueryAlias", "LocalRelation", "Range"})
_VALUE_BYTES = 16
"""The approximate size of a value in a row of Spark's."""


@dataclass(frozen=True)
class Source:
    """The rows of a source.

    Attributes:
        frame: the rows as the user has them, under the user's alias, and `SOURCE_ROW`.
        schema: the columns without `SOURCE_ROW`.
    """

    frame: DataFrame
    schema: StructType

    @classmethod
    def of(cls, df: DataFrame) -> Source:
        """Number the rows of a DataFrame.

        Raises:
            SchemaError: a column has a name that is not allowed.
        """
        check_characters(df.columns, "the source of MERGE")
        numbered = df.withColumn(SOURCE_ROW, functions().monotonically_increasing_id())
        return cls(numbered, StructType.from_spark(df.schema))

    def is_comparable(self, key: Key, target: StructType) -> bool:
        """Return whether the log's statistics order values as Spark compares these two columns."""
        path = resolve(target, key.target)
        source = self.schema.field(key.source)
        one, other = path[-1].type, source.type
        if not compares_as_is(path) or not compares_as_is([source]):
            return False
        return (one in INTEGRAL and other in INTEGRAL) or (one == other and _is_ordered(one))

    def column(self, name: str) -> Any:
        return self.frame[quoted(self.schema.field(name).name)]


@dataclass(frozen=True)
class FactsWanted:
    """What to find out about a source: how many rows it has, and bounds of its keys."""

    schema: StructType
    keys: tuple[Key, ...]
    bounded: tuple[Key, ...]
    """Those whose bounds can be compared with the target's statistics."""

    @classmethod
    def of(cls, source: Source, keys: Sequence[Key], target: StructType) -> FactsWanted:
        return cls(source.schema, tuple(keys), tuple(key for key in keys if source.is_comparable(key, target)))

    @property
    def _texts(self) -> list[str]:
        return [field.name for field in self.schema.fields if field.type == STRING]

    @property
    def is_plain(self) -> bool:
        """Whether values reach Python alike by every way: dates and times do not."""
        types = [self.schema.field(key.source).type for key in self.bounded]
        return all(type_ in (*INTEGRAL, BOOLEAN, STRING) or isinstance(type_, DecimalType) for type_ in types)

    def columns(self, source: Source) -> list[Any]:
        """Return the aggregates to compute."""
        sf = functions()
        asked: list[Any] = [sf.count(sf.lit(1)).alias("rows")]
        asked += [sf.sum(sf.octet_length(source.column(name))).alias(f"text{i}") for i, name in enumerate(self._texts)]
        for number, key in enumerate(self.bounded):
            value = source.column(key.source)
            asked += [
                sf.min(value).alias(f"min{number}"),
                sf.max(value).alias(f"max{number}"),
                sf.approx_count_distinct(value).alias(f"values{number}"),
            ]
        return asked

    def ask(self, source: Source) -> SourceFacts:
        """Compute the facts. One Spark job, at most one more a key."""
        found = source.frame.agg(*self.columns(source)).toArrow()
        return self.facts(source, lambda name: found.column(name)[0].as_py())

    def facts(self, source: Source, answer: Callable[[str], Any]) -> SourceFacts:
        """Return the facts, given the values of `columns`. Few distinct values of a key are read by another job."""
        rows: int = answer("rows")
        text_bytes = sum(answer(f"text{i}") or 0 for i in range(len(self._texts)))
        numeric = bool(self.keys) and not any(self.schema.field(key.source).type == STRING for key in self.keys)
        bounds = [_bounds(source, key, answer, number) for number, key in enumerate(self.bounded)]
        return SourceFacts(
            rows,
            size_bytes=rows * _VALUE_BYTES * (len(self.schema.fields) + 1) + text_bytes,
            key_bytes=rows * _VALUE_BYTES * (len(self.keys) + 1) + (0 if numeric else text_bytes),
            bounds=tuple(bounds) if rows else (Constant(False),),
        )


def _bounds(source: Source, key: Key, answer: Callable[[str], Any], number: int) -> Expression:
    try:
        low, high = (_plain(answer(f"{name}{number}")) for name in ("min", "max"))
        distinct = None
        if low is not None and answer(f"values{number}") <= _FEW_VALUES:
            values = source.frame.select(source.column(key.source).alias("value")).distinct().limit(2 * _FEW_VALUES)
            found = [_plain(value) for value in values.toArrow().column("value").to_pylist() if value is not None]
            distinct = found if len(found) < 2 * _FEW_VALUES else None
    except (ValueError, OverflowError):
        return Constant(True)  # beyond Python's calendar
    return _key_bounds(key.target, low, high, distinct)


def _key_bounds(target: tuple[str, ...], low: Any, high: Any, distinct: list[Any] | None) -> Expression:
    """Return the condition on a column of the target that equals one of the source.

    Args:
        low: the source's smallest value; None if it has only nulls, which equal nothing.
        high: the largest.
        distinct: all of them, if they are few.
    """
    if low is None:
        return Constant(False)
    column = Column(target)
    if distinct is not None:
        return In(column, tuple(Literal(value) for value in sorted(distinct)))
    return And((Compare(">=", column, Literal(low)), Compare("<=", column, Literal(high))))


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What is known about a source before it is joined."""

    rows: int
    size_bytes: int
    """Approximately, in the memory of Spark."""
    key_bytes: int
    """The same for the keys alone."""
    bounds: tuple[Expression, ...]
    """Conditions on the target's rows that any of them matches."""


@contextmanager
def materialized(
    source: Source, df: DataFrame, wanted: FactsWanted, *, keeps_numbers: bool
) -> Iterator[tuple[Source, SourceFacts]]:
    """Return the source with rows that no longer change, and facts about them. Usually one Spark job.

    Args:
        source: the rows of `df`.
        keeps_numbers: whether rows must have the same numbers in queries on different columns, which only materialised
            rows surely have.
    """
    if is_stable(df) and not keeps_numbers:
        yield source, wanted.ask(source)
        return
    observed = observation(df) if wanted.is_plain and query_execution(df) is not None else None
    frame = source.frame if observed is None else source.frame.observe(observed, *wanted.columns(source))
    kept = frame.localCheckpoint(eager=True)
    with released(kept):
        source = replace(source, frame=kept)
        yield source, wanted.ask(source) if observed is None else wanted.facts(source, observed.get.__getitem__)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))


def is_stable(df: DataFrame) -> bool:
    """Return whether a DataFrame surely gives the same rows again: local data, a range, one version of a table."""
    execution = query_execution(df)
    return execution is not None and all(map(_is_stable_node, _nodes(execution.analyzed())))


def _is_stable_node(node: Any) -> bool:
    name = node.nodeName()
    if name == "Project":
        outputs = node.projectList()
        return all(outputs.apply(i).getClass().getSimpleName() == "AttributeReference" for i in range(outputs.size()))
    if node.getClass().getSimpleName() == "LogicalRelation":
        relation = node.relation()
        is_files = relation.getClass().getSimpleName() == "HadoopFsRelation"
        return is_files and str(relation.location().toString()).startswith("Headwater(")
    return name in _STABLE_NODES


@contextmanager
def released(kept: DataFrame) -> Iterator[None]:
    """Release materialised rows in the end. On Spark Connect the server does when the DataFrame is gone."""
    try:
        yield
    finally:
        execution = query_execution(kept)
        if execution is not None:
            execution.analyzed().rdd().unpersist(False)


def _plain(value: Any) -> Any:
    """Convert points in time to UTC, as the log compares them."""
    is_instant = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if is_instant else value


def _is_ordered(type_: DataType) -> bool:
    return type_ in _ORDERED or isinstance(type_, DecimalType)
