"""Action reconciliation and the rules for a single commit (spec: "Action Reconciliation", "Delta Log Entries")."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import CorruptLogError
from headwater.log.actions.decode import CommitActions, file_key
from headwater.log.actions.model import Add, DeletionVector, Remove
from headwater.log.delta.dialect import DELTA
from headwater.log.snapshot import Snapshot
from support.log.log_tables import (
    LOG,
    SCHEMA,
    UUID,
    add,
    commit_info,
    commit_key,
    domain,
    lines,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_v2,
    remove,
    txn,
    vector,
)
from support.oracles.log_model import observed, replay
from support.stores.log_store import DictStore, open_table

START = [protocol(), metadata()]


def table(*commits: list[dict[str, Any]]) -> Snapshot:
    """The newest snapshot of commits, the first of which also gets a protocol and metaData."""
    store = DictStore()
    for version, actions in enumerate(commits):
        put_commit(store, version, *(START if version == 0 else []), *actions)
    return open_table(store)


def paths(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.files().column("path").to_pylist())


# --- files ---------------------------------------------------------------------------------------------


def test_the_example_of_the_spec_for_compaction_reconciles_as_it_says() -> None:
    app = "3ae45b72-24e1-865a-a211-34987ae02f2a"
    snapshot = table(
        [commit_info(), add("f2"), remove("f1")],
        [commit_info(), add("f3"), add("f4"), txn(app, 4389)],
        [commit_info(), remove("f3"), txn(app, 4390)],
    )
    assert paths(snapshot) == ["f2", "f4"]
    assert sorted(snapshot.tombstones(include_expired=True).column("path").to_pylist()) == ["f1", "f3"]
    assert snapshot.app_transactions == {app: 4390}


@pytest.mark.parametrize(
    ("descriptor", "unique_id"),
    [
        (
            {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4},
            "uab^-aqEH.-t@S}K{vb[*k^@4",
        ),
        (
            {"storageType": "p", "pathOrInlineDv": "s3://mytable/deletion_vector_d2c639aa.bin", "offset": 4},
            "ps3://mytable/deletion_vector_d2c639aa.bin@4",
        ),
        ({"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0"}, "iwi5b=000010000siXQKl0"),
        ({"storageType": "u", "pathOrInlineDv": "x", "offset": 0}, "ux@0"),
    ],
)
def test_the_unique_id_of_a_deletion_vector_is_derived_as_specified(descriptor: dict[str, Any], unique_id: str) -> None:
    action = add("f", deletionVector={**descriptor, "sizeInBytes": 40, "cardinality": 6})
    line = CommitActions(0, 0, "c", lines([action]), DELTA).file_lines()[0]
    assert line.add is not None
    assert file_key(line.add) == ("f", unique_id)


def test_a_file_without_a_deletion_vector_has_a_key_without_an_id() -> None:
    assert file_key(Add("f", 1)) == ("f", None)
    assert file_key(Remove("f", deletion_vector=DeletionVector("u", "x", 1, 1))) == ("f", "ux")


def test_a_new_deletion_vector_replaces_the_logical_file() -> None:
    snapshot = table(
        [add("f")],
        [add("f", deletionVector=vector("one", cardinality=1)), remove("f")],
        [add("f", deletionVector=vector("two", cardinality=2)), remove("f", deletionVector=vector("one"))],
    )
    assert snapshot.files().column("deletionVector").to_pylist() == [
        {"storageType": "u", "pathOrInlineDv": "two", "offset": 1, "sizeInBytes": 40, "cardinality": 2}
    ]


def test_vectors_that_differ_only_in_their_offset_are_different() -> None:
    snapshot = table(
        [add("f", deletionVector=vector("one", offset=1))],
        [add("f", deletionVector=vector("one", offset=2)), remove("f", deletionVector=vector("one", offset=1))],
    )
    assert snapshot.files().column("deletionVector").to_pylist()[0]["offset"] == 2


def test_a_remove_with_another_vector_removes_nothing() -> None:
    snapshot = table([add("f", deletionVector=vector("one"))], [remove("f"), remove("f2")])
    assert paths(snapshot) == ["f"]


def test_the_newest_add_replaces_statistics_and_everything_else() -> None:
    snapshot = table([add("f", 1, stats='{"numRecords":1}')], [add("f", 2, tags={"a": "b"}, dataChange=False)])
    assert snapshot.files().select(["path", "size", "stats", "dataChange"]).to_pylist() == [
        {"path": "f", "size": 2, "stats": None, "dataChange": False}
    ]
    assert (snapshot.num_files, snapshot.size_bytes) == (1, 2)


def test_a_removed_file_may_come_back() -> None:
    assert paths(table([add("f")], [remove("f")], [add("f", 7)])) == ["f"]


@pytest.mark.parametrize(
    ("added", "removed"),
    [
        ("/tmp/x", "file:/tmp/x"),
        ("file:///tmp/x", "/tmp/x"),
        ("a%20b", "a b"),
        ("caf%C3%A9/%25", "café/%25"),
    ],
)
def test_actions_meet_whichever_way_a_path_is_spelled(added: str, removed: str) -> None:
    assert paths(table([add(added), add("other")], [remove(removed)])) == ["other"]


def test_a_path_is_returned_as_it_was_written_last() -> None:
    assert paths(table([add("a b"), add("100%25")], [add("a%20b")])) == ["100%25", "a%20b"]


@pytest.mark.parametrize("kind", ["classic", "v2-json", "v2-sidecar"])
def test_spellings_meet_across_a_checkpoint_too(kind: str) -> None:
    store = DictStore()
    files = [add("/t/a%20b"), add("file:/t/c"), add("x%2525"), add("y"), add("z", deletionVector=vector("one"))]
    actions = [*START, *files, remove("gone%20file")]
    if kind == "classic":
        put_classic(store, 0, actions)
    else:
        put_v2(store, 0, actions, json_format=kind == "v2-json", sidecars=2 if kind == "v2-sidecar" else 0)
    removed = [remove("file:///t/a b"), remove("/t/c"), remove("x%25"), remove("z")]
    put_commit(store, 1, *removed, add("gone file"))
    snapshot = open_table(store)
    assert paths(snapshot) == ["gone file", "x%2525", "y", "z"]
    assert "gone%20file" not in snapshot.tombstones(include_expired=True).column("path").to_pylist()


# --- everything else --------------------------------------------------------------------------------------


def test_the_newest_protocol_and_metadata_win_completely() -> None:
    snapshot = table(
        [metadata({"a": "1"}, name="old", description="d")][:0],
        [metadata({"b": "2"}, name="new"), protocol(2, 5)],
    )
    assert (snapshot.metadata.name, snapshot.metadata.description) == ("new", None)
    assert snapshot.properties == {"b": "2"}
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (2, 5)


def test_a_transaction_may_go_back() -> None:
    assert table([txn("a", 7), txn("b", 1)], [txn("a", 3)]).app_transactions == {"a": 3, "b": 1}


def test_a_removed_domain_suppresses_the_older_one_and_may_come_back() -> None:
    removed = table([domain("d", "1"), domain("e", "2")], [domain("d", "1", removed=True)])
    assert removed.domain_metadata == {"e": "2"}
    again = table([domain("d", "1")], [domain("d", "1", removed=True)], [domain("d", "3")])
    assert again.domain_metadata == {"d": "3"}


def test_a_domain_of_the_checkpoint_is_suppressed_by_a_later_removal() -> None:
    store = DictStore()
    put_classic(store, 0, [*START, domain("d", "1"), domain("gone", "", removed=True), txn("a", 1)])
    put_commit(store, 1, domain("d", "1", removed=True), txn("b", 2))
    snapshot = open_table(store)
    assert snapshot.domain_metadata == {}
    assert snapshot.app_transactions == {"a": 1, "b": 2}


def test_unknown_actions_fields_and_values_are_ignored() -> None:
    snapshot = table(
        [
            {"someNewAction": {"a": [1, {"b": None}]}},
            {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}},
            {"sidecar": {"path": "not-for-commits.parquet", "sizeInBytes": 1, "modificationTime": 1}},
            {"checkpointMetadata": {"version": 1}},
            {},
            add("f", newField={"deep": [1, 2, 3]}, deletionVector=None, stats=None, tags=None),
            {**txn("a", 1), "commitInfo": None, "add": None},
        ]
    )
    assert paths(snapshot) == ["f"]
    assert snapshot.app_transactions == {"a": 1}


def test_the_order_of_actions_in_a_commit_does_not_matter() -> None:
    actions = [add("f"), add("g", deletionVector=vector("v")), remove("h"), txn("a", 1), domain("d", "x"), *START]
    states = []
    for ordered in (actions, actions[::-1], actions[3:] + actions[:3]):
        store = DictStore()
        put_commit(store, 0, *ordered)
        states.append(observed(open_table(store)))
    assert states[0] == states[1] == states[2] == replay([actions]).state()


def test_numbers_beyond_doubles_and_text_beyond_ascii_survive() -> None:
    snapshot = table([add("ü/😀", 2**53 + 1, partitionValues={"ä": "ß"}, baseRowId=2**63 - 1), txn("ö", 2**62 + 1)])
    row = snapshot.files().to_pylist(maps_as_pydicts="strict")[0]
    assert (row["path"], row["size"], row["baseRowId"]) == ("ü/😀", 2**53 + 1, 2**63 - 1)
    assert row["partitionValues"] == {"ä": "ß"}
    assert snapshot.app_transactions == {"ö": 2**62 + 1}


def test_two_actions_on_one_line_both_count() -> None:
    store = DictStore()
    put_commit(store, 0, *START, add("f"))
    put_commit(store, 1, {**add("g"), **remove("f"), **txn("a", 1)})
    snapshot = open_table(store)
    assert paths(snapshot) == ["g"]
    assert snapshot.app_transactions == {"a": 1}


# --- commits that say too much -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twice",
    [
        [add("f", 1), add("f", 2)],
        [add("a b"), add("a%20b")],
        [add("f"), remove("f")],
        [add("f", deletionVector=vector("v")), remove("f", deletionVector=vector("v"))],
        [remove("f", deletionTimestamp=1), remove("f", deletionTimestamp=2)],
    ],
)
def test_contradicting_file_actions_of_one_commit_are_an_error_that_names_commit_and_file(
    twice: list[dict[str, Any]],
) -> None:
    snapshot = table([add("other")], twice)
    for ask in (lambda: snapshot.num_files, snapshot.files, snapshot.tombstones):
        with pytest.raises(CorruptLogError, match=rf"{1:020d}\.json .*(f|a%20b|a b)"):
            ask()
    assert [(d.source, d.field) for d in snapshot.verify()] == [(commit_key(1), "actions")]


@pytest.mark.parametrize(
    ("twice", "name"),
    [
        ([metadata(name="a"), metadata(name="b")], "metaData"),
        ([protocol(1, 2), protocol(1, 3)], "protocol"),
        ([txn("a", 1), txn("a", 2)], "txn of 'a'"),
        ([domain("d", "1"), domain("d", "2")], "domainMetadata of 'd'"),
    ],
)
def test_contradicting_table_actions_of_one_commit_are_an_error_that_names_them(
    twice: list[dict[str, Any]], name: str
) -> None:
    with pytest.raises(CorruptLogError, match=rf"{1:020d}\.json .*{name}"):
        _ = table([add("f")], twice).app_transactions


@pytest.mark.parametrize(
    ("twice", "reported"),
    [
        ([add("f"), add("f")], "2 add actions for the path 'f'"),
        ([remove("f"), remove("f")], "2 remove actions for the path 'f'"),
        (
            [add("f", deletionVector=vector("v")), add("f", deletionVector=vector("w"))],
            "2 add actions for the path 'f'",
        ),
        ([remove("f"), remove("f", deletionVector=vector("w"))], "2 remove actions for the path 'f'"),
        ([metadata(), metadata()], "2 metaData actions"),
        ([protocol(), protocol()], "2 protocol actions"),
        ([txn("a", 1), txn("a", 1)], "2 txn actions for 'a'"),
        ([domain("d"), domain("d")], "2 domainMetadata actions for 'd'"),
        ([{"sidecar": {"path": "x", "sizeInBytes": 1}}], "a sidecar action"),
        ([{"checkpointMetadata": {"version": 1}}], "a checkpointMetadata action"),
    ],
)
def test_illegal_actions_that_contradict_nothing_are_reported_by_verify(
    twice: list[dict[str, Any]], reported: str
) -> None:
    snapshot = table([add("other")], twice)
    found = snapshot.verify()
    assert [(d.source, d.field) for d in found] == [(commit_key(1), "actions")]
    assert reported in found[0].actual


def test_a_change_of_vector_and_a_cdc_action_for_the_same_path_are_legal() -> None:
    cdc = {"cdc": {"path": "f", "partitionValues": {}, "size": 1, "dataChange": False}}
    snapshot = table([add("f")], [remove("f"), add("f", deletionVector=vector("v")), cdc])
    assert snapshot.verify() == []


# --- commits that cannot be decoded -----------------------------------------------------------------------------

DEEP = b'{"unknown":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"{",
        b"null",
        b"[]",
        b"3",
        b'"add"',
        b'{"add":{"path":"f"}}',  # no size
        b'{"add":{"size":1}}',
        b'{"add":[]}',
        b'{"add":{"path":1,"size":1}}',
        b'{"add":{"path":"f","size":"1"}}',
        b'{"add":{"path":"f","size":1.5}}',
        b'{"add":{"path":"f","size":9223372036854775808}}',
        b'{"add":{"path":"f","size":1,"modificationTime":-9223372036854775809}}',
        b'{"add":{"path":"f","size":1,"baseRowId":123456789012345678901234567890}}',
        b'{"add":{"path":"f","size":1,"partitionValues":{"a":1}}}',
        b'{"add":{"path":"f","size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"x"}}}',
        (
            b'{"add":{"path":"f","size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"x",'
            b'"sizeInBytes":2147483648,"cardinality":1}}}'
        ),
        (
            b'{"add":{"path":"f","size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"x",'
            b'"offset":-2147483649,"sizeInBytes":1,"cardinality":1}}}'
        ),
        b'{"add":{"path":"\xff","size":1}}',
        b'{"add":{"path":"\\ud800","size":1}}',
        b'{"remove":{}}',
        b'{"txn":{"appId":"a"}}',
        b'{"txn":{"appId":"a","version":9223372036854775808}}',
        b'{"domainMetadata":{"configuration":"x"}}',
        b'{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}',
        b'{"protocol":{"minReaderVersion":1}}',
        b'{"metaData":{"id":"x","schemaString":"{}","configuration":{"a":1}}}',
        b'{"metaData":{"schemaString":"{}"}}',
        b'{"txn":{"appId":"a","version":1}}\n{"txn":',
        DEEP,
        b"\xef\xbb\xbf{}",
        b"PAR1\x00\x00",
    ],
    ids=lambda data: repr(data[:60]),
)
def test_a_commit_that_cannot_be_decoded_is_an_error_that_names_it(data: bytes) -> None:
    store = DictStore()
    put_commit(store, 0, *START)
    store.objects[commit_key(1)] = data

    def read() -> None:
        snapshot = open_table(store)
        _ = snapshot.app_transactions
        snapshot.files()

    with pytest.raises(CorruptLogError, match=rf"{1:020d}\.json"):
        read()


def test_an_error_names_the_line() -> None:
    store = DictStore()
    store.objects[commit_key(0)] = lines([*START]) + b'\n{"txn":{"appId":5,"version":1}}\n'
    with pytest.raises(CorruptLogError, match="line 4"):
        open_table(store)


@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\n\n", b"\n  \n", b"\n\t"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n"])
def test_white_space_between_actions_says_nothing(separator: bytes, end: bytes) -> None:
    store = DictStore()
    actions = [*START, add("f"), txn("a", 1), commit_info()]
    store.objects[commit_key(0)] = separator.join(lines([a]).strip() for a in actions) + end
    snapshot = open_table(store)
    assert observed(snapshot) == replay([actions]).state()
    assert snapshot.history()[0].operation == "WRITE"


# --- what a table must have ---------------------------------------------------------------------------------------


def test_a_log_without_a_protocol_is_not_complete() -> None:
    store = DictStore()
    put_commit(store, 0, metadata(), add("f"))
    with pytest.raises(CorruptLogError, match="version 0 has no protocol"):
        open_table(store)


def test_a_log_without_metadata_is_not_complete() -> None:
    store = DictStore()
    put_commit(store, 0, protocol(), add("f"))
    with pytest.raises(CorruptLogError, match="version 0 has no metaData"):
        open_table(store)


def test_metadata_without_a_schema_matters_only_while_it_is_in_force() -> None:
    store = DictStore()
    without = {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "configuration": {}}}
    put_commit(store, 0, protocol(), without)
    with pytest.raises(CorruptLogError, match="schemaString"):
        open_table(store)
    put_commit(store, 1, metadata())
    assert open_table(store).metadata.schema_string == SCHEMA


def test_configuration_values_that_are_null_are_as_if_they_were_not_there() -> None:
    """Early versions of delta-rs wrote them."""
    store = DictStore()
    put_commit(store, 0, protocol(), metadata({"a": None, "b": "1"}))
    assert open_table(store).properties == {"b": "1"}


def test_all_fields_of_the_metadata_action_are_there() -> None:
    store = DictStore()
    whole = metadata({"appendOnly": "true"}, name="n", description="d", createdTime=5, partitionColumns=["part"])
    put_commit(store, 0, protocol(), whole)
    found = open_table(store).metadata
    assert (found.id, found.name, found.description, found.created_time) == (
        "af23c9d7-fff1-4a5a-a2c8-55c59bd782aa",
        "n",
        "d",
        5,
    )
    assert found.partition_columns == ("part",)
    assert json.loads(found.schema_string) == json.loads(SCHEMA)


def test_checkpoint_actions_in_a_commit_take_no_part_in_replay() -> None:
    store = DictStore()
    put_v2(store, 0, [*START, add("from-sidecar")], sidecars=1)
    name = f"0-{UUID}-0.parquet"
    assert f"{LOG}_sidecars/{name}" in store.objects
    put_commit(store, 0, *START, {"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 0}})
    store.delete_many([f"{LOG}{0:020d}.checkpoint.{UUID}.parquet"])
    assert open_table(store).num_files == 0
