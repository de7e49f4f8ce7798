"""Checkpoints as they are written: what is in them by the spec, what readers make of them, and what failures leave."""

from __future__ import annotations

import io
import json
import logging
import uuid
from functools import cache
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater.log.delta.checkpoint.rows as checkpoint_rows
from headwater.errors import CorruptLogError, StorageError
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.delta.dialect import DELTA
from headwater.log.opening import open_snapshot
from headwater.log.segment import json_checksum
from headwater.log.snapshot import Snapshot
from support.log.checkpoint_states import NO_JSON, STRUCT, V2, reopened, state
from support.log.commit_tables import writer
from support.log.log_tables import (
    LOG,
    add,
    commit_info,
    domain,
    features,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_hint,
    put_v2,
    remove,
    txn,
    vector,
)
from support.oracles.log_model import Action
from support.stores.faults import (
    CrashAfter,
    CrashBefore,
    Fault,
    FaultyStore,
    RaiseAfter,
    RaiseBefore,
    SimulatedCrash,
    Truncate,
    script,
)
from support.stores.log_store import NOW_MS, DictStore

NUMBERS = count(1)
DAY_MS = 86_400_000
V1_NAME = f"{LOG}{1:020d}.checkpoint.parquet"
RECENT = NOW_MS - DAY_MS
ADD_FIELDS = [
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
]


def table(*commits: list[Action], **fields: Any) -> tuple[DictStore, Snapshot]:
    """A table with these commits, and the newest of its snapshots."""
    store = DictStore()
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
    return store, opened(store, **fields)


def opened(store: Any, **fields: Any) -> Snapshot:
    ids = {"new_id": lambda: str(uuid.UUID(int=next(NUMBERS)))}
    return open_snapshot(writer(store, **{**ids, **fields}))


def everything(properties: dict[str, str] | None = None, *names: str) -> list[list[Action]]:
    """Commits with actions of every kind."""
    return [
        [
            commit_info(),
            features("deletionVectors", "v2Checkpoint", *names),
            metadata(properties or {}, name="n", createdTime=7, partitionColumns=["part"]),
            add("f0", 10, stats='{"numRecords":3}', partitionValues={"part": "b"}, tags={"t": "1", "u": None}),
            add("f1", 20, partitionValues={"part": None}),
            domain("d", "x"),
            domain("gone", "y"),
            txn("app", 1, lastUpdated=5),
        ],
        [
            commit_info(),
            add("f2", 30, baseRowId=5, defaultRowCommitVersion=1, clusteringProvider="liquid", dataChange=False),
            {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}},
            add("f0", 10, deletionVector=vector("v", 4)),
            remove("f0", deletionTimestamp=RECENT, extendedFileMetadata=True, partitionValues={"part": "b"}, size=10),
            remove("f1", deletionTimestamp=NOW_MS - 8 * DAY_MS, stats="{}", tags={"a": "b"}),
            domain("gone", "y", removed=True),
            txn("app", 2, lastUpdated=RECENT),
            txn("ageless", 1),
        ],
    ]


def rows(store: DictStore, key: str) -> list[dict[str, Any]]:
    """The rows of a Parquet file, without what is null."""
    found = pq.read_table(io.BytesIO(store.objects[key])).to_pylist(maps_as_pydicts="strict")
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def schema(store: DictStore, key: str = V1_NAME) -> pa.Schema:
    return pq.read_schema(io.BytesIO(store.objects[key]))


def hint(store: DictStore) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.objects[f"{LOG}_last_checkpoint"])
    return found


# --- contents -----------------------------------------------------------------------------------------


