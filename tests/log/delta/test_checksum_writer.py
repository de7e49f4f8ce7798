"""Version checksums that we write: right, complete, incremental, never overwritten (spec: "Version Checksum File")."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DeltaConcurrentModificationException, InvalidCommitError
from headwater.log.actions.model import DeletionVector, DomainMetadata, Protocol, Txn
from headwater.log.commit.draft import Attempt, Draft, Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.delta import checksum as checksum_writer
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.delta.checksum import count_files
from headwater.log.opening import open_snapshot
from support.log.commit_tables import METADATA, WRITE, add, append, commit_lines, create, removal, table, vector, writer
from support.log.log_tables import add as add_line
from support.log.log_tables import commit_info, put_classic, put_commit
from support.log.log_tables import remove as remove_line
from support.log.log_tables import vector as vector_fields
from support.log_settings import LONG, examined
from support.stores.faults import FaultyStore
from support.stores.log_store import DictStore

FEATURES = Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "domainMetadata", "inCommitTimestamp"))
TIMED = msgspec.structs.replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"})


def checksum(store: DictStore, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.objects[f"_delta_log/{version:020d}.crc"])
    return found


def in_commit_timestamp(draft: Draft, attempt: Attempt) -> Draft:
    return replace(draft, commit_info={"inCommitTimestamp": attempt.now_ms})


def test_every_field_of_a_new_table() -> None:
    store = DictStore()
    ctx = writer(store, commit_rules=(in_commit_timestamp,))
    files = [add("small", size=10), add("large", size=10_000, deletion_vector=vector("v", 12))]
    transaction = Transaction(ctx, None)
    transaction.set_protocol(FEATURES)
    transaction.set_metadata(TIMED)
    transaction.add(files)
    transaction.record_progress(Txn("app", 3, 4))
    transaction.set_domain(DomainMetadata("d", "{}"))
    transaction.commit(Operation("CREATE TABLE AS SELECT"))

    found = checksum(store, 0)

    sizes = found.pop("fileSizeHistogram")
    info, protocol, metadata, *_ = commit_lines(store, 0)
    assert found == {
        "txnId": transaction.id,
        "tableSizeBytes": 10_010,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": info["commitInfo"]["inCommitTimestamp"],
        "setTransactions": [{"appId": "app", "version": 3, "lastUpdated": 4}],
        "domainMetadata": [{"domain": "d", "configuration": "{}", "removed": False}],
        "metadata": metadata["metaData"],
        "protocol": protocol["protocol"],
        "numDeletedRecordsOpt": 12,
        "numDeletionVectorsOpt": 1,
        "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [1, 0, 1, 0, 0, 0, 0, 0, 0, 0]},
    }
    starts = sizes["sortedBinBoundaries"]
    assert starts[:3] == [0, 8_192, 16_384]
    assert starts == sorted(set(starts))
    assert sizes["fileCounts"] == [1, 1, *[0] * (len(starts) - 2)]
    assert sizes["totalBytes"] == [10, 10_000, *[0] * (len(starts) - 2)]
    assert open_snapshot(ctx).verify() == []


def test_fields_of_features_that_are_off_are_left_out() -> None:
    store, _, _ = table()
    assert "inCommitTimestampOpt" not in checksum(store, 0)
    assert "allFiles" not in checksum(store, 0)


# --- one after the other -----------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "delete", "vector", "compact", "txn", "domain", "drop domain", "readd", "empty"]),
        st.integers(0, 40_000),
        st.sampled_from(["memory", "store", "files", "lost race"]),
    ),
    max_size=12,
)


@given(STEPS)
@examined
def test_every_version_agrees_with_its_checksum(steps: list[tuple[str, int, str]]) -> None:
    store = DictStore()
    ctx = writer(store)
    now = create(ctx, add("first"), protocol=FEATURES)
    live = {"first": add("first")}
    for number, (what, size, known) in enumerate(steps):
        if known == "store":
            now = open_snapshot(ctx)
        elif known == "files":
            store.objects.pop(f"_delta_log/{now.version:020d}.crc", None)
            now = open_snapshot(ctx)
        transaction = Transaction(ctx, now)
        if known == "lost race":
            append(ctx, now, add(f"rival{number}", size=size))
        step(transaction, what, f"f{number}", size, live)
        now = transaction.commit(WRITE).snapshot
        assert f"_delta_log/{now.version:020d}.crc" in store.objects
        assert now.verify() == []
        assert open_snapshot(ctx).verify() == []


def step(transaction: Transaction, what: str, path: str, size: int, live: dict[str, Any]) -> None:
    first = next(iter(live.values()), None)
    if what == "append" or (first is None and what in ("delete", "vector", "compact", "readd")):
        live[path] = add(path, size=size)
        transaction.add([live[path]])
    elif what == "delete":
        transaction.remove([removal(live.pop(first.path))])
    elif what == "vector":
        transaction.remove([removal(first)])
        live[first.path] = msgspec.structs.replace(first, deletion_vector=vector(path, size % 10))
        transaction.add([live[first.path]])
    elif what == "compact":
        transaction.remove([removal(file, data_change=False) for file in live.values()])
        rows = sum(10 - (f.deletion_vector.cardinality if f.deletion_vector else 0) for f in live.values())
        live.clear()
        live[path] = add(path, size=size, rows=rows, data_change=False)
        transaction.add([live[path]])
        live[path] = add(path, size=size)
    elif what == "readd":
        live[first.path] = msgspec.structs.replace(first, size=size)
        transaction.add([msgspec.structs.replace(live[first.path], data_change=False)])
    elif what == "txn":
        transaction.record_progress(Txn(f"app{size % 3}", size))
    elif what in ("domain", "drop domain"):
        transaction.set_domain(DomainMetadata(f"d{size % 2}", path, removed=what == "drop domain"))


# --- among commits of others ---------------------------------------------------------------------------------

FOREIGN_ACTION = st.tuples(
    st.sampled_from(["add", "remove", "add", "remove", "remove without size"]),
    st.sampled_from(["f0", "f1", "f2"]),
    st.sampled_from([None, None, "v1", "v2"]),
    st.integers(0, 40_000),
    st.sampled_from([True, True, True, False]),
)
FOREIGN = st.tuples(st.just("theirs"), st.lists(FOREIGN_ACTION, min_size=1, max_size=2))
OURS = st.tuples(
    st.just("ours"),
    st.sampled_from(["append", "append", "append", "delete", "vector", "readd", "checkpoint", "reopen", "refresh"]),
)


@given(st.lists(st.one_of(FOREIGN, OURS), min_size=2, max_size=16))
@settings(examined, max_examples=2_000 if LONG else 120)
def test_a_checksum_is_right_whatever_others_add_again_or_remove_twice(steps: list[tuple[str, Any]]) -> None:
    store = DictStore()
    ctx = writer(store)
    now = create(ctx, *(add(f"f{number}") for number in range(2)), protocol=FEATURES)
    for number, (who, what) in enumerate(steps):
        newest = max(int(key[11:31]) for key in store.objects if key.endswith(".json"))
        if who == "theirs":
            put_commit(store, newest + 1, commit_info(txnId=f"t{number}"), *_lines_of(what))
        elif what == "checkpoint":
            now = write_checkpoint(open_snapshot(ctx))
        elif what in ("reopen", "refresh"):
            now = open_snapshot(ctx) if what == "reopen" else now.refresh()
        else:
            with suppress(DeltaConcurrentModificationException, InvalidCommitError):
                now = _change(ctx, now, what, number)
                assert _counted(checksum(store, now.version)) == _replayed(store, now.version)


def _lines_of(actions: list[tuple[str, str, str | None, int, bool]]) -> list[Any]:
    """The actions of a commit, at most one for each logical file."""
    found = {}
    for kind, path, name, size, change in actions:
        more: dict[str, Any] = {} if name is None else {"deletionVector": vector_fields(name, cardinality=size % 50)}
        if kind == "remove":
            more["size"] = size
        line = add_line(path, size, **more) if kind == "add" else remove_line(path, **more)
        line["add" if kind == "add" else "remove"]["dataChange"] = change
        found[path, name] = line
    return list(found.values())


def _change(ctx: Any, now: Any, what: str, number: int) -> Any:
    transaction = Transaction(ctx, now)
    rows = now.files(columns=["path", "size", "deletionVector"]).to_pylist()
    if what == "append" or not rows:
        transaction.add([add(f"new{number}", size=number * 1_000)])
        return transaction.commit(WRITE).snapshot
    row = rows[number % len(rows)]
    held = row["deletionVector"]
    old = add(
        row["path"],
        size=row["size"],
        deletion_vector=held and DeletionVector(*(held[name] for name in _VECTOR_FIELDS)),
    )
    if what == "readd":
        transaction.add([msgspec.structs.replace(old, size=old.size + 1, data_change=False)])
    else:
        transaction.remove([removal(old)])
        if what == "vector":
            transaction.add([msgspec.structs.replace(old, deletion_vector=vector(f"w{number}", number % 10))])
    return transaction.commit(WRITE).snapshot


_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality", "offset")


def _replayed(store: DictStore, version: int) -> dict[str, Any]:
    """What the numbers of a checksum must be, by a replay of all commits as the protocol spells it out."""
    live: dict[tuple[str, str | None], dict[str, Any]] = {}
    for number in range(version + 1):
        for line in commit_lines(store, number):
            action = line.get("add") or line.get("remove")
            if action is None:
                continue
            held = action.get("deletionVector")
            key = action["path"], held and held["pathOrInlineDv"]
            live.pop(key, None)
            if "add" in line:
                live[key] = action
    deleted = [file["deletionVector"]["cardinality"] for file in live.values() if file.get("deletionVector")]
    return {
        "numFiles": len(live),
        "tableSizeBytes": sum(file["size"] for file in live.values()),
        "histogram": (len(live), sum(file["size"] for file in live.values())),
        "numDeletionVectorsOpt": len(deleted),
        "numDeletedRecordsOpt": sum(deleted),
    }


def _counted(found: dict[str, Any]) -> dict[str, Any]:
    histogram = found["fileSizeHistogram"]
    numbers = ("numFiles", "tableSizeBytes", "numDeletionVectorsOpt", "numDeletedRecordsOpt")
    return {
        **{name: found[name] for name in numbers},
        "histogram": (sum(histogram["fileCounts"]), sum(histogram["totalBytes"])),
    }


@pytest.mark.parametrize("change", [True, False])
def test_a_live_file_that_another_writer_adds_again_counts_once(change: bool) -> None:
    store, ctx, read = table(add("f", size=1_000))
    put_commit(store, 1, commit_info(txnId="x"), add_line("f", 70, dataChange=change))
    now = append(ctx, read.refresh(), add("late", size=5)).snapshot
    assert (checksum(store, 2)["numFiles"], checksum(store, 2)["tableSizeBytes"]) == (2, 75)
    assert now.verify() == []


def test_a_file_that_is_not_live_and_that_another_writer_removes_is_not_counted() -> None:
    store, ctx, read = table(add("f", size=1_000))
    put_commit(store, 1, commit_info(txnId="x"), remove_line("ghost", size=10))
    append(ctx, read.refresh(), add("late", size=5))
    assert (checksum(store, 2)["numFiles"], checksum(store, 2)["tableSizeBytes"]) == (2, 1_005)


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose files were counted."""
    counted: list[int] = []
    count_files = checksum_writer.count_files

    def recording(snapshot: Any) -> Any:
        counted.append(snapshot.version)
        return count_files(snapshot)

    monkeypatch.setattr(checksum_writer, "count_files", recording)
    return counted


