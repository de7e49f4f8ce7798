"""Counts, the best rows and aggregates: answered on the driver where it can ask the splits, else by a Spark job.

A filter counts here only if the index can say exactly what it says; any other makes the question one for Spark, which
finds the rows; the same code then aggregates them.

Aggregates are written as texts: `count`, `avg(took) AS mean`, `date_histogram(ts, 1h)`.

>>> from headwater.log.schema import LONG, StructField, StructType
>>> schema = StructType([StructField("took", LONG)])
>>> aggregate_request(["count", "max(Took)"], ["histogram(took, 100)"], schema).names
('took', 'count', 'max(took)')
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SearchQueryError
from headwater.search.engine import match, rank
from headwater.search.engine.aggregate import aggregate as aggregate_of
from headwater.search.engine.aggregate import aggregate_rows, answer, merge_partials
from headwater.search.engine.aggregate_request import FUNCTIONS, AggregateRequest, ByNumber, ByTime, ByValue, Metric
from headwater.search.query.tree import filtered
from headwater.search.types import row_schema
from headwater.spark.errors import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.search.reader import shown_rows
from headwater.spark.search.search import check_limit, search_frame, search_of, shown_columns
from headwater.spark.search.splits import SplitPlaces, ask_splits, can_answer_on_driver, check_reachable, map_splits
from headwater.spark.workers import PACKED_SCHEMA, in_workers, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headwater.log.schema import StructType
    from headwater.search.engine.aggregate_request import Function, Group
    from headwater.search.query.tree import Query
    from headwater.spark.search.search import SearchRequest
    from headwater.spark.search.source import Search
    from headwater.spark.search.splits import SplitRef
    from headwater.spark.search.table import OpenTable


_RANKED = pa.schema([("split", pa.int64()), ("number", pa.uint64()), ("score", pa.float64())])


@dataclass(frozen=True)
class _Question:
    """A request as a question to the splits themselves, without Spark."""

    rows: Query
    """The rows: the query's, and the filter's."""
    splits: list[SplitRef]
    """Where they may be."""
    is_exact: bool
    """Whether `rows` are all that the filter asks for; if not, Spark has to evaluate it."""


def _question(table: OpenTable, request: SearchRequest) -> _Question:
    """Translate the query and filter of a request.

    Raises:
        SearchQueryError: the query cannot be understood.
        FilterError: the filter cannot be understood.
    """
    tree, source = request.tree(table.config), table.source()
    if request.filter is None:
        return _Question(tree, source.splits(), is_exact=True)
    condition = table.pruning(request.filter)
    index_query, is_exact = source.index_filter(condition)
    return _Question(filtered(tree, index_query), source.splits(condition), is_exact)


def count(table: OpenTable, request: SearchRequest) -> int:
    """Count the rows that a request finds; see `SearchTable.count`."""
    if request.query is None and request.filter is None:
        known = table.source().num_records
        if known is not None:
            return known
    asked = _question(table, request)
    if asked.is_exact and can_answer_on_driver(table.spark, table.uri, asked.splits):
        return sum(map_splits(table.snapshot, asked.splits, lambda split: match.count(split, asked.rows)))
    return int(search_frame(table, request).count())


def top(table: OpenTable, request: SearchRequest) -> pa.Table:
    """Return the best rows for a request with a limit and scores; see `SearchTable.top`."""
    check_limit(request.limit)
    asked = _question(table, request)
    if not asked.is_exact or not can_answer_on_driver(table.spark, table.uri, asked.splits):
        return search_frame(table, request).toArrow()
    check_reachable(table.uri)
    search = replace(search_of(table, request), best=request.limit)
    return _best(table, asked, search, shown_columns(table, request, search))


def _best(table: OpenTable, asked: _Question, search: Search, names: list[str]) -> pa.Table:
    """Return the best rows of all splits; only those that are shown are read."""
    ranks = map_splits(
        table.snapshot, asked.splits, lambda split: rank.top(split, asked.rows, search.best, search.statistics)
    )
    ranked = pa.concat_tables([_RANKED.empty_table(), *(_ranked(i, rank) for i, rank in enumerate(ranks))])
    order = [("score", "descending"), ("split", "ascending"), ("number", "ascending")]
    best = ranked.sort_by(order).slice(0, search.best)
    places = SplitPlaces(table.uri, table.snapshot.ctx.storage_options)
    schema = row_schema(table.source(search).shown)
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


def _ranked(number: int, rank: rank.ScoredRows) -> pa.Table:
    return pa.table([pa.repeat(pa.scalar(number, pa.int64()), len(rank.scores)), *rank], schema=_RANKED)


def aggregate(table: OpenTable, request: SearchRequest, aggregates: Sequence[str], group_by: Sequence[str]) -> pa.Table:
    """Aggregate the rows that a request finds; see `SearchTable.aggregate`."""
    schema = table.snapshot.schema
    wanted = aggregate_request(aggregates, group_by, schema)
    asked = _question(table, request)
    if not asked.is_exact:
        return answer(_aggregated_by_spark(table, request, wanted), wanted, schema)
    rows = asked.rows

    def combined(parts: Iterable[pa.Table]) -> pa.Table:
        return merge_partials(list(parts), wanted)

    partials = ask_splits(
        table.spark, table.snapshot, asked.splits, lambda split: aggregate_of(split, rows, wanted), combined
    )
    return answer(partials, wanted, schema)


def _aggregated_by_spark(table: OpenTable, request: SearchRequest, wanted: AggregateRequest) -> list[pa.Table]:
    """Let Spark find the rows, and aggregate them batch by batch."""
    schema = table.snapshot.schema

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield packed(aggregate_rows(pa.Table.from_batches([batch]), wanted, schema))

    # A row needs some column to be counted.
    columns = wanted.columns or [table.config.stored_schema(schema).names[0]]
    with functions_for(table.spark), explained_failures():
        frame = search_frame(table, replace(request, columns=columns))
        rows = in_workers(frame, run, PACKED_SCHEMA).collect()
    return [unpacked(row.rows) for row in rows]


_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<plain>[^`(),]+?))"
_METRIC = re.compile(rf"\s*(?P<function>\w+)\s*(?:\(\s*(?:\*|{_NAME})\s*\))?\s*(?:\s[aA][sS]\s+(?P<as>\w+)\s*)?")
_BUCKETS = re.compile(
    rf"\s*(?P<kind>histogram|date_histogram)\s*\(\s*{_NAME}\s*,\s*(?P<quote>['\"]?)(?P<width>[^'\",]+?)(?P=quote)\s*"
    r"(?:,\s*(?P<offset>[^,]+?)\s*)?\)\s*",
    re.IGNORECASE,
)


def aggregate_request(aggregates: Sequence[str], group_by: Sequence[str], schema: StructType) -> AggregateRequest:
    """Parse aggregates and groups, with the columns as the table calls them.

    Raises:
        SearchQueryError: a text is none of the forms.
        ColumnNotFoundError: the table has no such column.
    """
    if isinstance(aggregates, str):
        aggregates = [aggregates]
    return AggregateRequest(
        tuple(_metric(text, schema) for text in aggregates), tuple(_group(text, schema) for text in group_by)
    )


def _metric(text: str, schema: StructType) -> Metric:
    found = _METRIC.fullmatch(text)
    function = found["function"].lower() if found is not None else ""
    if found is None or function not in FUNCTIONS:
        raise SearchQueryError(
            f"there is no aggregate {text!r}: write count, count(column), sum(column), avg(column), min(column) or "
            "max(column)"
        )
    given = found["quoted"] or found["plain"]
    column = None if given is None else schema.field(given).name
    name = found["as"] or ("count" if text.strip().lower() == "count" else None)
    return Metric(cast("Function", function), column, name)


def _group(text: str, schema: StructType) -> Group:
    found = _BUCKETS.fullmatch(text)
    if found is None:
        return ByValue(schema.field(text.strip().strip("`")).name)
    column = schema.field(found["quoted"] or found["plain"]).name
    if found["kind"].lower() == "date_histogram":
        if found["offset"] is not None:
            raise SearchQueryError(f"{text!r}: a date histogram has a column and an interval, as in (ts, 1h)")
        return ByTime(column, found["width"])
    return ByNumber(column, _number(text, found["width"]), _number(text, found["offset"] or "0"))


def _number(text: str, number: str) -> int | float:
    try:
        return int(number)
    except ValueError:
        pass
    try:
        return float(number)
    except ValueError:
        raise SearchQueryError(f"{text!r}: {number!r} is not a number, as in histogram(took, 100)") from None
