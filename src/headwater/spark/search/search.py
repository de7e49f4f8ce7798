"""Search a table as a distributed job: a request becomes a DataFrame of the rows that its query finds.

The same way leads through search tables and Delta tables with a search index (`SearchedTable`). The query is parsed on
the driver and travels as a tree. Scores are those of one big index: how often words occur in all splits is counted
first, and every split then scores by it.

In classic PySpark the result is a relation that Spark's planner talks to, so whatever a query wants less of is never
read. On Spark Connect there is no JVM to reach: tasks go through `mapInArrow`, and only the columns and the filter of
the request leave out columns, splits and rows from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.errors import WriteOptionError
from headwater.log.schema.types import quoted
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import All
from headwater.spark.errors import remember_scan
from headwater.spark.functions import functions, functions_for, jvm_session
from headwater.spark.scan.explain import mark, remember
from headwater.spark.search.reader import SCORE_COLUMN
from headwater.spark.search.relation import relation_frame
from headwater.spark.search.source import Search, Wanted
from headwater.spark.search.splits import check_reachable, run_tasks
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.filters.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.search.config import IndexConfig
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Query
    from headwater.spark.search.source import ScanSource


@dataclass(frozen=True)
class SearchRequest:
    """What a user searches for; `SearchTable.search` explains the fields."""

    query: str | None = None
    columns: Sequence[str] | None = None
    filter: str | None = None
    limit: int | None = None
    with_score: bool = False
    snippets: Sequence[str] = ()
    default_fields: Sequence[str] | None = None

    def tree(self, config: IndexConfig) -> Query:
        """Return the tree of the query; all rows without one.

        Raises:
            SearchQueryError: the query cannot be understood.
        """
        return All() if self.query is None else parse_query(self.query, config, self.default_fields)


class SearchedTable(Protocol):
    """One version of a table that can be searched."""

    @property
    def spark(self) -> SparkSession: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def uri(self) -> str: ...
    @property
    def config(self) -> IndexConfig: ...

    def source(self, search: Search | None = None) -> ScanSource:
        """Return the rows that a search finds, or all rows, as something to scan."""

    def pruning(self, condition: str) -> Expression | None:
        """Return the part of a filter in SQL that leaves out splits and rows from the start, if it is needed here."""

    def snippet_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return columns to show fragments of, as the table calls them."""

    def statistics(self, query: Query) -> Statistics:
        """Count the words of a query in the whole version."""


def search_frame(table: SearchedTable, request: SearchRequest) -> DataFrame:
    """Return the rows that a request asks for."""
    check_limit(request.limit)
    search = search_of(table, request)
    where = None if request.filter is None else table.pruning(request.filter)
    shown = shown_columns(table, request, search)
    with functions_for(table.spark):
        frame = _scan(table, search, Wanted(tuple(shown) if request.filter is None else (), where))
        if request.filter is not None:
            frame = frame.where(request.filter)
        if request.with_score:
            frame = frame.orderBy(functions().col(SCORE_COLUMN).desc())
        if request.limit is not None:
            frame = frame.limit(request.limit)
        return frame.select(*(quoted(name) for name in shown))


def search_of(table: SearchedTable, request: SearchRequest) -> Search:
    """Resolve a request: parse its query, and count the words of the query in the table where scores are wanted."""
    tree = request.tree(table.config)
    return Search(
        tree,
        score=request.with_score,
        snippets=table.snippet_columns(request.snippets),
        statistics=table.statistics(tree) if request.with_score else None,
        # Without a filter each split needs to give no more than its own best rows.
        best=request.limit if request.with_score and request.filter is None else None,
    )


def shown_columns(table: SearchedTable, request: SearchRequest, search: Search) -> list[str]:
    """Return the columns of the result: those that were asked for, then what the search adds.

    Raises:
        ColumnNotFoundError: the table has no such column.
        SearchQueryError: the table has a column that the search adds.
    """
    search.check_added(table.snapshot.schema.names)
    schema = table.source().schema
    names = schema.names if request.columns is None else [schema.field(name).name for name in request.columns]
    return [*names, *(field.name for field in search.extra_fields)]


def check_limit(limit: int | None) -> None:
    """Raise unless the limit is a number of rows."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise WriteOptionError(f"a limit is a number of rows, not {limit!r}.")


def table_frame(table: SearchedTable) -> DataFrame:
    """Return all rows of a version."""
    return _scan(table, None, Wanted(()))


def _scan(table: SearchedTable, search: Search | None, wanted: Wanted) -> DataFrame:
    """Return the rows that a search finds, or all rows.

    What is wanted counts on Spark Connect only: elsewhere Spark says it while it plans. No columns stand for all.

    Raises:
        StorageError: the table is in the memory of this process, where no executor can read it.
    """
    check_reachable(table.uri)
    spark, source = table.spark, table.source(search)
    summary = source.summary()
    remember_scan(spark, table.uri, table.snapshot.version)
    if jvm_session(spark) is not None:
        if summary is not None:
            remember(source.name, summary)
        return relation_frame(spark, source)
    wanted = Wanted(wanted.columns or source.shown.names, wanted.where)
    tasks = source.tasks(wanted, core_count(spark))
    frame = run_tasks(spark, source.task_plan(wanted).read, tasks, wanted.shown(source).to_spark())
    if summary is not None:
        mark(frame, summary)
    return frame
