"""Partial aggregates from the index of a split, where it is exact; otherwise there is none, and the rows are asked.

The library computes in doubles, knows nothing of nulls, gives ten groups unless told otherwise, and nothing at all for
a field that is not fast. So every field is checked before, and every number after: below 2**53 a double is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.log.schema import DecimalType, is_string
from headwater.search.aggregate_rows import partial_types
from headwater.search.aggregation_request import ByNumber, ByTime, ByValue
from headwater.search.bucket_keys import steps
from headwater.search.fields import NULL_FIELD, ROW_ID_FIELD
from headwater.search.matching import run
from headwater.search.query import Exists, FieldPath, all_of, none_of
from headwater.search.query_compile import compile_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headwater.search.aggregation_request import AggregateRequest, Group, Metric
    from headwater.search.fields import FieldConfig
    from headwater.search.query import Query
    from headwater.search.split import Split

_EXACT_BELOW = 2**53
_MAX_GROUPS = 60_000
"""The library refuses to make more than 65,000 groups."""
_DAY_US = 86_400_000_000


class _Bucket(NamedTuple):
    keys: tuple[Any, ...]
    num_rows: int
    statistics: Mapping[str, Any]


class _NotExactError(Exception):
    """The index cannot say it exactly; never leaves this file."""


def index_partial(
    split: Split, query: Query, request: AggregateRequest, types: Mapping[str, pa.DataType]
) -> pa.Table | None:
    """The partial result, if the index can give it exactly."""
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
        """The field that has the column's values exactly."""
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
        """Values of the index in a type of the column's kind."""
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
