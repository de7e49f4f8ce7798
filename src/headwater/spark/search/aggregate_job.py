"""Aggregates of what a query finds: on the driver where the splits are near, else on the executors.

Where a filter is one that only Spark understands, Spark finds the rows, and the same code aggregates them.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.search.aggregation import aggregate as aggregate_of
from headwater.search.aggregation import aggregate_rows, finish, merge_partials
from headwater.spark.failures import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.search.aggregate_text import aggregate_request
from headwater.spark.search.near import is_near, map_splits
from headwater.spark.search.scan import run_tasks
from headwater.spark.search.scan_source import grouped
from headwater.spark.search.search_job import search_frame
from headwater.spark.search.small_answers import question
from headwater.spark.search.split_places import SplitPlaces
from headwater.spark.workers import PACKED_SCHEMA, core_count, in_workers, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.schema import StructType
    from headwater.search.aggregation_request import AggregateRequest
    from headwater.search.query import Query
    from headwater.spark.search.opening import OpenTable

"""One row for each partial result: a table as an Arrow stream."""


class SplitAggregator:
    """Aggregates the splits of tasks. It travels to the executors."""

    def __init__(
        self, uri: str, storage_options: dict[str, str] | None, query: Query, request: AggregateRequest
    ) -> None:
        self._uri = uri
        self._storage_options = storage_options
        self._query = query
        self._request = request

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The partial results of pickled tasks; made for `mapInArrow`."""
        places = SplitPlaces(self._uri, self._storage_options)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                parts = [aggregate_of(places.open(ref), self._query, self._request) for ref in pickle.loads(task)]
                yield packed(merge_partials(parts, self._request))


def aggregate(
    table: OpenTable,
    aggregates: Sequence[str],
    *,
    query: str | None = None,
    filter: str | None = None,  # noqa: A002 - what it is
    group_by: Sequence[str] = (),
    default_fields: Sequence[str] | None = None,
) -> pa.Table:
    """Aggregates of the rows that a query finds; see `SearchTable.aggregate`."""
    schema = table.snapshot.schema
    request = aggregate_request(aggregates, group_by, schema)
    asked = question(table, query, filter, default_fields)
    if not asked.is_exact:
        partials = _by_spark(table, query, filter, default_fields, request)
    elif is_near(table, asked.splits):
        partials = map_splits(table, asked.splits, lambda split: aggregate_of(split, asked.rows, request))
    else:
        options = None if table.storage_options is None else dict(table.storage_options)
        run = SplitAggregator(table.uri, options, asked.rows, request)
        with functions_for(table.spark), explained_failures():
            rows = run_tasks(table.spark, run, grouped(asked.splits, core_count(table.spark)), PACKED_SCHEMA).collect()
        partials = [unpacked(row.rows) for row in rows]
    return answer(partials, request, schema)


def answer(partials: Sequence[pa.Table], request: AggregateRequest, schema: StructType) -> pa.Table:
    """The answer from the partial results of all splits, of which there may be none."""
    # No rows at all are a result too: of no group, or of the one that all rows are.
    nothing = aggregate_rows(_no_rows(request, schema), request, schema)
    return finish(merge_partials([*partials, nothing], request), request, schema)


def _by_spark(
    table: OpenTable,
    query: str | None,
    where: str | None,
    default_fields: Sequence[str] | None,
    request: AggregateRequest,
) -> list[pa.Table]:
    schema = table.snapshot.schema

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield packed(aggregate_rows(pa.Table.from_batches([batch]), request, schema))

    # A row needs some column to be counted.
    columns = request.columns or [table.config.stored_schema(schema).names[0]]
    with functions_for(table.spark), explained_failures():
        frame = search_frame(table, query, columns=columns, filter=where, default_fields=default_fields)
        rows = in_workers(frame, run, PACKED_SCHEMA).collect()
    return [unpacked(row.rows) for row in rows]


def _no_rows(request: AggregateRequest, schema: StructType) -> pa.Table:
    from headwater.log.schema import StructType as Columns
    from headwater.search.row_types import row_schema

    return row_schema(Columns([schema.field(name) for name in request.columns])).empty_table()
