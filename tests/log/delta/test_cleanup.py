"""Metadata cleanup: what the spec's five steps delete, and what they must not."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headwater.errors import CorruptLogError, StorageError, VersionNotFoundError
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.delta.cleanup import clean_up, cutoff_timestamp_ms
from headwater.log.delta.dialect import DELTA
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from support.log.checkpoint_states import V2
from support.log.commit_tables import writer
from support.log.log_tables import (
    LOG,
    add,
    commit_info,
    features,
    metadata,
    protocol,
    put_commit,
    put_compacted,
    put_multipart,
)
from support.stores.faults import CrashAfter, Fault, FaultyStore, SimulatedCrash, script
from support.stores.log_store import NOW_MS, DictStore

DAY_MS = 86_400_000
MIDNIGHT_MS = NOW_MS - NOW_MS % DAY_MS
DAYS = 60
"""Commit `n` was made at noon, `DAYS - n` days before today."""


def opened(store: Any, version: int | None = None) -> Snapshot:
    return open_snapshot(writer(store, new_id=lambda: str(uuid.uuid4())), version=version)


def noon_ms(version: int) -> int:
    return MIDNIGHT_MS - (DAYS - version) * DAY_MS + DAY_MS // 2


def table(properties: dict[str, str] | None = None, checkpoints: tuple[int, ...] = (10, 20, 30, 40)) -> DictStore:
    """A table with a commit a day, a checksum each, and checkpoints of some versions."""
    store = DictStore()
    for version in range(DAYS):
        own = [features("v2Checkpoint"), metadata(properties)] if version == 0 else [commit_info()]
        put_commit(store, version, *own, add(f"f{version}"))
        store.objects[f"{LOG}{version:020d}.crc"] = b"{}"
        for key in (f"{LOG}{version:020d}.json", f"{LOG}{version:020d}.crc"):
            store.modified_ms[key] = noon_ms(version)
        if version in checkpoints:
            known = set(store.objects)
            write_checkpoint(opened(store))
            for key in set(store.objects) - known:
                store.modified_ms[key] = noon_ms(version)
    return store


def versions(store: DictStore, suffix: str) -> list[int]:
    return [int(key[len(LOG) :][:20]) for key in sorted(store.objects) if key.endswith(suffix)]


def test_commits_before_the_cut_off_checkpoint_go_and_all_after_it_stay() -> None:
    store = table()
    store.objects[f"{LOG}what-is-this.tmp"] = b""
    deleted = clean_up(opened(store))
    # Midnight 30 days ago: the newest commit before is 29 (noon of the day before), its checkpoint is 20.
    assert versions(store, ".json") == list(range(20, DAYS))
    assert versions(store, ".crc") == list(range(20, DAYS))
    assert versions(store, ".checkpoint.parquet") == [20, 30, 40]
    assert f"{LOG}what-is-this.tmp" in store.objects
    assert len(deleted) == 20 + 20 + 1
    assert opened(store).num_files == DAYS


def test_a_commit_exactly_at_midnight_is_the_cut_off() -> None:
    store = table()
    store.modified_ms[f"{LOG}{30:020d}.json"] = MIDNIGHT_MS - 30 * DAY_MS
    clean_up(opened(store))
    assert versions(store, ".json")[0] == 30


def test_every_version_within_retention_can_still_be_loaded() -> None:
    store = table()
    expected = {version: sorted(opened(store, version).file_sizes()) for version in range(29, DAYS)}
    clean_up(opened(store))
    assert {version: sorted(opened(store, version).file_sizes()) for version in range(29, DAYS)} == expected
    cutoff_ms = cutoff_timestamp_ms(opened(store))
    for time_ms in range(cutoff_ms, noon_ms(DAYS - 1), DAY_MS // 2):
        found = open_snapshot(writer(store), timestamp=time_ms)
        assert noon_ms(found.version) <= time_ms < noon_ms(found.version + 1)
    with pytest.raises(VersionNotFoundError):
        opened(store, 19)


@pytest.mark.parametrize(
    ("properties", "first"),
    [
        ({"delta.logRetentionDuration": "interval 45 days"}, 10),
        ({"delta.logRetentionDuration": "interval 10 days"}, 40),
        ({"delta.logRetentionDuration": "interval 1 week 3 days 11 hours"}, 40),
        ({"delta.logRetentionDuration": "interval 100 days"}, 0),
        ({"delta.enableExpiredLogCleanup": "false"}, 0),
    ],
)
def test_the_table_says_how_long_its_log_stays(properties: dict[str, str], first: int) -> None:
    store = table(properties)
    clean_up(opened(store))
    assert versions(store, ".json")[0] == first


def test_without_a_checkpoint_that_is_old_enough_everything_stays() -> None:
    store = table(checkpoints=(35, 40))
    assert clean_up(opened(store)) == []


def test_a_damaged_checkpoint_covers_nothing() -> None:
    store = table()
    store.objects[f"{LOG}{20:020d}.checkpoint.parquet"] = b"PAR1"
    before = set(store.objects)
    with pytest.raises(CorruptLogError):
        clean_up(opened(store))
    assert set(store.objects) == before


def test_a_checkpoint_without_its_sidecar_covers_nothing() -> None:
    store = table(V2)
    [sidecar] = [key for key in store.objects if "/_sidecars/" in key and store.modified_ms[key] == noon_ms(20)]
    del store.objects[sidecar]
    before = set(store.objects)
    with pytest.raises((CorruptLogError, StorageError)):
        clean_up(opened(store))
    assert set(store.objects) == before


def test_incomplete_parts_of_old_checkpoints_go_too_and_never_count() -> None:
    store = table(checkpoints=(10,))
    actions = [protocol(), metadata(), add("f")]
    put_multipart(store, 5, actions, 3)
    keys = put_multipart(store, 25, actions, 3)
    del store.objects[keys[1]]
    clean_up(opened(store))
    assert versions(store, ".json")[0] == 10
    assert versions(store, "03.parquet") == [25, 25]


def test_compacted_files_go_when_they_start_at_the_cut_off_checkpoint_or_before() -> None:
    store = table()
    for first, last in ((5, 9), (15, 25), (20, 24), (21, 24)):
        put_compacted(store, first, last, add("x"))
    clean_up(opened(store))
    assert versions(store, ".compacted.json") == [21]


def test_in_commit_timestamps_count_where_they_are_enabled() -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    store = DictStore()
    for version in range(DAYS):
        own = [features("inCommitTimestamp", reader=[]), metadata(properties)] if version == 0 else []
        put_commit(store, version, commit_info(inCommitTimestamp=noon_ms(version)), *own, add(f"f{version}"))
        if version in (10, 20, 30):
            write_checkpoint(opened(store))
    # All files have the same modification time, today: by that, nothing would be old.
    clean_up(opened(store))
    assert versions(store, ".json") == list(range(20, DAYS))


def test_sidecars_go_when_no_checkpoint_names_them_and_they_are_older_than_a_day() -> None:
    store = table(V2)
    named = {key: store.modified_ms[key] for key in store.objects if "/_sidecars/" in key}
    for name, age_ms in (("old", 2 * DAY_MS), ("yesterday", DAY_MS), ("new", 0)):
        key = f"{LOG}_sidecars/{name}.parquet"
        store.objects[key] = b""
        store.modified_ms[key] = MIDNIGHT_MS - age_ms
    clean_up(opened(store))
    left = {key for key in store.objects if "/_sidecars/" in key}
    kept = {key for key, modified_ms in named.items() if modified_ms >= noon_ms(20)}
    assert left == kept | {f"{LOG}_sidecars/yesterday.parquet", f"{LOG}_sidecars/new.parquet"}
    assert opened(store).num_files == DAYS


def test_a_second_cleanup_on_the_same_day_looks_at_nothing() -> None:
    store = table()
    snapshot = opened(store)
    clean_up(snapshot)
    store.calls.clear()
    assert clean_up(snapshot) == []
    assert store.calls == []


def test_a_young_table_is_not_even_listed() -> None:
    store = DictStore()
    put_commit(store, 0, protocol(), metadata())
    snapshot = opened(store)
    store.calls.clear()
    assert clean_up(snapshot) == []
    assert store.calls == [("head", f"{LOG}{0:020d}.json")]


@pytest.mark.parametrize("properties", [{}, V2], ids=["classic", "v2"])
def test_after_a_crash_at_any_deletion_the_table_is_complete(properties: dict[str, str]) -> None:
    original = table(properties)
    calls = FaultyStore(_copy(original))
    expected = clean_up(opened(calls))
    for key in expected:
        store = _copy(original)
        with pytest.raises(SimulatedCrash):
            clean_up(opened(FaultyStore(store, script(Fault(CrashAfter(), "delete_many", key)))))
        for version in (20, 29, 45, DAYS - 1):
            assert opened(store, version).num_files == version + 1
        left = sorted(versions(store, "0.json") + versions(store, "5.json"))
        assert left == [v for v in range(left[0], DAYS) if v % 5 == 0], "the oldest go first"


def _copy(store: DictStore) -> DictStore:
    copy = DictStore(store.objects)
    copy.modified_ms = dict(store.modified_ms)
    return copy


def test_upkeep_cleans_up_after_a_checkpoint() -> None:
    store = table({"delta.checkpointInterval": "59"})
    found = DELTA.after_commit(opened(store), None)
    assert found.commits == ()
    assert versions(store, ".json")[0] == 20
    assert versions(store, ".checkpoint.parquet") == [20, 30, 40, 59]
