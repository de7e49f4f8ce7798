"""Statistics become typed columns in which null means "not known"; one bad text never spoils the others."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.actions.model import Add
from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk
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
    DataType,
    DecimalType,
)
from headwater.log.stats.columns import ChunkStatistics
from headwater.log.stats.decode import Leaf
from headwater.log.stats.encode import bound_column


def load(texts: list[str | None], *leaves: Leaf) -> ChunkStatistics:
    adds = [Add(path=f"f{i}", size=1, stats=text) for i, text in enumerate(texts)]
    statistics = ChunkStatistics(MemoryChunk(adds, ADD_COLUMNS))
    statistics.load(leaves)
    return statistics


def stats(low: Any, high: Any, nulls: Any = 0) -> str:
    return json.dumps({"numRecords": 9, "minValues": {"a": low}, "maxValues": {"a": high}, "nullCount": {"a": nulls}})


def bounds(type_: DataType, low: Any, high: Any) -> tuple[Any, Any]:
    leaf = Leaf(("a",), type_)
    known = load([stats(low, high)], leaf).leaf(leaf)
    return _only(known.lower), _only(known.upper)


def _only(column: Any) -> Any:
    return None if column is None else column.to_pylist()[0]


@pytest.mark.parametrize(
    ("type_", "low", "high", "expected"),
    [
        (LONG, -5, 7, (-5, 7)),
        (LONG, 2**53 + 1, 2**63 - 1, (2**53 + 1, 2**63 - 1)),
        (DOUBLE, 1.5, 2, (1.5, 2.0)),
        (STRING, "a", "é€", ("a", "é€")),
        (BOOLEAN, False, True, (False, True)),
        (DATE, "1999-12-31", "2024-02-29", (date(1999, 12, 31), date(2024, 2, 29))),
    ],
)
def test_bounds_are_read_as_the_type_of_the_column(type_: DataType, low: Any, high: Any, expected: Any) -> None:
    assert bounds(type_, low, high) == expected


def test_the_maximum_of_a_timestamp_is_widened_because_writers_cut_it_to_milliseconds() -> None:
    low, high = bounds(TIMESTAMP, "2024-01-01T00:00:00.001Z", "2024-01-01T02:00:00.001+02:00")
    assert low == datetime(2024, 1, 1, microsecond=1000, tzinfo=UTC)
    assert high == datetime(2024, 1, 1, microsecond=1999, tzinfo=UTC)


def test_a_timestamp_without_a_zone_bounds_nothing_but_a_wall_clock_does() -> None:
    assert bounds(TIMESTAMP, "2024-01-01T00:00:00", "2024-01-01 00:00:00") == (None, None)
    assert bounds(TIMESTAMP_NTZ, "2024-01-01T00:00:00", "2024-01-01 00:00:00") == (
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, microsecond=999),
    )


def test_a_float_is_compared_by_its_value_not_by_its_shortest_text() -> None:
    """0.1 as a 32-bit float is a little more than 0.1 as a double."""
    assert bounds(FLOAT, 0.1, 0.1) == (0.10000000149011612, 0.10000000149011612)


def test_nan_and_infinities_as_text() -> None:
    assert bounds(DOUBLE, "-Infinity", "NaN") == (float("-inf"), None)


def test_decimals_are_exact_when_written_exactly() -> None:
    leaf = Leaf(("a",), DecimalType(20, 2))
    text = '{"numRecords":1,"minValues":{"a":-1234567890123.45},"maxValues":{"a":0.00}}'
    known = load([text], leaf).leaf(leaf)
    assert _only(known.lower) == Decimal("-1234567890123.45")
    assert _only(known.upper) == Decimal("0.00")


def test_decimals_that_went_through_a_double_are_widened() -> None:
    true_maximum = Decimal("12345678901234567.89")
    low, high = bounds(DecimalType(30, 2), float(true_maximum), float(true_maximum))
    assert low <= true_maximum <= high


def test_a_decimal_that_its_type_cannot_hold_is_not_known_in_a_checkpoint() -> None:
    values = [Decimal("1e200"), Decimal("-1e200"), Decimal("0.001"), Decimal("1.5"), None]

    column = bound_column(values, DecimalType(10, 2), pa.decimal128(10, 2))

    assert column.to_pylist() == [None, None, None, Decimal("1.50"), None]


def test_binary_columns_have_no_bounds() -> None:
    assert bounds(BINARY, "AA==", "BB==") == (None, None)


@pytest.mark.parametrize(
    "bad",
    [
        '{"numRecords":"many"}',
        "{",
        "[]",
        "null",
        '{"numRecords":1,"minValues":{"a":"text"},"maxValues":{"a":{"b":1}}}',
        '{"numRecords":1,"minValues":{"a":99999999999999999999},"maxValues":null}',
        '{"numRecords":\n1,\n"minValues":{}}',
        "",
    ],
)
def test_a_text_that_cannot_be_used_is_unknown_and_its_neighbours_are_not(bad: str) -> None:
    leaf = Leaf(("a",), LONG)
    statistics = load([stats(1, 2), bad, None, stats(3, 4)], leaf)
    known = statistics.leaf(leaf)
    assert known.lower is not None
    assert known.lower.to_pylist() == [1, None, None, 3]
    assert statistics.num_records.to_pylist()[0] == statistics.num_records.to_pylist()[3] == 9


def test_one_bad_leaf_does_not_hide_the_others() -> None:
    good, other = Leaf(("g",), LONG), Leaf(("o",), LONG)
    text = '{"numRecords":5,"minValues":{"g":1,"o":"x"},"maxValues":{"g":2},"nullCount":{"g":0,"o":-1.5}}'
    statistics = load([text], good, other)
    assert _only(statistics.leaf(good).lower) == 1
    assert _only(statistics.leaf(other).lower) is None
    assert statistics.num_records.to_pylist() == [5]


def test_nested_leaves_and_names_that_are_no_identifiers() -> None:
    nested, dotted = Leaf(("s", "x y"), LONG), Leaf(("a.b",), STRING)
    text = '{"numRecords":5,"minValues":{"s":{"x y":1},"a.b":"q"},"maxValues":{"s":null},"nullCount":{"s":{"x y":2}}}'
    statistics = load([text, '{"numRecords":1}'], nested, dotted)
    found = statistics.leaf(nested)
    assert found.lower is not None
    assert found.upper is not None
    assert found.null_count is not None
    assert (found.lower.to_pylist(), found.upper.to_pylist()) == ([1, None], [None, None])
    assert found.null_count.to_pylist() == [2, None]
    assert _only(statistics.leaf(dotted).lower) == "q"


def test_statistics_are_decoded_once_for_each_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = Leaf(("a",), LONG)
    statistics = load([stats(1, 2)], leaf)
    assert _only(statistics.leaf(leaf).lower) == 1
    monkeypatch.setattr(MemoryChunk, "text_batches", lambda *_: pytest.fail("decoded again"))
    statistics.load([leaf])
    assert _only(statistics.leaf(leaf).lower) == 1


def test_tight_bounds_are_known_per_file() -> None:
    statistics = load(['{"numRecords":1,"tightBounds":false}', '{"numRecords":1}'], Leaf(("a",), LONG))
    assert statistics.tight_bounds is not None
    assert statistics.tight_bounds.to_pylist() == [False, None]
