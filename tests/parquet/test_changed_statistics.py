"""Statistics of a file of which some columns were written again: those of the others stay as they stand in the log."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from headwater.parquet.stats import changed_statistics, joined_statistics

OLD: dict[str, Any] = {
    "numRecords": 5,
    "minValues": {"a": 1, "b": "x", "s": {"x": 1, "y": 2}},
    "maxValues": {"a": 9, "b": "z", "s": {"x": 3, "y": 4}},
    "nullCount": {"a": 0, "b": 1, "s": {"x": 0, "y": 5}, "l": 2},
    "tightBounds": True,
}
NEW: dict[str, Any] = {
    "numRecords": 5,
    "minValues": {"a": -7},
    "maxValues": {"a": 7},
    "nullCount": {"a": 3},
    "tightBounds": True,
}


def changed(old: Any, new: Any, names: Collection[str]) -> Any:
    found = changed_statistics(json.dumps(old), json.dumps(new), names)
    assert found is not None
    return json.loads(found)


def test_written_columns_have_new_statistics_and_others_the_old() -> None:
    assert changed(OLD, NEW, {"a"}) == {
        "numRecords": 5,
        "minValues": {"a": -7, "b": "x", "s": {"x": 1, "y": 2}},
        "maxValues": {"a": 7, "b": "z", "s": {"x": 3, "y": 4}},
        "nullCount": {"a": 3, "b": 1, "s": {"x": 0, "y": 5}, "l": 2},
        "tightBounds": True,
    }


def test_a_column_that_became_null_has_no_bounds_any_more() -> None:
    new = {"numRecords": 5, "minValues": {}, "maxValues": {}, "nullCount": {"a": 5}, "tightBounds": True}
    found = changed(OLD, new, {"a"})
    assert "a" not in found["minValues"]
    assert "a" not in found["maxValues"]
    assert found["nullCount"]["a"] == 5


def test_all_below_a_written_column_is_new() -> None:
    new = {"numRecords": 5, "minValues": {"s": {"x": 0}}, "maxValues": {"s": {"x": 0}}, "nullCount": {"s": {"x": 1}}}
    found = changed(OLD, new, {"s"})
    assert [found[kind]["s"] for kind in ("minValues", "maxValues", "nullCount")] == [{"x": 0}, {"x": 0}, {"x": 1}]


def test_a_written_column_without_statistics_has_none() -> None:
    """As columns are that the table's properties leave out."""
    found = changed(OLD, {"numRecords": 5}, ["b", "l"])
    assert found["minValues"] == {"a": 1, "s": {"x": 1, "y": 2}}
    assert found["nullCount"] == {"a": 0, "s": {"x": 0, "y": 5}}


def test_a_file_without_new_statistics_has_none_at_all() -> None:
    assert changed_statistics(json.dumps(OLD), None, {"a"}) is None


@pytest.mark.parametrize(
    "old",
    [None, "", "{}", "not JSON", "null", "[]", '{"numRecords":', '{"numRecords":"5","minValues":{"b":1}}', '"text"'],
)
def test_where_old_statistics_are_missing_or_damaged_the_new_ones_stand_alone(old: str | None) -> None:
    found = changed_statistics(old, json.dumps(NEW), {"a"})
    assert found is not None
    assert json.loads(found) == NEW


def test_a_part_that_old_statistics_lack_is_no_damage() -> None:
    assert changed({"numRecords": 5, "nullCount": {"b": 2}}, NEW, {"a"})["nullCount"] == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    "value",
    ["123456789012345678901234567890.12345678", "1.50", "-0.0", "1e400", "18446744073709551616", r'"\u00e9\n"', "true"],
)
def test_values_stay_as_they_are_written(value: str) -> None:
    old = f'{{"numRecords":5,"minValues":{{"b":{value}}},"maxValues":{{"b":{value}}},"nullCount":{{}}}}'
    found = changed_statistics(old, json.dumps(NEW), {"a"})
    assert found is not None
    assert found.count(f'"b":{value}') == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(True, True, True), (False, True, False), (True, False, False), (None, True, True), (None, None, True)],
)
def test_bounds_are_tight_if_those_of_both_are(old: bool | None, new: bool | None, expected: bool) -> None:
    """They are where statistics do not say it (spec: "Per-file Statistics")."""

    def said(tight: bool | None) -> dict[str, bool]:
        return {} if tight is None else {"tightBounds": tight}

    found = changed({"numRecords": 5, **said(old)}, {"numRecords": 5, **said(new)}, {"a"})
    assert found["tightBounds"] is expected


def test_statistics_of_columns_are_joined() -> None:
    other = {"numRecords": 5, "minValues": {"b": "k"}, "maxValues": {"b": "k"}, "nullCount": {"b": 0}}
    assert json.loads(joined_statistics([json.dumps(NEW), None, json.dumps(other)], 5)) == {
        "numRecords": 5,
        "minValues": {"a": -7, "b": "k"},
        "maxValues": {"a": 7, "b": "k"},
        "nullCount": {"a": 3, "b": 0},
        "tightBounds": True,
    }


def test_a_file_knows_its_rows_even_if_no_column_has_statistics() -> None:
    assert json.loads(joined_statistics([None], 5))["numRecords"] == 5
