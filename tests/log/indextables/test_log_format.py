"""The log of search tables (spec 002): names, actions, and every JSON example, read and written."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.log.actions.encode import protocol_fields
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.delta.dialect import DELTA
from headwater.log.indextables.actions import (
    MergeSkip,
    SplitRemove,
    add_fields,
    metadata_fields,
    parse_name,
    read_add,
    remove_fields,
    skip_fields,
)
from headwater.log.indextables.checkpoint import checkpoint_key as key_of_checkpoint
from headwater.log.indextables.checkpoint import write_json_checkpoint
from headwater.log.indextables.dialect import INDEXTABLES
from headwater.log.opening import open_snapshot
from support.log.split_logs import (
    METADATA,
    append,
    checkpoint_key,
    lines,
    live,
    merge,
    put_version,
    replace_all,
    split,
    table,
    version_key,
    writer,
)
from support.stores.log_store import NOW_MS, DictStore

# --- the examples of the specification, word for word -------------------------------------------------------

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
PROTOCOL_WITH_FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 3,
    "readerFeatures": ["footerOffsets", "tantivy4java"],
    "writerFeatures": ["conditionalWrites", "checkpoints"],
}
METADATA_EXAMPLE = {
    "id": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
    "name": None,
    "description": None,
    "format": {"provider": "indextables", "options": {}},
    "schemaString": '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"content","type":"string","nullable":true,"metadata":{}}]}',
    "partitionColumns": ["year", "month"],
    "configuration": {},
    "createdTime": 1696000000000,
}
BASIC_ADD = {
    "path": "s3://bucket/table/part-00000-a1b2c3d4.split",
    "partitionValues": {"year": "2024", "month": "10"},
    "size": 1048576,
    "modificationTime": 1696000000000,
    "dataChange": True,
    "stats": '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":1000}}',
    "tags": {"source": "batch-job-123"},
    "numRecords": 1000,
}
EXTENDED_ADD = {
    "path": "s3://bucket/table/part-00000-a1b2c3d4.split",
    "partitionValues": {"year": "2024", "month": "10"},
    "size": 1048576,
    "modificationTime": 1696000000000,
    "dataChange": True,
    "numRecords": 1000,
    "minValues": {"id": "1", "timestamp": "2024-10-01T00:00:00Z"},
    "maxValues": {"id": "1000", "timestamp": "2024-10-01T23:59:59Z"},
    "footerStartOffset": 1040000,
    "footerEndOffset": 1048576,
    "hotcacheStartOffset": 0,
    "hotcacheLength": 8192,
    "hasFooterOffsets": True,
    "timeRangeStart": "2024-10-01T00:00:00Z",
    "timeRangeEnd": "2024-10-01T23:59:59Z",
    "splitTags": ["production", "batch-123"],
    "deleteOpstamp": 0,
    "numMergeOps": 0,
    "docMappingJson": '{"fields":[{"name":"id","type":"i64"},{"name":"content","type":"text"}]}',
    "uncompressedSizeBytes": 2097152,
}
REMOVE = {
    "path": "s3://bucket/table/old-file.split",
    "deletionTimestamp": 1696000001000,
    "dataChange": True,
    "extendedFileMetadata": None,
    "partitionValues": {"year": "2024", "month": "09"},
    "size": 524288,
    "tags": {"reason": "overwrite"},
}
SKIP = {
    "path": "s3://bucket/table/corrupted-file.split",
    "skipTimestamp": 1696000000000,
    "reason": "Failed to merge: corrupted split metadata",
    "operation": "merge",
    "partitionValues": {"year": "2024", "month": "10"},
    "size": 102400,
    "retryAfter": 1696086400000,
    "skipCount": 1,
}
JSON_LINES = (
    b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    b'{"metaData":{"id":"uuid","format":{"provider":"indextables","options":{}},"schemaString":"...",'
    b'"partitionColumns":[],"configuration":{},"createdTime":1696000000000}}\n'
    b'{"add":{"path":"s3://bucket/table/part-00000.split","partitionValues":{},"size":1048576,'
    b'"modificationTime":1696000000000,"dataChange":true,"stats":"{...}","tags":{}}}\n'
    b'{"remove":{"path":"s3://bucket/table/old-file.split","deletionTimestamp":1696000000001,"dataChange":true}}\n'
    b'{"mergeskip":{"path":"s3://bucket/corrupted.split","skipTimestamp":1696000000002,"reason":"Corrupted file",'
    b'"operation":"merge","retryAfter":1696086400000}}\n'
)


def said(fields: dict[str, Any]) -> dict[str, Any]:
    """What an action says: a field that is null says as much as one that is not there."""
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(fields))
    return {name: value for name, value in decoded.items() if value is not None}


@pytest.mark.parametrize("example", [PROTOCOL, PROTOCOL_WITH_FEATURES])
def test_protocol_examples_are_read_and_written(example: dict[str, Any]) -> None:
    action = msgspec.convert(example, Protocol)
    assert action.min_reader_version == example["minReaderVersion"]
    assert list(action.reader_features or ()) == example.get("readerFeatures", [])
    assert said(protocol_fields(action)) == example


def test_the_metadata_example_is_read_and_written() -> None:
    action = msgspec.convert(METADATA_EXAMPLE, Metadata)
    assert action.partition_columns == ("year", "month")
    assert action.format.provider == "indextables"
    assert json.loads(msgspec.json.encode(metadata_fields(action))) == METADATA_EXAMPLE


@pytest.mark.parametrize("example", [BASIC_ADD, EXTENDED_ADD])
def test_add_examples_are_read_and_written(example: dict[str, Any]) -> None:
    action = read_add(json.dumps(example).encode(), "the example")
    for field, name in zip(action.__struct_fields__, action.__struct_encode_fields__, strict=True):
        if name in example:
            value = getattr(action, field)
            assert (list(value) if isinstance(value, tuple) else value) == example[name]
    assert said(add_fields(action)) == example


def test_the_remove_example_is_read_and_written() -> None:
    action = msgspec.convert(REMOVE, SplitRemove)
    assert (action.deletion_timestamp, action.size) == (1696000001000, 524288)
    assert said(remove_fields(action, NOW_MS)) == said(REMOVE)


def test_the_skip_example_is_read_and_written() -> None:
    action = msgspec.convert(SKIP, MergeSkip)
    assert (action.reason, action.skip_count) == ("Failed to merge: corrupted split metadata", 1)
    assert said(skip_fields(action)) == SKIP


def test_the_example_of_json_lines_is_read() -> None:
    store = DictStore({version_key(0): JSON_LINES})
    snapshot = open_snapshot(writer(store))
    assert (snapshot.protocol, snapshot.metadata.id) == (Protocol(1, 2), "uuid")
    assert (snapshot.num_files, snapshot.size_bytes) == (1, 1048576)
    (line,) = [each for each in snapshot.commits[0].file_lines() if each.add is not None]
    assert (line.add.path, line.add.stats) == ("s3://bucket/table/part-00000.split", "{...}")
    skip = snapshot.merge_skips["s3://bucket/corrupted.split"]
    assert (skip.retry_after, skip.skip_count) == (1696086400000, 1)


# --- names ------------------------------------------------------------------------------------------------


def test_version_files_and_checkpoints_have_twenty_digits() -> None:
    assert INDEXTABLES.commit_key(42) == "_transaction_log/00000000000000000042.json"
    assert key_of_checkpoint(INDEXTABLES, 50) == "_transaction_log/00000000000000000050.checkpoint.json"
    assert INDEXTABLES.last_checkpoint_key == "_transaction_log/_last_checkpoint"
    assert DELTA.commit_key(42) == "_delta_log/00000000000000000042.json"


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "42.json",
        f"{2**63:020d}.json",
        "00000000000000000001.crc",
        "00000000000000000001.json.tmp",
        "00000000000000000010.checkpoint.parquet",
        "00000000000000000001.00000000000000000002.compacted.json",
    ],
)
def test_other_names_in_the_log_directory_mean_nothing(name: str) -> None:
    assert parse_name(name) is None


# --- version 0 and what later versions hold -------------------------------------------------------------------


def test_version_0_is_exactly_protocol_and_metadata() -> None:
    store, _, snapshot = table()
    assert [list(line) for line in lines(store, 0)] == [["protocol"], ["metaData"]]
    assert lines(store, 0)[0]["protocol"] == PROTOCOL
    assert lines(store, 0)[1]["metaData"]["format"] == {"provider": "indextables", "options": {}}
    assert (snapshot.version, live(snapshot), snapshot.partition_columns) == (0, [], ["part"])


def test_a_version_holds_the_actions_of_the_specification_and_says_who_made_it_last() -> None:
    store, _, snapshot = table()
    append(snapshot, "file-1.split", "file-2.split")
    assert [next(iter(line)) for line in lines(store, 1)] == ["add", "add", "commitInfo"]
    assert lines(store, 1)[0]["add"]["path"] == "file-1.split"


def test_removes_come_before_adds() -> None:
    store, _, snapshot = table()
    replace_all(append(snapshot, "file-1.split"), "file-2.split")
    assert [next(iter(line)) for line in lines(store, 2)] == ["remove", "add", "commitInfo"]
    assert lines(store, 2)[0]["remove"] == {
        "path": "file-1.split",
        "deletionTimestamp": NOW_MS,
        "dataChange": True,
        "partitionValues": {},
        "size": 1_048_576,
    }


def test_a_delta_log_has_no_mergeskip() -> None:
    from support.log.commit_tables import table as delta_table

    _, ctx, snapshot = delta_table()
    with pytest.raises(InvalidCommitError, match="no mergeskip"):
        Transaction(ctx, snapshot).skip_merge([msgspec.convert(SKIP, MergeSkip)])


@pytest.mark.parametrize("name", ["txn", "domainMetadata", "cdc", "commitInfo", "schemaEvolution", "add2"])
def test_unknown_actions_and_fields_are_ignored(name: str) -> None:
    store, ctx, snapshot = table()
    add = {"path": "a.split", "size": 1, "modificationTime": 0, "partitionValues": {}, "dataChange": True}
    foreign = {name: {"whatever": [1, {"it": "is"}], "appId": 5, "domain": 7, "path": 3}}
    put_version(store, 1, foreign, {"add": {**add, "deletionVector": 5, "baseRowId": "x"}})
    assert live(open_snapshot(ctx)) == ["a.split"]
    assert snapshot.refresh().app_transactions == {}


def test_the_last_of_several_actions_for_one_file_counts() -> None:
    """Spec: "Active File Computation" goes through the actions one by one."""
    store, ctx, _ = table()
    add = {"path": "a.split", "size": 1, "modificationTime": 0, "partitionValues": {}, "dataChange": True}
    remove = {"path": "a.split", "deletionTimestamp": 1, "dataChange": True}
    put_version(store, 1, {"add": add}, {"add": {**add, "size": 2}})
    put_version(store, 2, {"remove": remove}, {"add": {**add, "size": 3}}, {"add": {**add, "path": "b.split"}})
    put_version(store, 3, {"add": {**add, "path": "b.split"}}, {"remove": {**remove, "path": "b.split"}})
    files = open_snapshot(ctx).files(columns=["path", "size"])
    assert files.to_pylist() == [{"path": "a.split", "size": 3}]
    assert open_snapshot(ctx, version=1).size_bytes == 2


def test_a_damaged_action_is_named_with_its_file() -> None:
    store, ctx, _ = table()
    put_version(store, 1, {"add": {"path": "a.split", "size": "large"}})
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json.*size"):
        _ = open_snapshot(ctx).num_files


# --- columns -----------------------------------------------------------------------------------------------


def test_files_have_a_column_for_every_field_of_the_specification() -> None:
    store, ctx, _ = table()
    put_version(store, 1, {"add": EXTENDED_ADD}, {"add": {**BASIC_ADD, "path": "basic.split"}})
    extended, basic = open_snapshot(ctx).files().to_pylist()
    assert {name: value for name, value in extended.items() if value is not None} == {
        **EXTENDED_ADD,
        "partitionValues": [("year", "2024"), ("month", "10")],
        "minValues": list(EXTENDED_ADD["minValues"].items()),  # type: ignore[attr-defined]
        "maxValues": list(EXTENDED_ADD["maxValues"].items()),  # type: ignore[attr-defined]
    }
    assert basic["hasFooterOffsets"] is False
    assert basic["splitTags"] is None
    assert set(extended) == set(_fields_of_the_spec())


def _fields_of_the_spec() -> list[str]:
    text = """path partitionValues size modificationTime dataChange stats tags minValues maxValues numRecords
        footerStartOffset footerEndOffset hotcacheStartOffset hotcacheLength hasFooterOffsets timeRangeStart
        timeRangeEnd splitTags deleteOpstamp numMergeOps docMappingJson uncompressedSizeBytes"""
    return re.findall(r"\w+", text)


def test_a_table_without_files_has_the_columns_all_the_same() -> None:
    _, _, snapshot = table()
    assert snapshot.files().column_names == _fields_of_the_spec()
    with pytest.raises(ValueError, match="unknown columns"):
        snapshot.files(columns=["deletionVector"])


# --- checkpoints --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_one_object_with_the_state_and_the_hint_names_it() -> None:
    store, ctx, snapshot = table({"spark.indextables.checkpoint.interval": "3"})
    for number in range(1, 4):
        snapshot = append(snapshot, f"file-{number}.split")
    content = json.loads(store.objects[checkpoint_key(3)])
    assert list(content) == ["protocol", "metaData", "add"]
    assert content["protocol"] == PROTOCOL
    assert content["metaData"] == lines(store, 0)[1]["metaData"]
    assert [add["path"] for add in content["add"]] == ["file-1.split", "file-2.split", "file-3.split"]
    hint = json.loads(store.objects["_transaction_log/_last_checkpoint"])
    assert hint == {"version": 3, "timestamp": NOW_MS}
    assert snapshot.segment.checkpoint is not None
    assert live(open_snapshot(ctx)) == live(snapshot) == ["file-1.split", "file-2.split", "file-3.split"]


def test_every_tenth_version_gets_a_checkpoint_by_default() -> None:
    store, _, snapshot = table()
    for number in range(21):
        snapshot = append(snapshot, f"file-{number}.split")
    assert [key for key in sorted(store.objects) if "checkpoint." in key] == [checkpoint_key(10), checkpoint_key(20)]


def test_a_checkpoint_leaves_out_what_was_removed_and_is_read_with_what_follows() -> None:
    _, ctx, snapshot = table({"spark.indextables.checkpoint.interval": "4"})
    snapshot = append(snapshot, "1.split", "2.split")
    snapshot = append(snapshot, "3.split")
    snapshot = merge(snapshot, ["1.split", "2.split"], "4.split")
    snapshot = append(snapshot, "5.split")
    snapshot = merge(snapshot, ["3.split", "4.split"], "6.split")
    reopened = open_snapshot(ctx)
    assert reopened.segment.checkpoint is not None
    assert reopened.segment.checkpoint.version == 4
    assert live(reopened) == live(snapshot) == ["5.split", "6.split"]
    assert live(open_snapshot(ctx, version=4)) == ["3.split", "4.split", "5.split"]
    assert live(open_snapshot(ctx, version=3)) == ["3.split", "4.split"]


def test_fields_that_are_not_known_survive_checkpoints() -> None:
    store, ctx, _ = table()
    metadata = {**lines(store, 0)[1]["metaData"], "columnMapping": {"mode": "id"}}
    protocol = {**PROTOCOL, "comment": "from a newer writer"}
    put_version(store, 0, {"protocol": protocol}, {"metaData": metadata})
    put_version(store, 1, {"add": {**EXTENDED_ADD, "deletionVector": {"cardinality": 3}, "future": [1, None, "ü"]}})
    rebased = write_json_checkpoint(open_snapshot(ctx))
    write_json_checkpoint(append(rebased, "b.split"))
    content = json.loads(store.objects[checkpoint_key(2)])
    assert content["metaData"] == metadata
    assert content["protocol"] == protocol
    assert content["add"][0]["future"] == [1, None, "ü"]
    assert content["add"][0]["deletionVector"] == {"cardinality": 3}


def test_skips_of_live_files_survive_checkpoints_and_others_do_not() -> None:
    store, ctx, snapshot = table()
    snapshot = append(snapshot, "sick.split", "fine.split")
    transaction = Transaction(ctx, snapshot)
    transaction.skip_merge(
        [
            MergeSkip("sick.split", NOW_MS, "corrupted", "merge", retry_after=NOW_MS + 5, skip_count=2),
            MergeSkip("gone.split", NOW_MS, "corrupted", "merge"),
        ]
    )
    snapshot = transaction.commit(Operation("MERGE SPLITS")).snapshot
    assert [next(iter(line)) for line in lines(store, 2)] == ["mergeskip", "mergeskip", "commitInfo"]
    assert set(snapshot.merge_skips) == {"sick.split", "gone.split"}
    write_json_checkpoint(snapshot)
    assert json.loads(store.objects[checkpoint_key(2)])["mergeskip"][0]["skipCount"] == 2
    reopened = open_snapshot(ctx)
    assert reopened.merge_skips == {"sick.split": snapshot.merge_skips["sick.split"]}
    assert live(reopened) == ["fine.split", "sick.split"]


def test_another_writers_checkpoint_stays_and_a_damaged_one_is_replaced() -> None:
    store, _, snapshot = table()
    snapshot = append(snapshot, "a.split")
    write_json_checkpoint(snapshot)
    first = store.objects[checkpoint_key(1)]
    store.objects[checkpoint_key(1)] = first.replace(b"\n", b"  \n")
    write_json_checkpoint(snapshot)
    assert store.objects[checkpoint_key(1)].endswith(b"  \n")
    store.objects[checkpoint_key(1)] = first[:-9]
    write_json_checkpoint(snapshot)
    assert store.objects[checkpoint_key(1)] == first


def test_the_hint_never_goes_back() -> None:
    store, ctx, snapshot = table()
    first = append(snapshot, "a.split")
    write_json_checkpoint(append(first, "b.split"))
    write_json_checkpoint(open_snapshot(ctx, version=1))
    assert json.loads(store.objects["_transaction_log/_last_checkpoint"])["version"] == 2


# --- the workflows of the specification ----------------------------------------------------------------------


def test_the_example_workflows() -> None:
    """Create, two appends, overwrite, two appends, merge: the versions and files that the specification lists."""
    store, ctx, snapshot = table()
    assert (snapshot.version, live(snapshot)) == (0, [])
    snapshot = append(snapshot, "file-1.split", "file-2.split")
    assert (snapshot.version, live(snapshot)) == (1, ["file-1.split", "file-2.split"])
    snapshot = append(snapshot, "file-3.split")
    assert (snapshot.version, live(snapshot)) == (2, ["file-1.split", "file-2.split", "file-3.split"])
    snapshot = replace_all(snapshot, "file-4.split")
    assert (snapshot.version, live(snapshot)) == (3, ["file-4.split"])
    assert sorted(line["remove"]["path"] for line in lines(store, 3) if "remove" in line) == [
        "file-1.split",
        "file-2.split",
        "file-3.split",
    ]
    snapshot = append(append(snapshot, "file-5.split"), "file-6.split")
    assert (snapshot.version, live(snapshot)) == (5, ["file-4.split", "file-5.split", "file-6.split"])
    snapshot = merge(snapshot, ["file-5.split", "file-6.split"], "file-7-merged.split")
    assert (snapshot.version, live(snapshot)) == (6, ["file-4.split", "file-7-merged.split"])
    for number in range(4):
        snapshot = append(snapshot, f"later-{number}.split")
    assert checkpoint_key(10) in store.objects
    for version in range(11):
        again = open_snapshot(ctx, version=version)
        assert again.version == version
    assert live(open_snapshot(ctx, version=2)) == ["file-1.split", "file-2.split", "file-3.split"]
    assert live(open_snapshot(ctx)) == live(snapshot)


def test_the_history_says_what_versions_did_even_if_they_do_not() -> None:
    store, ctx, snapshot = table()
    snapshot = append(snapshot, "a.split")
    put_version(store, 2, {"add": {**EXTENDED_ADD, "path": "b.split"}})
    put_version(store, 3, {"remove": REMOVE}, {"add": {**EXTENDED_ADD, "path": "c.split"}})
    put_version(store, 4, {"mergeskip": SKIP})
    put_version(store, 5, {"protocol": PROTOCOL})
    put_version(store, 6, {"remove": {**REMOVE, "dataChange": False}}, {"add": {**EXTENDED_ADD, "dataChange": False}})
    operations = [commit.operation for commit in open_snapshot(ctx).history()]
    assert operations == [
        "MERGE SPLITS",
        "UPGRADE PROTOCOL",
        "MERGE SKIP",
        "REPLACE FILES",
        "WRITE",
        "WRITE",
        "CREATE TABLE",
    ]


def test_split_helper_builds_what_the_log_reads() -> None:
    store, _, snapshot = table()
    append(snapshot, "a.split", partition_values={"part": "10"}, tags={"a": "b"}, split_tags=("x",))
    read = read_add(json.dumps(lines(store, 1)[0]["add"]).encode(), "the log")
    expected = split("a.split", partition_values={"part": "10"}, tags={"a": "b"}, split_tags=("x",))
    assert msgspec.structs.replace(read, raw=b"") == expected
    assert METADATA.partition_columns == ("part",)