def test_every_row_of_a_v1_checkpoint_is_one_action_and_no_action_is_missing() -> None:
    store, snapshot = table(*everything())
    write_checkpoint(snapshot)
    found = rows(store, V1_NAME)
    assert all(len(row) == 1 for row in found)
    by_kind: dict[str, list[Any]] = {}
    for row in found:
        for kind, action in row.items():
            by_kind.setdefault(kind, []).append({k: v for k, v in action.items() if v is not None})
    assert by_kind.pop("protocol") == [
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors", "v2Checkpoint"],
            "writerFeatures": ["deletionVectors", "v2Checkpoint"],
        }
    ]
    assert by_kind.pop("metaData") == [everything()[0][2]["metaData"]]
    assert by_kind.pop("txn") == [
        {"appId": "app", "version": 2, "lastUpdated": RECENT},
        {"appId": "ageless", "version": 1},
    ]
    assert by_kind.pop("domainMetadata") == [{"domain": "d", "configuration": "x", "removed": False}]
    assert by_kind.pop("remove") == [
        {
            "path": "f0",
            "deletionTimestamp": RECENT,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {"part": "b"},
            "size": 10,
        }
    ]
    expected = [everything()[1][1]["add"], everything()[1][3]["add"]]
    assert sorted(by_kind.pop("add"), key=lambda a: a["path"]) == sorted(expected, key=lambda a: a["path"])
    assert by_kind == {}


def test_the_schema_of_a_v1_checkpoint_is_that_of_the_spec() -> None:
    store, snapshot = table(*everything())
    write_checkpoint(snapshot)
    found = schema(store)
    assert found.names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    assert [field.name for field in found.field("add").type] == ADD_FIELDS
    assert not {"stats", "tags"} & {field.name for field in found.field("remove").type}
    assert found.field("protocol").type.field("minReaderVersion").type == pa.int32()
    assert found.field("add").type.field("partitionValues").type == pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("written", "reader", "writer_features"),
    [
        (protocol(1, 2), None, None),
        (protocol(2, 5), None, None),
        (protocol(1, 7, writerFeatures=["appendOnly"]), None, ["appendOnly"]),
        (protocol(2, 7, writerFeatures=["columnMapping"]), None, ["columnMapping"]),
        (protocol(3, 7, readerFeatures=[], writerFeatures=[]), [], []),
    ],
)
def test_feature_lists_are_there_exactly_if_the_versions_demand_them(
    written: Action, reader: list[str] | None, writer_features: list[str] | None
) -> None:
    store, snapshot = table([written, metadata()])
    write_checkpoint(snapshot)
    [found] = [row["protocol"] for row in rows(store, f"{LOG}{0:020d}.checkpoint.parquet") if "protocol" in row]
    assert (found["readerFeatures"], found["writerFeatures"]) == (reader, writer_features)
    assert reopened(store).protocol == snapshot.protocol


def test_transactions_expire_when_the_table_says_so_and_ageless_ones_do_not() -> None:
    commits = everything({"delta.setTransactionRetentionDuration": "interval 2 days"})
    commits[1].append(txn("old", 9, lastUpdated=NOW_MS - 3 * DAY_MS))
    store, snapshot = table(*commits)
    rebased = write_checkpoint(snapshot)
    assert reopened(store).app_transactions == rebased.app_transactions == {"app": 2, "ageless": 1}


def test_tombstones_are_kept_as_long_as_the_table_keeps_removed_files() -> None:
    store, snapshot = table(*everything({"delta.deletedFileRetentionDuration": "interval 30 days"}))
    write_checkpoint(snapshot)
    assert sorted(row["remove"]["path"] for row in rows(store, V1_NAME) if "remove" in row) == ["f0", "f1"]


def test_a_table_without_files_has_a_checkpoint_too() -> None:
    store, snapshot = table([protocol(), metadata()], [commit_info()])
    write_checkpoint(snapshot)
    assert [set(row) for row in rows(store, V1_NAME)] == [{"protocol"}, {"metaData"}]
    assert state(reopened(store)) == state(snapshot)


# --- the hint ------------------------------------------------------------------------------------------


def test_the_hint_has_the_numbers_and_the_checksum_of_the_spec() -> None:
    store, snapshot = table(*everything())
    write_checkpoint(snapshot)
    found = hint(store)
    size_bytes = len(store.objects[V1_NAME])
    expected = {"version": 1, "size": len(rows(store, V1_NAME)), "sizeInBytes": size_bytes, "numOfAddFiles": 2}
    assert found == {**expected, "checksum": json_checksum(found)}


