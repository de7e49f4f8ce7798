"""Commit times and time travel by timestamp (spec: "In-Commit Timestamps"; adjusted modification times)."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import CorruptLogError, VersionNotFoundError
from headwater.log.commit.history import format_ms, to_ms
from support.corpus import CORPUS, MISSING
from support.log.log_tables import (
    add,
    commit_info,
    commit_key,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_compacted,
    simple_table,
)
from support.log_settings import examined
from support.stores.log_store import DictStore, open_table


def dated(*times_ms: int) -> DictStore:
    """A table whose commit `n` was modified at the n-th time."""
    store = simple_table(len(times_ms))
    store.modified_ms = {commit_key(version): time for version, time in enumerate(times_ms)}
    return store


def version_at(store: DictStore, timestamp: Any) -> int | None:
    """The version at a time; None when that is outside the range."""
    try:
        return open_table(store, timestamp=timestamp).version
    except VersionNotFoundError:
        return None


# --- modification times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(999, None), (1000, 0), (1001, 0), (1999, 0), (2000, 1), (2500, 1), (3000, 2), (3001, None)],
)
def test_a_timestamp_means_the_newest_version_that_was_there(timestamp: int, expected: int | None) -> None:
    assert version_at(dated(1000, 2000, 3000), timestamp) == expected


def test_a_time_before_the_first_commit_is_an_error_that_names_the_range() -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        open_table(dated(1000, 2000), timestamp=999)
    message = str(caught.value)
    assert "before the first" in message
    assert "version 0 (1970-01-01 00:00:01.000+00:00) to version 1 (1970-01-01 00:00:02.000+00:00)" in message


def test_a_time_after_the_last_commit_is_an_error_that_names_the_range() -> None:
    with pytest.raises(VersionNotFoundError, match=r"after the last.*version 0 .* to version 1 \(1970"):
        open_table(dated(1000, 2000), timestamp=2001)


def test_times_that_go_back_are_made_strictly_increasing() -> None:
    # 5000, then 1 ms later each until the clock has caught up
    store = dated(5000, 1000, 5000, 9000)
    assert [version_at(store, t) for t in (4999, 5000, 5001, 5002, 8999, 9000)] == [None, 0, 1, 2, 2, 3]
    assert [c.timestamp for c in open_table(store).history()] == [9000, 5002, 5001, 5000]


@examined
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(-2, 30))
def test_time_travel_follows_the_adjusted_times(times: list[int], timestamp: int) -> None:
    adjusted: list[int] = []
    for time in times:
        adjusted.append(max(time, adjusted[-1] + 1) if adjusted else time)
    expected = None
    if adjusted[0] <= timestamp <= adjusted[-1]:
        expected = max(version for version, time in enumerate(adjusted) if time <= timestamp)
    assert version_at(dated(*times), timestamp) == expected


def test_every_commit_of_the_history_is_found_by_its_time() -> None:
    store = dated(7, 3, 3, 10, 8)
    for commit in open_table(store).history():
        assert version_at(store, commit.timestamp) == commit.version


def test_commits_that_cannot_be_loaded_any_more_are_not_offered() -> None:
    store = dated(1000, 2000, 3000, 4000, 5000)
    put_classic(store, 2, [protocol(), metadata(), add("f0"), add("f1"), add("f2")])
    store.delete_many([commit_key(0)])
    assert [version_at(store, t) for t in (1500, 2500, 3000, 4500)] == [None, None, 2, 3]
    with pytest.raises(VersionNotFoundError, match=r"version 2 .* to version 4 "):
        open_table(store, timestamp=1000)


def test_a_gap_hides_everything_before_it() -> None:
    """Between commits 0 and 3 something happened that is gone: version 0 is not what was there at 2500."""
    store = dated(1000, 2000, 3000, 4000)
    put_classic(store, 2, [protocol(), metadata(), add("f0"), add("f1"), add("f2")])
    store.delete_many([commit_key(1), commit_key(2)])
    assert open_table(store, version=0).num_files == 1
    assert [version_at(store, t) for t in (1000, 2500, 3999, 4000)] == [None, None, None, 3]


def test_a_gap_that_a_compacted_file_fills_hides_only_what_is_in_it() -> None:
    store = dated(1000, 2000, 3000, 4000)
    put_compacted(store, 1, 2, add("f1"), add("f2"))
    store.delete_many([commit_key(1), commit_key(2)])
    assert [version_at(store, t) for t in (1500, 3500, 4000)] == [None, None, 3]


def test_a_log_of_checkpoints_only_has_no_times() -> None:
    store = DictStore()
    put_classic(store, 3, [protocol(), metadata(), add("f")])
    with pytest.raises(VersionNotFoundError, match="no commits"):
        open_table(store, timestamp=1000)


def test_a_checkpoint_beyond_the_last_commit_does_not_shift_the_times() -> None:
    store = dated(1000, 2000)
    put_classic(store, 9, [protocol(), metadata(), add("x")])
    assert [version_at(store, t) for t in (999, 1000, 2000, 2001)] == [None, 0, 1, None]


# --- in-commit timestamps -----------------------------------------------------------------------------------

ICT = protocol(1, 7, writerFeatures=["inCommitTimestamp"])
ON = {"delta.enableInCommitTimestamps": "true"}


def since(version: int, timestamp: int) -> dict[str, str]:
    return {
        **ON,
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": str(timestamp),
    }


def with_in_commit_timestamps(*times_ms: int, name: str = "inCommitTimestamp") -> DictStore:
    """Enabled from the start; the modification times say something else altogether."""
    store = DictStore()
    start = [protocol(1, 7, writerFeatures=[name]), metadata(ON)]
    for version, time in enumerate(times_ms):
        put_commit(store, version, commit_info(inCommitTimestamp=time), *(start if version == 0 else []))
        store.modified_ms[commit_key(version)] = 77
    return store


def enabled_later() -> DictStore:
    """Commits 0 to 2 have modification times 1000, 2000, 3000; 3 enables the feature at 5000; 4 is at 6000."""
    store = DictStore()
    put_commit(store, 0, protocol(), metadata())
    put_commit(store, 1, add("f1"))
    put_commit(store, 2, add("f2"))
    put_commit(store, 3, commit_info(inCommitTimestamp=5000), ICT, metadata(since(3, 5000)))
    put_commit(store, 4, commit_info(inCommitTimestamp=6000), add("f4"))
    store.modified_ms = {commit_key(v): t for v, t in enumerate((1000, 2000, 3000, 99_000, 1))}
    return store


@pytest.mark.parametrize("name", ["inCommitTimestamp", "inCommitTimestamps"])
def test_in_commit_timestamps_are_used_where_the_table_has_them(name: str) -> None:
    store = with_in_commit_timestamps(1000, 2000, 2001, 5000, name=name)
    snapshot = open_table(store)
    assert snapshot.timestamp == 5000
    assert [c.timestamp for c in snapshot.history()] == [5000, 2001, 2000, 1000]
    times = (999, 1000, 1999, 2000, 2001, 4999, 5000, 5001)
    assert [version_at(store, t) for t in times] == [None, 0, 0, 1, 2, 2, 3, None]


@examined
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(-2, 60))
def test_the_search_in_in_commit_timestamps_finds_what_a_scan_finds(steps: list[int], timestamp: int) -> None:
    times = [sum(steps[: i + 1]) for i in range(len(steps))]
    expected = None
    if times[0] <= timestamp <= times[-1]:
        expected = max(version for version, time in enumerate(times) if time <= timestamp)
    assert version_at(with_in_commit_timestamps(*times), timestamp) == expected


def test_a_search_reads_few_commits() -> None:
    store = with_in_commit_timestamps(*range(0, 2000, 10))
    put_classic(store, 199, [ICT, metadata(ON)])
    assert version_at(store, 505) == 50
    commits_read = {key for operation, key in store.calls if operation == "get" and key.endswith(".json")}
    assert len(commits_read) < 70, "51 for the snapshot, a few to search"


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (999, None),
        (1000, 0),
        (2999, 1),
        (3000, 2),
        (3001, 2),  # after the last commit without one, and before the feature was enabled
        (4999, 2),
        (5000, 3),
        (5999, 3),
        (6000, 4),
        (6001, None),
        (99_000, None),
    ],
)
def test_before_they_were_enabled_modification_times_count(timestamp: int, expected: int | None) -> None:
    assert version_at(enabled_later(), timestamp) == expected


def test_the_history_uses_each_kind_of_time_where_it_counts() -> None:
    assert [c.timestamp for c in open_table(enabled_later()).history()] == [6000, 5000, 3000, 2000, 1000]


def test_the_error_names_the_whole_range_across_the_change() -> None:
    for timestamp in (999, 6001):
        with pytest.raises(VersionNotFoundError, match=r"version 0 \(.*01\.000.*\) to version 4 \(.*06\.000"):
            open_table(enabled_later(), timestamp=timestamp)


def test_when_everything_before_the_change_is_gone_the_range_starts_after_it() -> None:
    store = enabled_later()
    put_classic(store, 3, [ICT, metadata(since(3, 5000)), add("f1"), add("f2")])
    store.delete_many([commit_key(v) for v in (0, 1, 2)])
    assert [version_at(store, t) for t in (4999, 5000, 6000)] == [None, 3, 4]
    with pytest.raises(VersionNotFoundError, match=r"before the first.*version 3 .* to version 4 "):
        open_table(store, timestamp=10)


def test_when_the_commit_of_the_change_is_gone_too_later_ones_still_count() -> None:
    store = enabled_later()
    put_commit(store, 5, commit_info(inCommitTimestamp=7000), add("f5"))
    put_classic(store, 4, [ICT, metadata(since(3, 5000)), add("f1"), add("f2"), add("f4")])
    store.delete_many([commit_key(v) for v in (0, 1, 2, 3)])
    assert [version_at(store, t) for t in (3000, 5500, 6000, 7000)] == [None, None, 4, 5]


def test_a_timestamp_in_a_commit_means_nothing_while_the_feature_is_off() -> None:
    store = dated(1000, 2000)
    put_commit(store, 1, commit_info(inCommitTimestamp=9), add("x"))
    assert open_table(store).timestamp == 2000
    assert [c.timestamp for c in open_table(store).history()] == [2000, 1000]
    assert version_at(store, 2000) == 1


@pytest.mark.parametrize("value", ["false", "", "yes"])
def test_the_property_must_be_true(value: str) -> None:
    store = with_in_commit_timestamps(1000, 2000)
    put_commit(store, 2, metadata({"delta.enableInCommitTimestamps": value}))
    store.modified_ms = {commit_key(v): t for v, t in enumerate((10, 20, 30))}
    assert [c.timestamp for c in open_table(store).history()] == [30, 20, 10]
    assert version_at(store, 25) == 1


def test_the_property_without_the_feature_means_nothing() -> None:
    store = DictStore()
    put_commit(store, 0, commit_info(inCommitTimestamp=9), protocol(1, 2), metadata(ON))
    store.modified_ms[commit_key(0)] = 500
    assert open_table(store).timestamp == 500
    assert version_at(store, 500) == 0


def test_a_commit_without_the_timestamp_it_must_have_is_an_error_that_names_it() -> None:
    store = with_in_commit_timestamps(1000, 2000, 3000)
    put_commit(store, 1, commit_info())
    with pytest.raises(CorruptLogError, match=rf"{1:020d}\.json has no inCommitTimestamp"):
        open_table(store, timestamp=2500)


@pytest.mark.parametrize("value", ["", "x", "1.5", "९"])
@pytest.mark.parametrize("name", ["Version", "Timestamp"])
def test_enablement_properties_that_are_no_numbers_are_an_error_that_names_them(name: str, value: str) -> None:
    store = enabled_later()
    configuration = {**since(3, 5000), f"delta.inCommitTimestampEnablement{name}": value}
    put_commit(store, 5, commit_info(inCommitTimestamp=7000), metadata(configuration))
    with pytest.raises(CorruptLogError, match=f"delta.inCommitTimestampEnablement{name}"):
        open_table(store, timestamp=5500)


@pytest.mark.parametrize("time", [10**16, 10**18, -(10**16)])
def test_times_that_no_calendar_has_make_no_trouble(time: int) -> None:
    store = with_in_commit_timestamps(0, 2**63 - 1)
    assert open_table(store).history()[0].timestamp == 2**63 - 1
    assert version_at(store, time) == (0 if time >= 0 else None)
    with pytest.raises(VersionNotFoundError):
        open_table(store, timestamp=-(10**30))


def test_a_damaged_timestamp_is_none() -> None:
    for value in (True, "5", 5.5, None, [5], 2**63):
        store = DictStore()
        put_commit(store, 0, commit_info(inCommitTimestamp=value), ICT, metadata(ON))
        store.modified_ms[commit_key(0)] = 500
        assert open_table(store).history()[0].timestamp == 500
        with pytest.raises(CorruptLogError, match="inCommitTimestamp"):
            open_table(store, timestamp=500)


# --- how a time is written ----------------------------------------------------------------------------------

SECOND_MS = 1540415658000  # 2018-10-24 21:14:18 UTC


@pytest.mark.parametrize(
    "timestamp",
    [
        SECOND_MS,
        "2018-10-24 21:14:18",
        "2018-10-24T21:14:18Z",
        "2018-10-24T23:14:18+02:00",
        " 2018-10-24 21:14:18.000 ",
        datetime(2018, 10, 24, 21, 14, 18),
        datetime(2018, 10, 24, 21, 14, 18, 999, tzinfo=UTC),
        datetime(2018, 10, 24, 22, 14, 18, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_time_may_be_written_in_many_ways(timestamp: Any) -> None:
    assert to_ms(timestamp) == SECOND_MS


def test_a_date_is_its_midnight_in_utc() -> None:
    assert to_ms(date(1970, 1, 2)) == to_ms("1970-01-02") == 86_400_000


def test_a_time_between_milliseconds_is_the_one_before() -> None:
    assert to_ms("1970-01-01 00:00:00.001999") == 1
    assert to_ms("1969-12-31 23:59:59.999500") == -1


@pytest.mark.parametrize("text", ["", "yesterday", "2018-13-01", "2018-10-24 25:00:00", "1540415658000"])
def test_a_text_that_is_no_time_is_an_error_that_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(hw.HeadwaterError, match=r"is not a timestamp.*2024-01-31 12:30:00"):
        to_ms(text)


@pytest.mark.parametrize("value", [True, 1.5, None, b"2018-01-01", [1]])
def test_what_cannot_be_a_time_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp is"):
        to_ms(value)


def test_times_in_messages_are_readable() -> None:
    assert format_ms(SECOND_MS) == "2018-10-24 21:14:18.000+00:00"
    assert "10000000000000000000" in format_ms(10**19)


def test_a_version_and_a_timestamp_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        open_table(simple_table(1), version=0, timestamp=0)


# --- on disk, and against others --------------------------------------------------------------------------------


def set_times(table: Path, *times_ms: int) -> None:
    for version, time in enumerate(times_ms):
        os.utime(table / "_delta_log" / f"{version:020d}.json", ns=(time * 1_000_000, time * 1_000_000))


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("time-travel-start", [2]),
        ("time-travel-start-start20", [2, 4]),
        ("time-travel-start-start20-start40", [2, 4, 6]),
    ],
)
def test_the_tables_of_the_reference_implementation_travel_as_its_tests_say(
    name: str, files: list[int], tmp_path: Path
) -> None:
    assert CORPUS is not None
    table = shutil.copytree(CORPUS / "tables" / "delta-golden" / name, tmp_path / "table")
    minute_ms = 60_000
    times = [SECOND_MS + 20 * minute_ms * version for version in range(len(files))]
    set_times(table, *times)
    for version, (time, count) in enumerate(zip(times, files, strict=True)):
        for timestamp in {time, min(time + 10 * minute_ms, times[-1])}:
            snapshot = hw.open_log(table, timestamp=timestamp)
            assert (snapshot.version, snapshot.num_files) == (version, count)
        assert hw.open_log(table, timestamp=datetime.fromtimestamp(time / 1000, UTC)).version == version
    for outside in (times[0] - 1, times[-1] + 1):
        with pytest.raises(VersionNotFoundError, match="Available are version 0"):
            hw.open_log(table, timestamp=outside)


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_in_commit_timestamps_of_a_real_table_are_its_history() -> None:
    assert CORPUS is not None
    snapshot = hw.open_log(CORPUS / "tables" / "delta-rs" / "cdc_ict_table")
    times = {commit.version: commit.timestamp for commit in snapshot.history()}
    assert times == {0: 1783874203271, 1: 1683874206883, 2: 1783874212175, 3: 1783874213881}
    assert snapshot.timestamp == 1783874213881


def test_deltalake_travels_to_the_same_versions(tmp_path: Path) -> None:
    import pyarrow as pa

    for _ in range(4):
        write_deltalake(tmp_path, pa.table({"id": [1]}), mode="append")
    set_times(tmp_path, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
    for time in (1_000_000, 1_999_999, 2_000_000, 3_500_000, 4_000_000):
        theirs = DeltaTable(tmp_path)
        theirs.load_as_version(datetime.fromtimestamp(time / 1000, UTC))
        assert hw.open_log(tmp_path, timestamp=time).version == theirs.version()