def test_files_are_not_counted_by_the_writer_of_the_version_before(counting: list[int]) -> None:
    _, ctx, now = table(add("f"))
    for number in range(5):
        now = append(ctx, now, add(f"f{number}")).snapshot
    assert counting == []


def test_files_are_not_counted_after_a_lost_race(counting: list[int]) -> None:
    store, ctx, now = table(add("f"))
    rival = append(ctx, now, add("w1")).snapshot
    append(ctx, rival, add("w2"))
    del store.objects[f"_delta_log/{2:020d}.crc"]
    after = append(ctx, now, add("late")).snapshot
    assert (after.version, after.verify(), counting) == (3, [], [])


def test_a_new_process_goes_on_from_the_checksum_in_the_store(counting: list[int]) -> None:
    store, _, _ = table(add("f"))
    faulty = FaultyStore(store)
    ctx = writer(faulty)
    now = append(ctx, open_snapshot(ctx), add("g")).snapshot
    assert (now.verify(), counting) == ([], [])


def test_a_missing_checksum_is_skipped_for_the_one_before_it(counting: list[int]) -> None:
    store, ctx, now = table(add("f"))
    append(ctx, now, add("g"))
    del store.objects[f"_delta_log/{1:020d}.crc"]
    now = append(ctx, open_snapshot(ctx), add("h")).snapshot
    assert (now.verify(), counting) == ([], [])


