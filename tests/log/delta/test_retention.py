"""Durations in table properties, and the tombstones they let expire (spec: "Add File and Remove File")."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.log.configuration.properties import DELETED_FILE_RETENTION, parse_interval_ms
from support.log.log_tables import add, metadata, protocol, put_classic, put_commit, remove
from support.log_settings import examined
from support.stores.log_store import NOW_MS, DictStore, open_table

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("INTERVAL 30 Days", 30 * DAY_MS),
        ("interval 30 days 12 hours", 30 * DAY_MS + 12 * 3_600_000),
        ("7 days", 7 * DAY_MS),
        ("interval 1 minute 2 seconds 3 milliseconds", 62_003),
        ("interval 2500 microseconds", 2),
        ("interval 0.5 seconds", 500),
        ("interval  1   day ", DAY_MS),
        ("interval 1 day -1 hour", DAY_MS - 3_600_000),
        ("interval 0 hours", 0),
        ("interval 9007199254740993 milliseconds", 9007199254740993),
    ],
)
def test_intervals_are_understood(text: str, expected_ms: int) -> None:
    assert parse_interval_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "7",
        "days",
        "interval days 7",
        "interval 1 month",
        "interval 1 year",
        "interval 7 days and more",
        "interval 7 days,",
        "intervals 7 days",
        "interval -7 days",
        "interval 1e3 days",
        "interval ७ days",
        f"interval {'9' * 5000} days",
    ],
    ids=lambda text: repr(text[:30]),
)
def test_what_is_no_fixed_duration_is_an_error_that_repeats_it(text: str) -> None:
    with pytest.raises(HeadwaterError, match="is not a duration"):
        parse_interval_ms(text)


@examined
@given(st.text(st.sampled_from("interval 0123456789.+-dayshourweek\n\t"), max_size=40))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    with suppress(HeadwaterError):
        assert parse_interval_ms(text) >= 0


@examined
@given(st.integers(0, 10**30 - 1))
def test_a_number_of_any_size_is_exact(count: int) -> None:
    assert parse_interval_ms(f"interval {count} days") == count * DAY_MS


def test_removed_files_stay_for_a_week_unless_the_table_says_otherwise() -> None:
    assert DELETED_FILE_RETENTION.read({}) == 7 * DAY_MS
    assert DELETED_FILE_RETENTION.read({"delta.deletedFileRetentionDuration": "interval 2 days"}) == 2 * DAY_MS


@pytest.mark.parametrize("checkpointed", [True, False])
def test_tombstones_expire_once_their_retention_has_passed(checkpointed: bool) -> None:
    ages_days = {"new": 0, "recent": 1, "old": 3, "very old": 30}
    removed = [remove(name, deletionTimestamp=NOW_MS - age * DAY_MS) for name, age in ages_days.items()]
    undated = {"remove": {"path": "undated", "dataChange": True}}
    actions = [
        protocol(),
        metadata({"delta.deletedFileRetentionDuration": "interval 2 days"}),
        add("f"),
        *removed,
        undated,
    ]
    store = DictStore()
    if checkpointed:
        put_classic(store, 0, actions)
    else:
        put_commit(store, 0, *actions)
    snapshot = open_table(store)
    assert sorted(snapshot.tombstones().column("path").to_pylist()) == ["new", "recent"]
    every = snapshot.tombstones(include_expired=True).column("path").to_pylist()
    assert sorted(every) == ["new", "old", "recent", "undated", "very old"]


def test_a_retention_that_cannot_be_understood_is_an_error_only_for_those_who_ask() -> None:
    store = DictStore()
    put_commit(store, 0, protocol(), metadata({"delta.deletedFileRetentionDuration": "soon"}), remove("f"))
    snapshot = open_table(store)
    assert snapshot.num_files == 0
    with pytest.raises(HeadwaterError, match="soon"):
        snapshot.tombstones()
