"""Analyze the condition of a command: SQL text or a Column, on columns of the table, perhaps under an alias.

Spark evaluates the condition, and null does not match. Before anything runs, invalid conditions are refused, and the
part that the log can prune by is derived. In a classic session Spark's analyzer says which columns a condition needs
and whether it is deterministic, and its optimizer folds constants and unwraps casts, on a relation without files;
that plan is never run. A condition on partition columns alone is evaluated on the values of each partition: no data
file is read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.files.arrow import distinct_rows
from headwater.log.filters.expressions import Column as TableColumn
from headwater.log.filters.expressions import Constant, Expression, and_
from headwater.log.schema import StructField, StructType, compares_as_is
from headwater.log.schema.types import quoted
from headwater.spark.dml.connect_condition import columns_in, connect_pruning
from headwater.spark.errors import quiet_analysis
from headwater.spark.functions import (
    RANDOM_FUNCTIONS,
    TIME_FUNCTIONS,
    called_functions,
    functions,
    jvm_session,
    no_rows,
    words,
)
from headwater.spark.jvm import EXPRESSIONS, jvm_of
from headwater.spark.scan.catalyst import to_expression
from headwater.spark.scan.columns import ScanColumns
from headwater.spark.scan.file_index import PythonFileIndex, relation
from headwater.spark.scan.files import partition_values
from headwater.spark.scan.request import known_part
from headwater.spark.write.overwrite import PARTITION_NUMBER, partition_frame, partition_key, partition_texts
from headwater.spark.write.values import as_read, shows_padding

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.dml.target import DmlTarget


@dataclass(frozen=True)
class _NoFiles:
    """A `headwater.spark.scan.file_index.FileSource` without files."""

    key: str
    root: str = "file:/headwater/no-files"
    partition_fields: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    size_bytes: int = 2**40
    """Large, so that no rule of the optimizer for small relations applies."""
    lists_at_once: bool = False
    may_list_all: bool = False

    @property
    def name(self) -> str:
        return f"Headwater(no files, {hash(self.key):x})"

    def resolve(self, path: tuple[str, ...]) -> TableColumn | None:
        return TableColumn(path)

    def rows(self, where: Expression) -> pa.Table:
        raise AssertionError(f"a plan without files was run, with {where}")


@dataclass(frozen=True, slots=True)
class AnalyzedFilter:
    """What Spark says of a condition."""

    columns: frozenset[str]
    """The top-level columns that it needs."""
    is_deterministic: bool
    has_subquery: bool
    pruning: Expression
    """The part that the log can prune by."""


def empty_relation(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return the columns of a table as a DataFrame without files, in a classic session."""
    # The log may have nulls where the schema allows none: the optimizer must not answer `IS NULL` by the schema.
    fields = [replace(field, nullable=True) for field in ScanColumns(schema, "none", ()).visible.fields]
    return relation(spark, PythonFileIndex(spark, _NoFiles(schema.to_json())), fields, {})


def analyzed_filter(filtered: DataFrame) -> AnalyzedFilter:
    """Analyze a filter on top of an empty relation, in a classic session."""
    execution = filtered._jdf.queryExecution()
    condition = execution.analyzed().condition()
    references = condition.references().toSeq()
    jvm = jvm_of(filtered.sparkSession)
    return AnalyzedFilter(
        frozenset(references.apply(i).name() for i in range(references.size())),
        bool(condition.deterministic()),
        bool(jvm.call(f"{EXPRESSIONS}.SubqueryExpression", "hasSubquery", condition)),
        _pruning(execution.optimizedPlan()),
    )


def _pruning(plan: Any) -> Expression:
    """Return the filters of an optimized plan."""
    parts: list[Expression] = []
    while plan.children().size():
        if plan.nodeName() == "Filter":
            parts.append(to_expression(plan.condition(), TableColumn))
        plan = plan.children().apply(0)
    if plan.nodeName() in ("LocalRelation", "EmptyRelation", "OneRowRelation"):
        return Constant(False)  # Spark has seen that no row can match
    return and_(*parts)


@dataclass(frozen=True)
class Condition:
    """A condition that was checked. Use `read_condition`."""

    given: str | Column | None
    """None matches every row."""
    alias: str | None
    analyzed: AnalyzedFilter

    @property
    def pruning(self) -> Expression | None:
        """The part that the log can prune by; None when every row matches."""
        return None if self.given is None else self.analyzed.pruning

    @cached_property
    def text(self) -> str:
        return expression_text(self.given) if self.given is not None else "true"

    @cached_property
    def is_stable(self) -> bool:
        """Whether it gives the same result when it is evaluated again later."""
        return not _mentions(self.text, TIME_FUNCTIONS)

    def aliased(self, frame: DataFrame) -> DataFrame:
        return frame if self.alias is None else frame.alias(self.alias)

    def matches(self) -> Column:
        """Return true or false, never null, over rows under the alias."""
        sf = functions()
        if self.given is None:
            every: Column = sf.lit(True)
            return every
        value = sf.expr(self.given) if isinstance(self.given, str) else self.given
        matches: Column = sf.coalesce(value.cast("boolean"), sf.lit(False))
        return matches

    def filtered(self, frame: DataFrame) -> DataFrame:
        aliased = self.aliased(frame)
        # Not `matches`: Spark pushes the bare condition down to the files.
        return aliased if self.given is None else aliased.where(self.given)


