"""SQL conditions in the index: true exactly where SQL's three-valued logic says so, or at least there."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.log.filters import expressions as sql
from headwater.log.filters.sql import parse_filter
from headwater.log.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.search.choices import index_config
from headwater.search.engine.match import row_numbers
from headwater.search.query.parse import parse_query
from headwater.search.query.sql import index_filter
from headwater.search.query.tree import All, Nothing, from_json, to_json
from headwater.search.rows.evaluate import matches
from headwater.search.split.reader import Split
from support.search.built_splits import batch_of, schema_of, split_of
from support.search.query_corpus import ADDRESSES, CHOICES, EPOCH, HOSTS, SCHEMA, Row, corpus_split, random_rows

CONFIG = index_config(SCHEMA, **CHOICES)
ROWS = random_rows(42, 200)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return corpus_split(tmp_path_factory.mktemp("split"), ROWS)


# --- SQL's logic in plain Python -----------------------------------------------------------------------------


def value_of(row: Row, column: sql.Column) -> Any:
    value: Any = row
    for part in column.parts:
        value = dict(value).get(part) if value is not None else None
    return value


def compare(left: Any, op: str, right: Any) -> bool | None:
    if op == "<=>":
        return left is None and right is None if left is None or right is None else bool(compare(left, "=", right))
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    # Spark's order of floats: NaN is equal to itself and larger than all numbers.
    pair = [(isinstance(v, float) and math.isnan(v), 0 if v != v else v) for v in (left, right)]
    less, equal = pair[0] < pair[1], pair[0] == pair[1]
    return {"=": equal, "<>": not equal, "<": less, "<=": less or equal, ">": not (less or equal), ">=": not less}[op]


def truth(expression: sql.Expression, row: Row) -> bool | None:
    match expression:
        case sql.Constant(value=value):
            return value
        case sql.Compare(op=op, left=left, right=sql.Literal(value=value)):
            return compare(value_of(row, left), op, value)
        case sql.In(column=column, values=values):
            found = [compare(value_of(row, column), "=", v.value) for v in values]
            return True if True in found else None if None in found else False
        case sql.StartsWith(column=column, prefix=prefix):
            value = value_of(row, column)
            return None if value is None else value.startswith(prefix)
        case sql.IsNull(column=column):
            return value_of(row, column) is None
        case sql.Not(operand=operand):
            inner = truth(operand, row)
            return None if inner is None else not inner
        case sql.And(operands=operands):
            parts = [truth(part, row) for part in operands]
            return False if False in parts else None if None in parts else True
        case sql.Or(operands=operands):
            parts = [truth(part, row) for part in operands]
            return True if True in parts else None if None in parts else False
        case sql.Unknown() | sql.Compare(right=sql.Column()):
            return row["code"] == 404  # whatever it is, the index must not assume anything about it
    raise AssertionError(expression)


# --- conditions ----------------------------------------------------------------------------------------------

VALUES: dict[tuple[str, ...], list[Any]] = {
    ("code",): [0, 1, 404, -5, 2**62 + 1, 1.5, Decimal("2.5"), None],
    ("size",): [0.0, 1.5, -3, Decimal("1.5"), None],
    ("host",): [*HOSTS, None],
    ("ok",): [True, False, None],
    ("day",): [date(2024, 1, 3), date(2024, 1, 5), None],
    ("at",): [EPOCH, EPOCH + timedelta(microseconds=1), None],
    ("price",): [Decimal("0.50"), Decimal("1.005"), 1, -2, None],
    ("big",): [Decimal("0.5"), Decimal("12345678901234567890.123"), None],
    ("message",): ["error disk", "", "Error", "!!", None],
    ("ip",): [*ADDRESSES, None],
    ("attrs", "n"): [0, 2, None],
    ("attrs", "user"): ["bob", "Bob Smith", None],
    ("props", "p"): [1, None],
}
columns = st.sampled_from(list(VALUES))
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


def literals(column: tuple[str, ...]) -> st.SearchStrategy[sql.Literal]:
    return st.sampled_from(VALUES[column]).map(sql.Literal)


conditions = columns.flatmap(
    lambda c: st.one_of(
        st.builds(sql.Compare, st.sampled_from(OPERATORS), st.just(sql.Column(c)), literals(c)),
        st.builds(sql.In, st.just(sql.Column(c)), st.lists(literals(c), min_size=1, max_size=3).map(tuple)),
        st.just(sql.IsNull(sql.Column(c))),
    )
)
others = st.one_of(
    st.sampled_from(["attrs", "tags", "doc", "note"]).map(lambda name: sql.IsNull(sql.column(name))),
    st.builds(
        sql.StartsWith, st.sampled_from([sql.column("host"), sql.column("message")]), st.sampled_from(["w", "", "e"])
    ),
    st.sampled_from([True, False, None]).map(sql.Constant),
    st.just(sql.Unknown("f(x)")),
    st.builds(sql.Compare, st.sampled_from(OPERATORS), columns.map(sql.Column), columns.map(sql.Column)),
)
expressions = st.recursive(
    st.one_of(conditions, conditions, others),
    lambda inner: st.one_of(
        inner.map(sql.Not),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: sql.And(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: sql.Or(tuple(parts))),
    ),
    max_leaves=6,
)


@settings(max_examples=180, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=expressions)
def test_the_index_finds_the_rows_where_a_condition_is_true(split: Split, expression: sql.Expression) -> None:
    wanted = {i for i, row in enumerate(ROWS) if truth(expression, row) is True}
    query, exact = index_filter(expression, CONFIG)
    if query is None:
        assert not exact
        return
    found = row_numbers(split, query).to_pylist()
    plain = matches(query, pa.Table.from_batches([batch_of(SCHEMA, ROWS)]), CONFIG).to_pylist()
    assert [i for i, hit in enumerate(plain) if hit] == found
    if exact:
        assert set(found) == wanted, str(expression)
    else:
        assert set(found) >= wanted, str(expression)


# --- what must be exact, and what must not be assumed --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("host = 'web-1'", True),
        ("host <> 'web-1' AND code IN (200, 404)", True),
        ("NOT (host = 'web-1' OR code IS NULL)", True),
        ("code BETWEEN 1 AND 5", True),
        ("host LIKE 'web%'", True),
        ("size > 1.5", True),
        ("price >= 1.25 OR ok", True),
        ("attrs.n = 2", True),
        ("at > TIMESTAMP '2024-01-01 00:00:00Z'", True),
        ("message = 'error disk'", True),  # message is a string as well
        ("note = 'error disk'", False),
        ("ip = '10.0.0.1'", False),
        ("at > '2024-01-01'", False),
        ("upper(host) = 'X' AND code = 5", False),
    ],
)
def test_what_the_index_can_say_exactly(split: Split, text: str, exact: bool) -> None:
    query, is_exact = index_filter(parse_filter(text), CONFIG)
    assert query is not None
    assert is_exact is exact, to_json(query)


@pytest.mark.parametrize(
    "text",
    [
        "host = message",
        "NOT (code <=> size)",
        "upper(host) = 'X'",
        "upper(host) = 'X' OR code = 5",
        "NOT (upper(host) = 'X' AND code = 5)",
        "nowhere = 1",
    ],
)
def test_what_the_index_cannot_help_with(text: str) -> None:
    assert index_filter(parse_filter(text), CONFIG) == (None, False)


def test_constants_need_no_column() -> None:
    assert index_filter(sql.Constant(True), CONFIG) == (All(), True)
    assert index_filter(sql.Constant(None), CONFIG) == (Nothing(), True)
    assert index_filter(sql.Not(sql.Constant(None)), CONFIG) == (Nothing(), True)


def test_a_text_without_a_zone_means_every_zone(tmp_path: Path) -> None:
    schema = schema_of(at=TIMESTAMP)
    rows = [{"at": datetime(2024, 1, 1, hour, tzinfo=UTC)} for hour in range(24)] + [{"at": None}]
    split = split_of(tmp_path, schema, rows)
    query, exact = index_filter(parse_filter("at = '2024-01-01 12:00:00'"), split.config)
    assert query is not None
    assert not exact
    assert row_numbers(split, query).to_pylist() == list(range(24))  # 12:00 in Honolulu is 22:00 in UTC


def test_padded_text_is_left_to_spark() -> None:
    config = index_config(schema_of(c=PrimitiveType("char(5)")))
    assert index_filter(parse_filter("c = 'ab'"), config) == (None, False)


def test_floats_are_compared_as_doubles(tmp_path: Path) -> None:
    schema = schema_of(f=FLOAT, n=LONG)
    split = split_of(tmp_path, schema, [{"f": 0.1, "n": 1}, {"f": 0.5, "n": 2}])
    for text, wanted in [("f = 0.1D", []), ("f > 0.1D", [0, 1]), ("f = 0.5D", [1]), ("n = 2.0D", [1])]:
        query, exact = index_filter(parse_filter(text), split.config)
        assert exact
        assert query is not None
        assert row_numbers(split, query).to_pylist() == wanted, text


def test_names_are_found_in_any_case() -> None:
    config = index_config(schema_of(Host=STRING))
    query, exact = index_filter(parse_filter("hOST = 'a'"), config)
    assert exact
    assert str(query) == "Host:a"


def test_thousands_of_conditions_are_no_deeper_than_one() -> None:
    chain: sql.Expression = sql.Compare("=", sql.column("code"), sql.Literal(0))
    for i in range(5_000):
        chain = sql.Or((chain, sql.Compare("=", sql.column("code"), sql.Literal(i))))
    query, exact = index_filter(chain, CONFIG)
    assert exact
    assert query is not None
    assert from_json(to_json(query)) == query
    deep: sql.Expression = sql.Compare("=", sql.column("code"), sql.Literal(0))
    for _ in range(5_000):
        deep = sql.Not(deep)
    assert index_filter(deep, CONFIG) == (None, False)


# --- numbers at the ends of their types ----------------------------------------------------------------------

_TINY, _HUGE = 5e-324, 1.7976931348623157e308
DOUBLES = [None, math.inf, -math.inf, math.nan, 0.0, -0.0, _TINY, -_TINY, _HUGE, -_HUGE, 1.0, 0.1, 2.0**53, 1e22]
FLOATS = [
    None,
    math.inf,
    -math.inf,
    math.nan,
    0.0,
    -0.0,
    2.0**-149,
    (2 - 2.0**-23) * 2.0**127,
    1.0,
    0.10000000149011612,
]
LONGS = [None, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 0, 1, -1]
DAYS = [None, date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(1582, 10, 4)]
EXTREMES = [
    {"d": d, "f": f, "l": n, "day": day, "s": {"d": d}}
    for d, f, n, day in zip(DOUBLES, (FLOATS * 2)[:14], (LONGS * 2)[:14], (DAYS * 3)[:14], strict=True)
]
EXTREME_LITERALS: list[tuple[str, list[Any]]] = [
    ("d", [*DOUBLES[1:], 2**53, Decimal("1")]),
    ("f", [*FLOATS[1:], 0.1, 2**24]),
    ("l", [*LONGS[1:], math.inf, -math.inf, 1.5, Decimal(2**63), Decimal("0.5"), float(2**53)]),
    ("day", DAYS[1:]),
    ("s.d", [math.inf, -math.inf, 0.0, _HUGE]),
]


@pytest.fixture(scope="module")
def extremes(tmp_path_factory: pytest.TempPathFactory) -> Split:
    nested = StructType([StructField("d", DOUBLE)])
    return split_of(
        tmp_path_factory.mktemp("extremes"), schema_of(d=DOUBLE, f=FLOAT, l=LONG, day=DATE, s=nested), EXTREMES
    )


@pytest.mark.parametrize(("name", "values"), EXTREME_LITERALS)
def test_numbers_at_the_ends_of_their_types_are_found(extremes: Split, name: str, values: list[Any]) -> None:
    column = sql.Column(tuple(name.split(".")))
    conditions: list[sql.Expression] = [
        sql.Compare(op, column, sql.Literal(value))
        for value in values
        for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")
    ]
    conditions += [sql.In(column, (sql.Literal(a), sql.Literal(b))) for a in values for b in values]
    conditions += [sql.Not(condition) for condition in conditions]
    for condition in conditions:
        query, exact = index_filter(condition, extremes.config)
        expected = [n for n, row in enumerate(EXTREMES) if truth(condition, row) is True]
        found = list(range(len(EXTREMES))) if query is None else row_numbers(extremes, query).to_pylist()
        assert found == expected if exact else set(found) >= set(expected), condition
        if query is not None:
            assert matches(from_json(to_json(query)), extremes.rows(), extremes.config).to_pylist() == [
                n in found for n in range(len(EXTREMES))
            ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d:Infinity", [1]),
        ("d:-Infinity", [2]),
        ("d:inf", [1]),
        ("f:[1 TO Infinity]", [1, 7, 8, 11]),
        ("d:[-Infinity TO -1e308]", [2, 9]),
        ("d:{-Infinity TO Infinity}", [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
        ("d: IN [Infinity 1]", [1, 10]),
        ("NOT d:Infinity", [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    ],
)
def test_a_query_may_ask_for_infinity(extremes: Split, text: str, expected: list[int]) -> None:
    query = parse_query(text, extremes.config)
    assert row_numbers(extremes, query).to_pylist() == expected
    assert [n for n, hit in enumerate(matches(query, extremes.rows(), extremes.config).to_pylist()) if hit] == expected
