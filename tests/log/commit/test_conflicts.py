"""Who is in whose way: for each conflict rule, pairs of a winner and a transaction that comes too late.

The expected outcomes are the rules of the reference implementation, except where statistics or `dataChange=false` show
that there is no conflict; those cases say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headwater.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
    UnsupportedProtocolError,
)
from headwater.log.actions.model import DomainMetadata, Protocol, Txn
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.filters.sql import parse_filter
from headwater.log.opening import open_snapshot
from support.log.commit_tables import METADATA, PROTOCOL, WRITE, add, create, removal, table, vector, writer
from support.log.log_tables import SCHEMA
from support.stores.log_store import DictStore

Step = Callable[[Transaction], None]

A = add("old-a", "a", 0, 99)
B = add("old-b", "b", 100, 199)
C = add("old-c", "b", 200, 299)
FILES = {"a": A, "b": B, "c": C}


# --- what a transaction does ------------------------------------------------------------------------------


def reads(where: str) -> Step:
    return lambda t: t.read_files(parse_filter(where)) and None


def looks_for(where: str) -> Step:
    return lambda t: t.reads_rows_matching(parse_filter(where))


def reads_all(t: Transaction) -> None:
    t.read_files()


def reads_file(name: str) -> Step:
    return lambda t: t.reads_paths([FILES[name].path])


def adds(path: str, part: str = "a", low: int = 0, high: int = 9, **fields: Any) -> Step:
    return lambda t: t.add([add(path, part, low, high, **fields)])


def removes(*names: str, **fields: Any) -> Step:
    return lambda t: t.remove([removal(FILES[name], **fields) for name in names])


def compacts(*names: str, into: str = "compacted") -> Step:
    """The same rows in another file."""

    def step(t: Transaction) -> None:
        t.remove([removal(FILES[name], data_change=False) for name in names])
        t.add([add(into, FILES[names[0]].partition_values["part"], 0, 299, data_change=False, rows=10 * len(names))])

    return step


def readds(name: str, **fields: Any) -> Step:
    """The same file again, with something new about it."""
    return lambda t: t.add([msgspec.structs.replace(FILES[name], data_change=False, **fields)])


def deletes_rows(name: str, by: str) -> Step:
    """A deletion vector on a file."""

    def step(t: Transaction) -> None:
        t.remove([removal(FILES[name])])
        t.add([msgspec.structs.replace(FILES[name], deletion_vector=vector(by))])

    return step


def configures(**fields: Any) -> Step:
    return lambda t: t.set_metadata(msgspec.structs.replace(METADATA, **fields))


def sets(name: str, value: str = "true") -> Step:
    return configures(configuration={name: value})


def upgrades(reader: int = 3, writer: int = 7, *features: str) -> Step:
    names = features if writer == 7 else None
    return lambda t: t.set_protocol(Protocol(reader, writer, names, names))


def records(app_id: str, version: int = 1) -> Step:
    return lambda t: t.record_progress(Txn(app_id, version))


def asks_progress(app_id: str) -> Step:
    return lambda t: t.progress_of(app_id) and None


def sets_domain(name: str, configuration: str = "x") -> Step:
    return lambda t: t.set_domain(DomainMetadata(name, configuration))


def asks_domain(name: str) -> Step:
    return lambda t: t.domain_of(name) and None


# --- the cases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    name: str
    winner: tuple[Step, ...]
    challenger: tuple[Step, ...]
    raises: type[DeltaConcurrentModificationException] | None
    level: str = "Serializable"


def case(
    name: str,
    winner: Step | tuple[Step, ...],
    challenger: Step | tuple[Step, ...],
    raises: type[DeltaConcurrentModificationException] | None = None,
    level: str = "Serializable",
) -> Case:
    return Case(
        name,
        winner if isinstance(winner, tuple) else (winner,),
        challenger if isinstance(challenger, tuple) else (challenger,),
        raises,
        level,
    )


DELETE_A = (reads("part = 'a'"), removes("a"))
UPDATE_B = (reads("id >= 100 and id < 200"), removes("b"), adds("new-b", "b", 100, 199))
OVERWRITE = (reads_all, removes("a", "b", "c"), adds("new"))

NAME_MAPPED = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": type_,
                "nullable": True,
                "metadata": {"delta.columnMapping.id": i, "delta.columnMapping.physicalName": physical},
            }
            for i, (name, type_, physical) in enumerate([("id", "long", "id"), ("part", "string", "part")], 1)
        ],
    }
)
RENAMED = NAME_MAPPED.replace('physicalName": "id"', 'physicalName": "col-1"')
IDENTITY = SCHEMA.replace('"metadata": {}', '"metadata": {"delta.identity.highWaterMark": 7}', 1)
COMMENTED = SCHEMA.replace('"metadata": {}', '"metadata": {"comment": "the key"}', 1)
WIDER = SCHEMA.replace('"long"', '"string"')
MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}

CASES = [
    # --- the matrix that users know
    case("append after append", adds("w"), adds("c")),
    case("append after delete", DELETE_A, adds("c")),
    case("append after overwrite", OVERWRITE, adds("c")),
    case("append after compaction", compacts("b", "c"), adds("c")),
    case("compaction after append into the same partition", adds("w", "b"), compacts("b", "c")),
    case("compaction after append, having read a filter", adds("w", "b"), (reads("part = 'b'"), compacts("b", "c"))),
    case("compaction after delete elsewhere", DELETE_A, compacts("b", "c")),
    case("compaction after delete", removes("b"), compacts("b", "c"), ConcurrentDeleteDeleteException),
    case("compaction after compaction", compacts("b", "c"), compacts("b", "c"), ConcurrentDeleteDeleteException),
    case("delete after compaction of its file", compacts("a"), DELETE_A, ConcurrentDeleteDeleteException),
    case("delete after compaction elsewhere", compacts("b", "c"), DELETE_A),
    case("delete by two columns after append", adds("w", "b"), (reads("id = part"), removes("a")),
         ConcurrentAppendException),
    case("delete by two columns after append elsewhere", adds("w", "b"),
         (reads("id = part and part = 'a'"), removes("a"))),
    # --- rule 1: protocol
    case("append after upgrade", upgrades(3, 7, "deletionVectors"), adds("c")),
    case("upgrade after upgrade", upgrades(1, 3), upgrades(1, 3), ProtocolChangedException),
    case("upgrade after append", adds("w"), upgrades(1, 3)),
    case("append after a lowered version", upgrades(1, 1), adds("c"), ProtocolChangedException),
    # --- rule 2: metadata
    case("append after a new schema", configures(schema_string=WIDER), adds("c"), MetadataChangedException),
    case("append after new partitioning", configures(partition_columns=()), adds("c"), MetadataChangedException),
    case("append after another table's id", configures(id="other"), adds("c"), MetadataChangedException),
    case("append after appendOnly", sets("delta.appendOnly"), adds("c"), MetadataChangedException),
    case("append after a user's property", sets("mine"), adds("c"), MetadataChangedException),
    case("append after another isolation level", sets("delta.isolationLevel", "Serializable"), adds("c"),
         MetadataChangedException),
    case("append after row tracking was enabled", sets("delta.enableRowTracking"), adds("c")),
    case("append after deletion vectors were enabled", sets("delta.enableDeletionVectors"), adds("c")),
    case("append after deletion vectors were disabled", sets("delta.enableDeletionVectors", "false"), adds("c"),
         MetadataChangedException),
    case("append after in-commit timestamps", sets("delta.enableInCommitTimestamps"), adds("c")),
    case("append after another checkpoint policy", sets("delta.checkpointPolicy", "v2"), adds("c")),
    case("append after another checkpoint interval", sets("delta.checkpointInterval", "5"), adds("c")),
    case("append after a new description", configures(description="what it is"), adds("c")),
    case("append after an identity mark", configures(schema_string=IDENTITY), adds("c")),
    case("append after a comment", configures(schema_string=COMMENTED), adds("c")),
    case("append after name mapping with the same names",
         configures(schema_string=NAME_MAPPED, configuration=MAPPING), adds("c")),
    case("append after name mapping with other names",
         configures(schema_string=RENAMED, configuration=MAPPING), adds("c"), MetadataChangedException),
    case("append after id mapping", configures(schema_string=NAME_MAPPED, configuration={
        **MAPPING, "delta.columnMapping.mode": "id"}), adds("c"), MetadataChangedException),
    case("append after mapping ids without the mode", configures(schema_string=NAME_MAPPED), adds("c"),
         MetadataChangedException),
    case("schema after schema", configures(schema_string=WIDER), configures(schema_string=WIDER),
         MetadataChangedException),
    case("schema after a harmless property", sets("delta.checkpointInterval", "5"), configures(schema_string=WIDER),
         MetadataChangedException),
    case("schema after append", adds("w"), configures(schema_string=WIDER)),
    case("delete after a new description", configures(description="what it is"), DELETE_A),
    # --- rule 3: domains
    case("same domain", sets_domain("d"), sets_domain("d"), ConcurrentTransactionException),
    case("other domain", sets_domain("d"), sets_domain("e")),
    case("a domain that was read", sets_domain("d"), (asks_domain("d"), adds("c")), ConcurrentTransactionException),
    case("row tracking's domain", sets_domain("delta.rowTracking", "{}"), sets_domain("delta.rowTracking", "{}")),
    # --- rule 4: applications
    case("an app that was read", records("x"), (asks_progress("x"), adds("c")), ConcurrentTransactionException),
    case("an app that is recorded too", records("x"), (records("x"), adds("c")), ConcurrentTransactionException),
    case("another app", records("x"), (asks_progress("y"), records("y"), adds("c"))),
    case("an app, and no interest in it", records("x"), adds("c")),
    # --- rule 7: added files, by isolation level
    case("added where it read: partition", adds("w", "a"), DELETE_A, ConcurrentAppendException),
    case("added in another partition", adds("w", "b"), DELETE_A),
    case("added where it read: statistics overlap", adds("w", "a", 150, 250), UPDATE_B, ConcurrentAppendException),
    case("statistics rule it out", adds("w", "a", 500, 600), UPDATE_B),
    case("statistics are missing", adds("w", "a", stats=None), UPDATE_B, ConcurrentAppendException),
    case("added, after reading everything", adds("w", "a", 500, 600), OVERWRITE, ConcurrentAppendException),
    case("added, having looked for rows only", adds("w", "a"), (looks_for("part = 'a'"), adds("c")),
         ConcurrentAppendException),
    case("added, having read one file only", adds("w", "a"), (reads_file("a"), adds("c"))),
    case("blind append, WriteSerializable", adds("w", "a"), DELETE_A, None, "WriteSerializable"),
    case("blind append after reading everything, WriteSerializable", adds("w"), OVERWRITE, None, "WriteSerializable"),
    case("not blind, WriteSerializable", (reads("id = 5"), adds("w", "a")), DELETE_A, ConcurrentAppendException,
         "WriteSerializable"),
    case("not blind elsewhere, WriteSerializable", (reads("id = 5"), adds("w", "b")), DELETE_A, None,
         "WriteSerializable"),
    case("snapshot isolation ignores adds", adds("w", "a"), DELETE_A, None, "SnapshotIsolation"),
    case("moved rows were there before", compacts("b", "c", into="b-and-c"), (reads("id = 150"), adds("c"))),
    # --- rule 8: files that were read
    case("removed a file that was read", removes("b"), (reads("id = 150"), adds("c")), ConcurrentDeleteReadException),
    case("removed a file by path", removes("b"), (reads_file("b"), adds("c")), ConcurrentDeleteReadException),
    case("removed another file", removes("a"), (reads("id = 150"), adds("c"))),
    case("removed anything, after reading everything", removes("c"), (reads_all, adds("c")),
         ConcurrentDeleteReadException),
    case("removed rows that were looked for", removes("b"), (looks_for("id = 150"), adds("c")),
         ConcurrentDeleteReadException),
    case("removed rows that were not looked for", removes("a"), (looks_for("id = 150"), adds("c"))),
    case("removed a file of unknown content, having looked for rows",
         removes("a", partition_values=None, extended_file_metadata=None), (looks_for("id = 150"), adds("c")),
         ConcurrentDeleteReadException),
    case("a deletion vector on a file that was read", deletes_rows("b", "v"), (reads_file("b"), adds("c")),
         ConcurrentDeleteReadException),
    case("removed, WriteSerializable", removes("b"), (reads("id = 150"), adds("c")), ConcurrentDeleteReadException,
         "WriteSerializable"),
    case("removed, read by a compaction of other files", removes("a"), (reads_all, compacts("b", "c"))),
    # --- rule 9: the same files
    case("both removed it", removes("a"), removes("a"), ConcurrentDeleteDeleteException),
    case("removed different files", removes("a"), removes("b")),
    case("both put a deletion vector on it", deletes_rows("b", "v"), deletes_rows("b", "w"),
         ConcurrentDeleteDeleteException),
    case("both removed it, snapshot isolation", removes("a"), removes("a"), ConcurrentDeleteDeleteException,
         "SnapshotIsolation"),
    # --- rule 11: files that are added again
    case("added again after it was removed", removes("a"), readds("a", base_row_id=5), ConcurrentDeleteReadException),
    case("added again by both", readds("a", base_row_id=0), readds("a", base_row_id=9), ConcurrentAppendException),
    case("added again elsewhere", readds("a", base_row_id=0), readds("b", base_row_id=9)),
    case("removed after it was added again", readds("a", base_row_id=0), DELETE_A),
]  # fmt: skip


def run(name: str, steps: tuple[Step, ...], transaction: Transaction) -> Callable[..., Any]:
    for step in steps:
        step(transaction)
    return lambda **more: transaction.commit(Operation(name), **more)


@pytest.mark.parametrize("given", CASES, ids=lambda c: c.name)
def test_rule(given: Case) -> None:
    store, ctx, read = table(A, B, C)
    challenger = run("CHALLENGER", given.challenger, Transaction(writer(store), read))
    won = run("WINNER", given.winner, Transaction(ctx, read))()

    if given.raises is None:
        committed = challenger(isolation=None if given.level == "Serializable" else given.level)
        assert (committed.version, committed.attempts) == (won.version + 1, 2)
        assert open_snapshot(ctx).verify() == []
    else:
        with pytest.raises(given.raises) as raised:
            challenger(isolation=None if given.level == "Serializable" else given.level)
        assert type(raised.value) is given.raises
        assert raised.value.winner == won.version
        assert "version 1 (WINNER)" in str(raised.value)
        assert store.uri in str(raised.value)
        assert f"_delta_log/{2:020d}.json" not in store.objects


def test_all_kinds_of_conflict_are_one_kind_of_error() -> None:
    kinds = {given.raises for given in CASES if given.raises} | {ConcurrentWriteException}
    assert len(kinds) == 7
    assert all(issubclass(kind, DeltaConcurrentModificationException) for kind in kinds)


def test_the_table_decides_about_the_isolation_level() -> None:
    relaxed = msgspec.structs.replace(METADATA, configuration={"delta.isolationLevel": "WriteSerializable"})
    for metadata, expected in ((METADATA, ConcurrentAppendException), (relaxed, None)):
        store, ctx, read = table(A, metadata=metadata)
        challenger = run("DELETE", DELETE_A, Transaction(writer(store), read))
        run("WRITE", (adds("w", "a"),), Transaction(ctx, read))()
        if expected is None:
            assert challenger().version == 2
        else:
            with pytest.raises(expected):
                challenger()


def test_every_winner_is_checked_not_only_the_last() -> None:
    store, ctx, read = table(A, B)
    challenger = run("DELETE", DELETE_A, Transaction(writer(store), read))
    table_now = run("WRITE", (adds("w1", "b"),), Transaction(ctx, read))().snapshot
    table_now = run("WRITE", (adds("w2", "a"),), Transaction(ctx, table_now))().snapshot
    run("WRITE", (adds("w3", "b"),), Transaction(ctx, table_now))()

    with pytest.raises(ConcurrentAppendException, match="w2") as raised:
        challenger()
    assert raised.value.winner == 2


def test_rows_that_were_moved_and_then_removed_were_read_all_the_same() -> None:
    store, ctx, read = table(A, B, C)
    challenger = run("INSERT", (reads("id = 150"), adds("c", "c")), Transaction(writer(store), read))
    moved = run("OPTIMIZE", (compacts("b", "c", into="moved"),), Transaction(ctx, read))().snapshot
    delete = Transaction(ctx, moved)
    delete.remove([removal(add("moved", "b", 100, 299))])
    delete.commit(Operation("DELETE"))

    with pytest.raises(ConcurrentDeleteReadException, match="moved") as raised:
        challenger()
    assert raised.value.winner == 2


def test_a_winner_that_drops_a_feature() -> None:
    features = ("deletionVectors", "domainMetadata")
    store, ctx, read = table(A, protocol=Protocol(3, 7, ("deletionVectors",), features))
    challenger = run("WRITE", (adds("c"),), Transaction(writer(store), read))
    run("DROP FEATURE", (upgrades(3, 7, "deletionVectors"),), Transaction(ctx, read))()

    with pytest.raises(ProtocolChangedException, match="domainMetadata"):
        challenger()


def test_a_winner_that_needs_more_than_we_can_write() -> None:
    def only_legacy(configuration: TableConfiguration) -> None:
        if configuration.protocol.min_writer_version > 2:
            raise UnsupportedProtocolError("too new")

    store, ctx, read = table(A)
    late = Transaction(writer(store, check_writable=only_legacy), read)
    late.add([add("c")])
    run("UPGRADE", (upgrades(1, 3),), Transaction(ctx, read))()

    with pytest.raises(UnsupportedProtocolError, match="too new"):
        late.commit(WRITE)


@pytest.mark.parametrize("said", [{}, {"isBlindAppend": "yes"}, {"isBlindAppend": False}])
def test_a_winner_that_does_not_say_that_it_read_nothing_may_have_read(said: dict[str, Any]) -> None:
    store, _, read = table(A)
    challenger = run("DELETE", DELETE_A, Transaction(writer(store), read))
    info = {"commitInfo": {"operation": "WRITE", **said}}
    new = {"add": {"path": "w", "partitionValues": {"part": "a"}, "size": 1, "modificationTime": 1, "dataChange": True}}
    store.put_if_absent(f"_delta_log/{1:020d}.json", "\n".join(map(json.dumps, [info, new])).encode())

    with pytest.raises(ConcurrentAppendException):
        challenger(isolation="WriteSerializable")


def test_two_who_create_the_same_table() -> None:
    store = DictStore()
    first, second = writer(store), writer(store)
    late = Transaction(second, None)
    late.set_protocol(PROTOCOL)
    late.set_metadata(METADATA)
    create(first)

    with pytest.raises(ConcurrentWriteException, match="another writer") as raised:
        late.commit(Operation("CREATE TABLE"))
    assert raised.value.winner == 0