def test_files_are_counted_once_where_nobody_writes_checksums(counting: list[int]) -> None:
    store, ctx, now = table(add("f"))
    del store.objects[f"_delta_log/{0:020d}.crc"]
    now = open_snapshot(ctx)
    for number in range(4):
        now = append(ctx, now, add(f"f{number}")).snapshot
    assert (now.verify(), counting) == ([], [1])


def test_a_checksum_behind_a_checkpoint_is_gone_on_from(counting: list[int]) -> None:
    store, ctx, _ = table(add("f"))
    put_classic(store, 0, [line for line in commit_lines(store, 0) if "commitInfo" not in line])
    now = open_snapshot(ctx)
    assert now.commits == ()
    now = append(ctx, now, add("g")).snapshot
    assert (now.verify(), counting) == ([], [])


# --- other writers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda crc: {**crc, "txnId": "somebody else's"},
        lambda crc: {key: value for key, value in crc.items() if key != "txnId"},
        lambda crc: {key: value for key, value in crc.items() if key != "numFiles"},
        lambda _crc: "not an object",
        lambda crc: {**crc, "numFiles": "many"},
    ],
)
def test_a_checksum_that_cannot_be_believed_is_not_gone_on_from(damage: Any, counting: list[int]) -> None:
    store, ctx, _ = table(add("f"))
    key = f"_delta_log/{0:020d}.crc"
    store.objects[key] = json.dumps(damage({**checksum(store, 0), "tableSizeBytes": 5})).encode()
    now = append(ctx, open_snapshot(ctx), add("g")).snapshot
    assert (now.verify(), counting) == ([], [1])


