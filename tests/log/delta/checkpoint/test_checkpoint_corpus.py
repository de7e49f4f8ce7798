"""Checkpoints of the corpus: real tables of every kind say the same after a checkpoint as before, to all readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.snapshot import Snapshot
from support.corpus import CORPUS, MISSING, table_id, tables
from support.log.checkpoint_states import NO_JSON, STRUCT, V2, add_commit, configured, log_of, reopened, state
from support.stores.log_store import DictStore

if CORPUS is None:
    pytest.skip(MISSING, allow_module_level=True)

Entry = dict[str, Any]
KEEP_ALL = {
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpoint.writeStatsAsStruct": "false",
    "delta.setTransactionRetentionDuration": "interval 10000 weeks",
}
READABLE = [entry for entry in tables() if entry["expect"] == "ok" and not entry.get("setup") and not entry.get("slow")]


@pytest.fixture(params=READABLE, ids=table_id)
def entry(request: pytest.FixtureRequest) -> Entry:
    return request.param


@pytest.fixture
def store(entry: Entry) -> DictStore:
    return log_of(Path(CORPUS or "") / entry["path"])


@pytest.fixture
def before(entry: Entry, store: DictStore) -> Snapshot:
    add_commit(store)
    try:
        # Properties of its own that let a checkpoint forget something are tested elsewhere.
        return configured(reopened(store), KEEP_ALL)
    except hw.HeadwaterError:
        if entry.get("disputed"):
            pytest.skip("not everybody reads this table, and neither do we")
        raise


def test_a_checkpoint_says_what_the_log_says(before: Snapshot, store: DictStore) -> None:
    expected = state(before)
    rebased = write_checkpoint(before)
    assert state(rebased) == expected
    after = reopened(store)
    assert after.commits == (), "the checkpoint alone is enough"
    assert after.base.checkpoint is not None
    assert state(after) == expected


def test_a_v2_checkpoint_says_what_the_log_says(before: Snapshot, store: DictStore) -> None:
    before = configured(before, V2, [] if before.protocol.supports("v2Checkpoint") else ["v2Checkpoint"])
    expected = state(before)
    assert state(write_checkpoint(before)) == expected
    assert state(reopened(store)) == expected


@pytest.mark.parametrize("properties", [STRUCT, STRUCT | NO_JSON], ids=["both", "struct"])
def test_statistics_as_columns_say_what_the_text_says(
    entry: Entry, before: Snapshot, store: DictStore, properties: dict[str, str]
) -> None:
    before = configured(before, properties)
    write_checkpoint(before)
    after = reopened(store)
    assert after.num_files == before.num_files
    if properties == STRUCT:
        assert state(after) == state(before)
    known, kept = (dict(zip(*map(s.files().column, ("path", "stats")), strict=True)) for s in (before, after))
    for path, text in known.items():
        assert _num_records(kept[path].as_py()) == _num_records(text.as_py())
    for predicate in entry.get("predicates", []):
        assert _paths(after, predicate["sql"]) == _paths(before, predicate["sql"]), predicate


def _num_records(text: str | None) -> int | None:
    return json.loads(text).get("numRecords") if text else None


def _paths(snapshot: Snapshot, where: str) -> set[str]:
    return set(snapshot.files(where=where, columns=["path"]).column("path").to_pylist())
