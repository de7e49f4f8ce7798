"""What tantivy does without a word, one test each: a split either has the value right, or says that it has not."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.search.analysis import MAX_TERM_BYTES, ip_text
from headwater.search.config import FieldConfig
from headwater.search.query.values import leaf_value
from headwater.search.split.reader import Split
from headwater.search.types import NULL_FIELD, UNINDEXED_FIELD
from support.search.built_splits import found, rows_with, schema_of, split_of


def index_value(field: FieldConfig, value: Any) -> Any:
    """A value of a field's column in the form of the index; None when no row can have it."""
    if value is None or field.kind == "ip":
        return None if value is None else ip_text(value)
    return str(value) if field.kind in ("text", "json") else leaf_value(field.data_type, value)


DAY_TIME = PrimitiveType("interval day to second")


def unindexed(split: Split, field: str) -> list[int]:
    return rows_with(split, UNINDEXED_FIELD, field)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (LONG, st.integers(-(2**63), 2**63 - 1)),
        (DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
        (FLOAT, st.floats(width=32, allow_nan=False, allow_infinity=False)),
        (BOOLEAN, st.booleans()),
        (STRING, st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
        (DATE, st.dates()),
        (TIMESTAMP, st.datetimes(timezones=st.just(dt.UTC))),
        (TIMESTAMP_NTZ, st.datetimes()),
        (DecimalType(18, 6), st.decimals(-(10**11), 10**11, places=6)),
        (DecimalType(38, 20), st.decimals(-(10**16), 10**16, places=20)),
        (DAY_TIME, st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999))),
        (PrimitiveType("time(6)"), st.times()),
    ],
    ids=str,
)
def test_every_value_is_found_by_itself_alone(
    tmp_path_factory: pytest.TempPathFactory, type_: DataType, values: st.SearchStrategy[Any]
) -> None:
    @settings(max_examples=5, deadline=None)
    @given(column=st.lists(st.none() | values, min_size=1, max_size=40))
    def check(column: list[Any]) -> None:
        split = split_of(tmp_path_factory.mktemp("s"), schema_of(c=type_), [{"c": value} for value in column])
        field = split.config.field("c")
        assert split.partial_fields == frozenset()
        for value in column:
            rows = [number for number, other in enumerate(column) if other is not None and other == value]
            if value is None:
                assert rows_with(split, NULL_FIELD, "c") == [n for n, other in enumerate(column) if other is None]
            else:
                assert rows_with(split, field.index_name, index_value(field, value)) == rows

    check()


def test_timestamps_are_exact_to_the_microsecond(tmp_path: Path) -> None:
    instant = dt.datetime(2024, 1, 1, 12, 0, 0, 1, dt.UTC)
    split = split_of(tmp_path, schema_of(t=TIMESTAMP), [{"t": instant}, {"t": instant + dt.timedelta(microseconds=1)}])

    field = split.config.field("t")
    assert rows_with(split, "t", index_value(field, instant)) == [0]
    later = tantivy.Query.range_query(
        split.index.schema, "t", tantivy.FieldType.Integer, index_value(field, instant), None, include_lower=False
    )
    assert found(split, later) == [1]


def test_numbers_that_are_not_finite_are_told(tmp_path: Path) -> None:
    values = [1.5, float("nan"), None, float("inf"), -0.0, float("-inf"), 0.0]
    split = split_of(tmp_path, schema_of(x=DOUBLE, y=FLOAT), [{"x": x, "y": 1.0} for x in values])

    assert split.partial_fields == {"x"}
    assert unindexed(split, "x") == [1, 3, 5]
    assert rows_with(split, NULL_FIELD, "x") == [2]
    assert rows_with(split, "x", 0.0) == [4, 6]
    assert repr(split.rows().column("x").to_pylist()) == repr(values)