def test_a_checksum_without_transaction_belongs_to_a_commit_without_one(counting: list[int]) -> None:
    """`txnId` is optional in both; where neither has one, nothing speaks against the checksum."""
    store, ctx, _ = table(add("f"))
    lines = [line for line in commit_lines(store, 0) if "commitInfo" not in line]
    put_commit(store, 0, {"commitInfo": {"operation": "WRITE"}}, *lines)
    crc = {key: value for key, value in checksum(store, 0).items() if key != "txnId"}
    store.objects[f"_delta_log/{0:020d}.crc"] = json.dumps(crc).encode()
    now = append(ctx, open_snapshot(ctx), add("g")).snapshot
    assert (now.verify(), counting) == ([], [])


FILES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 20_000), st.integers(0, 2**39), st.sampled_from([8_191, 8_192, 16_384, 2**38])),
        st.one_of(st.none(), st.integers(0, 12), st.sampled_from([9, 10, 99, 100, 2**31 - 2, 2**31 - 1, 2**40])),
    ),
    max_size=30,
)


@given(FILES)
def test_files_are_counted_by_the_bins_of_the_spec(files: list[tuple[int, int | None]]) -> None:
    store = DictStore()
    adds = [
        add(f"f{n}", size=size, rows=2**41, deletion_vector=None if deleted is None else vector(f"v{n}", deleted))
        for n, (size, deleted) in enumerate(files)
    ]
    found = count_files(create(writer(store), *adds, protocol=FEATURES))
    vectors = [deleted for _, deleted in files if deleted is not None]
    assert (found.num_files, found.table_size_bytes) == (len(files), sum(size for size, _ in files))
    assert (found.num_deletion_vectors_opt, found.num_deleted_records_opt) == (len(vectors), sum(vectors))
    starts = [0, *(2**n for n in range(13, 39))]
    bins = [[size for size, _ in files if low <= size < high] for low, high in pairwise([*starts, 2**64])]
    assert found.file_size_histogram is not None
    assert found.file_size_histogram.file_counts == list(map(len, bins))
    assert found.file_size_histogram.total_bytes == list(map(sum, bins))
    # [0, 0], [1, 9], [10, 99], ..., [10000000, 2147483646], [2147483647, inf)
    ends = [1, *(10**n for n in range(1, 8)), 2**31 - 1, 2**64]
    counts = [deleted or 0 for _, deleted in files]
    assert found.deleted_record_counts_histogram_opt is not None
    assert found.deleted_record_counts_histogram_opt.deleted_record_counts == [
        sum(low <= count < high for count in counts) for low, high in pairwise([0, *ends])
    ]


