"""Refreshing a snapshot: only what is new is read, and the result is what opening afresh gives."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headwater as hw
from headwater.errors import CorruptLogError, TableNotFoundError
from headwater.log import opening
from support.log.log_tables import (
    LOG,
    add,
    commit_key,
    domain,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_compacted,
    put_hint,
    remove,
    simple_table,
    txn,
)
from support.oracles.log_model import observed
from support.stores.log_store import DictStore, open_table


def reads(store: DictStore) -> list[str]:
    """The objects of the log whose content was read."""
    return [key for operation, key in store.calls if operation in ("get", "get_range") and key in store.objects]


def test_without_a_new_commit_the_snapshot_itself_comes_back() -> None:
    snapshot = open_table(simple_table(3))
    assert snapshot.refresh() is snapshot


def test_a_refresh_reads_the_new_commits_and_nothing_else() -> None:
    store = simple_table(3)
    put_classic(store, 1, [protocol(), metadata(), add("f0"), add("f1")])
    put_hint(store, 1)
    snapshot = open_table(store)
    assert snapshot.num_files == 3
    put_commit(store, 3, add("f3"), remove("f0"))
    put_commit(store, 4, add("f4"))
    store.calls.clear()
    refreshed = snapshot.refresh()
    hint = f"{LOG}_last_checkpoint"
    assert [key for key in reads(store) if key != hint] == [commit_key(3), commit_key(4)]
    assert not [call for call in store.calls if call[0] == "list_from"]
    assert sorted(refreshed.files().column("path").to_pylist()) == ["f1", "f2", "f3", "f4"]


def test_a_refresh_does_not_read_the_columns_of_the_checkpoint_again() -> None:
    store = simple_table(3)
    key = put_classic(store, 1, [protocol(), metadata(), add("f0"), add("f1")])
    put_hint(store, 1)
    snapshot = open_table(store)
    assert snapshot.num_files == 3
    assert ("get_range", key) in store.calls
    for version in range(3, 6):
        put_commit(store, version, add(f"f{version}"))
        store.calls.clear()
        snapshot = snapshot.refresh()
        assert (snapshot.version, snapshot.num_files) == (version, version + 1)
        assert ("get_range", key) not in store.calls


def test_a_refresh_leaves_the_old_snapshot_as_it_was() -> None:
    store = simple_table(2)
    old = open_table(store)
    before = observed(old)
    put_commit(store, 2, remove("f0"), metadata({"a": "b"}), txn("x", 1), domain("d"), protocol(1, 3))
    new = old.refresh()
    assert observed(old) == before
    assert (old.version, new.version) == (1, 2)
    assert observed(new) == observed(open_table(store))


def test_a_refresh_before_anything_was_asked_of_the_old_snapshot() -> None:
    store = simple_table(2)
    old = open_table(store)
    put_commit(store, 2, remove("f0"))
    assert old.refresh().files().column("path").to_pylist() == ["f1"]


def test_a_time_travelled_snapshot_refreshes_to_the_newest_version() -> None:
    store = simple_table(5)
    refreshed = open_table(store, version=1).refresh()
    assert refreshed.version == 4
    assert observed(refreshed) == observed(open_table(store))


@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("kept", [[], [5], [4, 5]])
def test_commits_that_were_cleaned_up_meanwhile_are_found_behind_their_checkpoint(
    kept: list[int], hinted: bool
) -> None:
    store = simple_table(3)
    snapshot = open_table(store)
    for version in range(3, 7):
        put_commit(store, version, add(f"f{version}"))
    put_classic(store, 5, [protocol(), metadata(), *(add(f"f{n}") for n in range(6))])
    if hinted:
        put_hint(store, 5)
    store.delete_many([commit_key(v) for v in range(6) if v not in kept])
    refreshed = snapshot.refresh()
    assert (refreshed.version, refreshed.num_files) == (6, 7)


@pytest.mark.parametrize("hinted", [True, False])
def test_a_gap_in_the_new_commits_behind_a_checkpoint_is_skipped(hinted: bool) -> None:
    store = simple_table(3)
    snapshot = open_table(store)
    put_commit(store, 3, add("f3"))
    put_classic(store, 5, [protocol(), metadata(), *(add(f"f{n}") for n in range(6))])
    put_commit(store, 6, add("f6"))
    if hinted:
        put_hint(store, 5)
    refreshed = snapshot.refresh()
    assert (refreshed.version, refreshed.num_files) == (6, 7)


def test_a_table_that_is_gone_is_an_error() -> None:
    store = simple_table(3)
    snapshot = open_table(store)
    store.objects.clear()
    with pytest.raises(TableNotFoundError):
        snapshot.refresh()


@pytest.mark.parametrize("hinted", [True, False])
def test_a_table_that_was_replaced_by_a_younger_one_is_opened_anew(hinted: bool) -> None:
    store = simple_table(3)
    snapshot = open_table(store)
    store.objects.clear()
    put_commit(store, 0, protocol(), metadata(), add("new"))
    if hinted:
        put_classic(store, 0, [protocol(), metadata(), add("new")])
        put_hint(store, 0)
    refreshed = snapshot.refresh()
    assert (refreshed.version, refreshed.files().column("path").to_pylist()) == (0, ["new"])


def test_a_damaged_new_commit_is_an_error_and_the_old_snapshot_lives_on() -> None:
    store = simple_table(2)
    snapshot = open_table(store)
    store.objects[commit_key(2)] = b'{"add":'
    with pytest.raises(CorruptLogError, match=f"{2:020d}.json"):
        snapshot.refresh()
    assert snapshot.num_files == 2


def test_a_contradictory_new_commit_is_an_error() -> None:
    store = simple_table(2)
    snapshot = open_table(store)
    assert snapshot.num_files == 2
    put_commit(store, 2, add("x", 1), add("x", 2))
    with pytest.raises(CorruptLogError, match=f"{2:020d}.json"):
        _ = snapshot.refresh().num_files


def test_a_long_tail_moves_on_to_a_newer_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_LONG_TAIL", 4)
    store = simple_table(3)
    snapshot = open_table(store)
    for version in range(3, 12):
        put_commit(store, version, add(f"f{version}"))
        snapshot = snapshot.refresh()
        assert (snapshot.version, snapshot.num_files) == (version, version + 1)
        assert len(snapshot.commits) == version + 1, "there is no checkpoint to move to"
    put_classic(store, 10, [protocol(), metadata(), *(add(f"f{n}") for n in range(11))])
    put_hint(store, 10)
    put_commit(store, 12, add("f12"))
    assert observed(snapshot.refresh()) == observed(open_table(store))
    old = open_table(store, version=1)
    refreshed = old.refresh()
    assert refreshed.segment.checkpoint is not None
    assert observed(refreshed) == observed(open_table(store))


def test_a_compacted_table_refreshes() -> None:
    store = simple_table(4)
    put_compacted(store, 0, 2, protocol(), metadata(), add("f0"), add("f1"), add("f2"))
    snapshot = open_table(store)
    put_commit(store, 4, remove("f1"))
    assert observed(snapshot.refresh()) == observed(open_table(store))
    assert snapshot.refresh().timestamp == open_table(store).timestamp


def test_every_step_of_a_table_written_by_deltalake_refreshes_to_what_opening_gives(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2, 3], "part": ["a", "b", "c"]})
    write_deltalake(tmp_path, data, partition_by=["part"])
    snapshot = hw.open_log(tmp_path)
    steps = [
        lambda: write_deltalake(tmp_path, data, mode="append"),
        lambda: DeltaTable(tmp_path).delete("id = 2"),
        lambda: DeltaTable(tmp_path).create_checkpoint(),
        lambda: DeltaTable(tmp_path).update({"id": "id + 1"}),
        lambda: DeltaTable(tmp_path).optimize.compact(),
        lambda: write_deltalake(tmp_path, data, mode="overwrite"),
    ]
    for step in steps:
        step()
        snapshot = snapshot.refresh()
        assert observed(snapshot) == observed(hw.open_log(tmp_path))
        assert snapshot.version == DeltaTable(tmp_path).version()