@pytest.mark.parametrize(("length", "fits"), [(MAX_TERM_BYTES, True), (MAX_TERM_BYTES + 1, False)])
def test_strings_too_long_for_a_term_are_told(tmp_path: Path, length: int, fits: bool) -> None:
    value = "é" * (length // 2) + "x" * (length % 2)
    split = split_of(tmp_path, schema_of(s=STRING), [{"s": "a"}, {"s": value}])

    assert split.partial_fields == (frozenset() if fits else {"s"})
    assert rows_with(split, "s", value) == ([1] if fits else [])
    assert unindexed(split, "s") == ([] if fits else [1])
    assert split.rows().column("s").to_pylist() == ["a", value]


@pytest.mark.parametrize("tokenizer", ["default", "whitespace", "raw", "en_stem"])
def test_tokens_too_long_for_a_term_are_told_and_long_texts_are_not(tmp_path: Path, tokenizer: str) -> None:
    long_text = "word " * 20_000
    rows = [{"t": long_text}, {"t": f"a {'x' * (MAX_TERM_BYTES + 1)} b"}, {"t": "short"}]
    split = split_of(tmp_path, schema_of(t=STRING), rows, types={"t": "text"}, tokenizers={"t": tokenizer})

    assert split.partial_fields == {"t"}
    assert unindexed(split, "t") == ([0, 1] if tokenizer == "raw" else [1])


HARD = 1.0591983809930115e192


def test_floats_are_exact_to_the_last_bit_wherever_they_are(tmp_path: Path) -> None:
    item = StructType([StructField("x", DOUBLE), StructField("s", STRING)])
    schema = schema_of(x=DOUBLE, items=ArrayType(item), many=ArrayType(DOUBLE), j=STRING, ip=STRING, t=STRING, n=LONG)
    row = {
        "x": HARD,
        "items": [{"x": HARD, "s": "2024-01-01T00:00:00Z"}, {"x": 0.5, "s": "b"}],
        "many": [HARD, None, 0.1],
        "j": f'{{"x": {HARD!r}}}',
        "ip": "10.0.0.1",
        "t": 'say "hi"',
        "n": -(2**63),
    }
    easy = {"x": 0.1, "items": [{"x": 0.1, "s": "c"}], "many": [1e15], "j": '{"x": 0.1}', "ip": "10.0.0.2", "n": None}
    split = split_of(tmp_path, schema, [easy, row], types={"j": "json", "ip": "ip", "t": "text,string"})

    assert split.partial_fields == frozenset()
    for field, value in [
        ("x", HARD),
        ("items.x", HARD),
        ("items.x", 0.5),
        ("items.s", "2024"),
        ("many._values", HARD),
        ("j.x", HARD),
        ("ip", "10.0.0.1"),
        ("t", "hi"),
        ("t%2Eraw", 'say "hi"'),
        ("n", -(2**63)),
    ]:
        assert rows_with(split, field, value) == [1], field
    assert rows_with(split, "x", 0.1) == rows_with(split, "j.x", 0.1) == [0]
    assert rows_with(split, NULL_FIELD, "t") == [0]


def test_text_that_is_no_address_is_told(tmp_path: Path) -> None:
    rows = [{"ip": "10.0.0.1"}, {"ip": "unknown"}, {"ip": None}, {"ip": "::FFFF:10.0.0.1"}, {"ip": "2001:DB8::1"}]
    split = split_of(tmp_path, schema_of(ip=STRING), rows, types={"ip": "ip"})

    assert unindexed(split, "ip") == [1]
    assert rows_with(split, "ip", "10.0.0.1") == [0, 3]
    assert rows_with(split, "ip", "2001:db8::1") == [4]
    assert split.rows().column("ip").to_pylist() == [row["ip"] for row in rows]


NESTED = StructType(
    [
        StructField("name", STRING),
        StructField("n", LONG),
        StructField("x", DOUBLE),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TIMESTAMP),
        StructField("day", DATE),
        StructField("ok", BOOLEAN),
        StructField("tags", ArrayType(STRING)),
        StructField("by", MapType(STRING, ArrayType(StructType([StructField("k", LONG)])))),
        StructField("body", BINARY),
    ]
)


def nested(**values: Any) -> dict[str, Any]:
    return {"c": dict.fromkeys(NESTED.names) | values}


def test_nested_values_are_found_by_their_paths(tmp_path: Path) -> None:
    instant = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [
        nested(name='Ann "X"\n', n=5, price=Decimal("1.50"), at=instant, day=dt.date(1970, 1, 3), body=b"\0"),
        nested(x=2.5, ok=True, tags=["red", None, "blue"], by=[("eu.west", [{"k": 7}, None]), ("us", None)]),
        {"c": None},
        nested(),
    ]
    split = split_of(tmp_path, schema_of(c=NESTED), rows)

    assert rows_with(split, "c.name", "ann") == [0]
    assert rows_with(split, "c.n", 5) == [0]
    assert rows_with(split, "c.price", 150) == [0]
    assert rows_with(split, "c.at", 1_704_067_200_000_000) == [0]
    assert rows_with(split, "c.day", 2) == [0]
    assert rows_with(split, "c.x", 2.5) == [1]
    assert rows_with(split, "c.ok", True) == [1]
    assert rows_with(split, "c.tags", "blue") == [1]
    assert rows_with(split, "c.by.eu\\.west.k", 7) == [1]
    assert rows_with(split, NULL_FIELD, "c") == [2]
    assert split.partial_fields == frozenset()


def test_strings_in_json_that_look_like_a_time_stay_text(tmp_path: Path) -> None:
    rows = [nested(name="2024-01-01T10:00:00.123456Z"), nested(tags=["at 2024-01-01T10:00:00Z"])]
    split = split_of(tmp_path, schema_of(c=NESTED), rows)

    assert rows_with(split, "c.name", "123456z") == [0]
    assert rows_with(split, "c.tags", "2024") == [1]
    assert split.partial_fields == frozenset()