def read_condition(target: DmlTarget, given: str | Column | None, alias: str | None) -> Condition:
    """Check and analyze the condition of a command.

    Args:
        given: as the user has it.
        alias: the name for the table in it.

    Raises:
        TypeError: it is neither text nor a Column.
        ColumnNotFoundError: the table has no such column.
        FilterError: it is not a condition that the command can have.
    """
    schema = target.definition.schema
    if given is None:
        return Condition(None, alias, AnalyzedFilter(frozenset(), True, False, Constant(True)))
    if not isinstance(given, str) and not is_column(given):
        raise TypeError(f"the condition of {target.operation} is SQL text or a Column, not {type(given).__name__}")
    text = expression_text(given)
    what = f"{target.uri}: the condition of {target.operation} ({text})"
    if isinstance(given, str) and not given.strip():
        raise FilterError(f"{target.uri}: the condition of {target.operation} is empty; leave it out to mean all rows.")
    if isinstance(given, str) and "select" in words(given):
        raise FilterError(f"{what} has a subquery, which is not supported: use merge with the other table as source.")
    analyzed = _analyzed(target.spark, schema, alias, given, what)
    if analyzed.has_subquery:
        raise FilterError(f"{what} has a subquery, which is not supported: use merge with the other table as source.")
    if not analyzed.is_deterministic:
        raise FilterError(
            f"{what} is not deterministic: it may match other rows each time that it is evaluated, so it does not say "
            "which rows it means."
        )
    # Old files know nothing of columns that this very commit adds.
    return Condition(given, alias, replace(analyzed, pruning=known_part(analyzed.pruning, target.snapshot.schema)))


def is_column(value: object) -> bool:
    """Return whether a value is a Column of either kind of session."""
    from pyspark.sql import Column

    return isinstance(value, Column) or type(value).__module__ == "pyspark.sql.connect.column"


def expression_text(given: Any) -> str:
    """Return an expression as text, for messages and the history."""
    if isinstance(given, str):
        return given
    text = str(given)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") else text


def _mentions(text: str, names: frozenset[str]) -> bool:
    try:
        return not names.isdisjoint(words(text))
    except FilterError:
        return True  # a text that is no SQL: in doubt it does


def _analyzed(
    spark: SparkSession, schema: StructType, alias: str | None, given: str | Column, what: str
) -> AnalyzedFilter:
    from pyspark.errors import PySparkException

    try:
        with quiet_analysis():
            if jvm_session(spark) is not None:
                empty = empty_relation(spark, schema)
                return analyzed_filter((empty if alias is None else empty.alias(alias)).where(given))
            empty = no_rows(spark, ScanColumns(schema, "none", ()).visible)
            assert (empty if alias is None else empty.alias(alias)).where(given).schema is not None
    except PySparkException as error:
        raise explained(error, what) from error
    columns = columns_in(given, schema, alias)
    is_deterministic = called_functions(expression_text(given)).isdisjoint(RANDOM_FUNCTIONS)
    pruning = connect_pruning(spark, schema, alias, given)
    return AnalyzedFilter(frozenset(schema.names) if columns is None else columns, is_deterministic, False, pruning)


def explained(error: Exception, what: str) -> FilterError | ColumnNotFoundError:
    """Return what Spark's analyzer says of an expression as an error of ours."""
    from headwater.spark.errors import first_line

    kind = ColumnNotFoundError if "UNRESOLVED_COLUMN" in str(error) else FilterError
    return kind(f"{what} cannot be evaluated: {first_line(error)}")


def matching_files(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, matching: Callable[[DataFrame], DataFrame]
) -> list[int]:
    """Return the positions of the files whose rows match.

    Args:
        files: of the table, with their `partitionValues`.
        matching: filters rows that have the table's partition columns (and one more).
    """
    if files.num_rows == 0:
        return []
    names = [snapshot.schema.field(name).name for name in snapshot.partition_columns]
    values: dict[str, pa.Array] = {
        name: partition_values(
            files.column("partitionValues"),
            snapshot.schema.field(name),
            partition_key(snapshot, name),
            snapshot.ctx.time_zone,
        ).combine_chunks()
        for name in names
    }
    if not names:  # a condition without columns: it is true or false
        one = spark.range(1).select(functions().col("id").alias(PARTITION_NUMBER))
        return list(range(files.num_rows)) if matching(one).collect() else []
    distinct = distinct_rows(pa.table(values))
    plain = StructType([StructField(name, snapshot.schema.field(name).type) for name in names])
    frame = _as_read(partition_frame(spark, distinct, plain), snapshot, names)
    kept = [row[0] for row in matching(frame).select(quoted(PARTITION_NUMBER)).collect()]
    wanted = partition_texts([distinct.column(name) for name in names], distinct.num_rows).take(
        pa.array(kept, pa.int64())
    )
    own = partition_texts([pa.chunked_array([values[name]]) for name in names], files.num_rows)
    found: list[int] = pc.indices_nonzero(pc.is_in(own, value_set=wanted.combine_chunks())).to_pylist()
    return found


def _as_read(frame: DataFrame, snapshot: Snapshot, names: list[str]) -> DataFrame:
    """Convert partition values to what a query sees: padded or collated text is compared by its own rules."""
    fields = [snapshot.schema.field(name) for name in names]
    if all(compares_as_is([field]) for field in fields):
        return frame
    sf = functions()
    padded = shows_padding(frame.sparkSession)
    columns = []
    for field in fields:
        value = sf.col(quoted(field.name))
        columns.append(value if compares_as_is([field]) else as_read(value, field, padded=padded))
    return frame.select(*columns, sf.col(quoted(PARTITION_NUMBER)))