def test_the_hint_never_goes_back() -> None:
    store, snapshot = table(*everything())
    put_hint(store, 7)
    write_checkpoint(snapshot)
    assert hint(store)["version"] == 7


# --- statistics ----------------------------------------------------------------------------------------


def test_statistics_are_text_only_by_default() -> None:
    store, snapshot = table(*everything())
    write_checkpoint(snapshot)
    names = [field.name for field in schema(store).field("add").type]
    assert "stats" in names
    assert not {"stats_parsed", "partitionValues_parsed"} & set(names)


def test_without_text_and_columns_there_are_no_statistics_at_all() -> None:
    store, snapshot = table(*everything(NO_JSON))
    write_checkpoint(snapshot)
    assert not {"stats", "stats_parsed"} & {field.name for field in schema(store).field("add").type}


def test_a_checkpoint_from_one_with_columns_only_has_its_text_again() -> None:
    store, snapshot = table(*everything(STRUCT | NO_JSON))
    write_checkpoint(snapshot)
    put_commit(store, 2, metadata({}, partitionColumns=["part"]), add("f9", stats='{"numRecords":9}'))
    later = opened(store)
    write_checkpoint(later)
    found = reopened(store)
    assert found.segment.checkpoint is not None
    assert found.segment.checkpoint.version == 2
    stats = dict(zip(*map(found.files().column, ("path", "stats")), strict=True))
    assert json.loads(stats[pa.scalar("f9")].as_py()) == {"numRecords": 9}


# --- V2 -------------------------------------------------------------------------------------------------


def v2_files(store: DictStore) -> tuple[list[str], list[str]]:
    """The keys of checkpoints and sidecars."""
    checkpoints = [key for key in store.objects if ".checkpoint." in key]
    return checkpoints, [key for key in store.objects if "/_sidecars/" in key]


def test_a_v2_checkpoint_names_its_sidecars_and_they_hold_all_file_actions() -> None:
    store, snapshot = table(*everything(V2))
    write_checkpoint(snapshot)
    [key], [sidecar] = v2_files(store)
    uuid.UUID(key.split(".")[2])
    own = rows(store, key)
    assert [row["checkpointMetadata"] for row in own if "checkpointMetadata" in row] == [{"version": 1, "tags": {}}]
    [named] = [row["sidecar"] for row in own if "sidecar" in row]
    name = sidecar.rpartition("/")[2]
    size_bytes = len(store.objects[sidecar])
    assert named == {"path": name, "sizeInBytes": size_bytes, "modificationTime": NOW_MS, "tags": {}}
    assert not [row for row in own if "add" in row or "remove" in row]
    assert sorted(kind for row in rows(store, sidecar) for kind in row) == ["add", "add", "remove"]
    assert schema(store, sidecar).names == ["add", "remove"]
    assert hint(store)["sizeInBytes"] == len(store.objects[key]) + size_bytes
    assert hint(store)["size"] == len(own) + 3
    assert state(reopened(store)) == state(snapshot)


def test_many_files_go_into_several_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.delta.checkpoint.write.SIDECAR_ROWS", 4)
    monkeypatch.setattr(checkpoint_rows, "GROUP_ROWS", 2)
    store, snapshot = table(
        [features("v2Checkpoint"), metadata(V2)], [add(f"f{n}", stats=f'{{"numRecords":{n}}}') for n in range(11)]
    )
    write_checkpoint(snapshot)
    assert len(v2_files(store)[1]) == 3
    assert state(reopened(store)) == state(snapshot)


def test_a_v2_checkpoint_of_a_table_without_files_has_no_sidecar() -> None:
    store, snapshot = table([features("v2Checkpoint"), metadata(V2)], [commit_info()])
    write_checkpoint(snapshot)
    assert v2_files(store)[1] == []
    assert state(reopened(store)) == state(snapshot)


def test_without_the_feature_the_policy_changes_nothing() -> None:
    store, snapshot = table([protocol(), metadata(V2)], [add("f")])
    write_checkpoint(snapshot)
    assert v2_files(store) == ([V1_NAME], [])


