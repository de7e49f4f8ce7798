"""Stores that fail while a search table is read: the error is the store's, and the log is not blamed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headwater.errors import (
    CorruptLogError,
    StorageError,
    StoragePermissionError,
    StorageThrottledError,
    StorageTimeoutError,
)
from headwater.log.opening import open_snapshot
from headwater.search.table_log import clean_up, open_search_log, search_context
from headwater.storage import open_store
from support.search.table_logs import DAY_MS, append, checkpoint_file, files, grown, live, make_older
from support.stores.faults import Call, FaultyStore, RaiseBefore

if TYPE_CHECKING:
    from pathlib import Path

    from headwater.log.snapshot import Snapshot

EVERY_5 = {"spark.indextables.checkpoint.interval": "5"}
KINDS = [StorageError, StorageThrottledError, StorageTimeoutError, StoragePermissionError]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Everything depends on the checkpoint of version 10: what is older was cleaned up."""
    grown(tmp_path, 12, EVERY_5)
    for file in (tmp_path / "_transaction_log").iterdir():
        make_older(file, 31 * DAY_MS)
    clean_up(open_search_log(tmp_path))
    return tmp_path


class Outage:
    """From one call on, so many calls fail; of one object only, if it has a name."""

    def __init__(self, error: Exception, first: int, calls: int = 10**9, key: str = "") -> None:
        self.error, self.left, self.first, self.key = error, calls, first, key

    def __call__(self, call: Call) -> RaiseBefore | None:
        if call.index < self.first or self.left <= 0 or self.key not in call.key:
            return None
        self.left -= 1
        return RaiseBefore(self.error)


def used(path: Path, policy: Any) -> tuple[list[str], list[Any], Snapshot]:
    """Everything that reading asks of a store."""
    snapshot = open_snapshot(search_context(FaultyStore(open_store(path), policy), sleep=lambda _: None))
    found = live(snapshot)
    return found, [*snapshot.verify(), *snapshot.history()], snapshot.refresh()


@pytest.mark.parametrize("kind", KINDS)
def test_an_outage_from_any_call_on_is_the_error_of_the_store(table: Path, kind: type[StorageError]) -> None:
    expected, known, _ = used(table, None)
    calls = len(_calls(table))
    for first in range(1, calls + 1):
        error = kind("no answer")
        with pytest.raises(StorageError) as caught:
            used(table, Outage(error, first))
        assert type(caught.value) is kind
    assert used(table, Outage(kind("no answer"), calls + 1))[:2] == (expected, known)


def _calls(path: Path) -> list[Call]:
    store = FaultyStore(open_store(path))
    snapshot = open_snapshot(search_context(store, sleep=lambda _: None))
    _ = live(snapshot), snapshot.verify(), snapshot.history(), snapshot.refresh()
    return store.calls


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_checkpoint_that_gets_no_answer_is_asked_for_again(table: Path, calls: int) -> None:
    key = checkpoint_file(table, 10).name
    found, _, snapshot = used(table, Outage(StorageThrottledError("no answer"), 1, calls, key))
    assert (found, snapshot.version) == (files(12), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_the_store_does_not_give_is_no_damage(table: Path, kind: type[StorageError]) -> None:
    error = kind("no answer")
    with pytest.raises(kind) as caught:
        used(table, Outage(error, 1, key=checkpoint_file(table, 10).name))
    assert caught.value is error
    assert "depends on its checkpoint of version 10" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("version", [10, 11])
def test_a_version_that_needs_the_checkpoint_is_not_said_to_be_cleaned_up(table: Path, version: int) -> None:
    policy = Outage(StorageThrottledError("no answer"), 1, key=checkpoint_file(table, 10).name)
    ctx = search_context(FaultyStore(open_store(table), policy), sleep=lambda _: None)
    with pytest.raises(StorageThrottledError):
        open_snapshot(ctx, version=version)


def test_a_checkpoint_that_the_store_does_not_give_is_passed_over_where_it_is_not_needed(tmp_path: Path) -> None:
    grown(tmp_path, 12, EVERY_5)
    policy = Outage(StorageThrottledError("no answer"), 1, key="checkpoint.json")
    ctx = search_context(FaultyStore(open_store(tmp_path), policy), sleep=lambda _: None)
    assert live(open_snapshot(ctx)) == files(12)


def test_damage_stays_damage_and_an_older_checkpoint_without_an_answer_is_not(table: Path) -> None:
    append(open_search_log(table), "13.split")
    checkpoint_file(table, 10).write_bytes(b"{")
    with pytest.raises(CorruptLogError, match="checkpoint at version 10"):
        open_snapshot(search_context(open_store(table)))


def test_verify_does_not_call_a_checkpoint_damaged_that_the_store_did_not_give(table: Path) -> None:
    calls = 0

    def policy(call: Call) -> RaiseBefore | None:
        nonlocal calls
        calls += call.key.endswith("checkpoint.json")
        return RaiseBefore(StorageThrottledError("no answer")) if calls > 1 else None

    ctx = search_context(FaultyStore(open_store(table), policy), sleep=lambda _: None)
    snapshot = open_snapshot(ctx)
    with pytest.raises(StorageThrottledError):
        snapshot.verify()
