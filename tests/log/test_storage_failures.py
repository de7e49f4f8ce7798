"""A store that fails in the middle: its own error comes through, and asking again works."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_model import observed, replay
from log_store import DictStore, context
from log_tables import (
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

from headwater.errors import HeadwaterError, ObjectNotFoundError, StoragePermissionError, StorageThrottledError
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from headwater.storage.faults import Call, FaultyStore, RaiseBefore, SimulatedCrash

COMMITS = [
    [protocol(), metadata(), add("f0"), txn("a", 1)],
    [add("f1"), remove("gone")],
    [add("f2"), remove("f0")],
    [add("f3")],
]
STATE = replay(COMMITS).state()
LAYOUTS: dict[str, Callable[[DictStore], object]] = {
    "commits": lambda s: None,
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

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.index = 0

    def __call__(self, call: Call) -> RaiseBefore | None:
        return RaiseBefore(self.error) if call.index == self.index else None


@pytest.mark.parametrize(
    "error", [StorageThrottledError("slow down"), StoragePermissionError("no")], ids=["slow", "no"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_error_of_the_store_comes_through_and_asking_again_works(layout: str, error: HeadwaterError) -> None:
    store = table(layout)
    counting = FaultyStore(store)
    assert observed(open_snapshot(context(counting))) == STATE
    total = len(counting.calls)
    assert total > 3
    for index in range(1, total + 1):
        policy = FailingAt(error)
        policy.index = index
        faulty = FaultyStore(store, policy)
        snapshot: Snapshot | None = None
        with pytest.raises(type(error)) as caught:
            snapshot = open_snapshot(context(faulty))
            observed(snapshot)
        assert caught.value is error, "not wrapped in anything that blames the log"
        if snapshot is not None:
            assert observed(snapshot) == STATE, "nothing half-read was kept"
        assert observed(open_snapshot(context(FaultyStore(store)))) == STATE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_objects_that_vanish_are_a_headwater_error_or_no_matter(layout: str) -> None:
    store = table(layout)
    counting = FaultyStore(store)
    observed(open_snapshot(context(counting)))
    for index in range(1, len(counting.calls) + 1):
        policy = FailingAt(ObjectNotFoundError("gone"))
        policy.index = index
        snapshot = None
        try:
            snapshot = open_snapshot(context(FaultyStore(store, policy)))
            assert observed(snapshot) == STATE
        except HeadwaterError:
            assert snapshot is None or observed(snapshot) == STATE


def test_a_refresh_that_fails_can_be_tried_again() -> None:
    store = table("classic")
    policy = FailingAt(StorageThrottledError("slow down"))
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
