"""A store that fails in the middle: its own error comes through, and asking again works."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from headwater.errors import HeadwaterError, ObjectNotFoundError, StorageThrottledError
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from support.log.log_tables import (
    add,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_hint,
    put_multipart,
    put_v2,
    remove,
    txn,
)
from support.oracles.log_model import observed, replay
from support.stores.faults import Call, FaultyStore, RaiseBefore, SimulatedCrash
from support.stores.log_store import DictStore, context

COMMITS = [
    [protocol(), metadata(), add("f0"), txn("a", 1)],
    [add("f1"), remove("gone")],
    [add("f2"), remove("f0")],
    [add("f3")],
]
STATE = replay(COMMITS).state()
LAYOUTS: dict[str, Callable[[DictStore], object]] = {
    "commits": lambda _: None,
    "classic": lambda s: put_classic(s, 1, replay(COMMITS[:2]).actions()),
    "multi-part": lambda s: put_multipart(s, 1, replay(COMMITS[:2]).actions(), 2),
    "sidecars": lambda s: put_v2(s, 1, replay(COMMITS[:2]).actions(), sidecars=2),
    "JSON sidecars": lambda s: put_v2(s, 1, replay(COMMITS[:2]).actions(), json_format=True, sidecars=1),
}


def table(layout: str) -> DictStore:
    store = DictStore()
    for version, actions in enumerate(COMMITS):
        put_commit(store, version, *actions)
    if LAYOUTS[layout](store):
        put_hint(store, 1)
    return store


class FailingAt:
    """A policy: the call with one number fails, those before and after do not."""

    def __init__(self, index: int, error: Exception) -> None:
        self.index = index
        self.error = error

    def __call__(self, call: Call) -> RaiseBefore | None:
        return RaiseBefore(self.error) if call.index == self.index else None


def known(snapshot: Snapshot) -> tuple[list[str], dict[str, int], list[str]]:
    """Enough to have read every object of the log."""
    tombstones = snapshot.tombstones(include_expired=True)
    return (
        sorted(snapshot.files(columns=["path", "size"]).column("path").to_pylist()),
        snapshot.app_transactions,
        sorted(tombstones.column("path").to_pylist()),
    )


EXPECTED = (["f1", "f2", "f3"], {"a": 1}, ["f0", "gone"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_error_of_the_store_comes_through_and_asking_again_works(layout: str) -> None:
    store = table(layout)
    counting = FaultyStore(store)
    assert known(open_snapshot(context(counting))) == EXPECTED
    for index in range(1, len(counting.calls) + 1):
        error = StorageThrottledError("slow down")
        opened: list[Snapshot] = []

        def use(index: int = index, error: Exception = error, opened: list[Snapshot] = opened) -> None:
            opened.append(open_snapshot(context(FaultyStore(store, FailingAt(index, error)))))
            known(opened[0])

        with pytest.raises(StorageThrottledError) as caught:
            use()
        assert caught.value is error, "not wrapped in anything that blames the log"
        for snapshot in opened:
            assert known(snapshot) == EXPECTED, "nothing half-read was kept"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_objects_that_vanish_are_a_headwater_error_or_no_matter(layout: str) -> None:
    store = table(layout)
    counting = FaultyStore(store)
    known(open_snapshot(context(counting)))
    for index in range(1, len(counting.calls) + 1):
        faulty = FaultyStore(store, FailingAt(index, ObjectNotFoundError("gone")))
        with suppress(HeadwaterError):
            assert known(open_snapshot(context(faulty))) == EXPECTED


def test_a_refresh_that_fails_can_be_tried_again() -> None:
    store = table("classic")
    policy = FailingAt(0, StorageThrottledError("slow down"))
    faulty = FaultyStore(store, policy)
    snapshot = open_snapshot(context(faulty))
    assert observed(snapshot) == STATE
    put_commit(store, 4, add("f4"))
    before = len(faulty.calls)
    assert snapshot.refresh().version == 4
    for offset in range(1, len(faulty.calls) - before + 1):
        policy.index = len(faulty.calls) + offset
        with pytest.raises(StorageThrottledError):
            snapshot.refresh()
        assert snapshot.refresh().num_files == STATE["num_files"] + 1


def test_a_crash_is_not_taken_for_damage() -> None:
    store = table("classic")

    class Dying(DictStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        open_snapshot(context(Dying(store.objects)))