def test_now_and_then_a_v2_checkpoint_has_the_classic_name() -> None:
    store, _ = table([features("v2Checkpoint"), metadata(V2 | {"delta.checkpointInterval": "1"}), add("f0")])
    for version in range(1, 21):
        put_commit(store, version, add(f"f{version}"))
        write_checkpoint(opened(store))
    classic = [key for key in v2_files(store)[0] if key.endswith(".checkpoint.parquet")]
    assert classic == [f"{LOG}{version:020d}.checkpoint.parquet" for version in (10, 20)]
    assert [row for row in rows(store, classic[0]) if "checkpointMetadata" in row]
    assert reopened(store).num_files == 21


# --- the older checkpoint's rows --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["commits", "classic", "row groups", "sidecars"])
@pytest.mark.parametrize("properties", [{}, STRUCT, STRUCT | NO_JSON], ids=["text", "both", "columns"])
def test_rows_are_copied_sorted_by_partition_and_without_what_was_replaced(
    kind: str, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_rows, "GROUP_ROWS", 4)
    monkeypatch.setattr(checkpoint_rows, "_WINDOW_BYTES", 1)
    monkeypatch.setattr("headwater.log.delta.checkpoint.write._SMALL_ROWS", 0)

    def file(n: int, **fields: Any) -> Action:
        stats = json.dumps({"numRecords": n, "minValues": {"id": -n}, "maxValues": {"id": n}, "nullCount": {"id": 0}})
        return add(f"f{n}", n, partitionValues={"part": f"p{n % 5}"}, stats=stats, **fields)

    first = [features("deletionVectors", "v2Checkpoint"), metadata(properties, partitionColumns=["part"])]
    first += [file(n) for n in range(30)]
    store, _ = table(first)
    removed = [remove(f"r{n}", deletionTimestamp=RECENT) for n in range(9)]
    if kind != "commits":
        put = {
            "classic": put_classic,
            "row groups": lambda *a: put_classic(*a, row_group_size=7),
            "sidecars": lambda *a: put_v2(*a, sidecars=3),
        }
        put[kind](store, 0, first + removed)
    else:
        put_commit(store, 0, *first, *removed)
    later = [remove(f"f{n}", deletionTimestamp=RECENT) for n in range(0, 30, 3)]
    later += [file(n, deletionVector=vector("x")) for n in range(0, 30, 6)] + [file(n) for n in range(30, 35)]
    put_commit(store, 1, *later)
    snapshot = opened(store)
    expected = state(snapshot)
    write_checkpoint(snapshot)
    found = reopened(store)
    assert found.commits == ()
    if NO_JSON.items() <= properties.items():
        assert found.num_files == 30 - 10 + 5 + 5
        by_stats = [json.loads(text)["minValues"]["id"] for text in found.files().column("stats").to_pylist()]
        assert sorted(by_stats) == sorted(-size for size in found.file_sizes())
    else:
        assert state(found) == expected
    parts = [row["add"]["partitionValues"]["part"] for row in rows(store, V1_NAME) if "add" in row]
    assert parts == sorted(parts)
    if properties:
        lower = [row["add"]["stats_parsed"]["minValues"]["id"] for row in rows(store, V1_NAME) if "add" in row]
        assert list(zip(parts, lower, strict=True)) == sorted(zip(parts, lower, strict=True))


def test_adds_of_a_table_without_partitions_stay_in_the_order_of_commits() -> None:
    store, _ = table([protocol(), metadata(), add("b"), add("c")], [add("a")])
    write_checkpoint(opened(store))
    put_commit(store, 2, add("0"), remove("c"))
    write_checkpoint(opened(store))
    found = [row["add"]["path"] for row in rows(store, f"{LOG}{2:020d}.checkpoint.parquet") if "add" in row]
    assert found == ["b", "a", "0"]


# --- failures --------------------------------------------------------------------------------------------


def due(properties: dict[str, str]) -> DictStore:
    """A table whose newest version is due for a checkpoint; the older one is at version 5."""
    return DictStore(_due(json.dumps(properties)).objects)


@cache
def _due(properties: str) -> DictStore:
    first = [features("v2Checkpoint"), metadata({"delta.checkpointInterval": "5", **json.loads(properties)}), add("f0")]
    store, _ = table(first)
    for version in range(1, 11):
        put_commit(store, version, add(f"f{version}"), remove(f"f{version - 1}", deletionTimestamp=RECENT))
        if version == 5:
            write_checkpoint(opened(store))
    return store


