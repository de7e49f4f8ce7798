"""Columns as JSON text: read back by another JSON reader they are the values, whatever slice of an array they are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.schema import BOOLEAN, DOUBLE, LONG, STRING, ArrayType, MapType, StructField, StructType
from headwater.search.split.documents import HARD_NUMBER, UNUSABLE, json_column, numbers, quoted
from headwater.search.types import row_schema

LEAF = StructType([StructField('a "b"', STRING), StructField("n", LONG), StructField("x", DOUBLE)])
NESTED = StructType(
    [
        StructField("ok", BOOLEAN),
        StructField("list", ArrayType(ArrayType(LEAF))),
        StructField("map", MapType(STRING, ArrayType(LONG))),
        StructField("by", MapType(LONG, STRING)),
    ]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.none() | st.fixed_dictionaries(
    {
        'a "b"': st.none() | TEXTS,
        "n": st.none() | LONGS,
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)
ROWS = st.none() | st.fixed_dictionaries(
    {
        "ok": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | st.lists(LEAVES, max_size=3), max_size=3),
        "map": st.none() | st.dictionaries(KEYS, st.none() | st.lists(st.none() | LONGS, max_size=2), max_size=3),
        "by": st.none() | st.dictionaries(LONGS, st.none() | TEXTS, max_size=2),
    }
)


def column_of(rows: list[Any]) -> pa.Array:
    as_pairs = [
        row and {name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()}
        for row in rows
    ]
    return pa.array(as_pairs, row_schema(StructType([StructField("c", NESTED)])).field("c").type)


def expected(value: Any) -> Any:
    """The value as JSON has it: keys as text, -0.0 as 0.0, and no null members, as nobody can find them."""
    if isinstance(value, dict):
        return {str(key): expected(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [expected(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


@given(before=st.lists(ROWS, max_size=2), rows=st.lists(ROWS, max_size=4), after=st.lists(ROWS, max_size=2))
def test_nested_columns_are_the_json_of_their_values(before: list[Any], rows: list[Any], after: list[Any]) -> None:
    column = column_of([*before, *rows, *after]).slice(len(before), len(rows))

    texts = json_column(column, NESTED, raw=False).to_pylist()

    read = [None if text is None else json.loads(text.replace(HARD_NUMBER, "")) for text in texts]
    assert [expected(value) for value in read] == [expected(row) for row in rows]


@given(values=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))), start=st.integers(0, 3))
def test_strings_are_json_strings(values: list[str | None], start: int) -> None:
    column = pa.array(values, pa.string()).slice(start)

    texts = quoted(column).to_pylist()

    assert [None if text is None else json.loads(text) for text in texts] == values[start:]
    assert not any("\n" in text or UNUSABLE in text for text in texts if text is not None)


@given(values=st.lists(st.none() | st.floats()))
def test_only_numbers_of_few_digits_are_left_to_others(values: list[float | None]) -> None:
    for value, text in zip(values, numbers(pa.array(values, pa.float64())).to_pylist(), strict=True):
        if value is None:
            assert text is None
        elif value != value or abs(value) == float("inf"):
            assert text == UNUSABLE
        else:
            assert json.loads(text.removesuffix(HARD_NUMBER)) == value
            digits = sum(character.isdigit() for character in text)
            assert text.endswith(HARD_NUMBER) or (digits <= 16 and "e" not in text)
