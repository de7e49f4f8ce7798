"""Aggregates over what a query finds: exact, with all groups, in parts that can be combined.

`aggregate` gives a partial result of one split, `aggregate_rows` of plain rows, `merge_partials` combines partial
results in any order, and `finish` gives the answer in the types that Spark has for it. A partial result is a table with
the columns `key<i>` for the groups and, for each metric, what can be combined: `count<j>`, `sum<j>`, `value<j>` (the
least or greatest so far), `nan<j>` (whether that is NaN). Sums of whole numbers and decimals are decimals, so that
nothing overflows on the way.

The index answers where it is exact; otherwise the rows are read. The library computes in doubles, ignores nulls, gives
ten groups unless told otherwise, and nothing at all for a field that is not fast. So every field is checked before, and
every number after: below 2**53 a double is exact.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from headwater.errors import SearchQueryError
from headwater.log.schema import DecimalType, StructType, is_string
from headwater.search.engine.aggregate_request import ByNumber, ByTime, ByValue, group_keys, steps
from headwater.search.engine.compile import compile_query
from headwater.search.engine.match import adapted, row_numbers, run
from headwater.search.query.tree import All, Exists, FieldPath, all_of, none_of
from headwater.search.rows.evaluate import BATCH_ROWS
from headwater.search.types import NULL_FIELD, ROW_ID_FIELD, row_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headwater.search.config import FieldConfig
    from headwater.search.engine.aggregate_request import AggregateRequest, Group, Metric
    from headwater.search.query.tree import Query
    from headwater.search.split.reader import Split


_EXACT_BELOW = 2**53
_MAX_GROUPS = 60_000
"""The library refuses to make more than 65,000 groups."""
_DAY_US = 86_400_000_000


LENGTH_TYPE = pa.int32()
"""Spark's, of the length of a text."""


def aggregate(split: Split, query: Query, request: AggregateRequest, schema: StructType | None = None) -> pa.Table:
    """Return the partial result of the rows that a query finds in one split.

    `schema` is the table's, if it has columns that are newer than the split.

    Raises:
        ColumnNotFoundError: there is no such column.
        SearchQueryError: a column's type does not go with the function, or the column is only indexed.
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
    """Yield the rows that a query finds, some at a time; one table at least."""
    if isinstance(query, All) and columns and split.num_records:
        for batch in split.iter_rows(columns, BATCH_ROWS):
            yield pa.Table.from_batches([batch])
        return
    numbers = row_numbers(split, query)
    for start in range(0, max(1, len(numbers)), BATCH_ROWS):
        yield split.rows(numbers.slice(start, BATCH_ROWS), columns)


def aggregate_rows(rows: pa.Table, request: AggregateRequest, schema: StructType) -> pa.Table:
    """Return the partial result of plain rows; `schema` is the table's."""
    types = _column_types(request, schema)
    columns = {name: rows.column(name).cast(type_) for name, type_ in types.items()}
    return rows_partial(columns, rows.num_rows, request, types)


def _column_types(request: AggregateRequest, schema: StructType) -> dict[str, pa.DataType]:
    types = {}
    for name in request.columns:
        field = schema.field(name)
        if field.name != name:
            raise SearchQueryError(f"the column is called {field.name!r}, not {name!r}")
        types[name] = row_schema(StructType([field])).field(0).type
    return types


def finish(partial: pa.Table, request: AggregateRequest, schema: StructType) -> pa.Table:
    """Return a column for each group key and each metric, sorted by the keys (nulls last); one row without groups.

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
    """Return sums in Spark's type."""
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
    """Return means in Spark's type: a double, or a decimal with four more digits."""
    filled = pc.if_else(pc.equal(number, 0), None, number)
    if pa.types.is_decimal(column):
        precision, scale = min(38, column.precision + 4), min(38, column.scale + 4)
        context, step = Context(prec=80, rounding=ROUND_HALF_UP), Decimal(1).scaleb(-scale)
        means = [
            None if n is None else context.quantize(context.divide(t, Decimal(n)), step)
            for t, n in zip(total.to_pylist(), filled.to_pylist(), strict=True)
        ]
        return pa.chunked_array([pa.array(means, pa.decimal128(precision, scale))])
    return pc.divide(total.cast(pa.float64()), filled.cast(pa.float64()))


def answer(partials: Sequence[pa.Table], request: AggregateRequest, schema: StructType) -> pa.Table:
    """Return the answer from the partial results of all splits, of which there may be none."""
    # No rows at all are a result too: of no group, or of the one that all rows are.
    nothing = aggregate_rows(_no_rows(request, schema), request, schema)
    return finish(merge_partials([*partials, nothing], request), request, schema)


def _no_rows(request: AggregateRequest, schema: StructType) -> pa.Table:
    return row_schema(StructType([schema.field(name) for name in request.columns])).empty_table()


# --- of rows ------------------------------------------------------------------------------------------------