def run_upkeep(store: Any) -> Snapshot:
    return DELTA.after_commit(opened(store), None)


@pytest.mark.parametrize("policy", [{}, V2], ids=["classic", "v2"])
def test_after_a_crash_at_any_call_the_table_is_what_it_was(policy: dict[str, str]) -> None:
    expected = state(reopened(due(policy)))
    calls = FaultyStore(due(policy))
    run_upkeep(calls)
    writes = [c for c in calls.calls if c.operation in ("put", "put_if_absent", "delete_many", "head", "get_range")]
    assert len(writes) > 4
    for index in range(1, len(calls.calls) + 1):
        for action in (CrashBefore(), CrashAfter()):
            inner = due(policy)
            with pytest.raises(SimulatedCrash):
                run_upkeep(FaultyStore(inner, script(Fault(action, index=index))))
            assert state(reopened(inner)) == expected


@pytest.mark.parametrize("policy", [{}, V2], ids=["classic", "v2"])
def test_an_error_at_any_call_is_logged_and_the_table_is_what_it_was(
    policy: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    expected = state(reopened(due(policy)))
    calls = FaultyStore(due(policy))
    opening = opened(calls)
    first = len(calls.calls)
    DELTA.after_commit(opening, None)
    for index in range(first + 1, len(calls.calls) + 1):
        for action in (RaiseBefore(StorageError("no")), RaiseAfter(StorageError("no"))):
            inner = due(policy)
            found = run_upkeep(FaultyStore(inner, script(Fault(action, index=index))))
            assert found.version == 10
            assert state(reopened(inner)) == expected
    assert {record.name for record in caplog.records} == {"headwater.log"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@pytest.mark.parametrize("length_bytes", [0, 10, 1_000])
@pytest.mark.parametrize("key", ["*.checkpoint.*", "*/_sidecars/*"])
def test_a_truncated_file_is_noticed_and_taken_away(key: str, length_bytes: int) -> None:
    inner = due(V2)
    before = dict(inner.objects)
    store = FaultyStore(inner, script(Fault(Truncate(length_bytes), operation="put*", key=key)))
    with pytest.raises(CorruptLogError):
        write_checkpoint(opened(store))
    assert {key: data for key, data in inner.objects.items() if "/_sidecars/" not in key} == {
        key: data for key, data in before.items() if "/_sidecars/" not in key
    }


def test_another_writers_checkpoint_of_the_same_version_is_left_alone() -> None:
    store, snapshot = table(*everything())
    write_checkpoint(snapshot)
    theirs = store.objects[V1_NAME]
    rebased = write_checkpoint(snapshot)
    assert store.objects[V1_NAME] is theirs
    assert state(rebased) == state(snapshot)


def test_a_damaged_checkpoint_of_the_same_version_is_replaced() -> None:
    store, snapshot = table(*everything())
    store.objects[V1_NAME] = b"PAR1 what is this"
    write_checkpoint(snapshot)
    assert state(reopened(store)) == state(snapshot)


def test_a_snapshot_that_is_a_checkpoint_needs_no_other() -> None:
    store, snapshot = table(*everything())
    rebased = write_checkpoint(snapshot)
    objects = dict(store.objects)
    assert write_checkpoint(rebased) is rebased
    assert store.objects == objects


def test_very_long_statistics_make_small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_rows, "_GROUP_BYTES", 10_000)
    monkeypatch.setattr("headwater.log.delta.checkpoint.write._SMALL_ROWS", 0)
    long = json.dumps({"numRecords": 1, "minValues": {"part": "x" * 2_000}})
    store, snapshot = table([protocol(), metadata()], [add(f"f{n}", stats=long) for n in range(20)])
    write_checkpoint(snapshot)
    groups = pq.ParquetFile(io.BytesIO(store.objects[V1_NAME])).metadata.num_row_groups
    assert groups == 1 + 5
    assert state(reopened(store)) == state(snapshot)
