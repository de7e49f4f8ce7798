"""Partial aggregates from rows, by Arrow.

A partial result has the columns `key<i>` for the groups and, for each metric, what can be put together: `count<j>`,
`sum<j>`, `value<j>` (the least or greatest so far), `nan<j>` (whether that is NaN). Sums of whole numbers and decimals
are decimals, so that nothing overflows on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from headwater.errors import SearchQueryError
from headwater.search.bucket_keys import group_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.search.aggregation_request import AggregateRequest, Metric

LENGTH_TYPE = pa.int32()
"""Spark's, of the length of a text."""


def rows_partial(
    columns: Mapping[str, pa.ChunkedArray], num_rows: int, request: AggregateRequest, types: Mapping[str, pa.DataType]
) -> pa.Table:
    """The partial result of some rows."""
    inputs: dict[str, pa.Array] = {}
    for at, group in enumerate(request.groups):
        inputs[f"key{at}"] = group_keys(group, _combined(columns[group.column], types[group.column]))
    steps: list[tuple[str, str, str]] = []
    for at, metric in enumerate(request.metrics):
        values = None if metric.column is None else _combined(columns[metric.column], types[metric.column])
        if metric.of_length:
            values = pc.utf8_length(values).cast(LENGTH_TYPE)
        for name, how, column in _metric_inputs(metric, at, values):
            if column is not None:
                inputs[name] = column
            steps.append((name, how, name))
    if not inputs:
        inputs["rows"] = pa.nulls(num_rows)
    return grouped(pa.table(inputs), request, steps)


def merge_partials(parts: Sequence[pa.Table], request: AggregateRequest) -> pa.Table:
    """Partial results put together."""
    if len(parts) == 1:
        return parts[0]
    steps = []
    for name in parts[0].schema.names[len(request.groups) :]:
        kind, at = name.rstrip("0123456789"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
        function = request.metrics[at].function
        how = {"value": function, "nan": _NAN_FLAGS.get(function, "")}.get(kind, "sum")
        steps.append((name, how, name))
    return grouped(pa.concat_tables(parts), request, steps)


# In Spark's order NaN is the largest: it is the greatest if there is one, and the least if there is nothing else.
_NAN_FLAGS = {"max": "any", "min": "all"}


def grouped(table: pa.Table, request: AggregateRequest, steps: Sequence[tuple[str, str, str]]) -> pa.Table:
    """The table grouped by the request's keys: for each step an input column, a function and the output's name."""
    keys = [f"key{at}" for at in range(len(request.groups))]
    asked = [([], "count_all") if how == "count_all" else (name, how) for name, how, _ in steps]
    found = table.group_by(keys, use_threads=False).aggregate(asked)
    names = ["count_all" if how == "count_all" else f"{name}_{how}" for name, how, _ in steps]
    columns = {key: found.column(key) for key in keys}
    columns |= {out: found.column(name) for (_, _, out), name in zip(steps, names, strict=True)}
    return pa.table(columns)


def measured_type(metric: Metric, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of the values that a metric is about; None for rows."""
    if metric.of_length:
        return LENGTH_TYPE
    return None if metric.column is None else types[metric.column]


def partial_types(metric: Metric, at: int, column: pa.DataType | None) -> dict[str, pa.DataType]:
    """The columns of a metric in a partial result.

    Raises:
        SearchQueryError: the column's type does not go with the metric.
    """
    if metric.function == "count":
        return {f"count{at}": pa.int64()}
    assert column is not None
    if metric.function in ("sum", "avg"):
        return {f"sum{at}": sum_type(metric, column), f"count{at}": pa.int64()}
    if pat.is_nested(column) or pat.is_null(column):
        raise SearchQueryError(f"column {metric.column!r} is a {column}: it has no {metric.function}")
    extra = {f"nan{at}": pa.bool_()} if pat.is_floating(column) else {}
    # Arrow cannot compare durations; the numbers behind them it can.
    return {f"value{at}": pa.int64() if pat.is_duration(column) else column, **extra}


def sum_type(metric: Metric, column: pa.DataType) -> pa.DataType:
    """The type in which values are added up."""
    if pat.is_floating(column):
        return pa.float64()
    if pat.is_integer(column):
        return pa.decimal128(38, 0)
    if pat.is_decimal(column):
        return pa.decimal256(76, column.scale)
    raise SearchQueryError(f"column {metric.column!r} is a {column}: it has no {metric.function}")


def _metric_inputs(metric: Metric, at: int, values: pa.Array | None) -> list[tuple[str, str, pa.Array | None]]:
    """For each column of the partial result its name, the function that makes it, and what of."""
    if values is None:
        return [(f"count{at}", "count_all", None)]
    if metric.function == "count":
        return [(f"count{at}", "count", values)]
    if metric.function in ("sum", "avg"):
        return [(f"sum{at}", "sum", values.cast(sum_type(metric, values.type))), (f"count{at}", "count", values)]
    compared = partial_types(metric, at, values.type)[f"value{at}"]
    values = values if values.type == compared else values.view(compared)
    if not pat.is_floating(values.type):
        return [(f"value{at}", metric.function, values)]
    return [(f"value{at}", metric.function, values), (f"nan{at}", _NAN_FLAGS[metric.function], pc.is_nan(values))]


def _combined(column: pa.ChunkedArray | pa.Array, type_: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole if whole.type == type_ else whole.cast(type_)
