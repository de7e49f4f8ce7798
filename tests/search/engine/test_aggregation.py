"""Aggregates over splits equal what plain Python computes over the rows, in every way the index can or cannot help."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import ColumnNotFoundError, SearchQueryError
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    PrimitiveType,
)
from headwater.search.choices import index_config
from headwater.search.engine.aggregate import aggregate, aggregate_rows, finish, index_partial, merge_partials
from headwater.search.engine.aggregate_request import AggregateRequest, ByNumber, ByTime, ByValue, Group, Metric
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import All
from headwater.search.split.reader import Split
from support.search.built_splits import batch_of, schema_of, split_of
from support.search.query_corpus import CHOICES, SCHEMA, Row, corpus_split, random_rows

CONFIG = index_config(SCHEMA, **CHOICES)
ROWS = [random_rows(seed, 120) for seed in (7, 8, 9)]
QUERIES = ["*", "error", "error OR disk", "nowhere", "code:404 OR host:web-1", "NOT error", "attrs.n:[1 TO 2]"]


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    return [corpus_split(tmp_path_factory.mktemp("split"), rows) for rows in ROWS]


# --- the oracle ----------------------------------------------------------------------------------------------


def key_of(group: Group, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(group, ByNumber):
        if isinstance(value, float):
            if not math.isfinite(value):
                return "NaN" if math.isnan(value) else value
            return math.floor((value - group.offset) / group.interval) * group.interval + group.offset
        interval, offset = Decimal(str(group.interval)), Decimal(str(group.offset))
        return offset + ((Decimal(value) - offset) / interval).to_integral_value(rounding="ROUND_FLOOR") * interval
    if isinstance(group, ByTime):
        return time_key(group.interval, value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def time_key(interval: str, value: Any) -> Any:
    if interval == "1month":
        return value.replace(day=1) if type(value) is date else datetime(value.year, value.month, 1, tzinfo=UTC)
    if type(value) is date:
        days = {"1d": 1, "1w": 7}[interval]
        start = date(1970, 1, 5) if interval == "1w" else date(1970, 1, 1)
        return start + (value - start) // timedelta(days=days) * timedelta(days=days)
    width = {
        "1d": timedelta(days=1),
        "1h": timedelta(hours=1),
        "1w": timedelta(days=7),
        "1ms": timedelta(milliseconds=1),
    }
    start = datetime(1970, 1, 5 if interval == "1w" else 1, tzinfo=UTC)
    return start + (value - start) // width[interval] * width[interval]


def metric_of(metric: Metric, rows: list[Row]) -> Any:
    if metric.column is None:
        return len(rows)
    values = [row[metric.column] for row in rows if row[metric.column] is not None]
    if metric.function == "count":
        return len(values)
    if not values:
        return None
    if metric.function in ("min", "max"):
        order = sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), 0 if v != v else v))
        found = order[0 if metric.function == "min" else -1]
        return "NaN" if found != found else found
    total = (
        sum(values)
        if not isinstance(values[0], float)
        else math.fsum(values)
        if all(map(math.isfinite, values))
        else sum(values)
    )
    if metric.function == "sum":
        return "NaN" if total != total else total
    if isinstance(total, Decimal):
        return (total / len(values)).quantize(
            Decimal(1).scaleb(-(SCHEMA.field(metric.column).type.scale + 4)), ROUND_HALF_UP
        )
    return "NaN" if total != total else float(total) / len(values)


def brute_force(request: AggregateRequest, rows: list[Row]) -> dict[tuple[Any, ...], list[Any]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    if not request.groups:
        groups[()] = []
    for row in rows:
        groups[tuple(key_of(group, row[group.column]) for group in request.groups)].append(row)
    return {key: [metric_of(metric, members) for metric in request.metrics] for key, members in groups.items()}


def answer(table: pa.Table, request: AggregateRequest) -> dict[tuple[Any, ...], list[Any]]:
    width = len(request.groups)
    rows = [[column[i].as_py() for column in table.columns] for i in range(table.num_rows)]
    rows = [["NaN" if isinstance(v, float) and math.isnan(v) else v for v in row] for row in rows]
    found = {tuple(row[:width]): row[width:] for row in rows}
    assert len(found) == len(rows), "a group came twice"
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isfinite(left):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-300)
    return bool(left == right)


# --- properties ----------------------------------------------------------------------------------------------

NUMBERS = ["code", "size", "price", "big"]
metrics = st.one_of(
    st.just(Metric("count")),
    st.builds(Metric, st.sampled_from(["sum", "avg"]), st.sampled_from(["size", "price", "big"])),
    st.builds(Metric, st.sampled_from(["min", "max"]), st.sampled_from([*NUMBERS, "host", "at", "day", "ok"])),
    st.builds(Metric, st.just("count"), st.sampled_from(["code", "host", "attrs", "message", "big", "ok"])),
)
groups = st.one_of(
    st.builds(ByValue, st.sampled_from(["host", "code", "ok", "day", "at", "price", "big", "size", "message"])),
    st.builds(ByNumber, st.just("price"), st.sampled_from([1, 0.5, 2]), st.sampled_from([0, 0.25, -1])),
    st.builds(ByNumber, st.just("size"), st.sampled_from([1, 0.5]), st.just(0)),
    st.builds(ByTime, st.just("at"), st.sampled_from(["1d", "1h", "1w", "1ms", "1month"])),
    st.builds(ByTime, st.just("day"), st.sampled_from(["1d", "1w", "1month"])),
)
requests = st.builds(
    AggregateRequest,
    st.lists(metrics, min_size=1, max_size=3, unique_by=lambda m: m.output).map(tuple),
    st.lists(groups, max_size=2, unique_by=lambda g: g.column).map(tuple),
).filter(lambda r: len(set(r.names)) == len(r.names))


@settings(max_examples=90, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests, text=st.sampled_from(QUERIES))
def test_aggregates_of_splits_equal_brute_force(splits: list[Split], request: AggregateRequest, text: str) -> None:
    query = parse_query(text, CONFIG, ["message"])
    parts = [aggregate(split, query, request) for split in splits[:2]]
    plain = pa.Table.from_batches([batch_of(SCHEMA, ROWS[2])])
    from headwater.search.rows.evaluate import matches

    found = matches(query, plain, CONFIG)
    parts.append(aggregate_rows(plain.filter(found), request, SCHEMA))
    kept = [row for rows in ROWS for row in _found(rows, query)]
    got = answer(finish(merge_partials(parts, request), request, SCHEMA), request)
    wanted = brute_force(request, kept)
    assert got.keys() == wanted.keys()
    for key, values in wanted.items():
        assert all(same(a, b) for a, b in zip(got[key], values, strict=True)), (key, got[key], values)


def _found(rows: list[Row], query: Any) -> list[Row]:
    from headwater.search.rows.evaluate import matches

    mask = matches(query, pa.Table.from_batches([batch_of(SCHEMA, rows)]), CONFIG).to_pylist()
    return [row for row, hit in zip(rows, mask, strict=True) if hit]


# --- what must not go wrong ----------------------------------------------------------------------------------

NUMBERED = schema_of(n=LONG, k=STRING, f=DOUBLE)


def totals(split: Split, *metrics: Metric, by: tuple[Group, ...] = ()) -> list[dict[str, Any]]:
    request = AggregateRequest(metrics, by)
    return finish(aggregate(split, All(), request), request, split.schema).to_pylist()


def test_whole_numbers_are_never_rounded(tmp_path: Path) -> None:
    split = split_of(tmp_path, NUMBERED, [{"n": 2**62 + 1}, {"n": 2**53 + 1}, {"n": -(2**53) - 3}])
    (row,) = totals(split, Metric("sum", "n"), Metric("min", "n"), Metric("max", "n"))
    assert row == {"sum(n)": 2**62 + 1 - 2, "min(n)": -(2**53) - 3, "max(n)": 2**62 + 1}


def test_a_sum_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    split = split_of(tmp_path, NUMBERED, [{"n": 2**63 - 1}, {"n": 1}])
    with pytest.raises(SearchQueryError, match="too large"):
        totals(split, Metric("sum", "n"))


def test_there_are_as_many_groups_as_values(tmp_path: Path) -> None:
    split = split_of(tmp_path, NUMBERED, [{"n": i, "k": f"k{i % 2500}"} for i in range(5000)])
    found = totals(split, Metric("count"), Metric("sum", "n"), by=(ByValue("k"),))
    assert len(found) == 2500
    assert {row["count(*)"] for row in found} == {2}
    assert sum(row["sum(n)"] for row in found) == sum(range(5000))


def test_the_index_answers_for_fast_fields_and_rows_for_the_others(tmp_path: Path) -> None:
    rows = [{"n": i, "k": "a" if i % 3 else None, "f": i / 2} for i in range(100)]
    fast = split_of(tmp_path / "fast", NUMBERED, rows)
    slow = split_of(tmp_path / "slow", NUMBERED, rows, not_fast=["n", "k", "f"])
    request = AggregateRequest((Metric("count"), Metric("avg", "n"), Metric("max", "f")), (ByValue("k"),))
    types = {"n": pa.int64(), "k": pa.string(), "f": pa.float64()}
    assert index_partial(fast, All(), request, types) is not None
    assert index_partial(slow, All(), request, types) is None
    assert totals(fast, *request.metrics, by=request.groups) == totals(slow, *request.metrics, by=request.groups)


def test_no_rows_give_a_count_of_zero_and_no_groups(tmp_path: Path) -> None:
    split = split_of(tmp_path, NUMBERED, [])
    assert totals(split, Metric("count"), Metric("sum", "n")) == [{"count(*)": 0, "sum(n)": None}]
    assert totals(split, Metric("count"), by=(ByValue("k"),)) == []


def test_a_mean_of_decimals_has_four_more_digits(tmp_path: Path) -> None:
    schema = schema_of(price=DecimalType(4, 2))
    split = split_of(
        tmp_path, schema, [{"price": Decimal("1.00")}, {"price": Decimal("1.01")}, {"price": Decimal("1.01")}]
    )
    assert totals(split, Metric("avg", "price")) == [{"avg(price)": Decimal("1.006667")}]


TYPED_VALUES: list[tuple[Any, list[Any]]] = [
    (BYTE, [1, -128, 1, None]),
    (SHORT, [300, -300, None, 300]),
    (INTEGER, [2**31 - 1, -5, -5, None]),
    (FLOAT, [0.5, -2.0, 0.5, None]),
    (BOOLEAN, [True, False, True, None]),
    (DATE, [date(2024, 1, 1), date(1969, 12, 31), None, date(2024, 1, 1)]),
    (TIMESTAMP_NTZ, [datetime(2024, 1, 1, 1, 2, 3, 4), datetime(1900, 1, 1), None, datetime(1900, 1, 1)]),
    (PrimitiveType("interval day to second"), [timedelta(seconds=5), timedelta(days=-1), None, timedelta(days=-1)]),
    (DecimalType(38, 10), [Decimal("1E-10"), Decimal("12345678901234567890.5"), None, Decimal("1E-10")]),
    (DecimalType(18, 0), [Decimal(10**17), Decimal(-5), None, Decimal(-5)]),
    (STRING, ["ü", "z", "", None, "ü"]),
]


@pytest.mark.parametrize(("data_type", "values"), TYPED_VALUES, ids=lambda v: str(v) if not isinstance(v, list) else "")
@pytest.mark.parametrize("fast", [True, False])
def test_values_of_every_type_come_back_as_they_were(
    tmp_path: Path, data_type: Any, values: list[Any], fast: bool
) -> None:
    split = split_of(tmp_path, schema_of(v=data_type), [{"v": v} for v in values], not_fast=() if fast else ["v"])
    known = [v for v in values if v is not None]
    (row,) = totals(split, Metric("min", "v"), Metric("max", "v"), Metric("count", "v"))
    assert row == {"min(v)": min(known), "max(v)": max(known), "count(v)": len(known)}
    found = totals(split, Metric("count"), by=(ByValue("v"),))
    assert {r["v"]: r["count(*)"] for r in found} == {v: values.count(v) for v in values}


@pytest.mark.parametrize(
    ("metrics", "by", "words"),
    [
        ((Metric("sum", "k"),), (), "no sum"),
        ((Metric("count"),), (ByNumber("k", 1),), "histogram needs numbers"),
        ((Metric("count"),), (ByTime("n", "1d"),), "needs dates"),
        ((Metric("count"),), (ByNumber("n", 0.5),), "as fine as"),
    ],
)
def test_what_a_column_cannot_do_is_said(tmp_path: Path, metrics: Any, by: Any, words: str) -> None:
    split = split_of(tmp_path, NUMBERED, [{"n": 1, "k": "a"}])
    with pytest.raises(SearchQueryError, match=words):
        totals(split, *metrics, by=by)


def test_unknown_columns_and_bad_requests_are_refused(tmp_path: Path) -> None:
    split = split_of(tmp_path, NUMBERED, [{"n": 1}])
    with pytest.raises(ColumnNotFoundError):
        totals(split, Metric("sum", "nowhere"))
    with pytest.raises(SearchQueryError, match="no interval"):
        AggregateRequest((Metric("count"),), (ByTime("at", "soon"),))
    with pytest.raises(SearchQueryError, match="greater than 0"):
        AggregateRequest((Metric("count"),), (ByNumber("n", 0),))
    with pytest.raises(SearchQueryError, match="same name"):
        AggregateRequest((Metric("count"), Metric("count")))
    with pytest.raises(SearchQueryError, match="needs a column"):
        AggregateRequest((Metric("sum"),))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Split:
    rows = [{"n": n, "at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=n * 977)} for n in range(-400, 400)]
    return split_of(tmp_path_factory.mktemp("numbered"), schema_of(n=LONG, at=TIMESTAMP), rows)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(interval=st.integers(1, 50), offset=st.integers(-100, 100), time=st.sampled_from(["1h", "7h", "1d", "1w", "3d"]))
def test_histograms_of_the_index_have_the_buckets_of_the_rows(
    numbered: Split, interval: int, offset: int, time: str
) -> None:
    request = AggregateRequest((Metric("count"), Metric("sum", "n")), (ByNumber("n", interval, offset),))
    for asked in (request, AggregateRequest(request.metrics, (ByTime("at", time),))):
        types = {"n": pa.int64(), "at": pa.timestamp("us", "UTC")}
        needed = {name: types[name] for name in asked.columns}
        indexed = index_partial(numbered, All(), asked, needed)
        assert indexed is not None
        plain = aggregate_rows(numbered.rows(), asked, numbered.schema)
        assert finish(indexed, asked, numbered.schema).to_pylist() == finish(plain, asked, numbered.schema).to_pylist()


def test_lengths_of_texts_come_from_the_rows(splits: list[Split]) -> None:
    request = AggregateRequest((Metric("max", "message", of_length=True), Metric("sum", "host", of_length=True)))
    assert request.names == ("max(length(message))", "sum(length(host))")

    parts = [aggregate(split, All(), request) for split in splits]
    found = finish(merge_partials(parts, request), request, SCHEMA)

    rows = [row for part in ROWS for row in part]
    lengths = {name: [len(row[name]) for row in rows if row[name] is not None] for name in ("message", "host")}
    assert found.to_pylist() == [
        {"max(length(message))": max(lengths["message"]), "sum(length(host))": sum(lengths["host"])}
    ]
    assert found.schema.types == [pa.int32(), pa.int64()]