def rows_partial(
    columns: Mapping[str, pa.ChunkedArray], num_rows: int, request: AggregateRequest, types: Mapping[str, pa.DataType]
) -> pa.Table:
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
    """Group a table by the request's keys: for each step an input column, a function and the output's name."""
    keys = [f"key{at}" for at in range(len(request.groups))]
    asked = [([], "count_all") if how == "count_all" else (name, how) for name, how, _ in steps]
    found = table.group_by(keys, use_threads=False).aggregate(asked)
    names = ["count_all" if how == "count_all" else f"{name}_{how}" for name, how, _ in steps]
    columns = {key: found.column(key) for key in keys}
    columns |= {out: found.column(name) for (_, _, out), name in zip(steps, names, strict=True)}
    return pa.table(columns)


def measured_type(metric: Metric, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of the values that a metric is about; None for rows."""
    if metric.of_length:
        return LENGTH_TYPE
    return None if metric.column is None else types[metric.column]


def partial_types(metric: Metric, at: int, column: pa.DataType | None) -> dict[str, pa.DataType]:
    """Return the columns of a metric in a partial result."""
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
    """Return the type in which values are added up."""
    if pat.is_floating(column):
        return pa.float64()
    if pat.is_integer(column):
        return pa.decimal128(38, 0)
    if pat.is_decimal(column):
        return pa.decimal256(76, column.scale)
    raise SearchQueryError(f"column {metric.column!r} is a {column}: it has no {metric.function}")


def _metric_inputs(metric: Metric, at: int, values: pa.Array | None) -> list[tuple[str, str, pa.Array | None]]:
    """Return name, function and input of each column of the partial result."""
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


# --- of the index -------------------------------------------------------------------------------------------


class _Bucket(NamedTuple):
    keys: tuple[Any, ...]
    num_rows: int
    statistics: Mapping[str, Any]


class _NotExactError(Exception):
    """The index cannot give the exact answer; never leaves this module."""


def index_partial(
    split: Split, query: Query, request: AggregateRequest, types: Mapping[str, pa.DataType]
) -> pa.Table | None:
    """Return the partial result, if the index can give it exactly."""
    if split.num_records == 0:
        return None
    try:
        return _IndexAggregation(split, request, types).partial(query)
    except _NotExactError:
        return None


class _IndexAggregation:
    def __init__(self, split: Split, request: AggregateRequest, types: Mapping[str, pa.DataType]) -> None:
        self._split = split
        self._request = request
        self._types = types
        self._keys = [self._field(group.column, self._kinds(group)) for group in request.groups]
        self._measured: dict[str, FieldConfig] = {}
        for metric in request.metrics:
            if metric.of_length:
                raise _NotExactError
            if metric.column is not None:
                kinds = ("i64", "f64", "bool", "string") if metric.function == "count" else ("i64", "f64")
                self._measured[metric.column] = self._field(metric.column, kinds)

    def partial(self, query: Query) -> pa.Table:
        with_nulls = [field for field in self._keys if self._split.searcher.doc_freq(NULL_FIELD, field.column)]
        buckets = list(self._buckets(query, self._request.groups, self._keys))
        if with_nulls:
            if len(self._keys) > 1:
                raise _NotExactError
            nothing = all_of(query, none_of(Exists(FieldPath(self._keys[0].name))))
            buckets += [b._replace(keys=(None,)) for b in self._buckets(nothing, (), ()) if b.num_rows]
        if not buckets and not self._keys:
            raise _NotExactError
        return self._table(buckets)

    # --- asking -------------------------------------------------------------------------------------------

    def _kinds(self, group: Group) -> tuple[str, ...]:
        return ("string", "i64", "bool") if isinstance(group, ByValue) else ("i64",)

    def _field(self, column: str, kinds: Sequence[str]) -> FieldConfig:
        """Return the field that has the column's values exactly."""
        for field in self._split.config.fields_of(column):
            is_partial = field.name in self._split.partial_fields
            is_number_text = field.kind == "string" and not is_string(field.data_type)
            if field.fast and field.indexed and field.kind in kinds and not is_partial and not is_number_text:
                return field
        raise _NotExactError

    def _buckets(self, query: Query, groups: Sequence[Group], fields: Sequence[FieldConfig]) -> Iterator[_Bucket]:
        compiled = compile_query(query, self._split)
        if not compiled.exact:
            raise _NotExactError
        asked: dict[str, Any] = {
            f"m{i}": {"stats" if field.kind in ("i64", "f64") else "value_count": {"field": field.index_name}}
            for i, field in enumerate(self._measured.values())
        }
        for group, field in zip(reversed(groups), reversed(fields), strict=True):
            asked = {"group": {**self._grouping(group, field), "aggs": asked}}
        if not asked:
            count = run(self._split, compiled.query, limit=1, count=True).count  # type: ignore[attr-defined]
            yield _Bucket((), int(count), {})
            return
        if not groups:
            asked["rows"] = {"value_count": {"field": ROW_ID_FIELD}}
        try:
            answer = self._split.searcher.aggregate(compiled.query, asked)
        except ValueError:  # too many groups, or too much memory for the library
            raise _NotExactError from None
        yield from self._read(answer, (), None, len(groups))

    def _grouping(self, group: Group, field: FieldConfig) -> dict[str, Any]:
        if isinstance(group, ByValue):
            return {"terms": {"field": field.index_name, "size": _MAX_GROUPS, "segment_size": _MAX_GROUPS}}
        interval, offset = self._interval(group, field)
        if max(interval, abs(offset)) >= _EXACT_BELOW:
            raise _NotExactError
        remainder = offset % interval
        return {"histogram": {"field": field.index_name, "interval": interval, "offset": remainder, "min_doc_count": 1}}

    def _interval(self, group: ByNumber | ByTime, field: FieldConfig) -> tuple[int, int]:
        type_ = self._types[group.column]
        if isinstance(group, ByNumber):
            if not pa.types.is_integer(type_) and not pa.types.is_decimal(type_):
                raise _NotExactError
            return steps(group, field.data_type.scale if isinstance(field.data_type, DecimalType) else 0)
        if group.fixed_us is None or not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            raise _NotExactError
        unit = _DAY_US if pa.types.is_date(type_) else 1
        if group.fixed_us % unit:
            raise _NotExactError
        return group.fixed_us // unit, group.offset_us // unit

    def _read(
        self, answer: Mapping[str, Any], keys: tuple[Any, ...], num_rows: int | None, depth: int
    ) -> Iterator[_Bucket]:
        if depth == 0:
            rows = round(answer["rows"]["value"]) if num_rows is None else num_rows
            yield _Bucket(keys, rows, answer)
            return
        found = answer["group"]
        if found.get("sum_other_doc_count") or found.get("doc_count_error_upper_bound"):
            raise _NotExactError
        for bucket in found["buckets"]:
            key = bucket["key"]
            if not isinstance(key, str):
                if abs(key) >= _EXACT_BELOW or key != int(key):
                    raise _NotExactError
                key = int(key)
            yield from self._read(bucket, (*keys, key), bucket["doc_count"], depth - 1)

    # --- the table ----------------------------------------------------------------------------------------

    def _table(self, buckets: Sequence[_Bucket]) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for at, (group, field) in enumerate(zip(self._request.groups, self._keys, strict=True)):
            values = [bucket.keys[at] for bucket in buckets]
            columns[f"key{at}"] = self._typed(values, field, self._key_type(group))
        places = {column: f"m{i}" for i, column in enumerate(self._measured)}
        for at, metric in enumerate(self._request.metrics):
            found = [self._metric(metric, bucket, places) for bucket in buckets]
            wanted = partial_types(metric, at, None if metric.column is None else self._types[metric.column])
            for name, type_ in wanted.items():
                kind = name.rstrip("0123456789")
                values = [row.get(kind) for row in found]
                measured = self._measured.get(str(metric.column))
                if kind in ("value", "sum") and measured is not None and measured.kind == "i64":
                    columns[name] = self._typed(values, measured, type_)
                else:
                    columns[name] = pa.array(values, type_)
        return pa.table(columns)

    def _key_type(self, group: Group) -> pa.DataType:
        type_ = self._types[group.column]
        if isinstance(group, ByNumber):
            return pa.decimal128(38, type_.scale) if pa.types.is_decimal(type_) else pa.int64()
        return type_

    def _metric(self, metric: Metric, bucket: _Bucket, places: Mapping[str, str]) -> dict[str, Any]:
        if metric.column is None:
            return {"count": bucket.num_rows}
        answer = bucket.statistics[places[metric.column]]
        if "count" not in answer:
            return {"count": round(answer["value"])}
        count = answer["count"]
        if metric.function == "count" or count == 0:
            return {"count": count, "sum": None, "value": None}
        is_whole = self._measured[metric.column].kind == "i64"
        least, greatest = answer["min"], answer["max"]
        largest = max(abs(least), abs(greatest))
        if is_whole and largest * (count if metric.function in ("sum", "avg") else 1) >= _EXACT_BELOW:
            raise _NotExactError
        numbers = {"count": count, "sum": answer["sum"], "value": least if metric.function == "min" else greatest}
        if is_whole:
            return {kind: int(number) for kind, number in numbers.items()}
        return {**numbers, "nan": False}

    def _typed(self, values: Sequence[Any], field: FieldConfig, type_: pa.DataType) -> pa.Array:
        """Return values of the index in a type of the column's kind."""
        if field.kind == "string":
            return pa.array(values, pa.string()).cast(type_)
        if field.kind == "bool":
            return pa.array([None if v is None else bool(v) for v in values], type_)
        whole = pa.array(values, pa.int64())
        if isinstance(field.data_type, DecimalType) and pa.types.is_decimal(type_):
            return whole.view(pa.decimal64(18, field.data_type.scale)).cast(type_)
        if pa.types.is_date32(type_):
            return whole.cast(pa.int32()).view(type_)
        if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
            return whole.cast(type_)
        return whole.view(type_)
