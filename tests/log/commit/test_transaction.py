"""The one commit path: what a commit holds, what is refused, how a lost race goes on, what upkeep may not break."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headwater.errors import (
    ConcurrentWriteException,
    InvalidCommitError,
    ObjectAlreadyExistsError,
    StorageError,
    UnsupportedProtocolError,
)
from headwater.features.registry import check_readable
from headwater.log.actions.model import AddCdcFile, DomainMetadata, Metadata, Protocol, Txn
from headwater.log.commit import transaction as transactions
from headwater.log.commit.draft import Attempt, Draft, Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.context import LogContext
from headwater.log.delta.dialect import DELTA
from headwater.log.filters.sql import parse_filter
from headwater.log.opening import open_snapshot
from support.log.commit_tables import (
    METADATA,
    WRITE,
    add,
    append,
    commit_lines,
    create,
    removal,
    table,
    vector,
    writer,
)
from support.stores.faults import Fault, FaultyStore, RaiseBefore, SimulatedCrash, script
from support.stores.log_store import NOW_MS, DictStore, Sleeper

# --- what a commit holds ----------------------------------------------------------------------------------


def test_a_commit_is_the_next_version_and_says_what_it_did() -> None:
    store, ctx, read = table(add("old"))
    transaction = Transaction(ctx, read)
    transaction.add([add("new")])
    transaction.record_progress(Txn("app", 7))
    transaction.set_domain(DomainMetadata("mine", "{}"))

    committed = transaction.commit(
        Operation(
            "WRITE",
            {"mode": "Append", "partitionBy": ["part"], "predicate": None, "statsOnLoad": False},
            metrics={"numFiles": 1},
            user_metadata="why",
            tags={"delta.rowTracking.preserved": "false"},
        )
    )

    assert (committed.version, committed.attempts) == (1, 1)
    info, *actions = commit_lines(store, 1)
    assert info["commitInfo"] == {
        "timestamp": NOW_MS,
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append",
            "partitionBy": '["part"]',
            "predicate": "null",
            "statsOnLoad": "false",
        },
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "engineInfo": info["commitInfo"]["engineInfo"],
        "txnId": transaction.id,
        "operationMetrics": {"numFiles": "1"},
        "userMetadata": "why",
        "tags": {"delta.rowTracking.preserved": "false"},
    }
    assert [next(iter(action)) for action in actions] == ["txn", "domainMetadata", "add"]


def test_the_table_after_a_commit_is_the_table_that_a_reader_opens() -> None:
    _, ctx, read = table(add("f0"))
    transaction = Transaction(ctx, read)
    transaction.remove([removal(add("f0"))])
    transaction.add([add("f1", size=7)])
    transaction.set_metadata(msgspec.structs.replace(METADATA, description="new"))

    after = transaction.commit(WRITE).snapshot

    opened = open_snapshot(ctx)
    for name in ("version", "timestamp", "protocol", "metadata", "num_files", "size_bytes", "app_transactions"):
        assert getattr(after, name) == getattr(opened, name)
    assert after.files().equals(opened.files())


@pytest.mark.parametrize(
    ("prepare", "blind", "level"),
    [
        (lambda t: t.add([add("n")]), True, "Serializable"),
        (lambda t: t.set_metadata(METADATA), True, "Serializable"),  # as the reference records it
        (lambda t: t.add([add("n")]) or t.read_files(parse_filter("id = 1")), False, "Serializable"),
        (lambda t: t.add([add("n")]) or t.reads_whole_table(), False, "Serializable"),
        (lambda t: t.add([add("n")]) or t.progress_of("app"), True, "Serializable"),
        (lambda t: t.remove([removal(add("old"))]), False, "Serializable"),
        (
            lambda t: (
                t.remove([removal(add("old"), data_change=False)]),
                t.add([add("n", data_change=False)]),
            ),
            False,
            "SnapshotIsolation",
        ),
    ],
)
def test_what_was_read_is_recorded(prepare: Any, blind: bool, level: str) -> None:
    store, ctx, read = table(add("old"))
    transaction = Transaction(ctx, read)
    prepare(transaction)
    transaction.commit(WRITE)
    info = commit_lines(store, 1)[0]["commitInfo"]
    assert (info["isBlindAppend"], info["isolationLevel"]) == (blind, level)


def test_a_commit_without_actions_is_a_version() -> None:
    store, ctx, read = table(add("old"))
    assert Transaction(ctx, read).commit(Operation("DELETE")).version == 1
    assert len(commit_lines(store, 1)) == 1
    assert open_snapshot(ctx).num_files == 1


def test_files_removed_without_a_time_are_removed_now() -> None:
    store, ctx, read = table(add("old"))
    transaction = Transaction(ctx, read)
    transaction.remove([removal(add("old"))])
    transaction.commit(Operation("DELETE"))
    assert commit_lines(store, 1)[1]["remove"]["deletionTimestamp"] == NOW_MS


# --- what is refused -----------------------------------------------------------------------------------------


def test_a_transaction_is_committed_once() -> None:
    _, ctx, read = table()
    transaction = Transaction(ctx, read)
    transaction.add([add("n")])
    transaction.commit(WRITE)
    with pytest.raises(InvalidCommitError, match="committed before"):
        transaction.commit(WRITE)
    assert open_snapshot(ctx).version == 1


def test_a_context_for_reading_cannot_write() -> None:
    store, _, _ = table()
    reader = LogContext(store, check_readable)
    with pytest.raises(UnsupportedProtocolError, match="reading only"):
        Transaction(reader, open_snapshot(reader))


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda t: t.add([add("n"), add("n")]), "only one add action for 'n'"),
        (lambda t: t.add([add("n%20x"), add("n x")]), "only one add action"),
        (lambda t: t.remove([removal(add("o")), removal(add("o"))]), "only one remove action"),
        (lambda t: t.add([add("o")]) or t.remove([removal(add("o"))]), "both add and remove the logical file 'o'"),
        (lambda t: t.record_progress(Txn("a", 1)) or t.record_progress(Txn("a", 2)), "only one txn action for 'a'"),
        (lambda t: [t.set_domain(DomainMetadata("d", v)) for v in "12"], "only one domainMetadata action for 'd'"),
        (lambda t: t.add_changes([AddCdcFile("c", {}, 1, data_change=True)]), "dataChange must be false"),
        (lambda t: t.add([add("n", modification_time=None)]), "modificationTime"),
        (lambda t: t.set_metadata(Metadata("x")), "schemaString"),
        (lambda t: t.add([add("n", size=2**63)]), "would not be readable"),
        (lambda t: t.add([add("n\ud800")]), "cannot be written as JSON"),
        (lambda t: t.set_metadata(msgspec.structs.replace(METADATA, configuration={"a": object()})), "as JSON"),
    ],
)
def test_what_the_protocol_forbids_is_refused(prepare: Any, says: str) -> None:
    store, ctx, read = table(add("o"))
    transaction = Transaction(ctx, read)
    prepare(transaction)
    with pytest.raises(InvalidCommitError, match=says):
        transaction.commit(WRITE)
    assert open_snapshot(ctx).version == 0
    assert f"_delta_log/{1:020d}.json" not in store.objects


def test_one_file_may_change_its_deletion_vector() -> None:
    _, ctx, read = table(add("o"))
    transaction = Transaction(ctx, read)
    transaction.remove([removal(add("o"))])
    transaction.add([add("o", deletion_vector=vector("v"))])
    after = transaction.commit(Operation("DELETE")).snapshot
    assert after.num_files == 1


def test_a_new_table_needs_protocol_and_metadata() -> None:
    transaction = Transaction(writer(DictStore()), None)
    transaction.set_metadata(METADATA)
    with pytest.raises(InvalidCommitError, match="needs protocol and metaData"):
        transaction.commit(Operation("CREATE TABLE"))
    with pytest.raises(InvalidCommitError, match="does not exist yet"):
        transaction.read_files()


# --- losing and going on -----------------------------------------------------------------------------------


def test_a_lost_race_is_run_again_on_the_newest_table_with_a_growing_random_wait() -> None:
    store, ctx, read = table()
    sleeper = Sleeper()
    late = Transaction(writer(store, sleep=sleeper), read)
    late.add([add("late")])
    now = read
    for number in range(3):
        now = append(ctx, now, add(f"w{number}")).snapshot

    committed = late.commit(WRITE)

    assert (committed.version, committed.attempts) == (4, 2)
    assert [m.path for m in _adds(store, 4)] == ["late"]
    assert commit_lines(store, 4)[0]["commitInfo"]["readVersion"] == 0
    assert sleeper.waits_s == [0.5 * 0.004]
    assert committed.snapshot.num_files == 4


def _adds(store: DictStore, version: int) -> list[Any]:
    from headwater.log.actions.decode import CommitActions

    commit = CommitActions.of(version, store.objects[f"_delta_log/{version:020d}.json"], DELTA)
    return [line.add for line in commit.file_lines() if line.add is not None]


def test_winners_are_read_once_and_nothing_else_is() -> None:
    store, ctx, read = table()
    faulty = FaultyStore(store)
    late = Transaction(writer(faulty), replace(read, ctx=writer(faulty)))
    late.add([add("late")])
    append(ctx, append(ctx, read, add("w1")).snapshot, add("w2"))

    late.commit(WRITE)

    log = [(call.operation, call.key[-7:]) for call in faulty.calls if call.key.endswith(".json")]
    assert log == [
        ("put_if_absent", "01.json"),
        ("get", "01.json"),
        ("get", "02.json"),
        ("get", "03.json"),  # not there: the end
        ("put_if_absent", "03.json"),
    ]


def test_a_second_commit_reads_nothing() -> None:
    store = DictStore()
    faulty = FaultyStore(store)
    ctx = writer(faulty)
    first = create(ctx, add("f0"))
    faulty.calls.clear()

    append(ctx, append(ctx, first, add("f1")).snapshot, add("f2"))

    assert {call.operation for call in faulty.calls} == {"put_if_absent"}


def test_rules_run_again_on_every_attempt_against_the_metadata_in_force() -> None:
    seen: list[tuple[int, str | None, int]] = []

    def rule(draft: Draft, attempt: Attempt) -> Draft:
        seen.append((attempt.version, attempt.metadata.description, attempt.now_ms))
        return replace(draft, commit_info={"inCommitTimestamp": attempt.now_ms + attempt.version})

    store, ctx, read = table()
    clock = iter(range(NOW_MS, NOW_MS + 1_000))
    late = Transaction(writer(store, commit_rules=(rule,), clock_ms=lambda: next(clock)), read)
    late.add([add("late")])
    other = Transaction(ctx, read)
    other.set_metadata(msgspec.structs.replace(METADATA, description="harmless"))
    other.commit(Operation("SET TBLPROPERTIES"))

    late.commit(WRITE)

    assert [s[:2] for s in seen] == [(1, None), (2, "harmless")]
    info = commit_lines(store, 2)[0]["commitInfo"]
    assert next(iter(info)) == "inCommitTimestamp"
    assert info["inCommitTimestamp"] == seen[1][2] + 2


def test_what_a_rule_makes_of_the_draft_is_checked_too() -> None:
    def doubling(draft: Draft, attempt: Attempt) -> Draft:
        return replace(draft, adds=(*draft.adds, *draft.adds))

    store, _, read = table()
    transaction = Transaction(writer(store, commit_rules=(doubling,)), read)
    transaction.add([add("n")])
    with pytest.raises(InvalidCommitError, match="only one add"):
        transaction.commit(WRITE)


def test_a_rule_may_change_the_protocol_and_the_gate_sees_it() -> None:
    def upgrading(draft: Draft, attempt: Attempt) -> Draft:
        return replace(draft, protocol=Protocol(1, 7, None, ("whatever",)))

    def legacy_only(configuration: TableConfiguration) -> None:
        if configuration.protocol.min_writer_version > 2:
            raise UnsupportedProtocolError("no")

    store, _, read = table()
    transaction = Transaction(writer(store, commit_rules=(upgrading,), check_writable=legacy_only), read)
    with pytest.raises(UnsupportedProtocolError):
        transaction.commit(WRITE)


def test_nobody_tries_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_ATTEMPTS", 5)
    store, ctx, read = table()
    newest = [read]

    class Rival(DictStore):
        """Somebody is always a little faster."""

        def put_if_absent(self, key: str, data: bytes) -> None:
            newest.append(append(ctx, newest[-1], add(f"w{len(newest)}")).snapshot)
            raise ObjectAlreadyExistsError(key)

    rival = Rival()
    rival.objects = store.objects
    late = Transaction(writer(rival), read)
    late.add([add("late")])
    with pytest.raises(ConcurrentWriteException, match="5 times"):
        late.commit(WRITE)


# --- after the commit ---------------------------------------------------------------------------------------


def test_upkeep_that_fails_is_logged_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store, _, read = table()
    faulty = FaultyStore(store, script(Fault(RaiseBefore(StorageError("disk full")), key="*.crc")))
    ctx = writer(faulty)
    with caplog.at_level(logging.WARNING, "headwater.log"):
        committed = append(ctx, replace(read, ctx=ctx), add("n"))
    assert committed.version == 1
    assert "version 1" in caplog.text
    assert "disk full" in caplog.text


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SimulatedCrash])
def test_upkeep_lets_an_interruption_through(stop: type[BaseException]) -> None:
    store, _, read = table()

    class Stopped(DictStore):
        def put_if_absent(self, key: str, data: bytes) -> None:
            if key.endswith(".crc"):
                raise stop
            super().put_if_absent(key, data)

    stopped = Stopped()
    stopped.objects = store.objects
    ctx = writer(stopped)
    with pytest.raises(stop):
        append(ctx, replace(read, ctx=ctx), add("n"))
    assert open_snapshot(writer(store)).version == 1


def test_everything_but_reads_and_the_commit_itself_may_fail_after_the_commit() -> None:
    """The store answers the put and then nothing: the commit is reported all the same."""
    store, _, read = table()

    def nothing_after_the_commit(call: Any) -> Any:
        done = f"_delta_log/{1:020d}.json" in store.objects
        return RaiseBefore(StorageError("gone")) if done else None

    ctx = writer(FaultyStore(store, nothing_after_the_commit))
    assert append(ctx, replace(read, ctx=ctx), add("n")).version == 1
