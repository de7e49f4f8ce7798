"""Commits as they are written: read back by our decoder and by deltalake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidCommitError
from headwater.log.actions.decode import CommitActions
from headwater.log.actions.encode import encode_commit
from headwater.log.actions.model import Add, AddCdcFile, DomainMetadata, Format, Metadata, Protocol, Remove, Txn
from headwater.log.commit.draft import Attempt, Draft, Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.delta.dialect import DELTA
from headwater.storage import open_store
from support.log.commit_tables import METADATA, PROTOCOL, WRITE, add, create, removal, vector, writer
from support.log.log_tables import SCHEMA
from support.log_settings import examined
from support.stores.log_store import NOW_MS

ATTEMPT = Attempt(3, None, TableConfiguration(PROTOCOL, METADATA), NOW_MS)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
longs = st.integers(-(2**63), 2**63 - 1)
maps = st.dictionaries(text, st.none() | text, max_size=3)
vectors = st.builds(vector, text, st.integers(0, 2**63 - 1))


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


adds = st.builds(
    Add,
    path=text,
    size=longs,
    partition_values=maps,
    modification_time=longs,
    data_change=st.booleans(),
    stats=optional(text),
    tags=optional(maps),
    deletion_vector=optional(vectors),
    base_row_id=optional(longs),
    default_row_commit_version=optional(longs),
    clustering_provider=optional(text),
)
removes = st.builds(
    Remove,
    path=text,
    data_change=st.booleans(),
    deletion_timestamp=longs,
    extended_file_metadata=optional(st.booleans()),
    partition_values=optional(maps),
    size=optional(longs),
    stats=optional(text),
    tags=optional(maps),
    deletion_vector=optional(vectors),
    base_row_id=optional(longs),
    default_row_commit_version=optional(longs),
)
protocols = st.builds(
    Protocol,
    st.integers(1, 3),
    st.integers(1, 7),
    optional(st.lists(text).map(tuple)),
    optional(st.lists(text).map(tuple)),
)
metadatas = st.builds(
    Metadata,
    id=text,
    schema_string=text,
    format=st.builds(Format, text, maps),
    partition_columns=st.lists(text).map(tuple),
    configuration=st.dictionaries(text, text),
    name=optional(text),
    description=optional(text),
    created_time=optional(longs),
)


@given(
    st.lists(adds, max_size=3),
    st.lists(removes, max_size=3),
    st.lists(st.builds(AddCdcFile, text, maps, longs, st.just(False), optional(maps)), max_size=2),
    st.lists(st.builds(Txn, text, longs, optional(longs)), max_size=2, unique_by=lambda t: t.app_id),
    st.lists(st.builds(DomainMetadata, text, text, st.booleans()), max_size=2, unique_by=lambda d: d.domain),
    optional(protocols),
    optional(metadatas),
)
@examined
def test_what_is_written_is_what_is_read(
    adds: list[Add],
    removes: list[Remove],
    cdc: list[AddCdcFile],
    txns: list[Txn],
    domains: list[DomainMetadata],
    protocol: Protocol | None,
    metadata: Metadata | None,
) -> None:
    draft = Draft(WRITE, tuple(adds), tuple(removes), tuple(cdc), tuple(txns), tuple(domains), protocol, metadata)

    commit = CommitActions.of(3, encode_commit(draft, ATTEMPT, "t", {"readVersion": 2}), DELTA)

    lines = commit.file_lines()
    assert [line.add for line in lines if line.add] == adds
    assert [line.remove for line in lines if line.remove] == removes
    assert [line.cdc for line in lines if line.cdc] == cdc
    state = commit.table_actions
    assert (list(state.txns.values()), list(state.domains.values())) == (txns, domains)
    assert (state.protocol, state.metadata) == (protocol, metadata)
    assert commit.commit_info is not None
    assert commit.commit_info["txnId"] == "t"
    assert commit.data.count(b"\n") == len(commit.data.splitlines())


def test_required_fields_are_written_and_absent_ones_are_not() -> None:
    draft = Draft(
        Operation("WRITE"),
        adds=(Add("p", 0, {}, 0),),
        removes=(Remove("q"),),
        cdc=(AddCdcFile("c"),),
        domains=(DomainMetadata("d"),),
        metadata=Metadata("id", SCHEMA),
        protocol=Protocol(1, 2),
    )
    info, protocol, metadata, domain, remove, add_, cdc = map(
        json.loads, encode_commit(draft, ATTEMPT, "t", {}).splitlines()
    )
    assert set(info["commitInfo"]) == {"timestamp", "operation", "operationParameters", "engineInfo", "txnId"}
    assert protocol == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert metadata == {
        "metaData": {
            "id": "id",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": {},
        }
    }
    assert domain == {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}
    assert remove == {"remove": {"path": "q", "dataChange": True, "deletionTimestamp": NOW_MS}}
    assert add_ == {"add": {"path": "p", "partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": True}}
    assert cdc == {"cdc": {"path": "c", "partitionValues": {}, "size": 0, "dataChange": False}}


def test_table_features_are_written_even_if_there_are_none() -> None:
    draft = Draft(Operation("X"), protocol=Protocol(3, 7, (), ("appendOnly",)))
    line = json.loads(encode_commit(draft, ATTEMPT, "t", {}).splitlines()[1])
    assert line["protocol"]["readerFeatures"] == []
    assert line["protocol"]["writerFeatures"] == ["appendOnly"]


def test_text_stays_text_and_numbers_keep_their_digits() -> None:
    draft = Draft(
        Operation("WRITE", {"predicate": "[\"(name = '日本')\"]", "n": 2**60}), adds=(Add("é", 2**60, {}, 1),)
    )
    data = encode_commit(draft, ATTEMPT, "t", {})
    assert "日本".encode() in data
    assert str(2**60).encode() in data
    info = json.loads(data.splitlines()[0])["commitInfo"]
    assert info["operationParameters"] == {"predicate": "[\"(name = '日本')\"]", "n": str(2**60)}


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidCommitError, match="JSON"):
        encode_commit(Draft(Operation("WRITE"), adds=(Add("\ud800", 1, {}, 1),)), ATTEMPT, "t", {})


def test_deltalake_reads_our_commits(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    ctx = writer(open_store(str(tmp_path / "table")))
    protocol = Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "domainMetadata", "appendOnly", "invariants"))
    read = create(ctx, add("part=a/f1"), add("part=b/f2", "b"), protocol=protocol)
    change = Transaction(ctx, read)
    change.remove([removal(add("part=a/f1"))])
    change.add([add("part=a/f%203", size=77), add("part=__HIVE_DEFAULT_PARTITION__/f4", None)])
    change.record_progress(Txn("app", 9, 5))
    change.set_domain(DomainMetadata("mine", "{}"))
    change.commit(Operation("WRITE", {"mode": "Append"}, {"numFiles": 2}, user_metadata="why"))

    theirs = DeltaTable(str(tmp_path / "table"))

    assert theirs.version() == 1
    assert theirs.protocol().min_writer_version == 7
    files = {row["path"]: row for row in _rows(theirs.get_add_actions(flatten=True))}
    assert {path: (row["size_bytes"], row["partition.part"]) for path, row in files.items()} == {
        "part=b/f2": (1000, "b"),
        "part=a/f%203": (77, "a"),
        "part=__HIVE_DEFAULT_PARTITION__/f4": (1000, None),
    }
    assert theirs.transaction_version("app") == 9
    newest = theirs.history(1)[0]
    assert (newest["operation"], newest["operationParameters"]) == ("WRITE", {"mode": "Append"})
    assert newest["userMetadata"] == "why"


def _rows(adds: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    return pa.table(adds).to_pylist()


def test_both_commit_to_one_table_in_turn(tmp_path: Path) -> None:
    """What deltalake commits after us, we go on from, and the other way round."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from headwater.log.opening import open_snapshot

    root = str(tmp_path / "table")
    ctx = writer(open_store(root), clock_ms=lambda: NOW_MS)
    create(ctx)
    rows = pa.table({"id": pa.array([1], pa.int64()), "part": ["a"]})
    for number in range(3):
        write_deltalake(root, rows, mode="append")
        now = open_snapshot(ctx)
        transaction = Transaction(ctx, now)
        transaction.record_progress(Txn("app", number))
        transaction.commit(WRITE)
    assert open_snapshot(ctx).verify() == []
    assert (DeltaTable(root).version(), DeltaTable(root).to_pyarrow_table().num_rows) == (6, 3)
