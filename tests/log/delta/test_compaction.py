"""Log compaction files (spec: "Log Compaction Files")."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headwater as hw
from headwater.errors import VersionNotFoundError
from headwater.log.delta.dialect import compact_log
from support.log.commit_tables import add as add_file
from support.log.commit_tables import append, create, writer
from support.log.log_tables import LOG, add, commit_info, domain, metadata, protocol, put_commit, remove, txn, vector
from support.oracles.log_model import observed, replay
from support.stores.log_store import DictStore, open_table

COMPACTED = f"{LOG}{4:020d}.{6:020d}.compacted.json"


def spec_example() -> DictStore:
    """The commits of the spec's example, from version 4 on."""
    store = DictStore()
    put_commit(store, 0, protocol(), metadata(), add("f1"))
    for version in (1, 2, 3):
        put_commit(store, version, commit_info())
    put_commit(store, 4, commit_info(), add("f2"), remove("f1"))
    put_commit(store, 5, commit_info(), add("f3"), add("f4"), txn("3ae45b72", 4389))
    put_commit(store, 6, commit_info(), remove("f3"), txn("3ae45b72", 4390))
    return store


def lines(store: DictStore, key: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.objects[key].splitlines()]


def test_the_example_of_the_spec_is_compacted_as_it_says() -> None:
    store = spec_example()
    assert compact_log(open_table(store), 4, 6) == COMPACTED
    found = lines(store, COMPACTED)
    expected = [add("f2"), add("f4"), remove("f1"), remove("f3"), txn("3ae45b72", 4390)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_reader_uses_the_compacted_file_and_finds_the_same_table() -> None:
    store = spec_example()
    before = observed(open_table(store))
    compact_log(open_table(store), 4, 6)
    after = open_table(store)
    assert [commit.key for commit in after.commits][-1] == COMPACTED
    assert observed(after) == before


def test_what_suppresses_older_actions_stays_in_the_file() -> None:
    store = DictStore()
    commits = [
        [protocol(), metadata(), add("f"), add("g"), domain("d", "x")],
        [domain("d", "x", removed=True), remove("g", stats="{}", tags={"a": "b"})],
        [remove("f"), add("f", deletionVector=vector("v"))],
        [remove("f", deletionVector=vector("v")), add("f", deletionVector=vector("w")), {"cdc": {"path": "c"}}],
    ]
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
    expected = replay(commits).state()
    key = compact_log(open_table(store), 1, 3)
    assert key is not None
    assert {kind for line in lines(store, key) for kind in line} == {"add", "remove", "domainMetadata"}
    store.delete_many([f"{LOG}{version:020d}.json" for version in (1, 2)])
    found = open_table(store)
    assert observed(found) == expected
    assert found.domain_metadata == {}


def test_commits_that_say_nothing_have_no_compacted_file() -> None:
    store = spec_example()
    assert compact_log(open_table(store), 1, 3) is None
    assert not [key for key in store.objects if "compacted" in key]


def test_an_existing_file_is_left_alone() -> None:
    store = spec_example()
    compact_log(open_table(store), 4, 6)
    first = store.objects[COMPACTED]
    compact_log(open_table(store), 4, 6)
    assert store.objects[COMPACTED] is first


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3), (4, 7)])
def test_a_range_that_is_not_in_the_log_is_refused(first: int, last: int) -> None:
    with pytest.raises(VersionNotFoundError, match=f"from {first} to {last}"):
        compact_log(open_table(spec_example()), first, last)


def test_a_range_with_a_commit_that_is_gone_is_refused() -> None:
    store = spec_example()
    snapshot = open_table(store, version=3)
    store.delete_many([f"{LOG}{1:020d}.json"])
    with pytest.raises(VersionNotFoundError, match="one is gone"):
        compact_log(_forgetful(snapshot), 0, 3)


def _forgetful(snapshot: hw.Snapshot) -> hw.Snapshot:
    """The snapshot without commits at hand."""
    return replace(snapshot, commits=())


def test_writers_compact_only_when_they_are_asked_to() -> None:
    for interval, expected in ((None, []), (3, [(0, 2), (3, 5), (6, 8), (11, 13)])):
        store = DictStore()
        ctx = writer(store, compaction_interval=interval)
        snapshot = create(ctx, add_file("f0"))
        for version in range(1, 15):
            snapshot = append(ctx, snapshot, add_file(f"f{version}")).snapshot
        # After a checkpoint (at 10) the count starts anew: what spans one is of no use to anybody.
        names = sorted(key.removeprefix(LOG).split(".")[:2] for key in store.objects if "compacted" in key)
        assert [(int(first), int(last)) for first, last in names] == expected
        assert open_table(store).num_files == 15


def test_deltalake_reads_a_table_with_our_compacted_file(tmp_path: Path) -> None:
    for n in range(4):
        write_deltalake(tmp_path, pa.table({"id": [n]}), mode="append")
    DeltaTable(tmp_path).delete("id = 2")
    before = sorted(DeltaTable(tmp_path).to_pyarrow_table().column("id").to_pylist())
    compact_log(hw.open_log(tmp_path), 1, 4)
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table().column("id").to_pylist()) == before == [0, 1, 3]
