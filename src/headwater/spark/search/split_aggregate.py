"""The aggregates of a query that Spark has handed over, of one split: partial results that Spark puts together."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.search.aggregation import aggregate, finish
from headwater.search.aggregation_request import AggregateRequest, ByValue, Metric
from headwater.search.query import All

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.search.aggregation_request import Function
    from headwater.search.query import Query
    from headwater.search.split import Split
    from headwater.spark.search.pushed_aggregates import PushedAggregate


def aggregate_split(split: Split, query: Query | None, wanted: PushedAggregate) -> pa.Table:
    """One row for each group of the rows that a query finds in a split; one row without groups.

    Args:
        split: the split.
        query: which rows; None for all.
        wanted: the groups and functions.

    Raises:
        SearchQueryError: a sum does not fit into 64 bits, which is an error for Spark in ANSI mode too.
    """
    metrics = (Metric(cast("Function", name), column, f"f{i}") for i, (name, column) in enumerate(wanted.functions))
    groups = (ByValue(column, f"g{i}") for i, column in enumerate(wanted.group_by))
    request = AggregateRequest(tuple(metrics), tuple(groups))
    found = finish(aggregate(split, All() if query is None else query, request), request, split.schema)
    return found.rename_columns(list(wanted.shown.names)).combine_chunks()
