"""The history of a table (spec: "Commit Provenance Information")."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

import headwater as hw
from headwater.errors import CorruptLogError
from support.log.log_tables import (
    add,
    commit_info,
    commit_key,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_hint,
    simple_table,
)
from support.stores.log_store import DictStore, open_table

SPEC_EXAMPLE = {
    "commitInfo": {
        "timestamp": 1515491537026,
        "userId": "100121",
        "userName": "michael@databricks.com",
        "operation": "INSERT",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "notebook": {"notebookId": "4443029", "notebookPath": "Users/michael@databricks.com/actions"},
        "clusterId": "1027-202406-pooh991",
    }
}


def test_the_example_of_the_spec_is_understood() -> None:
    store = DictStore()
    put_commit(store, 0, protocol(), metadata(), SPEC_EXAMPLE)
    [commit] = open_table(store).history()
    assert (commit.version, commit.operation) == (0, "INSERT")
    assert (commit.user_id, commit.user_name) == ("100121", "michael@databricks.com")
    assert commit.operation_parameters == {"mode": "Append", "partitionBy": "[]"}
    assert commit.commit_info == SPEC_EXAMPLE["commitInfo"]


def test_all_fields_that_writers_agree_on_are_attributes() -> None:
    store = DictStore()
    info = commit_info(
        operation="MERGE",
        operationMetrics={"numOutputRows": "5"},
        engineInfo="Apache-Spark/3.5.0 Delta-Lake/3.0.0",
        userMetadata="note",
        readVersion=3,
        isolationLevel="Serializable",
        isBlindAppend=False,
        txnId="t-1",
    )
    put_commit(store, 0, info, protocol(), metadata())
    [commit] = open_table(store).history()
    assert commit.operation_metrics == {"numOutputRows": "5"}
    assert commit.engine_info == "Apache-Spark/3.5.0 Delta-Lake/3.0.0"
    assert (commit.user_metadata, commit.read_version, commit.isolation_level) == ("note", 3, "Serializable")
    assert (commit.is_blind_append, commit.txn_id) == (False, "t-1")


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"operation": 5, "operationParameters": "x", "operationMetrics": [1], "readVersion": "3"},
        {"isBlindAppend": "true", "userName": {"a": 1}, "engineInfo": 7, "txnId": None, "readVersion": True},
        {"operationParameters": {"auto": False, "nested": {"a": [1, None]}}},
        {"anything": [1, 2.5, None, {"ü": "😀"}], "big": 2**80},
    ],
)
def test_commit_info_may_hold_anything(info: dict) -> None:
    store = DictStore()
    put_commit(store, 0, {"commitInfo": info}, protocol(), metadata())
    [commit] = open_table(store).history()
    assert commit.commit_info == info
    assert commit.operation is None
    assert commit.read_version is None
    parameters = info.get("operationParameters")
    assert commit.operation_parameters == (parameters if isinstance(parameters, dict) else {})


def test_a_commit_without_commit_info_is_in_the_history() -> None:
    history = open_table(simple_table(2)).history()
    assert [(c.version, c.operation, c.commit_info) for c in history] == [(1, None, {}), (0, None, {})]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_commit_info_may_stand_anywhere_in_a_commit(position: int) -> None:
    actions = [protocol(), metadata()]
    actions.insert(position, commit_info(operation="CREATE TABLE"))
    store = DictStore()
    put_commit(store, 0, *actions)
    assert open_table(store).history()[0].operation == "CREATE TABLE"


def test_the_newest_commit_comes_first_and_a_limit_reads_no_more_than_it_says() -> None:
    store = simple_table(10)
    snapshot = open_table(store)
    assert [c.version for c in snapshot.history()] == list(range(9, -1, -1))
    store.calls.clear()
    assert [c.version for c in snapshot.history(limit=3)] == [9, 8, 7]
    assert [key for operation, key in store.calls if operation == "get"] == [commit_key(v) for v in (9, 8, 7)]
    assert snapshot.history(limit=0) == []
    assert len(snapshot.history(limit=99)) == 10


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        open_table(simple_table(1)).history(limit=-1)


def test_the_history_ends_at_the_version_of_the_snapshot() -> None:
    assert [c.version for c in open_table(simple_table(5), version=2).history()] == [2, 1, 0]


def test_the_history_goes_back_behind_the_checkpoint_as_far_as_commits_exist() -> None:
    store = simple_table(6)
    put_classic(store, 3, [protocol(), metadata(), *(add(f"f{n}") for n in range(4))])
    put_hint(store, 3)
    assert [c.version for c in open_table(store).history()] == [5, 4, 3, 2, 1, 0]
    store.delete_many([commit_key(0), commit_key(1)])
    assert [c.version for c in open_table(store).history()] == [5, 4, 3, 2]


def test_a_damaged_commit_in_the_history_is_an_error_that_names_it() -> None:
    store = simple_table(4)
    put_classic(store, 2, [protocol(), metadata(), add("f0"), add("f1"), add("f2")])
    for damaged in (b'{"commitInfo":{', b"#commitInfo", b"", b'{"commitInfo":5}'):
        store.objects[commit_key(1)] = damaged
        with pytest.raises(CorruptLogError, match=rf"{1:020d}\.json"):
            open_table(store).history()


def test_it_says_what_deltalake_says(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2, 3]})
    write_deltalake(tmp_path, data)
    marked = CommitProperties(custom_metadata={"userMetadata": "note", "extra": "x"})
    write_deltalake(tmp_path, data, mode="append", commit_properties=marked)
    DeltaTable(tmp_path).delete("id = 2")
    DeltaTable(tmp_path).create_checkpoint()
    theirs = DeltaTable(tmp_path).history()
    ours = hw.open_log(tmp_path).history()
    assert [c.operation for c in ours] == [h["operation"] for h in theirs]
    assert [c.operation_parameters for c in ours] == [h["operationParameters"] for h in theirs]
    assert [c.version for c in ours] == [h["version"] for h in theirs]
    assert ours[1].commit_info["extra"] == "x"
    assert ours[1].user_metadata == "note"
