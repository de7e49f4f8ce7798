"""Aggregates over what a query finds: exact, with all groups, in parts that can be put together.

`aggregate` gives a partial result of one split, `aggregate_rows` of plain rows, `merge_partials` puts partial results
together in any order, and `finish` gives the answer in the types that Spark has for it. Partial results are tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SearchQueryError
from headwater.search.aggregate_index import index_partial
from headwater.search.aggregate_rows import measured_type, merge_partials, rows_partial
from headwater.search.evaluate import BATCH_ROWS
from headwater.search.matching import adapted, row_numbers
from headwater.search.query import All
from headwater.search.row_types import row_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.schema import StructType
    from headwater.search.aggregation_request import AggregateRequest, Metric
    from headwater.search.query import Query
    from headwater.search.split import Split

__all__ = ["aggregate", "aggregate_rows", "finish", "merge_partials"]


def aggregate(split: Split, query: Query, request: AggregateRequest, schema: StructType | None = None) -> pa.Table:
    """The partial result of one split.

    The index answers where it is exact (fast fields without gaps, numbers below 2**53); otherwise the rows do.

    Args:
        split: the split.
        query: which rows.
        request: what of them.
        schema: the table's, if it has columns that are newer than the split.

    Raises:
        ColumnNotFoundError: there is no such column.
        SearchQueryError: a column's type does not go with what is asked of it, or the column is only indexed.
    """
    query = adapted(split, query)
    schema = schema or split.schema
    types = _column_types(request, schema)
    known = {field.name for field in split.schema.fields}
    if known.issuperset(types):
        partial = index_partial(split, query, request, types)
        if partial is not None:
            return partial
    readable = [name for name in types if name in known]
    for name in readable:
        if name in split.config.index_only_columns:
            raise SearchQueryError(f"column {name!r} is only indexed: the index alone cannot aggregate it as asked")
    parts = []
    for rows in _rows(split, query, readable):
        columns = {name: rows.column(name) if name in known else pa.nulls(len(rows), types[name]) for name in types}
        parts.append(rows_partial(columns, len(rows), request, types))
    return merge_partials(parts, request)


def _rows(split: Split, query: Query, columns: list[str]) -> Iterator[pa.Table]:
    """The rows that a query finds, some at a time; one table at least."""
    if isinstance(query, All) and columns and split.num_records:
        for batch in split.iter_rows(columns, BATCH_ROWS):
            yield pa.Table.from_batches([batch])
        return
    numbers = row_numbers(split, query)
    for start in range(0, max(1, len(numbers)), BATCH_ROWS):
        yield split.rows(numbers.slice(start, BATCH_ROWS), columns)


def aggregate_rows(rows: pa.Table, request: AggregateRequest, schema: StructType) -> pa.Table:
    """The partial result of plain rows; `schema` is the table's."""
    types = _column_types(request, schema)
    columns = {name: rows.column(name).cast(type_) for name, type_ in types.items()}
    return rows_partial(columns, rows.num_rows, request, types)


def _column_types(request: AggregateRequest, schema: StructType) -> dict[str, pa.DataType]:
    types = {}
    for name in request.columns:
        field = schema.field(name)
        if field.name != name:
            raise SearchQueryError(f"the column is called {field.name!r}, not {name!r}")
        types[name] = row_schema(type(schema)([field])).field(0).type
    return types


def finish(partial: pa.Table, request: AggregateRequest, schema: StructType) -> pa.Table:
    """The answer: a column for each group key and each metric; sorted by the keys (nulls last), without groups one row.

    Raises:
        SearchQueryError: a sum is too large for its type.
    """
    types = _column_types(request, schema)
    key_names = [f"key{i}" for i in range(len(request.groups))]
    if key_names:
        order = pc.sort_indices(partial, [(name, "ascending") for name in key_names])
        partial = partial.take(order)
    columns = [partial.column(name) for name in key_names]
    columns += [_finished(metric, at, partial, types) for at, metric in enumerate(request.metrics)]
    return pa.table(dict(zip(request.names, columns, strict=True)))


def _finished(metric: Metric, at: int, partial: pa.Table, types: dict[str, pa.DataType]) -> pa.ChunkedArray:
    if metric.function == "count":
        return partial.column(f"count{at}")
    column = measured_type(metric, types)
    assert column is not None, "only rows are counted without a column"
    if metric.function in ("min", "max"):
        found = partial.column(f"value{at}").cast(column)
        if f"nan{at}" not in partial.schema.names:
            return found
        nan = pa.scalar(float("nan"), found.type)
        return pc.if_else(pc.fill_null(partial.column(f"nan{at}"), False), nan, found)
    total, number = partial.column(f"sum{at}"), partial.column(f"count{at}")
    return _sum(total, metric, column) if metric.function == "sum" else _mean(total, number, column)


def _sum(total: pa.ChunkedArray, metric: Metric, column: pa.DataType) -> pa.ChunkedArray:
    """In Spark's type of a sum."""
    if pa.types.is_floating(column):
        return total
    wanted = pa.int64()
    if pa.types.is_decimal(column):
        wanted = pa.decimal128(min(38, column.precision + 10), column.scale)
    try:
        return total.cast(wanted)
    except pa.ArrowInvalid as error:
        raise SearchQueryError(f"{metric.output} is too large for {wanted}; sum a decimal instead") from error


def _mean(total: pa.ChunkedArray, number: pa.ChunkedArray, column: pa.DataType) -> pa.ChunkedArray:
    """In Spark's type of a mean: a double, or a decimal with four more digits."""
    filled = pc.if_else(pc.equal(number, 0), None, number)
    if pa.types.is_decimal(column):
        from decimal import ROUND_HALF_UP, Context, Decimal

        precision, scale = min(38, column.precision + 4), min(38, column.scale + 4)
        context, step = Context(prec=80, rounding=ROUND_HALF_UP), Decimal(1).scaleb(-scale)
        means = [
            None if n is None else context.quantize(context.divide(t, Decimal(n)), step)
            for t, n in zip(total.to_pylist(), filled.to_pylist(), strict=True)
        ]
        return pa.chunked_array([pa.array(means, pa.decimal128(precision, scale))])
    return pc.divide(total.cast(pa.float64()), filled.cast(pa.float64()))
