"""The store that fails on purpose does so exactly where the script says, and nowhere else."""

from __future__ import annotations

from itertools import count

import pytest

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError, StorageError
from headwater.storage import ObjectStore, open_store
from support.stores.faults import (
    Call,
    CrashAfter,
    CrashBefore,
    Fault,
    FaultyStore,
    HideFromListings,
    RaiseAfter,
    RaiseBefore,
    SimulatedCrash,
    Truncate,
    script,
)

_numbers = count()


@pytest.fixture
def inner() -> ObjectStore:
    store = open_store(f"memory://faulty-{next(_numbers)}")
    store.put("a", b"12345")
    return store


def keys(store: ObjectStore) -> list[str]:
    return [meta.key for meta in store.list_from("", recursive=True)]


def test_without_faults_it_is_the_store_behind(inner: ObjectStore) -> None:
    store = FaultyStore(inner)
    store.put("b", b"1")
    store.put_if_absent("d/c", b"2")
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent("d/c", b"3")
    with pytest.raises(ObjectNotFoundError):
        store.get("nothing")
    assert isinstance(store, ObjectStore)
    assert store.uri == inner.uri
    assert store.list_from("d/", "d/b") == inner.list_from("d/", "d/b")
    assert store.head("a") == inner.head("a")
    assert store.get_range("a", 1, 3) == b"234"
    assert store.get_many(["d/c", "b"]) == [b"2", b"1"]
    store.delete_many(["a", "b", "nothing"])
    assert keys(inner) == ["d/c"]


def test_calls_are_counted_per_operation_and_key(inner: ObjectStore) -> None:
    store = FaultyStore(inner)
    store.get("a")
    store.head("a")
    store.get_many(["a", "a"])
    store.get("a")
    store.list_from("")
    assert store.calls == [
        Call("get", "a", 1, 1),
        Call("head", "a", 1, 2),
        Call("get_many", "a", 1, 3),
        Call("get_many", "a", 2, 4),
        Call("get", "a", 2, 5),
        Call("list_from", "", 1, 6),
    ]


def test_raise_before_does_nothing(inner: ObjectStore) -> None:
    error = StorageError("scripted")
    store = FaultyStore(inner, script(Fault(RaiseBefore(error), operation="put", nth=2)))
    store.put("b", b"first")
    with pytest.raises(StorageError) as caught:
        store.put("b", b"second")
    assert caught.value is error
    assert inner.get("b") == b"first"
    store.put("b", b"third")
    assert inner.get("b") == b"third"


def test_raise_after_is_a_lost_answer(inner: ObjectStore) -> None:
    store = FaultyStore(inner, script(Fault(RaiseAfter(StorageError("lost")), operation="put_if_absent")))
    with pytest.raises(StorageError, match="lost"):
        store.put_if_absent("b", b"1")
    assert inner.get("b") == b"1"


@pytest.mark.parametrize(("action", "expected"), [(CrashBefore(), ["a"]), (CrashAfter(), ["a", "b"])])
def test_crash_is_no_exception_and_ends_everything(
    inner: ObjectStore, action: CrashBefore | CrashAfter, expected: list[str]
) -> None:
    store = FaultyStore(inner, script(Fault(action, operation="put")))

    def careless_writer() -> None:
        try:
            store.put("b", b"1")
        except Exception:  # the point: a dead process handles nothing
            pytest.fail("a crash is not an Exception")
        finally:
            store.delete_many(["a"])

    with pytest.raises(SimulatedCrash):
        careless_writer()
    assert keys(inner) == expected


def test_crash_in_the_middle_of_many(inner: ObjectStore) -> None:
    inner.put("b", b"")
    inner.put("c", b"")
    store = FaultyStore(inner, script(Fault(CrashBefore(), operation="delete_many", key="b")))
    with pytest.raises(SimulatedCrash):
        store.delete_many(["a", "b", "c"])
    assert keys(inner) == ["b", "c"]


def test_writer_can_be_crashed_at_each_of_its_steps(inner: ObjectStore) -> None:
    def writer(store: ObjectStore) -> None:
        store.put("x", store.get("a"))
        store.put_if_absent("y", b"")
        store.list_from("")

    counted = FaultyStore(inner)
    writer(counted)
    assert len(counted.calls) == 4
    seen = []
    for index in range(1, 5):
        inner.delete_many(["x", "y"])
        with pytest.raises(SimulatedCrash):
            writer(FaultyStore(inner, script(Fault(CrashBefore(), index=index))))
        seen.append(keys(inner))
    assert seen == [["a"], ["a"], ["a", "x"], ["a", "x", "y"]]


def test_hidden_key_appears_some_listings_later(inner: ObjectStore) -> None:
    store = FaultyStore(inner, script(Fault(HideFromListings(2), operation="put*", key="d/b")))
    store.put_if_absent("d/b", b"1")
    assert store.get("d/b") == b"1"
    # A listing that would not show it anyway does not count.
    assert [meta.key for meta in store.list_from("")] == ["a"]
    assert [keys(store) for _ in range(3)] == [["a"], ["a"], ["a", "d/b"]]
    assert keys(inner) == ["a", "d/b"]


def test_hidden_keys_can_be_shown_at_once(inner: ObjectStore) -> None:
    store = FaultyStore(inner, script(Fault(HideFromListings(9), operation="put*", key="d/b")))
    store.put_if_absent("d/b", b"1")
    assert keys(store) == ["a"]
    store.show_all()
    assert keys(store) == ["a", "d/b"]


def test_truncation_of_reads_and_writes(inner: ObjectStore) -> None:
    store = FaultyStore(inner, script(Fault(Truncate(2), key="[ab]", nth=1)))
    assert store.get("a") == b"12"
    assert store.get("a") == b"12345"
    assert store.get_many(["a"]) == [b"12"]
    assert store.get_range("a", 2, 3) == b"34"
    store.put("b", b"abcdef")
    assert inner.get("b") == b"ab"


@pytest.mark.parametrize("action", [Truncate(1), HideFromListings(1)])
def test_fault_that_makes_no_sense_is_refused(inner: ObjectStore, action: Truncate | HideFromListings) -> None:
    with pytest.raises(ValueError, match="makes no sense for head"):
        FaultyStore(inner, script(Fault(action))).head("a")


def test_first_matching_fault_decides(inner: ObjectStore) -> None:
    faults = [Fault(Truncate(1), key="a", nth=2), Fault(Truncate(3), operation="get")]
    store = FaultyStore(inner, script(*faults))
    assert [store.get("a") for _ in range(3)] == [b"123", b"1", b"123"]


def test_policy_may_let_something_else_happen_first(inner: ObjectStore) -> None:
    # Another writer commits between our look and our write.
    def policy(call: Call) -> None:
        if call.operation == "put_if_absent":
            inner.put(call.key, b"theirs")

    store = FaultyStore(inner, policy)
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent("b", b"ours")
    assert inner.get("b") == b"theirs"
