"""Deleting rows by deletion vectors in one commit: what is written, what is kept, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from headwater.errors import CorruptLogError, InvalidCommitError, StorageError, UnsupportedProtocolError
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import inline_vector
from headwater.log.actions.model import AddCdcFile, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.row_changes import RowChange, RowPlan, wide_statistics
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.opening import open_snapshot
from support.log.commit_tables import NOW_MS, add, append, commit_lines, removal
from support.log.deletions import (
    DELETE,
    TRACKED,
    delete,
    deleted_rows,
    deletes,
    vector_table,
    vector_table_in,
    vector_writer_of,
)


def actions(store: Any, version: int, kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in commit_lines(store, version) if kind in line]


# --- what is written ----------------------------------------------------------------------------------------


def test_a_file_is_removed_and_added_again_without_the_rows() -> None:
    file = add("f", rows=10, tags={"mine": "x"})
    store, ctx, snapshot = vector_table(file, add("g"))
    committed = delete(ctx, snapshot, deletes("f", 2, 3))

    [removed], [added] = actions(store, 1, "remove"), actions(store, 1, "add")
    assert {
        key: removed[key] for key in ("path", "dataChange", "deletionTimestamp", "extendedFileMetadata", "size")
    } == {
        "path": "f",
        "dataChange": True,
        "deletionTimestamp": NOW_MS,
        "extendedFileMetadata": True,
        "size": 1_000,
    }
    assert (removed["partitionValues"], removed["tags"]) == ({"part": "a"}, {"mine": "x"})
    assert "deletionVector" not in removed
    assert {name: value for name, value in added.items() if name not in ("deletionVector", "stats")} == {
        "path": "f",
        "partitionValues": {"part": "a"},
        "size": 1_000,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "tags": {"mine": "x"},
    }
    assert json.loads(added["stats"]) == {**json.loads(file.stats or ""), "numRecords": 10, "tightBounds": False}
    assert (added["deletionVector"]["storageType"], added["deletionVector"]["cardinality"]) == ("u", 2)
    assert deleted_rows(committed.snapshot) == {"f": [2, 3], "g": []}
    assert open_snapshot(ctx).verify() == []


def test_a_second_deletion_joins_the_first() -> None:
    store, ctx, snapshot = vector_table(add("f", rows=10))
    snapshot = delete(ctx, snapshot, deletes("f", 2)).snapshot
    committed = delete(ctx, snapshot, deletes("f", 9))
    [removed], [added] = actions(store, 2, "remove"), actions(store, 2, "add")
    assert removed["deletionVector"] == actions(store, 1, "add")[0]["deletionVector"]
    assert added["deletionVector"]["cardinality"] == 2
    assert deleted_rows(committed.snapshot) == {"f": [2, 9]}
    assert committed.snapshot.verify() == []


def test_a_file_without_rows_is_only_removed() -> None:
    store, ctx, snapshot = vector_table(add("f", rows=3), add("g"))
    snapshot = delete(ctx, snapshot, deletes("f", 1)).snapshot
    committed = delete(ctx, snapshot, deletes("f", 0, 2))
    [removed] = actions(store, 2, "remove")
    assert removed["deletionVector"]["cardinality"] == 1
    assert actions(store, 2, "add") == []
    assert deleted_rows(committed.snapshot) == {"g": []}
    assert committed.rows == RowPlan(vectors_removed=1, files_removed=1, rows_deleted=2, bytes_removed=1_000)
    assert committed.snapshot.verify() == []


def test_the_vectors_of_a_commit_share_a_file() -> None:
    rows = range(0, 100_000, 7)
    store, ctx, snapshot = vector_table(add("f", rows=200_000), add("g", rows=200_000), add("h", rows=9))
    committed = delete(ctx, snapshot, deletes("f", *rows), deletes("g", *rows), deletes("h", 1))
    f, g, h = (added["deletionVector"] for added in actions(store, 1, "add"))
    assert f["pathOrInlineDv"] == g["pathOrInlineDv"] == h["pathOrInlineDv"]
    assert f["offset"] < g["offset"] < h["offset"]
    assert [key for key in store.objects if key.endswith(".bin")] == [
        key for key in store.objects if key.startswith("deletion_vector_")
    ]
    assert deleted_rows(committed.snapshot) == {"f": list(rows), "g": list(rows), "h": [1]}


def test_names_of_vector_files_begin_with_chance_where_the_table_wants_it() -> None:
    store, ctx, snapshot = vector_table(
        add("f"), **{"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}
    )
    committed = delete(ctx, snapshot, deletes("f", 1))
    [key] = [key for key in store.objects if key.endswith(".bin")]
    assert len(key.split("/")[0]) == 5
    assert deleted_rows(committed.snapshot) == {"f": [1]}


def test_row_ids_tags_and_clustering_are_kept() -> None:
    file = add("f", rows=10, tags={"a": "b"}, clustering_provider="liquid")
    features = ("rowTracking", "domainMetadata")
    store, ctx, snapshot = vector_table(add("first", rows=5), file, features=features, **TRACKED)
    delete(ctx, snapshot, deletes("f", 4))
    [removed], [added] = actions(store, 1, "remove"), actions(store, 1, "add")
    for action in (removed, added):
        assert (action["baseRowId"], action["defaultRowCommitVersion"]) == (5, 0)
        assert action["tags"] == {"a": "b"}
    assert added["clusteringProvider"] == "liquid"
    assert actions(store, 1, "domainMetadata") == [], "no row ids were given"
    assert commit_lines(store, 1)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_new_files_and_deleted_rows_are_one_commit() -> None:
    store, ctx, snapshot = vector_table(add("f", rows=10))
    transaction = Transaction(ctx, snapshot)
    transaction.delete_rows([deletes("f", 1)])
    transaction.add([add("new", rows=1)])
    committed = transaction.commit(Operation("UPDATE"))
    assert sorted(added["path"] for added in actions(store, 1, "add")) == ["f", "new"]
    assert deleted_rows(committed.snapshot) == {"f": [1], "new": []}
    assert commit_lines(store, 1)[0]["commitInfo"]["isBlindAppend"] is False
    assert commit_lines(store, 1)[0]["commitInfo"]["isolationLevel"] == "Serializable"


def test_changes_of_one_file_are_taken_together() -> None:
    _, ctx, snapshot = vector_table(add("a%20f", rows=10))
    transaction = Transaction(ctx, snapshot)
    transaction.delete_rows([deletes("a%20f", 1), deletes("a f", 2)])
    transaction.delete_rows([deletes("a%20f", 3)])
    assert transaction.planned_rows == RowPlan(vectors_added=1, rows_deleted=3)
    assert deleted_rows(transaction.commit(DELETE).snapshot) == {"a%20f": [1, 2, 3]}


def test_rows_that_are_only_read_change_nothing() -> None:
    store, ctx, snapshot = vector_table(add("f", rows=10), add("g", rows=10))
    delete(ctx, snapshot, deletes("f", read=(1, 2)), deletes("g", 1))
    assert [removed["path"] for removed in actions(store, 1, "remove")] == ["g"]


def test_metrics_tell_what_became_of_vectors() -> None:
    store, ctx, snapshot = vector_table(*(add(name, rows=2) for name in "abcd"))
    snapshot = delete(ctx, snapshot, deletes("a", 0), deletes("b", 0)).snapshot
    transaction = Transaction(ctx, snapshot)
    transaction.delete_rows([deletes("b", 1), deletes("c", 1), deletes("d", 0, 1)])
    expected = RowPlan(
        vectors_added=1, vectors_updated=0, vectors_removed=1, files_removed=2, rows_deleted=4, bytes_removed=2_000
    )
    assert transaction.planned_rows == expected
    committed = transaction.commit(
        Operation("DELETE", metrics={"n": 1}, row_metrics=lambda plan: {"numDeletionVectorsAdded": plan.vectors_added})
    )
    assert committed.rows == expected
    metrics = commit_lines(store, 2)[0]["commitInfo"]["operationMetrics"]
    assert metrics == {"n": "1", "numDeletionVectorsAdded": "1"}


# --- statistics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, '{"numRecords":5,"tightBounds":false}'),
        ("", '{"numRecords":5,"tightBounds":false}'),
        ('{"numRecords":5,"tightBounds":true}', '{"numRecords":5,"tightBounds":false}'),
        ('{"numRecords":null}', '{"numRecords":5,"tightBounds":false}'),
        (
            '{"minValues":{"d":12345678901234567890.123456789,"t":"\\u00e4"},"numRecords":5}',
            '{"minValues":{"d":12345678901234567890.123456789,"t":"\\u00e4"},"numRecords":5,"tightBounds":false}',
        ),
    ],
)
def test_bounds_become_wide_and_stay_what_they_were(stats: str | None, expected: str) -> None:
    assert wide_statistics(stats, 5) == expected


@pytest.mark.parametrize("stats", [None, "{}", '{"minValues":{"id":0}}'])
def test_without_statistics_the_footer_counts_the_rows(stats: str | None, tmp_path: Path) -> None:
    """The spec demands `numRecords` of a file with a vector."""
    ctx = TableRef(tmp_path).context()
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "f 1")
    snapshot = vector_table_in(ctx, add("f%201", stats=stats), add(f"{tmp_path}/f%201x", stats=stats))
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "f 1x")
    committed = delete(ctx, snapshot, deletes("f%201", 1), deletes(f"{tmp_path}/f%201x", 0, 1))
    [file] = committed.snapshot.files().to_pylist()
    assert json.loads(file["stats"])["numRecords"] == 3
    assert committed.rows.files_removed == 1


def test_damaged_statistics_are_named() -> None:
    _, ctx, snapshot = vector_table(add("f", stats="{"))
    with pytest.raises(CorruptLogError, match="statistics of 'f'"):
        delete(ctx, snapshot, deletes("f", 1))


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (deletes("nothing", 1), "has no data file 'nothing'"),
        (deletes("f", 10), "has 10 rows, so there is no row 10 to delete"),
        (deletes("f", read=(11,)), "there is no row 11 to read"),
        (deletes("f", 3, 4), "row 3 of 'f' is deleted already"),
        (deletes("f", 4, read=(3,)), "row 3 of 'f' is deleted already"),
    ],
)
def test_rows_must_be_there(change: RowChange, message: str) -> None:
    store, ctx, snapshot = vector_table(add("f", rows=10))
    snapshot = delete(ctx, snapshot, deletes("f", 3)).snapshot
    transaction = Transaction(ctx, snapshot)
    with pytest.raises(InvalidCommitError, match=message) as raised:
        transaction.delete_rows([change])
    assert store.uri in str(raised.value)


@pytest.mark.parametrize(
    ("features", "configuration"),
    [((), {}), (("deletionVectors",), {}), (("deletionVectors",), {"delta.enableDeletionVectors": "false"})],
)
def test_a_table_that_does_not_allow_vectors_is_left_alone(
    features: tuple[str, ...], configuration: dict[str, str]
) -> None:
    from support.log.commit_tables import METADATA, table

    protocol = Protocol(3, 7, features, features)
    metadata = msgspec.structs.replace(METADATA, configuration=configuration)
    store, ctx, snapshot = table(add("f"), protocol=protocol, metadata=metadata)
    transaction = Transaction(ctx, snapshot)
    with pytest.raises(InvalidCommitError, match=r"delta.enableDeletionVectors is not true") as raised:
        transaction.delete_rows([deletes("f", 1)])
    assert store.uri in str(raised.value)


def test_a_table_that_is_not_there_has_no_rows() -> None:
    _, ctx, _ = vector_table()
    with pytest.raises(InvalidCommitError, match="does not exist yet"):
        Transaction(ctx, None).delete_rows([deletes("f", 1)])


def test_an_append_only_table_keeps_its_rows() -> None:
    _, ctx, snapshot = vector_table(add("f"), **{"delta.appendOnly": "true"})
    with pytest.raises(InvalidCommitError, match="only allows appends"):
        delete(ctx, snapshot, deletes("f", 1))


def test_a_file_is_not_removed_and_changed_in_one_commit() -> None:
    file = add("f")
    _, ctx, snapshot = vector_table(file)
    transaction = Transaction(ctx, snapshot)
    transaction.remove([removal(file)])
    transaction.delete_rows([deletes("f", 1)])
    with pytest.raises(InvalidCommitError, match="only one remove action for 'f'"):
        transaction.commit(DELETE)


def test_change_files_need_a_change_data_feed() -> None:
    _, ctx, snapshot = vector_table(add("f"))
    transaction = Transaction(ctx, snapshot)
    transaction.delete_rows([deletes("f", 1)])
    transaction.add_changes([AddCdcFile("_change_data/c")])
    with pytest.raises(InvalidCommitError, match="change data feed is off"):
        transaction.commit(DELETE)


def test_a_data_file_with_two_vectors_at_once_is_a_damaged_log() -> None:
    store, ctx, snapshot = vector_table(add("f"))
    line = {"add": {**actions(store, 0, "add")[0], "deletionVector": msgspec.to_builtins(inline_vector(BitMap64([1])))}}
    store.put(f"_delta_log/{1:020d}.json", json.dumps(line).encode())
    with pytest.raises(CorruptLogError, match="'f' twice"):
        Transaction(ctx, snapshot.refresh()).delete_rows([deletes("f", 2)])


def test_vectors_that_cannot_be_written_leave_the_table_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    store, ctx, snapshot = vector_table(add("f"))

    def full(key: str, data: bytes) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StorageError, match="no space left"):
        delete(ctx, snapshot, deletes("f", 1))
    assert open_snapshot(ctx).version == 0


def test_vectors_are_in_the_store_before_the_commit_is() -> None:
    store, ctx, snapshot = vector_table(add("f"))
    delete(ctx, snapshot, deletes("f", 1))
    keys = [key for key in store.objects if key.endswith((".bin", f"{1:020d}.json"))]
    assert keys[0].endswith(".bin")
    assert keys[1].endswith(".json")


def test_what_cannot_be_written_is_named() -> None:
    store, _, snapshot = vector_table()

    def nobody(configuration: TableConfiguration) -> None:
        raise UnsupportedProtocolError("no writers today", ("x",))

    with pytest.raises(UnsupportedProtocolError, match="cannot be written: no writers today") as raised:
        Transaction(vector_writer_of(store, check_writable=nobody), snapshot)
    assert store.uri in str(raised.value)
    assert raised.value.features == ("x",)


# --- larger tables ------------------------------------------------------------------------------------------


def test_files_are_found_behind_a_checkpoint() -> None:
    files = [add(f"part%3D{number}/f%20{number}", rows=10) for number in range(30)]
    _, ctx, snapshot = vector_table(*files, **{"delta.checkpointInterval": "2"})
    for number in (3, 4, 29):
        snapshot = append(ctx, snapshot, add(f"new-{number}")).snapshot
        snapshot = delete(ctx, snapshot, deletes(files[number].path, 1), deletes(f"new-{number}", 5)).snapshot
        snapshot = delete(ctx, open_snapshot(ctx), deletes(files[number].path, 2)).snapshot
    assert {path: rows for path, rows in deleted_rows(open_snapshot(ctx)).items() if rows} == {
        **{files[number].path: [1, 2] for number in (3, 4, 29)},
        **{f"new-{number}": [5] for number in (3, 4, 29)},
    }
    assert snapshot.verify() == []


def test_named_files_are_found_under_any_spelling() -> None:
    _, ctx, snapshot = vector_table(add("a%20b"), add("c"), **{"delta.checkpointInterval": "1"})
    snapshot = append(ctx, snapshot, add("file:///x/y")).snapshot
    snapshot = append(ctx, snapshot, add("d")).snapshot
    names = snapshot.files_named(["a b", "/x/y", "d", "nothing"], ["path"]).column("path").to_pylist()
    assert sorted(names) == ["a%20b", "d", "file:///x/y"]
    assert snapshot.files_named([]).num_rows == 0


def test_parquet_that_is_counted_is_opened_through_the_store() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3, 4]}), sink)
    store, ctx, snapshot = vector_table(add("f", stats=None))
    store.put("f", sink.getvalue())
    assert delete(ctx, snapshot, deletes("f", 0, 1, 2, 3)).rows.files_removed == 1
