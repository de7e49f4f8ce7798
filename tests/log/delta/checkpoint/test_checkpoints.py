"""Checkpoints of every kind, made with pyarrow after the spec's "Checkpoint Schema", or by deltalake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import headwater as hw
from headwater.errors import CorruptLogError
from support.log.log_tables import (
    COLUMNS,
    LOG,
    UUID,
    V1_COLUMNS,
    add,
    domain,
    features,
    lines,
    metadata,
    parquet,
    parquet_of,
    protocol,
    put_classic,
    put_commit,
    put_multipart,
    put_v2,
    remove,
    txn,
    vector,
)
from support.oracles.log_model import Action, Model, observed, parse_lines, replay
from support.stores.log_store import DictStore, open_table

HISTORY: list[list[Action]] = [
    [
        features("deletionVectors", "v2Checkpoint"),
        metadata({"delta.enableDeletionVectors": "true"}, name="n", createdTime=7),
        add("f0", 10, stats='{"numRecords":3}', partitionValues={"part": "a"}, tags={"t": "1"}),
        add("f1", 20, partitionValues={"part": None}),
        domain("d", "x"),
        domain("gone", "y"),
        txn("app", 1, lastUpdated=5),
    ],
    [add("f2", 30, baseRowId=5, defaultRowCommitVersion=1, clusteringProvider="liquid"), txn("app", 2), txn("b", 1)],
    [
        remove("f1"),
        add("f0", 10, deletionVector=vector("v", 4)),
        remove("f0"),
        domain("gone", "y", removed=True),
    ],
]
STATE = replay(HISTORY)
FILES = ["f0", "f2"]

Writer = Callable[[DictStore, int, list[Action]], object]
KINDS: dict[str, Writer] = {
    "classic": put_classic,
    "classic, many row groups": lambda s, v, a: put_classic(s, v, a, row_group_size=1),
    "multi-part": lambda s, v, a: put_multipart(s, v, a, 3),
    "multi-part, more parts than actions": lambda s, v, a: put_multipart(s, v, a, 20),
    "V2 in Parquet": lambda s, v, a: put_v2(s, v, a),
    "V2 in Parquet, sidecars": lambda s, v, a: put_v2(s, v, a, sidecars=2),
    "V2 in Parquet, an empty sidecar": lambda s, v, a: put_v2(s, v, a, sidecars=9),
    "V2 in JSON": lambda s, v, a: put_v2(s, v, a, json_format=True),
    "V2 in JSON, sidecars": lambda s, v, a: put_v2(s, v, a, json_format=True, sidecars=3),
    "V2 with a classic name": lambda s, v, a: put_v2(s, v, a, classic_name=True),
    "V2 with a classic name, sidecars": lambda s, v, a: put_v2(s, v, a, classic_name=True, sidecars=2),
}


def checkpoint_actions(model: Model) -> list[Action]:
    """What a checkpoint of the model holds; removed domains may be left out, and are here."""
    return [a for a in model.actions() if not a.get("domainMetadata", {}).get("removed")]


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def put_checkpoint(request: pytest.FixtureRequest) -> Writer:
    return request.param


# --- every kind says the same ------------------------------------------------------------------------------


def test_a_checkpoint_alone_is_the_table(put_checkpoint: Writer) -> None:
    store = DictStore()
    put_checkpoint(store, 2, checkpoint_actions(STATE))
    snapshot = open_table(store)
    assert snapshot.version == 2
    assert observed(snapshot) == STATE.state()


def test_commits_after_a_checkpoint_replace_and_remove_its_files(put_checkpoint: Writer) -> None:
    store = DictStore()
    put_checkpoint(store, 2, checkpoint_actions(STATE))
    later = [
        [remove("f0", deletionVector=vector("v", 4)), add("f0", 10, deletionVector=vector("w", 8)), add("f3")],
        [remove("f2"), add("f1", 5), domain("d", "x", removed=True), txn("b", 9), metadata({"a": "b"})],
    ]
    for version, actions in enumerate(later, 3):
        put_commit(store, version, *actions)
    assert observed(open_table(store)) == replay([*HISTORY, *later]).state()
    assert observed(open_table(store, version=3)) == replay([*HISTORY, later[0]]).state()


def test_counting_works_without_asking_for_files_first(put_checkpoint: Writer) -> None:
    store = DictStore()
    put_checkpoint(store, 2, checkpoint_actions(STATE))
    put_commit(store, 3, remove("f2"))
    snapshot = open_table(store)
    assert (snapshot.num_files, snapshot.size_bytes) == (1, 10)


def test_opening_reads_protocol_and_metadata_only_when_they_are_needed() -> None:
    store = DictStore()
    key = put_classic(store, 2, checkpoint_actions(STATE))
    put_commit(store, 3, *HISTORY[0][:2])
    snapshot = open_table(store)
    assert snapshot.metadata.name == "n"
    assert ("get_range", key) not in store.calls


def test_all_fields_of_an_action_survive(put_checkpoint: Writer) -> None:
    whole = add(
        "p%20q",
        2**40,
        partitionValues={"part": "ü", "empty": "", "null": None},
        modificationTime=2**41,
        dataChange=False,
        stats='{"numRecords":9007199254740993}',
        tags={"t": "1", "n": None},
        deletionVector=vector("v", 4, 2**33),
        baseRowId=2**42,
        defaultRowCommitVersion=3,
        clusteringProvider="liquid",
    )
    store = DictStore()
    put_checkpoint(store, 0, [*HISTORY[0][:2], whole])
    assert open_table(store).files().to_pylist(maps_as_pydicts="strict") == [whole["add"]]


# --- what must be in a checkpoint ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["protocol", "metaData"])
def test_a_checkpoint_without_protocol_or_metadata_is_an_error_even_if_commits_have_them(
    put_checkpoint: Writer, name: str
) -> None:
    store = DictStore()
    for version, actions in enumerate(HISTORY):
        put_commit(store, version, *actions)
    put_checkpoint(store, 2, [a for a in checkpoint_actions(STATE) if name not in a])
    with pytest.raises(CorruptLogError, match=rf"{2:020d}\.checkpoint.* no {name} action"):
        open_table(store)


@pytest.mark.parametrize("name", ["protocol", "metaData"])
def test_such_a_checkpoint_is_not_believed_about_files_either(put_checkpoint: Writer, name: str) -> None:
    """The commits after it have both, so that the table can be opened without looking for them in the checkpoint."""
    store = DictStore()
    put_checkpoint(store, 2, [a for a in checkpoint_actions(STATE) if name not in a])
    put_commit(store, 3, *HISTORY[0][:2])
    snapshot = open_table(store)
    for ask in (snapshot.files, snapshot.tombstones, lambda: snapshot.num_files, lambda: snapshot.app_transactions):
        with pytest.raises(CorruptLogError, match=f"no {name} action"):
            ask()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("txn", txn("app", 99)),
        ("domainMetadata", domain("d", "other")),
    ],
)
def test_a_checkpoint_with_two_values_for_one_name_is_an_error(
    put_checkpoint: Writer, name: str, other: Action
) -> None:
    store = DictStore()
    put_checkpoint(store, 2, [*checkpoint_actions(STATE), other])

    def read() -> None:
        _ = open_table(store).app_transactions

    with pytest.raises(CorruptLogError, match=rf"{2:020d}\.checkpoint.*(several|two) different.* {name}"):
        read()


def test_the_same_action_twice_does_no_harm(put_checkpoint: Writer) -> None:
    store = DictStore()
    actions = checkpoint_actions(STATE)
    put_checkpoint(store, 2, [*actions, *(a for a in actions if "add" not in a and "remove" not in a)])
    assert observed(open_table(store)) == STATE.state()


# --- sidecars ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("json_format", [True, False])
def test_a_missing_sidecar_is_an_error_that_names_it(json_format: bool) -> None:
    store = DictStore()
    put_v2(store, 2, checkpoint_actions(STATE), json_format=json_format, sidecars=2)
    missing = f"{LOG}_sidecars/2-{UUID}-1.parquet"
    store.delete_many([missing])
    snapshot = open_table(store)
    assert snapshot.metadata.name == "n", "the table can still be looked at"
    for ask in (snapshot.files, lambda: snapshot.num_files, snapshot.tombstones):
        with pytest.raises(CorruptLogError, match=rf"{missing} does not exist"):
            ask()


@pytest.mark.parametrize("json_format", [True, False])
@pytest.mark.parametrize(
    "spelling",
    [
        "{name}",
        "_delta_log/_sidecars/{name}",
        "file:///somewhere/else/_delta_log/_sidecars/{name}",
        "s3://bucket/{name}",
        "%64{name}",  # an escaped letter d
    ],
)
def test_only_the_name_in_the_path_of_a_sidecar_counts(json_format: bool, spelling: str) -> None:
    store = DictStore()
    data = parquet([add("f")], ("add", "remove"))
    name = "d-1.parquet" if "%64" in spelling else "s 1.parquet"
    store.objects[f"{LOG}_sidecars/{name}"] = data
    path = spelling.format(name=(name[1:] if "%64" in spelling else "s%201.parquet"))
    sidecar = {"sidecar": {"path": path, "sizeInBytes": len(data), "modificationTime": 1}}
    actions = [{"checkpointMetadata": {"version": 0}}, *HISTORY[0][:2], sidecar]
    key = f"{LOG}{0:020d}.checkpoint.{UUID}." + ("json" if json_format else "parquet")
    store.objects[key] = lines(actions) if json_format else parquet(actions)
    assert open_table(store).files().column("path").to_pylist() == ["f"]


@pytest.mark.parametrize("json_format", [True, False])
def test_a_sidecar_that_is_named_twice_is_read_once(json_format: bool) -> None:
    store = DictStore()
    key = put_v2(store, 2, checkpoint_actions(STATE), json_format=True, sidecars=1)
    actions = parse_lines(store.objects.pop(key))
    actions.append(actions[-1])
    key = f"{LOG}{2:020d}.checkpoint.{UUID}." + ("json" if json_format else "parquet")
    store.objects[key] = lines(actions) if json_format else parquet(actions)
    assert observed(open_table(store)) == STATE.state()


@pytest.mark.parametrize("size", [0, -1, 1, 10**9, 2**63 - 1])
def test_a_sidecar_that_has_not_the_size_its_checkpoint_says_is_an_error_that_names_it(size: int) -> None:
    store = DictStore()
    key = put_v2(store, 2, checkpoint_actions(STATE), json_format=True, sidecars=1)
    actions = parse_lines(store.objects[key])
    actions[-1]["sidecar"]["sizeInBytes"] = size
    store.objects[key] = lines(actions)
    with pytest.raises(CorruptLogError, match=f"{LOG}_sidecars/2-{UUID}-0.parquet"):
        open_table(store).files()


@pytest.mark.parametrize("json_format", [True, False])
@pytest.mark.parametrize("stray", [add("x"), remove("x")], ids=["add", "remove"])
@pytest.mark.parametrize("statistics", [True, False])
def test_file_actions_both_inside_and_in_sidecars_are_an_error(
    json_format: bool, stray: Action, statistics: bool
) -> None:
    store = DictStore()
    key = put_v2(store, 2, checkpoint_actions(STATE), json_format=True, sidecars=1)
    actions = [*parse_lines(store.objects.pop(key)), stray]
    key = f"{LOG}{2:020d}.checkpoint.{UUID}." + ("json" if json_format else "parquet")
    store.objects[key] = lines(actions) if json_format else _rewritten(parquet(actions), write_statistics=statistics)
    with pytest.raises(CorruptLogError, match=rf"{UUID}.*besides those in its sidecars"):
        open_table(store).files()


def test_a_checkpoint_with_sidecars_and_without_statistics_is_read() -> None:
    store = DictStore()
    key = put_v2(store, 2, checkpoint_actions(STATE), sidecars=2)
    store.objects[key] = _rewritten(store.objects[key], write_statistics=False)
    assert observed(open_table(store)) == STATE.state()


def test_sidecars_of_a_multi_part_checkpoint_are_none_of_its_business() -> None:
    """A multi-part checkpoint is always V1; a stray column of that name has no meaning in it."""
    store = DictStore()
    keys = put_multipart(store, 2, checkpoint_actions(STATE), 2)
    sidecar = {"sidecar": {"path": "nowhere.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    store.objects[keys[0]] = parquet([*checkpoint_actions(STATE)[0::2], sidecar])
    assert observed(open_table(store)) == STATE.state()


# --- unusual Parquet --------------------------------------------------------------------------------------------

ROWS = checkpoint_actions(STATE)


def test_columns_that_are_not_there_are_null() -> None:
    store = DictStore()
    rows = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "schemaString": metadata()["metaData"]["schemaString"]}},
        {"add": {"path": "f", "size": 1}},
    ]
    columns = {name: pa.array([row.get(name) for row in rows]) for name in ("protocol", "metaData", "add")}
    store.objects[f"{LOG}{0:020d}.checkpoint.parquet"] = parquet_of(pa.table(columns))
    snapshot = open_table(store)
    row = snapshot.files().to_pylist()[0]
    assert (row.pop("path"), row.pop("size")) == ("f", 1)
    assert set(row.values()) == {None}
    assert snapshot.tombstones().num_rows == 0
    assert snapshot.app_transactions == snapshot.domain_metadata == snapshot.properties == {}


def test_unknown_columns_and_unknown_actions_are_ignored() -> None:
    store = DictStore()
    key = put_classic(store, 2, ROWS)
    table = pa.parquet.read_table(pa.BufferReader(store.objects[key]))
    unknown = pa.array([{"a": i, "path": "not-a-file"} for i in range(table.num_rows)])
    table = table.add_column(0, "some_new_feature", unknown).append_column("addition", unknown)
    wider = table.column("add").combine_chunks()
    names = [*(f.name for f in wider.type), "newField"]
    arrays = [*wider.flatten(), pa.array(range(len(wider)))]
    widened = pa.StructArray.from_arrays(arrays, names, mask=wider.is_null())
    table = table.set_column(table.schema.get_field_index("add"), "add", widened)
    store.objects[key] = parquet_of(table)
    assert observed(open_table(store)) == STATE.state()


def test_rows_of_unknown_actions_only_are_no_files() -> None:
    store = DictStore()
    key = put_classic(store, 2, [*ROWS, {}, {}])
    assert observed(open_table(store)) == STATE.state()
    assert pa.parquet.read_metadata(pa.BufferReader(store.objects[key])).num_rows == len(ROWS) + 2


def test_structs_that_are_there_with_null_children_only_are_no_actions() -> None:
    """Some writers mark no struct as null: a row that is some other action has all its leaves null instead."""
    store = DictStore()
    arrays = []
    for name in V1_COLUMNS:
        rows = [a.get(name) for a in ROWS]
        type_ = COLUMNS[name]
        children = [pa.array([_maps_as_pairs(row.get(f.name)) if row else None for row in rows], f.type) for f in type_]
        arrays.append(pa.StructArray.from_arrays(children, fields=list(type_)))
    assert sum(array.null_count for array in arrays) == 0
    table = pa.table(arrays, names=V1_COLUMNS)
    for group_size in (None, 2):
        store.objects[f"{LOG}{2:020d}.checkpoint.parquet"] = parquet_of(table, group_size)
        assert observed(open_table(store)) == STATE.state()


def _maps_as_pairs(value: Any) -> Any:
    if isinstance(value, dict) and "provider" not in value and "storageType" not in value:
        return list(value.items())
    return {**value, "options": []} if isinstance(value, dict) and "provider" in value else value


def test_children_that_are_declared_as_never_null_are_read() -> None:
    """As delta-rs and Spark write them: a path is required wherever there is an add."""
    needed = {"path", "size", "minReaderVersion", "minWriterVersion", "id", "appId", "version", "domain"}
    store = DictStore()
    key = put_classic(store, 2, ROWS)
    table = pa.parquet.read_table(pa.BufferReader(store.objects[key]))
    for name in V1_COLUMNS:
        column = table.column(name).combine_chunks()
        fields = [pa.field(f.name, f.type, f.name not in needed) for f in column.type]
        children = [
            child if field.nullable else child.fill_null("" if field.type == pa.string() else 0)
            for child, field in zip(column.flatten(), fields, strict=True)
        ]
        required = pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
        table = table.set_column(table.schema.get_field_index(name), pa.field(name, required.type), required)
    for group_size in (None, 2):
        store.objects[key] = parquet_of(table, group_size)
        assert observed(open_table(store)) == STATE.state()


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": False},
        {"write_statistics": False},
        {"data_page_version": "2.0"},
        {"write_page_checksum": False},
        *({"compression": name} for name in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
    ],
    ids=str,
)
def test_files_written_with_other_options_are_read(options: dict[str, Any]) -> None:
    store = DictStore()
    key = put_classic(store, 2, ROWS)
    store.objects[key] = _rewritten(store.objects[key], row_group_size=3, **options)
    assert observed(open_table(store)) == STATE.state()


def _rewritten(data: bytes, **options: Any) -> bytes:
    """The same Parquet file, written with other options."""
    target = pa.BufferOutputStream()
    pa.parquet.write_table(pa.parquet.read_table(pa.BufferReader(data)), target, **options)
    return target.getvalue().to_pybytes()


def test_narrower_and_wider_integers_and_large_strings_are_read() -> None:
    """delta-rs and others do not all use the types of the spec's example."""
    changed = {pa.int64(): pa.int32(), pa.int32(): pa.int64(), pa.string(): pa.large_string()}

    def change(type_: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(type_):
            return pa.struct([pa.field(f.name, change(f.type)) for f in type_])
        if pa.types.is_list(type_):
            return pa.large_list(pa.large_string())
        return changed.get(type_, type_)

    store = DictStore()
    small = [a for a in ROWS if "remove" not in a]
    small = [json.loads(json.dumps(a).replace("1512909768000", "15")) for a in small]
    schema = pa.schema([(name, change(COLUMNS[name])) for name in V1_COLUMNS])
    table = pa.parquet.read_table(pa.BufferReader(parquet(small, V1_COLUMNS))).cast(schema)
    store.objects[f"{LOG}{2:020d}.checkpoint.parquet"] = parquet_of(table)
    assert observed(open_table(store)) == replay([small]).state()


@pytest.mark.parametrize(
    "configuration", [{}, {"a": None}, {"a": None, "b": "1"}, {"a": ""}], ids=["none", "null", "both", "empty"]
)
def test_properties_of_any_kind_survive(put_checkpoint: Writer, configuration: dict[str, str | None]) -> None:
    store = DictStore()
    put_checkpoint(store, 0, [protocol(), metadata(configuration), add("f")])
    assert open_table(store).properties == {k: v for k, v in configuration.items() if v is not None}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not parquet at all, but long enough", b"PAR1" * 10])
@pytest.mark.parametrize("name", [f"{2:020d}.checkpoint.parquet", f"{2:020d}.checkpoint.{UUID}.parquet"])
def test_what_is_no_parquet_is_an_error_that_names_the_file(data: bytes, name: str) -> None:
    store = DictStore({LOG + name: data})
    with pytest.raises(CorruptLogError, match=name):
        open_table(store)


def test_text_that_is_not_utf_8_is_an_error_that_names_the_file() -> None:
    store = DictStore()
    key = put_classic(store, 2, [*ROWS, add("abcdefgh")])
    plain = _rewritten(store.objects[key], compression="none", use_dictionary=False, write_statistics=False)
    assert plain.count(b"abcdefgh") == 1
    store.objects[key] = plain.replace(b"abcdefgh", b"abc\xff\xfefgh")
    with pytest.raises(CorruptLogError, match=key):
        open_table(store).files()


@pytest.mark.parametrize("data", [b"", b"{", b"[]\n", b'{"protocol":{}}', b"\xff"])
def test_what_is_no_json_is_an_error_that_names_the_file(data: bytes) -> None:
    name = f"{2:020d}.checkpoint.{UUID}.json"
    with pytest.raises(CorruptLogError, match=name):
        open_table(DictStore({LOG + name: data}))


def test_a_map_with_a_key_twice_is_an_error_that_names_the_file() -> None:
    store = DictStore()
    key = put_classic(store, 0, [protocol(), metadata()])
    rows = [{"protocol": protocol()["protocol"]}, {"metaData": {**metadata()["metaData"]}}]
    rows[1]["metaData"]["configuration"] = [("a", "1"), ("a", "2")]
    rows[1]["metaData"]["format"] = {"provider": "parquet", "options": []}
    schema = pa.schema([(name, COLUMNS[name]) for name in V1_COLUMNS])
    store.objects[key] = parquet_of(pa.Table.from_pylist(rows, schema=schema))
    with pytest.raises(CorruptLogError, match=key):
        open_table(store)


@pytest.mark.parametrize(
    ("column", "type_", "value"),
    [
        ("protocol", pa.string(), "x"),
        ("protocol", pa.struct([("minReaderVersion", pa.string()), ("minWriterVersion", pa.int32())]), ("1", 2)),
        ("metaData", pa.struct([("id", pa.int64())]), (5,)),
        ("add", pa.string(), "x"),
        ("add", pa.struct([("path", pa.int64()), ("size", pa.int64())]), (1, 2)),
        ("add", pa.struct([("path", pa.string()), ("size", pa.string())]), ("f", "big")),
        ("add", pa.struct([("path", pa.struct([("a", pa.string())]))]), ({"a": "x"},)),
        ("add", pa.struct([("path", pa.string()), ("size", pa.float64())]), ("f", 1.5)),
        ("add", pa.struct([("path", pa.string()), ("partitionValues", pa.string())]), ("f", "big")),
        ("add", pa.struct([("path", pa.string()), ("deletionVector", pa.string())]), ("f", "big")),
        ("add", pa.struct([("path", pa.list_(pa.string()))]), (["f"],)),
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.string())]), ("a", "x")),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.string())]), ("a", "x")),
    ],
)
def test_columns_of_another_type_are_an_error_and_no_crash(column: str, type_: pa.DataType, value: Any) -> None:
    store = DictStore()
    base = pa.parquet.read_table(pa.BufferReader(parquet([protocol(), metadata()])))
    struct = dict(zip([f.name for f in type_], value, strict=True)) if isinstance(value, tuple) else value
    broken = pa.array([struct, None], type_)
    table = base.set_column(base.schema.get_field_index(column), column, broken)
    key = f"{LOG}{0:020d}.checkpoint.parquet"
    store.objects[key] = parquet_of(table)
    with pytest.raises(CorruptLogError, match=key):
        observed(open_table(store))