def test_another_writers_histogram_keeps_its_bins() -> None:
    store, ctx, _ = table(add("f", size=5))
    crc = checksum(store, 0)
    crc["fileSizeHistogram"] = {"sortedBinBoundaries": [0, 100], "fileCounts": [1, 0], "totalBytes": [5, 0]}
    store.objects[f"_delta_log/{0:020d}.crc"] = json.dumps(crc).encode()
    now = append(ctx, open_snapshot(ctx), add("g", size=500)).snapshot
    assert checksum(store, 1)["fileSizeHistogram"] == {
        "sortedBinBoundaries": [0, 100],
        "fileCounts": [1, 1],
        "totalBytes": [5, 500],
    }
    assert now.verify() == []


@pytest.mark.parametrize(
    "broken",
    [
        {"sortedBinBoundaries": [], "fileCounts": [], "totalBytes": []},
        {"sortedBinBoundaries": [5, 9], "fileCounts": [1, 0], "totalBytes": [5, 0]},
        {"sortedBinBoundaries": [0, 9], "fileCounts": [1], "totalBytes": [5, 0]},
    ],
)
def test_a_broken_histogram_of_another_writer_is_left_out(broken: Any) -> None:
    store, ctx, _ = table(add("f", size=5))
    deletions = {"deletedRecordCounts": []}
    crc = {**checksum(store, 0), "fileSizeHistogram": broken, "deletedRecordCountsHistogramOpt": deletions}
    store.objects[f"_delta_log/{0:020d}.crc"] = json.dumps(crc).encode()
    now = append(ctx, open_snapshot(ctx), add("g")).snapshot
    assert "fileSizeHistogram" not in checksum(store, 1)
    assert "deletedRecordCountsHistogramOpt" not in checksum(store, 1)
    assert now.verify() == []


def test_a_winner_whose_tombstones_have_no_size(counting: list[int]) -> None:
    store, ctx, read = table(add("f"), add("g"))
    put_commit(store, 1, commit_info(txnId="x"), remove_line("f"), add_line("h", 7))
    now = append(ctx, read, add("late")).snapshot
    assert (now.verify(), now.num_files, counting) == ([], 3, [])


def test_a_winner_that_added_a_file_again(counting: list[int]) -> None:
    store, ctx, read = table(add("f"))
    put_commit(store, 1, commit_info(txnId="x"), add_line("f", 7, dataChange=False))
    now = append(ctx, read, add("late")).snapshot
    assert (now.verify(), now.num_files, counting) == ([], 2, [])


def test_a_checksum_that_leads_to_impossible_numbers_was_wrong(counting: list[int]) -> None:
    store, ctx, _ = table(add("f"), add("g"))
    store.objects[f"_delta_log/{0:020d}.crc"] = json.dumps({**checksum(store, 0), "numFiles": 0}).encode()
    transaction = Transaction(ctx, open_snapshot(ctx))
    transaction.remove([removal(add("f"))])
    assert transaction.commit(Operation("DELETE")).snapshot.verify() == []
    assert counting == [1]


def test_a_checksum_is_never_overwritten() -> None:
    store, ctx, now = table()
    store.objects[f"_delta_log/{1:020d}.crc"] = b"somebody was faster"
    append(ctx, now, add("f"))
    assert store.objects[f"_delta_log/{1:020d}.crc"] == b"somebody was faster"


def test_the_checksum_comes_after_the_commit() -> None:
    store, _, read = table()
    faulty = FaultyStore(store)
    append(writer(faulty), replace(read, ctx=writer(faulty)), add("f"))
    written = [call.key[-9:] for call in faulty.calls if call.operation == "put_if_absent"]
    assert written == ["0001.json", "00001.crc"]


def test_long_lists_of_transactions_are_left_out() -> None:
    store, ctx, now = table()
    transaction = Transaction(ctx, now)
    for number in range(101):
        transaction.record_progress(Txn(f"app{number}", 1))
    now = transaction.commit(WRITE).snapshot
    assert "setTransactions" not in checksum(store, 1)
    assert checksum(store, 1)["domainMetadata"] == []
    assert now.verify() == []


def test_transactions_are_carried_along_without_reading_the_checkpoint() -> None:
    store = DictStore()
    ctx = writer(store)
    transaction = Transaction(ctx, create(ctx))
    transaction.record_progress(Txn("app", 3))
    transaction.commit(WRITE)
    lines = [line for v in (0, 1) for line in commit_lines(store, v) if "commitInfo" not in line]
    put_classic(store, 1, lines)
    append(ctx, open_snapshot(ctx), add("f"))
    assert checksum(store, 2)["setTransactions"] == [{"appId": "app", "version": 3}]
    assert open_snapshot(ctx).verify() == []
