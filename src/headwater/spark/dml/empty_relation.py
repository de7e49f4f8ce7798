"""A DataFrame with the columns of a table and nothing behind them: what Spark makes of a condition on these columns.

The analyzer says which columns a condition needs and whether it is deterministic; the optimizer folds constants and
unwraps casts, after which the log can prune by it. The plan is never run, so it needs no filesystem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.log.expressions import And, Column, Constant
from headwater.spark.catalyst import to_expression
from headwater.spark.columns import ScanColumns
from headwater.spark.jvm import EXPRESSIONS, jvm_of
from headwater.spark.scan import relation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.expressions import Expression
    from headwater.log.schema import StructType

_ROOT = "file:/headwater/no-files"


@dataclass(frozen=True)
class _NoFiles:
    """A `headwater.spark.file_index.FileSource` without files."""

    schema_json: str

    @property
    def name(self) -> str:
        """The columns are all there is."""
        return f"Headwater(no files, {hash(self.schema_json):x})"

    @property
    def key(self) -> str:
        """The columns are all there is."""
        return self.schema_json

    @property
    def root(self) -> str:
        """Nowhere."""
        return _ROOT

    @property
    def partition_fields(self) -> list[dict[str, Any]]:
        """None."""
        return []

    @property
    def size_bytes(self) -> int:
        """Large enough for no rule of the optimizer to do something special."""
        return 2**40

    @property
    def lists_at_once(self) -> bool:
        """No."""
        return False

    @property
    def may_list_all(self) -> bool:
        """There is nothing to list."""
        return False

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """Columns have the table's own names."""
        return Column(path)

    def rows(self, where: Expression) -> pa.Table:
        """Never asked for."""
        raise AssertionError(f"a plan without files was run, with {where}")


@dataclass(frozen=True, slots=True)
class AnalyzedFilter:
    """What Spark says of a condition."""

    columns: frozenset[str]
    """The top-level columns that it needs."""
    is_deterministic: bool
    has_subquery: bool
    pruning: Expression
    """What the log can prune by."""


def empty_relation(spark: SparkSession, schema: StructType) -> DataFrame:
    """The columns of a table, in a classic session."""
    # The log may have nulls where the schema allows none: the optimizer must not answer `IS NULL` by the schema.
    fields = [replace(field, nullable=True) for field in ScanColumns(schema, "none", ()).visible.fields]
    return relation(spark, _NoFiles(schema.to_json()), fields, {})


def analyzed_filter(filtered: DataFrame) -> AnalyzedFilter:
    """What Spark makes of the filter on top of an empty relation.

    Args:
        filtered: of a classic session; its plan is a filter over the relation.
    """
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
    """The filters of an optimized plan."""
    parts: list[Expression] = []
    while plan.children().size():
        if plan.nodeName() == "Filter":
            parts.append(to_expression(plan.condition(), Column))
        plan = plan.children().apply(0)
    if plan.nodeName() in ("LocalRelation", "EmptyRelation", "OneRowRelation"):
        return Constant(False)  # Spark has seen that no row can match
    return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else Constant(True)