def test_strings_kept_whole_in_json_that_look_like_a_time_are_told(tmp_path: Path) -> None:
    rows = [nested(name="2024-01-01T10:00:00Z"), nested(name="Ann Lee")]
    split = split_of(tmp_path, schema_of(c=NESTED), rows, tokenizers={"c": "raw"})

    assert unindexed(split, "c") == [0]
    assert rows_with(split, "c.name", "Ann Lee") == [1]


@pytest.mark.parametrize(
    "bad",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"name": "x" * 70_000},
        {"tags": ["ok", "y" * 70_000]},
        {"by": [("k" * 70_000, [{"k": 1}])]},
        {"by": [("a\x01b", [{"k": 1}])]},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_nested_values_that_the_index_cannot_have_are_told(tmp_path: Path, bad: dict[str, Any]) -> None:
    split = split_of(tmp_path, schema_of(c=NESTED, s=STRING), [nested(n=1), nested(n=1, **bad)])

    assert split.partial_fields == {"c"}
    assert unindexed(split, "c") == [1]
    assert rows_with(split, "c.n", 1) == [0]


def test_top_level_arrays_and_maps_are_json(tmp_path: Path) -> None:
    schema = schema_of(
        tags=ArrayType(STRING), items=ArrayType(StructType([StructField("sku", STRING)])), m=MapType(LONG, STRING)
    )
    rows = [
        {"tags": ["red", "blue"], "items": [{"sku": "a1"}, {"sku": "b2"}], "m": [(5, "five")]},
        {"tags": [], "items": [], "m": []},
        {"tags": None, "items": None, "m": None},
    ]
    split = split_of(tmp_path, schema, rows)

    assert rows_with(split, "tags._values", "blue") == [0]
    assert rows_with(split, "items.sku", "b2") == [0]
    assert rows_with(split, "m.5", "five") == [0]
    assert rows_with(split, NULL_FIELD, "tags") == rows_with(split, NULL_FIELD, "items") == [2]
    assert split.partial_fields == frozenset()


def test_a_column_of_json_texts(tmp_path: Path) -> None:
    texts = [
        '{"user": {"name": "Ann", "n": 5}, "t": "2024-01-01T00:00:00Z"}',
        "not json",
        None,
        '[{"user": {"name": "Bob"}}]',
        '["x", 7]',
        '{"big": 99999999999999999999999}',
        json.dumps({"long": "x" * 70_000}),
        json.dumps({"deep": json.loads("[" * 50 + "]" * 50)}),
        "{}",
    ]
    split = split_of(tmp_path, schema_of(j=STRING), [{"j": text} for text in texts], types={"j": "json"})

    assert unindexed(split, "j") == [1, 5, 6]
    assert rows_with(split, "j.user.name", "ann") == [0]
    assert rows_with(split, "j.user.name", "bob") == [3]
    assert rows_with(split, "j.t", "2024") == [0]
    assert rows_with(split, "j._values", 7) == [4]
    assert rows_with(split, NULL_FIELD, "j") == [2]
    assert split.rows().column("j").to_pylist() == texts


@pytest.mark.parametrize(
    "name", ["a b", "a.b", "-a", "Größe (cm)", 'say "x"', "a:b", "a\\b", "%2E", "a\nb", "🎉", "_x"]
)
def test_columns_of_any_name_are_found(tmp_path: Path, name: str) -> None:
    schema = StructType([StructField(name, STRING), StructField("a", STRING)])
    split = split_of(tmp_path, schema, [{name: "v", "a": None}, {name: None, "a": "v"}], types={"a": "text,string"})

    assert rows_with(split, split.config.field(name).index_name, "v") == [0]
    assert rows_with(split, NULL_FIELD, name) == [1]
    assert rows_with(split, split.config.field("a.raw").index_name, "v") == [1]


def test_stored_only_columns_are_not_in_the_index(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(a=STRING, b=BINARY), [{"a": None, "b": b"x"}], stored_only=["a"])

    assert split.config.indexed_fields == ()
    assert rows_with(split, NULL_FIELD, "a") == [0]
    with pytest.raises(ValueError, match="not defined"):
        rows_with(split, "a", "x")


def test_values_that_no_row_can_have_are_no_index_values(tmp_path: Path) -> None:
    config = split_of(
        tmp_path, schema_of(d=DecimalType(5, 2), n=LONG, x=DOUBLE, ip=STRING), [], types={"ip": "ip"}
    ).config

    assert index_value(config.field("d"), Decimal("1.5")) == 150
    assert index_value(config.field("d"), 7) == 700
    assert index_value(config.field("d"), Decimal("1.234")) is None
    assert index_value(config.field("d"), Decimal("123456")) is None
    assert index_value(config.field("n"), 2**63) is None
    assert index_value(config.field("x"), float("nan")) is None
    assert index_value(config.field("x"), -0.0) == 0.0
    assert index_value(config.field("ip"), "::ffff:1.2.3.4") == "1.2.3.4"
    assert index_value(config.field("ip"), "x") is None
