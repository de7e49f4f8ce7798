"""Row tracking on a table that has files already (spec: "Row Tracking", enablement)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.commands.alter import commit as row_tracking
from headwater.commands.alter.commit import backfill
from headwater.errors import DeltaConcurrentModificationException
from headwater.log.commit.transaction import Transaction
from support.commands import set_properties
from support.tables.plain_tables import actions, append, newest, plain_table

ENABLED = {"delta.enableRowTracking": "true"}


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = plain_table(tmp_path / "t", pa.table({"id": [1, 2, 3]}))
    append(path, pa.table({"id": [4]}))
    append(path, pa.table({"id": [5, 6]}))
    return path


def row_ids(path: str) -> list[int]:
    """The default row ids of all rows."""
    files = newest(path).files().to_pylist()
    return [f["baseRowId"] + i for f in files for i in range(json.loads(f["stats"])["numRecords"])]


def test_every_file_gets_ids_before_the_property_is_set(table: str) -> None:
    set_properties(newest(table), ENABLED)

    history = [(c.operation, c.operation_parameters) for c in newest(table).history(3)]
    assert [name for name, _ in history] == ["SET TBLPROPERTIES", "ROW TRACKING BACKFILL", "UPGRADE PROTOCOL"]
    assert history[1][1] == {"batchId": "0"}
    assert sorted(row_ids(table)) == [0, 1, 2, 3, 4, 5]
    backfilled = actions(table, 4)
    assert [add["dataChange"] for add in backfilled["add"]] == [False] * 3
    assert {add["defaultRowCommitVersion"] for add in backfilled["add"]} == {4}
    assert "remove" not in backfilled
    [mark] = backfilled["domainMetadata"]
    assert json.loads(mark["configuration"])["rowIdHighWaterMark"] == 5
    snapshot = newest(table)
    assert {"rowTracking", "domainMetadata"} <= set(snapshot.protocol.writer_features or ())
    assert "delta.rowTracking.materializedRowIdColumnName" in snapshot.properties
    assert snapshot.num_files == 3


def test_a_table_with_ids_is_not_filled_again(table: str) -> None:
    set_properties(newest(table), ENABLED)
    version = newest(table).version
    set_properties(newest(table), {"delta.enableRowTracking": "false"})
    set_properties(newest(table), ENABLED)
    assert newest(table).version == version + 2


def test_many_files_take_several_commits(table: str) -> None:
    snapshot = backfill(newest(table), batch_files=2)
    operations = [c.operation for c in newest(table).history(3)]
    assert operations == ["ROW TRACKING BACKFILL", "ROW TRACKING BACKFILL", "UPGRADE PROTOCOL"]
    assert snapshot.version == newest(table).version
    assert sorted(row_ids(table)) == [0, 1, 2, 3, 4, 5]


def test_a_file_that_another_writer_removes_does_not_come_back(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = newest(table)
    commit = Transaction.commit
    removed: list[int] = []

    def commit_after_a_delete(self: Transaction, operation: Any, *args: Any) -> Any:
        if operation.name == "ROW TRACKING BACKFILL" and not removed:
            # delta-rs cannot write a table with row tracking: the removal is ours.
            [gone] = [f for f in newest(table).files().to_pylist() if json.loads(f["stats"])["numRecords"] == 1]
            removed.append(gone["size"])
            from headwater.log.actions.model import Remove
            from headwater.log.commit.draft import Operation

            other = Transaction(self.ctx, newest(table))
            other.remove([Remove(gone["path"], deletion_timestamp=1, partition_values={}, size=gone["size"])])
            commit(other, Operation("DELETE"))
        return commit(self, operation, *args)

    monkeypatch.setattr(Transaction, "commit", commit_after_a_delete)
    set_properties(snapshot, ENABLED)

    assert newest(table).num_files == 2
    assert len(set(row_ids(table))) == len(row_ids(table)) == 5


def test_a_backfill_that_always_loses_gives_up(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction.commit
    tried: list[str] = []

    def lose(self: Transaction, operation: Any, *args: Any) -> Any:
        if operation.name == "ROW TRACKING BACKFILL":
            tried.append(operation.name)
            raise DeltaConcurrentModificationException("somebody else was first")
        return commit(self, operation, *args)

    monkeypatch.setattr(Transaction, "commit", lose)
    with pytest.raises(DeltaConcurrentModificationException):
        set_properties(newest(table), ENABLED)
    assert 1 < len(tried) <= row_tracking._MAX_LOSSES + 1
    assert "delta.enableRowTracking" not in newest(table).properties


def test_other_readers_see_the_same_rows(table: str) -> None:
    set_properties(newest(table), ENABLED)
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
