"""Counts, the best rows and aggregates: answered on the driver where the splits are near, else by a Spark job.

A filter counts here only if the index can say exactly what it says; any other makes the question one for Spark, which
evaluates it on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.filter_sql import parse_filter
from headwater.log.schema import StructType
from headwater.search import searching
from headwater.search.query import filtered
from headwater.search.row_types import row_schema
from headwater.spark.read_filter import prunable
from headwater.spark.search.near import is_near, map_splits
from headwater.spark.search.scan import check_reachable
from headwater.spark.search.scan_source import ScanSource, Search
from headwater.spark.search.search_job import (
    check_limit,
    parsed,
    search_frame,
    shown_columns,
    snippet_columns,
)
from headwater.spark.search.split_places import SplitPlaces
from headwater.spark.search.split_reader import shown_rows
from headwater.spark.search.split_statistics import statistics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.search.query import Query
    from headwater.spark.search.opening import OpenTable
    from headwater.spark.search.split_places import SplitRef

_RANKED = pa.schema([("split", pa.int64()), ("number", pa.uint64()), ("score", pa.float64())])


@dataclass(frozen=True)
class Question:
    """Rows that are asked about: those of a query, perhaps only some of them."""

    query: Query
    """What is searched for, and what scores are about."""
    rows: Query
    """The rows: the query's, and the filter's."""
    splits: list[SplitRef]
    """Where they may be."""
    is_exact: bool
    """Whether `rows` are all that the filter asks for; if not, they must be asked again."""


def question(table: OpenTable, query: str | None, where: str | None, default_fields: Sequence[str] | None) -> Question:
    """What a query and a filter ask for.

    Raises:
        SearchQueryError: the query cannot be understood.
        FilterError: the filter cannot be understood.
    """
    tree = parsed(table, query, default_fields)
    source = ScanSource(table.snapshot, table.config, None, table.storage_options)
    if where is None:
        return Question(tree, tree, source.splits(), is_exact=True)
    condition = prunable(table.spark, parse_filter(where), table.snapshot.schema)
    index_query, is_exact = source.index_filter(condition)
    return Question(tree, filtered(tree, index_query), source.splits(condition), is_exact)


def count(
    table: OpenTable,
    query: str | None,
    *,
    filter: str | None = None,  # noqa: A002 - what it is
    default_fields: Sequence[str] | None = None,
) -> int:
    """How many rows a query finds; see `SearchTable.count`."""
    if query is None and filter is None:
        known = ScanSource(table.snapshot, table.config).num_records
        if known is not None:
            return known
    asked = question(table, query, filter, default_fields)
    if asked.is_exact and is_near(table, asked.splits):
        return sum(map_splits(table, asked.splits, lambda split: searching.count(split, asked.rows)))
    return int(search_frame(table, query, filter=filter, default_fields=default_fields).count())


def top(
    table: OpenTable,
    query: str,
    k: int = 10,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002
    snippets: tuple[str, ...] = (),
    default_fields: Sequence[str] | None = None,
) -> pa.Table:
    """The best rows for a query; see `SearchTable.top`."""
    check_limit(k)
    asked = question(table, query, filter, default_fields)
    if not asked.is_exact or not is_near(table, asked.splits):
        frame = search_frame(
            table,
            query,
            columns=columns,
            filter=filter,
            limit=k,
            with_score=True,
            snippets=snippets,
            default_fields=default_fields,
        )
        return frame.toArrow()
    check_reachable(table.uri)
    statistics = statistics_of(table, asked.query)
    search = Search(asked.query, True, snippet_columns(table, snippets), statistics, k)
    names = shown_columns(table, columns, search)
    return _best(table, asked, search, names)


def _best(table: OpenTable, asked: Question, search: Search, names: list[str]) -> pa.Table:
    """The best rows of all splits; only those that are shown are read."""
    ranks = map_splits(
        table, asked.splits, lambda split: searching.top(split, asked.rows, search.best, search.statistics)
    )
    ranked = pa.concat_tables([_RANKED.empty_table(), *(_ranked(i, rank) for i, rank in enumerate(ranks))])
    order = [("score", "descending"), ("split", "ascending"), ("number", "ascending")]
    best = ranked.sort_by(order).slice(0, search.best)
    places = SplitPlaces(table.uri, table.storage_options)
    schema = row_schema(StructType([*ScanSource(table.snapshot, table.config, search).shown.fields]))
    parts = [pa.schema([schema.field(name) for name in names]).empty_table()]
    positions = [pa.nulls(0, pa.uint64())]
    for number in pc.unique(best.column("split")).to_pylist():
        here = pc.indices_nonzero(pc.equal(best.column("split"), number))
        some = best.take(here)
        numbers, scores = (some.column(name).combine_chunks() for name in ("number", "score"))
        parts.append(shown_rows(places.open(asked.splits[number]), numbers, scores, search, names))
        positions.append(here)
    shown = pa.concat_tables(parts)
    return shown.take(pc.sort_indices(pa.concat_arrays(positions))).combine_chunks()


def _ranked(number: int, rank: searching.ScoredRows) -> pa.Table:
    return pa.table([pa.repeat(pa.scalar(number, pa.int64()), len(rank.scores)), *rank], schema=_RANKED)