# --- deltalake as the writer ---------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> DeltaTable:
    """A table with appends, a delete, an overwrite of a partition and a transaction id, written by delta-rs."""
    path = str(tmp_path)
    data = pa.table({"id": range(8), "part": ["a", "b", "c d", "ü"] * 2})
    write_deltalake(path, data, partition_by=["part"], name="n", description="d")
    marked = CommitProperties(app_transactions=[Transaction("app", 5)])
    write_deltalake(path, data, mode="append", commit_properties=marked)
    table = DeltaTable(path)
    table.delete("part = 'a'")
    write_deltalake(path, data.slice(1, 1), mode="overwrite", predicate="part = 'b'")
    table = DeltaTable(path)
    table.optimize.compact()
    return table


def expected_paths(path: Path, version: int | None = None) -> list[str]:
    actions = DeltaTable(path, version=version).get_add_actions(flatten=False)
    return sorted(pa.table(actions).column("path").to_pylist())


def test_a_table_checkpointed_by_deltalake_has_the_files_it_says(written: DeltaTable, tmp_path: Path) -> None:
    written.create_checkpoint()
    write_deltalake(tmp_path, pa.table({"id": [100], "part": ["z"]}), mode="append")
    latest = DeltaTable(tmp_path)
    for version in range(latest.version() + 1):
        snapshot = hw.open_log(tmp_path, version=version)
        commits = [parse_lines((tmp_path / "_delta_log" / f"{v:020d}.json").read_bytes()) for v in range(version + 1)]
        model = replay(commits)
        assert sorted(snapshot.files().column("path").to_pylist()) == sorted(a["path"] for a in model.adds)
        assert snapshot.num_files == len(expected_paths(tmp_path, version))
    snapshot = hw.open_log(tmp_path)
    assert snapshot.base.checkpoint is not None
    assert snapshot.app_transactions == {"app": 5}
    assert (snapshot.metadata.name, snapshot.metadata.description) == ("n", "d")


def test_a_log_compacted_by_deltalake_has_the_files_it_says(written: DeltaTable, tmp_path: Path) -> None:
    before = observed(hw.open_log(tmp_path))
    last = written.version()
    written.compact_logs(1, last)
    assert list((tmp_path / "_delta_log").glob("*.compacted.json"))
    after = hw.open_log(tmp_path)
    assert [(c.version, c.end_version) for c in after.segment.commits] == [(0, 0), (1, last)]
    assert observed(after)["files"] == before["files"]


def test_a_log_cleaned_up_by_deltalake_can_still_be_opened(written: DeltaTable, tmp_path: Path) -> None:
    before = observed(hw.open_log(tmp_path))
    written.create_checkpoint()
    for version in range(written.version()):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    after = hw.open_log(tmp_path)
    assert observed(after)["files"] == before["files"]
    assert after.app_transactions == before["txns"]
