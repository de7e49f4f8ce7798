"""RESTORE on the log: files, deletion vectors, metaData and protocol of an old version in a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.commands.restore import Restored
from headwater.errors import ConcurrentAppendException, InvalidCommitError, MissingFilesError, VersionNotFoundError
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import Metadata, Protocol, Remove
from headwater.log.commit import transaction as transactions
from headwater.log.commit.draft import Operation
from headwater.log.schema import STRING, StructField
from support.commands import add_columns, restore, set_properties, vacuum
from support.tables.local_tables import SCHEMA, commit, file, later, new_table, put, vector

VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))


def live(path: Path, version: int | None = None) -> list[tuple[str, object]]:
    rows = hw.open_log(path, version=version).files(columns=["path", "deletionVector"]).to_pylist()
    return sorted((row["path"], (row["deletionVector"] or {}).get("pathOrInlineDv")) for row in rows)


def test_the_files_of_the_old_version_come_back_with_their_vectors(tmp_path: Path) -> None:
    ctx = new_table(tmp_path, protocol=VECTORS, configuration={"delta.enableDeletionVectors": "true"})
    first, second = (vector(z85_encode(bytes([n] * 16))) for n in (1, 2))
    put(ctx, "a", "b", "c", vector_path(first), vector_path(second))
    commit(ctx, add=("a", file("b", deletion_vector=first)))
    commit(ctx, add=(file("b", deletion_vector=second), "c"), remove=(Remove("b", deletion_vector=first), "a"))

    done = restore(ctx, version=1)

    assert live(tmp_path) == live(tmp_path, 1) == [("a", None), ("b", first.path_or_inline_dv)]
    assert done == Restored(3, 1, 8, 2, 2, 2, 8, 8)
    [newest, *_] = hw.open_log(tmp_path).history()
    assert newest.operation == "RESTORE"
    assert newest.operation_parameters["version"] == "1"
    assert newest.operation_metrics == {
        "tableSizeAfterRestore": "8",
        "numOfFilesAfterRestore": "2",
        "numRemovedFiles": "2",
        "numRestoredFiles": "2",
        "removedFilesSize": "8",
        "restoredFilesSize": "8",
    }
    assert live(tmp_path, 2) == [("b", second.path_or_inline_dv), ("c", None)]


def test_metadata_comes_back_and_the_protocol_stays(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    put(ctx, "a")
    commit(ctx, add=("a",))
    add_columns(hw.open_log(tmp_path), [StructField("new", STRING)], None)
    set_properties(hw.open_log(tmp_path), {"delta.enableDeletionVectors": "true", "owner": "me"})

    restore(ctx, version=1)

    restored = hw.open_log(tmp_path)
    assert restored.metadata.schema_string == SCHEMA
    assert restored.properties == {}
    assert "deletionVectors" in (restored.protocol.reader_features or ())
    assert restored.verify() == []


def test_column_ids_and_identity_values_that_were_given_stay_given(tmp_path: Path) -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}

    def schema(mark: int | None) -> str:
        marked = identity if mark is None else {**identity, "delta.identity.highWaterMark": mark}
        metadata = {**marked, "delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
        field = {"name": "id", "type": "long", "nullable": True, "metadata": metadata}
        return json.dumps({"type": "struct", "fields": [field]})

    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    ctx = TableRef(tmp_path).context()
    features = ("columnMapping", "identityColumns")
    for number, (mark, highest) in enumerate([(None, "1"), (40, "7")]):
        transaction = transactions.Transaction(ctx, None if number == 0 else hw.open_log(tmp_path))
        if number == 0:
            transaction.set_protocol(Protocol(3, 7, ("columnMapping",), features))
        configuration = {**properties, "delta.columnMapping.maxColumnId": highest}
        transaction.set_metadata(Metadata("t", schema(mark), configuration=configuration))
        transaction.commit(Operation("WRITE"))

    restore(ctx, version=0)

    after = hw.open_log(tmp_path)
    assert after.schema.field("id").metadata["delta.identity.highWaterMark"] == 40
    assert after.properties["delta.columnMapping.maxColumnId"] == "7"


def test_missing_files_are_noticed_and_may_be_ignored(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    put(ctx, "a", "b")
    commit(ctx, add=("a", "b"))
    commit(ctx, remove=("a", "b"))
    vacuum(later(ctx))
    put(ctx, "b")

    with pytest.raises(MissingFilesError, match="are not there any more") as caught:
        restore(ctx, version=1)
    assert caught.value.paths == ("a",)
    assert restore(ctx, version=1, ignore_missing_files=True).num_restored_files == 2


def test_what_cannot_be_restored_is_said_so(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    put(ctx, "a")
    commit(ctx, add=("a",))

    with pytest.raises(InvalidCommitError, match="newest version already"):
        restore(ctx, version=1)
    with pytest.raises(VersionNotFoundError):
        restore(ctx, version=2)
    with pytest.raises(VersionNotFoundError):
        restore(ctx, timestamp="1999-01-01")
    with pytest.raises(ValueError, match="a version or a timestamp"):
        restore(ctx)
    set_properties(hw.open_log(tmp_path), {"delta.appendOnly": "true"})
    with pytest.raises(InvalidCommitError, match="only allows appends"):
        restore(ctx, version=0)


def test_rows_that_came_meanwhile_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = new_table(tmp_path)
    put(ctx, "a", "b")
    commit(ctx, add=("a",))
    publish = transactions.publish

    def overtaken(*args: object) -> object:
        monkeypatch.setattr(transactions, "publish", publish)
        commit(ctx, add=("b",))
        return publish(*args)

    monkeypatch.setattr(transactions, "publish", overtaken)
    with pytest.raises(ConcurrentAppendException):
        restore(ctx, version=0)
    assert [path for path, _ in live(tmp_path)] == ["a", "b"]


def row_ids(path: Path) -> dict[str, tuple[int | None, int | None]]:
    rows = hw.open_log(path).files(columns=["path", "baseRowId", "defaultRowCommitVersion"]).to_pylist()
    return {row["path"]: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in rows}


@pytest.mark.parametrize("tombstone", ["with ids", "without ids"])
def test_a_file_that_comes_back_has_the_row_ids_that_it_had_last(tmp_path: Path, tombstone: str) -> None:
    """Given a version from before row tracking, when it is restored, then a path keeps the ids that it got later."""
    ctx = new_table(tmp_path)
    put(ctx, "a", "b")
    commit(ctx, add=(file("a", stats='{"numRecords":10}'), file("b", stats='{"numRecords":10}')))
    set_properties(hw.open_log(tmp_path), {"delta.enableRowTracking": "true"})
    given = row_ids(tmp_path)
    assert None not in given["a"]
    commit(ctx, remove=("a",))
    newest = tmp_path / "_delta_log" / f"{hw.open_log(tmp_path).version:020d}.json"
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    [removed] = [line["remove"] for line in lines if "remove" in line]
    assert (removed["baseRowId"], removed["defaultRowCommitVersion"]) == given["a"]
    if tombstone == "without ids":  # some writers leave them out
        removed.pop("baseRowId")
        newest.write_text("".join(json.dumps(line) + "\n" for line in lines))

    restore(ctx, version=1)

    assert row_ids(tmp_path) == given
    assert hw.open_log(tmp_path).verify() == []
