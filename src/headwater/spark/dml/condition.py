"""The condition of a command: SQL text or a Column, on columns of the table, perhaps under an alias.

Spark itself evaluates it, and null is no match. Here it is looked at before anything runs: what cannot be a condition
is refused, and what the log can prune by is worked out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.expressions import Constant, Expression
from headwater.spark.columns import ScanColumns
from headwater.spark.dml.connect_condition import columns_in, connect_pruning
from headwater.spark.dml.empty_relation import AnalyzedFilter, analyzed_filter, empty_relation
from headwater.spark.functions import functions, is_connect
from headwater.spark.no_rows import no_rows
from headwater.spark.quiet import quiet_analysis
from headwater.spark.read_filter import known_part
from headwater.spark.sql_words import RANDOM_FUNCTIONS, TIME_FUNCTIONS, called_functions, words

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.schema import StructType
    from headwater.spark.dml.target import DmlTarget


@dataclass(frozen=True)
class Condition:
    """A condition that was understood. Use `read_condition`."""

    given: str | Column | None
    """None matches every row."""
    alias: str | None
    analyzed: AnalyzedFilter

    @property
    def pruning(self) -> Expression | None:
        """What the log can prune by; None when every row matches."""
        return None if self.given is None else self.analyzed.pruning

    @cached_property
    def text(self) -> str:
        """For messages and the history."""
        return expression_text(self.given) if self.given is not None else "true"

    @cached_property
    def is_stable(self) -> bool:
        """Whether it has the same answer when it is evaluated again, a while later."""
        return not _mentions(self.text, TIME_FUNCTIONS)

    def aliased(self, frame: DataFrame) -> DataFrame:
        """Rows of the table, under the alias."""
        return frame if self.alias is None else frame.alias(self.alias)

    def matches(self) -> Column:
        """True or false, never null, over rows under the alias."""
        sf = functions()
        if self.given is None:
            every: Column = sf.lit(True)
            return every
        value = sf.expr(self.given) if isinstance(self.given, str) else self.given
        matches: Column = sf.coalesce(value.cast("boolean"), sf.lit(False))
        return matches

    def filtered(self, frame: DataFrame) -> DataFrame:
        """The rows that match."""
        aliased = self.aliased(frame)
        # Not `matches`: Spark pushes the bare condition down to the files.
        return aliased if self.given is None else aliased.where(self.given)


def read_condition(target: DmlTarget, given: str | Column | None, alias: str | None) -> Condition:
    """Understand the condition of a command.

    Args:
        target: the table.
        given: as the user has it.
        alias: the name for the table in it.

    Raises:
        TypeError: it is neither text nor a Column.
        ColumnNotFoundError: the table has no such column.
        FilterError: it is no condition that the command can have.
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
            f"{what} is not deterministic: it may match other rows each time that it is evaluated, so nobody can say "
            "which rows it means."
        )
    # Old files know nothing of columns that this very commit adds.
    return Condition(given, alias, replace(analyzed, pruning=known_part(analyzed.pruning, target.snapshot.schema)))


def is_column(value: object) -> bool:
    """Whether a value is a Column of either kind of session."""
    from pyspark.sql import Column

    return isinstance(value, Column) or type(value).__module__ == "pyspark.sql.connect.column"


def expression_text(given: Any) -> str:
    """An expression as text, for messages and the history."""
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
            if not is_connect(spark):
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
    """What Spark's analyzer says of an expression, as an error of ours."""
    from headwater.spark.expression_checks import first_line

    kind = ColumnNotFoundError if "UNRESOLVED_COLUMN" in str(error) else FilterError
    return kind(f"{what} cannot be evaluated: {first_line(error)}")
