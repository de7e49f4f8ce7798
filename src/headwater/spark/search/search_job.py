"""Searching a table as a distributed job: a DataFrame of the rows that a query finds, with scores and fragments.

The query is parsed on the driver and travels as a tree. Scores are those of one big index: how often words occur in all
splits is found out first, and every split then scores by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import WriteOptionError
from headwater.log.filter_sql import parse_filter
from headwater.search.query import All
from headwater.search.query_parser import parse_query
from headwater.spark.columns import quoted
from headwater.spark.functions import functions, functions_for, is_connect
from headwater.spark.read_filter import prunable
from headwater.spark.search.scan import scan_frame
from headwater.spark.search.scan_source import SCORE_COLUMN, SNIPPET_SUFFIX, ScanSource, Search
from headwater.spark.search.split_statistics import statistics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headwater.search.query import Query
    from headwater.spark.search.opening import OpenTable


def parsed(table: OpenTable, query: str | None, default_fields: Sequence[str] | None) -> Query:
    """A query's tree; all rows without one.

    Raises:
        SearchQueryError: it cannot be understood.
    """
    return All() if query is None else parse_query(query, table.config, default_fields)


def search_frame(
    table: OpenTable,
    query: str | None,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - what it is
    limit: int | None = None,
    with_score: bool = False,
    snippets: tuple[str, ...] = (),
    default_fields: Sequence[str] | None = None,
) -> DataFrame:
    """The rows that a query finds; see `SearchTable.search`."""
    check_limit(limit)
    tree = parsed(table, query, default_fields)
    statistics = statistics_of(table, tree) if with_score else None
    named = snippet_columns(table, snippets)
    # Without a filter each split needs to give no more than its own best rows.
    best = limit if with_score and filter is None else None
    search = Search(tree, score=with_score, snippets=named, statistics=statistics, best=best)
    where = None
    if filter is not None:
        where = prunable(table.spark, parse_filter(filter), table.snapshot.schema)
    shown = shown_columns(table, columns, search)
    plain = isinstance(tree, All) and not with_score and not named
    with functions_for(table.spark):
        frame = scan_frame(table, None if plain else search, where if is_connect(table.spark) else None)
        if filter is not None:
            frame = frame.where(filter)
        if with_score:
            frame = frame.orderBy(functions().col(SCORE_COLUMN).desc())
        if limit is not None:
            frame = frame.limit(limit)
        return frame.select(*(quoted(name) for name in shown))


def shown_columns(table: OpenTable, columns: Sequence[str] | None, search: Search) -> list[str]:
    """The columns of the result: those that were asked for, then what the search adds.

    Raises:
        ColumnNotFoundError: the table has no such column.
        SearchQueryError: the table has a column that the search adds.
    """
    search.check_added(table.snapshot.schema.names)
    schema = ScanSource(table.snapshot, table.config).schema
    names = schema.names if columns is None else [schema.field(name).name for name in columns]
    return [*names, *(field.name for field in search.extra_fields)]


def snippet_columns(table: OpenTable, snippets: Sequence[str]) -> tuple[str, ...]:
    """The columns that fragments are wanted of."""
    schema = ScanSource(table.snapshot, table.config).schema
    return tuple(schema.field(name).name for name in snippets)


def check_limit(limit: int | None) -> None:
    """Raise unless the limit is a number of rows."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise WriteOptionError(f"a limit is a number of rows, not {limit!r}.")


__all__ = [
    "SCORE_COLUMN",
    "SNIPPET_SUFFIX",
    "check_limit",
    "parsed",
    "search_frame",
    "shown_columns",
    "snippet_columns",
]
