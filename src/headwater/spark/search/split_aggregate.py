"""The aggregates of a query that Spark has handed over.

Of one split they are partial results, which Spark puts together. Where the splits are near, all of them are asked while
the query is planned, and the plan holds the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.search.aggregation import aggregate, finish
from headwater.search.aggregation_request import AggregateRequest, ByValue, Metric
from headwater.search.query import All
from headwater.spark.search.aggregate_job import answer
from headwater.spark.search.near import is_near, map_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headwater.search.aggregation_request import Function
    from headwater.search.query import Query
    from headwater.search.split import Split
    from headwater.spark.search.opening import OpenTable
    from headwater.spark.search.pushed_aggregates import PushedAggregate
    from headwater.spark.search.split_places import SplitRef

_MAX_GROUPS = 10_000
"""More groups of a split than this are nothing to hold on the driver: tasks find them, and Spark merges them."""


def aggregate_split(split: Split, query: Query | None, wanted: PushedAggregate) -> pa.Table:
    """One row for each group of the rows that a query finds in a split; one row without groups.

    Args:
        split: the split.
        query: which rows; None for all.
        wanted: the groups and functions.

    Raises:
        SearchQueryError: a sum does not fit into 64 bits, which is an error for Spark in ANSI mode too.
    """
    request = _request(wanted)
    found = finish(aggregate(split, All() if query is None else query, request), request, split.schema)
    return found.rename_columns(list(wanted.shown.names)).combine_chunks()


def aggregate_near(
    table: OpenTable, splits: Sequence[SplitRef], query: Query | None, wanted: PushedAggregate
) -> pa.Table | None:
    """The same of all splits, put together; None where that is better left to a job.

    Args:
        table: the table.
        splits: the splits that may hold such rows.
        query: which rows; None for all.
        wanted: the groups and functions.
    """
    if not is_near(table, splits):
        return None
    request, rows = _request(wanted), All() if query is None else query
    parts: list[pa.Table] = []
    for some in (splits[:1], splits[1:]):
        parts += map_splits(table, some, lambda split: aggregate(split, rows, request))
        if any(part.num_rows > _MAX_GROUPS for part in parts):
            return None
    return answer(parts, request, table.snapshot.schema).rename_columns(list(wanted.shown.names)).combine_chunks()


def _request(wanted: PushedAggregate) -> AggregateRequest:
    metrics = (
        Metric(cast("Function", function.name), function.column, f"f{number}", function.of_length)
        for number, function in enumerate(wanted.functions)
    )
    groups = (ByValue(column, f"g{i}") for i, column in enumerate(wanted.group_by))
    return AggregateRequest(tuple(metrics), tuple(groups))
