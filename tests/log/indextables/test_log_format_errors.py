"""The error scenarios of spec 002: a lost version 0, a gap, a conflict, a checkpoint that cannot be read."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from headwater.errors import (
    ConcurrentDeleteDeleteException,
    CorruptLogError,
    InvalidCommitError,
    MissingCommitError,
    ObjectAlreadyExistsError,
    StorageError,
    TableNotFoundError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from headwater.log.actions.model import Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.opening import open_snapshot
from headwater.search.table_log import initialise, upgrade_protocol
from support.log.split_logs import (
    METADATA,
    append,
    checkpoint_key,
    lines,
    live,
    put_version,
    replace_all,
    split,
    table,
    version_key,
    writer,
)
from support.stores.faults import Fault, FaultyStore, RaiseBefore, script
from support.stores.log_store import NOW_MS, DictStore, Sleeper

EVERY_3 = {"spark.indextables.checkpoint.interval": "3"}


def grown(versions: int, options: dict[str, str] | None = None) -> tuple[DictStore, Any, Any]:
    """A table with one split more in every version."""
    store, ctx, snapshot = table(options)
    for number in range(1, versions + 1):
        snapshot = append(snapshot, f"{number:02}.split")
    return store, ctx, snapshot


def files(last: int) -> list[str]:
    return [f"{number:02}.split" for number in range(1, last + 1)]


# --- version 0 ---------------------------------------------------------------------------------------------


def test_there_is_no_table_without_a_log() -> None:
    with pytest.raises(TableNotFoundError, match="No transaction log found"):
        open_snapshot(writer(DictStore()))


@pytest.mark.parametrize("versions", [2, 4])
def test_a_table_without_version_0_cannot_be_read_not_even_from_a_checkpoint(versions: int) -> None:
    store, ctx, _ = grown(versions, EVERY_3)
    del store.objects[version_key(0)]
    with pytest.raises(CorruptLogError, match=r"No transaction log found: version 0 .* is missing"):
        open_snapshot(ctx)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b'{"protocol":{"minReaderVersion":1', "is damaged"),
        (b"\xff\xfe\n", "is damaged"),
        (b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n', "has no metaData action"),
        (b'{"metaData":{"id":"1","schemaString":"{}"}}\n', "has no protocol action"),
    ],
)
@pytest.mark.parametrize("versions", [2, 4])
def test_a_damaged_version_0_makes_the_table_unreadable(content: bytes, problem: str, versions: int) -> None:
    store, ctx, _ = grown(versions, EVERY_3)
    store.objects[version_key(0)] = content
    with pytest.raises(CorruptLogError, match=f"No transaction log found: version 0 .*{problem}"):
        open_snapshot(ctx)


def test_version_0_is_never_written_again() -> None:
    store, ctx, snapshot = table()
    before = store.objects[version_key(0)]
    assert not initialise(ctx, METADATA)
    append(snapshot, "a.split")
    assert not initialise(writer(store), METADATA)
    assert store.objects[version_key(0)] == before
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent(version_key(0), b"{}")


def test_a_table_whose_version_0_is_lost_is_not_created_again_over_its_versions() -> None:
    store, ctx, _ = grown(2)
    del store.objects[version_key(0)]
    with pytest.raises(CorruptLogError, match="version 0"):
        initialise(ctx, METADATA)
    assert version_key(0) not in store.objects


def test_version_0_holds_nothing_else_and_the_metadata_never_changes() -> None:
    _, ctx, snapshot = table()
    creation = Transaction(writer(DictStore()), None)
    creation.set_protocol(Protocol(1, 2))
    creation.set_metadata(METADATA)
    creation.add([split("a.split")])
    with pytest.raises(InvalidCommitError, match="one protocol and one metaData"):
        creation.commit(Operation("CREATE TABLE"))
    alteration = Transaction(ctx, snapshot)
    alteration.set_metadata(METADATA)
    with pytest.raises(InvalidCommitError, match="cannot change"):
        alteration.commit(Operation("SET TBLPROPERTIES"))


# --- the protocol ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "problem"),
    [
        ({"minReaderVersion": 4, "minWriterVersion": 4}, "reader version 4"),
        ({"minReaderVersion": 0, "minWriterVersion": 2}, "reader version 0"),
        ({"minReaderVersion": 3, "minWriterVersion": 3, "readerFeatures": ["deletionVectors"]}, "deletionVectors"),
    ],
)
def test_a_table_of_a_newer_protocol_is_not_read(protocol: dict[str, Any], problem: str) -> None:
    store, ctx, _ = grown(1)
    put_version(store, 2, {"protocol": protocol})
    with pytest.raises(UnsupportedProtocolError, match=problem):
        open_snapshot(ctx)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 4},
        {"minReaderVersion": 1, "minWriterVersion": 3, "writerFeatures": ["liquidClustering"]},
    ],
)
def test_a_table_for_newer_writers_is_read_and_not_written(protocol: dict[str, Any]) -> None:
    store, ctx, _ = grown(1)
    put_version(store, 2, {"protocol": protocol})
    snapshot = open_snapshot(ctx)
    assert live(snapshot) == files(1)
    with pytest.raises(UnsupportedProtocolError, match="cannot be written"):
        append(snapshot, "b.split")


def test_the_example_of_features_is_a_table_that_can_be_used() -> None:
    store, ctx, _ = grown(1)
    example = {
        "readerFeatures": ["footerOffsets", "tantivy4java"],
        "writerFeatures": ["conditionalWrites", "checkpoints"],
    }
    put_version(store, 2, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 3, **example}})
    assert live(append(open_snapshot(ctx), "02.split")) == files(2)


def test_a_protocol_upgrade_is_the_next_version_and_never_goes_back() -> None:
    store, ctx, snapshot = grown(1)
    upgraded = upgrade_protocol(snapshot, 2, 3)
    assert lines(store, 2)[0] == {"protocol": {"minReaderVersion": 2, "minWriterVersion": 3}}
    assert upgraded.protocol == open_snapshot(ctx).protocol == Protocol(2, 3)
    assert upgrade_protocol(upgraded, 1, 2) is upgraded
    with_features = upgrade_protocol(upgraded, 3, 3, reader_features=["footerOffsets"])
    assert with_features.protocol == Protocol(3, 3, ("footerOffsets",), None)
    assert open_snapshot(ctx).history()[0].operation == "UPGRADE PROTOCOL"
    with pytest.raises(UnsupportedProtocolError, match="reader version 9"):
        upgrade_protocol(with_features, 9, 9)
    with pytest.raises(InvalidCommitError, match="features need reader version 3"):
        upgrade_protocol(snapshot, 2, 3, reader_features=["footerOffsets"])


def test_the_newest_protocol_counts_after_a_checkpoint_too() -> None:
    _, ctx, snapshot = grown(1, EVERY_3)
    append(upgrade_protocol(snapshot, 2, 3), "02.split")
    reopened = open_snapshot(ctx)
    assert reopened.segment.checkpoint is not None
    assert reopened.protocol == Protocol(2, 3)


# --- gaps ----------------------------------------------------------------------------------------------------


def test_reading_stops_before_a_gap() -> None:
    """Spec: with 0, 1 and 3 there, version 3 is ignored."""
    store, _, _ = grown(3)
    del store.objects[version_key(2)]
    sleeper = Sleeper()
    snapshot = open_snapshot(writer(store, sleep=sleeper))
    assert (snapshot.version, live(snapshot)) == (1, files(1))
    assert sleeper.waits_s, "a listing may lag: the missing version is asked for again before it counts as lost"


def test_a_gap_shows_in_verify() -> None:
    store, ctx, snapshot = grown(4)
    assert snapshot.verify() == []
    del store.objects[version_key(2)]
    (found,) = open_snapshot(ctx).verify()
    assert found.source == version_key(2)
    assert "3, 4" in found.actual


def test_versions_behind_a_gap_are_errors_when_they_are_asked_for() -> None:
    store, ctx, _ = grown(3)
    del store.objects[version_key(2)]
    with pytest.raises(MissingCommitError, match=r"commit 2 .* is missing"):
        open_snapshot(ctx, version=3)
    assert open_snapshot(ctx, version=1).version == 1
    assert open_snapshot(ctx, timestamp=NOW_MS).version == 0
    store.modified_ms = {version_key(1): NOW_MS + 5, version_key(3): NOW_MS + 9}
    assert open_snapshot(ctx, timestamp=NOW_MS + 5).version == 1


def test_nothing_is_written_into_a_gap() -> None:
    """A new version 2 would let version 3 count again, on top of what it has never seen."""
    store, ctx, _ = grown(3)
    del store.objects[version_key(2)]
    snapshot = open_snapshot(ctx)
    with pytest.raises(MissingCommitError, match="version 2 is missing"):
        append(snapshot, "new.split")
    assert version_key(2) not in store.objects
    assert snapshot.refresh().version == 1
    del store.objects[version_key(3)]
    assert live(append(snapshot.refresh(), "new.split")) == ["01.split", "new.split"]


def test_a_restored_version_closes_the_gap() -> None:
    store, ctx, _ = grown(3)
    lost = store.objects.pop(version_key(2))
    snapshot = open_snapshot(ctx)
    store.objects[version_key(2)] = lost
    assert live(snapshot.refresh()) == files(3)


def test_a_gap_before_the_checkpoint_does_not_matter() -> None:
    store, ctx, _ = grown(5, EVERY_3)
    del store.objects[version_key(2)]
    assert live(open_snapshot(ctx)) == files(5)
    with pytest.raises(VersionNotFoundError, match="from 3 on"):
        open_snapshot(ctx, version=2)


def test_a_version_that_a_listing_does_not_show_yet_is_no_gap() -> None:
    store, ctx, _ = grown(3)
    store.unlisted.add(version_key(2))
    assert live(open_snapshot(ctx)) == files(3)


# --- conflicts -------------------------------------------------------------------------------------------------


def test_a_writer_that_lost_the_race_takes_the_next_version() -> None:
    store, ctx, snapshot = grown(4)
    first, second = (Transaction(ctx, snapshot) for _ in range(2))
    first.add([split("a.split")])
    second.add([split("b.split")])
    assert first.commit(Operation("WRITE")).version == 5
    committed = second.commit(Operation("WRITE"))
    assert (committed.version, committed.attempts) == (6, 2)
    assert [line["add"]["path"] for line in lines(store, 5) if "add" in line] == ["a.split"]
    assert live(committed.snapshot) == [*files(4), "a.split", "b.split"]


def test_two_overwrites_of_the_same_files_are_a_conflict_with_a_type() -> None:
    _, ctx, snapshot = grown(2)
    loser = Transaction(ctx, snapshot)
    loser.remove([split(path).removed(NOW_MS) for path in live(snapshot)])
    loser.add([split("loser.split")])
    winner = replace_all(snapshot, "winner.split")
    with pytest.raises(ConcurrentDeleteDeleteException, match=r"01\.split") as failure:
        loser.commit(Operation("WRITE"))
    assert failure.value.winner == 3
    assert live(open_snapshot(ctx)) == live(winner) == ["winner.split"]


# --- checkpoints that cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "damaged",
    [b"", b'{"protocol":', b"[]", b'{"metaData":{},"add":[]}', b'{"protocol":{"minReaderVersion":1},"metaData":{}}'],
)
def test_a_damaged_checkpoint_is_passed_over(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store, ctx, _ = grown(7, EVERY_3)
    store.objects[checkpoint_key(6)] = damaged
    with caplog.at_level(logging.WARNING, "headwater.log"):
        snapshot = open_snapshot(ctx)
    assert (snapshot.version, live(snapshot)) == (7, files(7))
    assert snapshot.segment.checkpoint is not None
    assert snapshot.segment.checkpoint.version == 3
    assert "checkpoint 6 is passed over" in caplog.text
    store.objects[checkpoint_key(3)] = damaged
    snapshot = open_snapshot(ctx)
    assert (snapshot.segment.checkpoint, live(snapshot)) == (None, files(7))
    assert [each.source for each in snapshot.verify()] == [checkpoint_key(3), checkpoint_key(6)]


def test_a_checkpoint_with_a_damaged_add_is_passed_over_as_a_whole() -> None:
    store, ctx, _ = grown(7, EVERY_3)
    store.objects[checkpoint_key(6)] = store.objects[checkpoint_key(6)].replace(b'"size":1048576', b'"size":"?"', 1)
    assert live(open_snapshot(ctx)) == files(7)


def test_a_checkpoint_that_the_store_does_not_give_is_passed_over() -> None:
    store, _, _ = grown(7, EVERY_3)
    faulty = FaultyStore(store, script(Fault(RaiseBefore(StorageError("no")), "get*", checkpoint_key(6))))
    assert live(open_snapshot(writer(faulty))) == files(7)


@pytest.mark.parametrize("hint", [b"", b"{}", b'{"version":9}', b'{"version":2,"timestamp":1}', None])
def test_the_hint_may_be_lost_stale_or_wrong(hint: bytes | None) -> None:
    store, ctx, _ = grown(7, EVERY_3)
    store.objects.pop("_transaction_log/_last_checkpoint")
    if hint is not None:
        store.objects["_transaction_log/_last_checkpoint"] = hint
    assert live(open_snapshot(ctx)) == files(7)


def test_nothing_stands_for_a_damaged_checkpoint_whose_versions_are_gone() -> None:
    """An older state must not pass for the newest one."""
    store, ctx, _ = grown(7, EVERY_3)
    for version in (1, 2, 4):
        del store.objects[version_key(version)]
    del store.objects[checkpoint_key(3)]
    assert live(open_snapshot(ctx)) == files(7)
    store.objects[checkpoint_key(6)] = b"{"
    with pytest.raises(CorruptLogError, match="failed to read checkpoint at version 6"):
        open_snapshot(ctx)


def test_a_lost_checkpoint_that_the_hint_still_names_is_not_taken_for_a_gap() -> None:
    store, ctx, _ = grown(7, EVERY_3)
    for version in (1, 2, 4):
        del store.objects[version_key(version)]
    del store.objects[checkpoint_key(3)], store.objects[checkpoint_key(6)]
    with pytest.raises(MissingCommitError, match="commit 1 "):
        open_snapshot(ctx)


def test_a_failed_checkpoint_does_not_fail_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    store, _, _ = grown(2)
    faulty = FaultyStore(store, script(Fault(RaiseBefore(StorageError("full")), "put*", "*.checkpoint.json")))
    ctx = writer(faulty, EVERY_3)
    with caplog.at_level(logging.WARNING, "headwater.log"):
        snapshot = append(open_snapshot(ctx), "03.split")
    assert (snapshot.version, live(snapshot)) == (3, files(3))
    assert "no checkpoint of version 3" in caplog.text
    assert checkpoint_key(3) not in store.objects


def test_verify_tells_a_checkpoint_that_says_something_else_than_the_versions() -> None:
    store, ctx, _ = grown(3, EVERY_3)
    content = json.loads(store.objects[checkpoint_key(3)])
    content["add"].pop()
    content["protocol"]["minReaderVersion"] = 2
    store.objects[checkpoint_key(3)] = json.dumps(content).encode()
    found = {each.field: (each.expected, each.actual) for each in open_snapshot(ctx).verify()}
    assert found["add"] == (files(3), files(2))
    assert "protocol" in found


def test_verify_tells_what_does_not_belong_into_a_version() -> None:
    store, ctx, _ = grown(1)
    extra = {"add": {"path": "early.split", "size": 1, "modificationTime": 0}}
    put_version(store, 0, *lines(store, 0), extra)
    put_version(store, 2, {"metaData": lines(store, 0)[1]["metaData"]})
    found = [(each.source, each.field) for each in open_snapshot(ctx).verify()]
    assert found == [(version_key(0), "actions"), (version_key(2), "metaData")]
    assert live(open_snapshot(ctx)) == ["01.split", "early.split"]


def test_verify_tells_a_hint_that_leads_nowhere() -> None:
    store, ctx, _ = grown(2)
    store.objects["_transaction_log/_last_checkpoint"] = b'{"version":1,"timestamp":5}'
    (found,) = open_snapshot(ctx).verify()
    assert (found.field, found.actual) == ("version", 1)
