"""Putting a commit into the log: lost answers, throttling, refusals, and a store that says nothing at all."""

from __future__ import annotations

import json

import pytest

from headwater.errors import (
    CommitStateUnknownError,
    InvalidUriError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageThrottledError,
)
from headwater.log.commit.transaction import Transaction, publish
from headwater.log.opening import open_snapshot
from support.log.commit_tables import WRITE, add, append, table, writer
from support.stores.faults import CrashAfter, Fault, FaultyStore, RaiseAfter, RaiseBefore, SimulatedCrash, script
from support.stores.log_store import DictStore, Sleeper

KEY = f"_delta_log/{1:020d}.json"
SLOW_DOWN = StorageThrottledError("503 slow down")


def commit(transaction_id: str) -> bytes:
    return json.dumps({"commitInfo": {"txnId": transaction_id}}).encode()


def faulty(store: DictStore, *faults: Fault) -> tuple[FaultyStore, Sleeper]:
    return FaultyStore(store, script(*faults)), Sleeper()


def test_a_commit_is_published_with_one_request() -> None:
    inner = DictStore()
    store, sleeper = faulty(inner)
    assert publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours") is None
    assert [call.operation for call in store.calls] == ["put_if_absent"]
    assert inner.objects[KEY] == commit("ours")
    assert sleeper.waits_s == []


def test_the_winner_is_returned_when_another_writer_was_first() -> None:
    store, sleeper = faulty(DictStore({KEY: commit("theirs")}))
    winner = publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")
    assert winner is not None
    assert winner.commit_info == {"txnId": "theirs"}


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_lost_answer_is_found_again_by_its_transaction_id(lost: int) -> None:
    inner = DictStore()
    faults = [Fault(RaiseAfter(SLOW_DOWN), "put_if_absent", nth=n) for n in range(1, lost + 1)]
    store, sleeper = faulty(inner, *faults)
    assert publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours") is None
    assert len(inner.objects) == 1


def test_a_lost_answer_of_a_race_that_another_writer_won() -> None:
    store, _ = faulty(DictStore(), Fault(RaiseBefore(SLOW_DOWN), "put_if_absent", nth=1))

    class Rival(Sleeper):
        def __call__(self, seconds: float) -> None:
            store.put_if_absent(KEY, commit("theirs"))

    winner = publish(writer(store, sleep=Rival()), 1, commit("ours"), "ours")
    assert winner is not None
    assert winner.commit_info == {"txnId": "theirs"}


def test_throttling_is_waited_out_with_growing_waits() -> None:
    faults = [Fault(RaiseBefore(SLOW_DOWN), "put_if_absent", nth=n) for n in (1, 2, 3)]
    store, sleeper = faulty(DictStore(), *faults)
    assert publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours") is None
    assert sleeper.waits_s == [0.05, 0.1, 0.2]


@pytest.mark.parametrize("refusal", [StoragePermissionError, InvalidUriError, ObjectNotFoundError])
def test_a_refusal_is_final_and_says_that_nothing_was_written(refusal: type[StorageError]) -> None:
    store, sleeper = faulty(DictStore(), Fault(RaiseBefore(refusal("no")), "put_if_absent"))
    with pytest.raises(refusal):
        publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")
    assert len(store.calls) == 1


def test_a_refusal_after_an_unclear_answer_proves_nothing() -> None:
    inner = DictStore()
    store, sleeper = faulty(
        inner,
        Fault(RaiseAfter(SLOW_DOWN), "put_if_absent", nth=1),
        Fault(RaiseBefore(StoragePermissionError("token expired")), "put_if_absent"),
    )
    assert publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours") is None
    assert inner.objects[KEY] == commit("ours")


@pytest.mark.parametrize("action", [RaiseBefore(SLOW_DOWN), RaiseAfter(SLOW_DOWN)])
def test_nobody_knows_when_the_store_answers_neither_puts_nor_gets(action: RaiseBefore | RaiseAfter) -> None:
    store, sleeper = faulty(DictStore(), Fault(action, "put_if_absent"), Fault(RaiseBefore(SLOW_DOWN), "get"))
    with pytest.raises(CommitStateUnknownError, match=r"version 1 \(transaction ours\).*history"):
        publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")


def test_a_commit_that_is_not_there_may_still_be_on_its_way() -> None:
    store, sleeper = faulty(DictStore(), Fault(RaiseBefore(SLOW_DOWN), "put_if_absent"))
    with pytest.raises(CommitStateUnknownError):
        publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")


def test_a_commit_that_appears_late_after_it_was_said_to_exist() -> None:
    inner = DictStore({KEY: commit("theirs")})
    inner.absent_for[KEY] = 2
    store, sleeper = faulty(inner)
    winner = publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")
    assert winner is not None
    assert sleeper.waits_s == [0.05, 0.1]


def test_rubbish_at_our_version_is_not_ours() -> None:
    store, sleeper = faulty(DictStore({KEY: b"\xff not json"}))
    winner = publish(writer(store, sleep=sleeper), 1, commit("ours"), "ours")
    assert winner is not None
    assert winner.data == b"\xff not json"


@pytest.mark.parametrize("lost", [RaiseAfter(SLOW_DOWN), RaiseBefore(SLOW_DOWN)])
def test_a_transaction_whose_answer_was_lost_is_in_the_log_once(lost: RaiseAfter | RaiseBefore) -> None:
    inner, _, read = table()
    store, _ = faulty(inner, Fault(lost, "put_if_absent", key="*.json", nth=1))
    transaction = Transaction(writer(store), read)
    transaction.add([add("n")])
    committed = transaction.commit(WRITE)
    assert (committed.version, committed.attempts) == (1, 1)
    after = open_snapshot(writer(inner))
    assert (after.version, after.num_files) == (1, 1)


def test_a_writer_that_died_right_after_the_put_has_committed() -> None:
    inner, ctx, read = table()
    store, _ = faulty(inner, Fault(CrashAfter(), "put_if_absent", key="*.json"))
    transaction = Transaction(writer(store), read)
    transaction.add([add("n")])
    with pytest.raises(SimulatedCrash):
        transaction.commit(WRITE)
    assert append(ctx, read, add("next")).version == 2
