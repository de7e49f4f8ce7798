"""Row ids and row commit versions (spec: "Writer Requirements for Row Tracking")."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.features.row_tracking import high_water_mark
from headwater.log.actions.model import Add, DeletionVector
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import (
    alter,
    altered,
    append,
    commit_definition,
    commit_lines,
    create,
    file,
    removal,
    reopened,
    with_metadata,
)

TRACKED = {"delta.enableRowTracking": "true"}
VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 1, 4)


def identities(snapshot: Snapshot) -> dict[str, tuple[int | None, int | None]]:
    rows = snapshot.files(columns=["path", "baseRowId", "defaultRowCommitVersion"]).to_pylist()
    return {row["path"]: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in rows}


def mark(snapshot: Snapshot) -> int:
    return high_water_mark(snapshot.domain_metadata)


def test_new_files_get_ids_one_after_another_from_zero(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 10), file("b", 5))
    assert identities(snapshot) == {"a": (0, 1), "b": (10, 1)}
    assert mark(snapshot) == 14


def test_the_mark_is_written_for_those_who_follow_the_spec_and_for_those_who_exist(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 10))
    [domain] = [line["domainMetadata"] for line in commit_lines(snapshot) if "domainMetadata" in line]
    assert domain["domain"] == "delta.rowTracking"
    assert domain["removed"] is False
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 9, "highWaterMark": 9}


@pytest.mark.parametrize("key", ["highWaterMark", "rowIdHighWaterMark"])
def test_the_mark_is_read_under_both_names(key: str) -> None:
    assert high_water_mark({"delta.rowTracking": f'{{"{key}": 7, "domainName": "delta.rowTracking"}}'}) == 7


@pytest.mark.parametrize("text", ["{}", "no", '{"highWaterMark":"7"}'])
def test_a_mark_that_cannot_be_read_is_not_taken_for_zero(text: str) -> None:
    with pytest.raises(CorruptLogError, match=r"delta\.rowTracking"):
        high_water_mark({"delta.rowTracking": text})


def test_ids_go_on_above_the_mark(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 3))
    snapshot = append(reopened(snapshot), file("b", 2))
    assert identities(snapshot)["b"] == (3, 2)
    assert mark(snapshot) == 4


def test_an_empty_file_takes_no_ids(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 0), file("b", 2), file("c", 0))
    assert identities(snapshot) == {"a": (0, 1), "b": (0, 1), "c": (2, 1)}
    assert mark(snapshot) == 1


def test_a_file_without_a_count_of_rows_is_refused_by_name(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=TRACKED)
    with pytest.raises(InvalidCommitError, match=r"'uncounted' has no numRecords.*row tracking"):
        append(snapshot, file("uncounted", None))
    assert reopened(snapshot).version == 0


def test_ids_are_given_where_the_feature_is_only_supported(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.rowTracking": "supported"})
    snapshot = append(snapshot, file("a", 4))
    assert identities(snapshot) == {"a": (0, 1)}
    assert "tags" not in commit_lines(snapshot)[0]["commitInfo"]


def test_a_file_that_is_committed_again_keeps_its_ids(tmp_path: Path) -> None:
    properties = {**TRACKED, "delta.enableDeletionVectors": "true"}
    snapshot = append(create(tmp_path, properties=properties), file("a", 4), file("b b", 4))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add([file("b%20b", 4, deletion_vector=VECTOR)])  # as another spelling of the same path
    transaction.remove([removal("b b")])
    snapshot = transaction.commit(Operation("DELETE")).snapshot
    assert identities(snapshot) == {"a": (0, 1), "b%20b": (4, 1)}
    assert mark(snapshot) == 7
    assert commit_lines(snapshot)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_a_removed_file_keeps_its_ids(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 4), file("b", 4))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.remove([removal("b")])
    after = transaction.commit(Operation("DELETE")).snapshot
    [remove] = [line["remove"] for line in commit_lines(after) if "remove" in line]
    assert (remove["baseRowId"], remove["defaultRowCommitVersion"]) == (4, 1)


def test_rewritten_rows_get_fresh_ids_and_the_commit_says_so(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 4))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.remove([removal("a", data_change=False)])
    transaction.add([file("b", 4, data_change=False)])
    after = transaction.commit(Operation("OPTIMIZE")).snapshot
    assert identities(after) == {"b": (4, 2)}
    assert commit_lines(after)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "false"}


def test_a_command_that_preserves_ids_says_so_itself(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 4))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.remove([removal("a", data_change=False)])
    transaction.add([file("b", 4, data_change=False)])
    operation = Operation("OPTIMIZE", tags={"delta.rowTracking.preserved": "true"})
    after = transaction.commit(operation).snapshot
    assert commit_lines(after)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_racing_writers_get_disjoint_ids_and_the_versions_they_really_commit(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=TRACKED)
    racers = [Transaction(snapshot.ctx, snapshot) for _ in range(3)]
    for number, racer in enumerate(racers):
        racer.add([file(f"f{number}", 10)])
    for racer in racers:
        last = racer.commit(Operation("WRITE")).snapshot
    assert identities(last) == {"f0": (0, 1), "f1": (10, 2), "f2": (20, 3)}
    assert mark(last) == 29


def test_a_writer_who_meets_row_tracking_on_the_way_follows_it(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a", 4))
    late = Transaction(snapshot.ctx, snapshot)
    late.add([file("b", 2)])
    alter(snapshot, delta__enableRowTracking="true")
    assert identities(late.commit(Operation("WRITE")).snapshot) == {"a": (0, 2), "b": (4, 3)}


def test_enabling_gives_ids_to_the_files_that_are_there(tmp_path: Path) -> None:
    parts = {"partition_values": {"name": "x"}, "tags": {"k": "v"}}
    snapshot = append(create(tmp_path, partition_columns=["name"]), file("a", 4, **parts), file("b", 6, **parts))
    before = {row["path"]: row for row in snapshot.files().to_pylist()}
    snapshot = alter(snapshot, delta__enableRowTracking="true")
    assert sorted(identities(snapshot).values()) in ([(0, 2), (4, 2)], [(0, 2), (6, 2)])
    assert mark(snapshot) == 9
    for row in reopened(snapshot).files().to_pylist():
        assert row["dataChange"] is False
        same = {key: row[key] for key in ("partitionValues", "size", "stats", "tags", "modificationTime")}
        assert same == {key: before[row["path"]][key] for key in same}
    names = snapshot.properties
    assert names["delta.rowTracking.materializedRowIdColumnName"] == "_row-id-col-v2-1"


def test_enabling_covers_files_that_other_writers_add_meanwhile(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a", 4))
    table = altered(snapshot, delta__enableRowTracking="true")
    append(snapshot, file("b", 3))
    after = commit_definition(snapshot, table)
    assert after.version == 3
    assert sorted(base for base, _ in identities(after).values()) in ([0, 4], [0, 3])
    assert {version for _, version in identities(after).values()} == {3}


def test_enabling_needs_every_file_to_know_its_rows(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("uncounted", None))
    with pytest.raises(InvalidCommitError, match="'uncounted' has no numRecords"):
        alter(snapshot, delta__enableRowTracking="true")


def test_enabling_again_keeps_the_hidden_columns_and_the_ids(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 4))
    names = {k: v for k, v in snapshot.properties.items() if "materialized" in k}
    snapshot = alter(snapshot, delta__enableRowTracking="false")
    snapshot = append(snapshot, file("b", 2))
    snapshot = alter(snapshot, delta__enableRowTracking="true")
    assert {k: v for k, v in snapshot.properties.items() if "materialized" in k} == names
    assert identities(snapshot) == {"a": (0, 1), "b": (4, 3)}


def test_enabling_without_hidden_columns_is_refused(tmp_path: Path) -> None:
    import msgspec

    snapshot = create(tmp_path)
    table = altered(snapshot, delta__enableRowTracking="true")
    bare = msgspec.structs.replace(table.metadata, configuration=TRACKED)
    with pytest.raises(InvalidCommitError, match="materializedRowIdColumnName"):
        commit_definition(snapshot, with_metadata(table, bare))


@pytest.mark.parametrize("key", ["materializedRowIdColumnName", "materializedRowCommitVersionColumnName"])
def test_hidden_columns_are_not_called_like_others(tmp_path: Path, key: str) -> None:
    import msgspec

    snapshot = create(tmp_path)
    table = altered(snapshot, delta__enableRowTracking="true")
    [column, *_] = snapshot.schema.names
    named = {**table.metadata.configuration, f"delta.rowTracking.{key}": column.upper()}
    clash = msgspec.structs.replace(table.metadata, configuration=named)
    with pytest.raises(InvalidCommitError, match=f"{key} says that files call .* {column.upper()!r}"):
        commit_definition(snapshot, with_metadata(table, clash))


def test_a_clone_brings_ids_along_and_goes_on_above_them(tmp_path: Path) -> None:
    snapshot = create(tmp_path, None, file("a", 5, base_row_id=100, default_row_commit_version=0), properties=TRACKED)
    assert identities(snapshot) == {"a": (100, 0)}
    assert identities(append(snapshot, file("b", 1)))["b"] == (105, 1)


def test_the_table_opens_by_path_as_it_was_written(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 3))
    opened = hw.open_log(tmp_path)
    assert identities(opened) == identities(snapshot)


_commits = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=30)
@given(_commits, st.data())
def test_no_row_id_is_ever_given_twice(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[int]], data: st.DataObject
) -> None:
    snapshot = create(tmp_path_factory.mktemp("t"), properties=TRACKED)
    bases = [snapshot]
    for number, rows in enumerate(commits):
        base = data.draw(st.sampled_from(bases))  # from any version: racing writers
        transaction = Transaction(base.ctx, base)
        transaction.add([file(f"f{number}-{i}", count) for i, count in enumerate(rows)])
        bases.append(transaction.commit(Operation("WRITE")).snapshot)
    given_ids: list[int] = []
    for row in bases[-1].files().to_pylist():
        count = json.loads(row["stats"])["numRecords"]
        given_ids += range(row["baseRowId"], row["baseRowId"] + count)
        assert row["defaultRowCommitVersion"] == int(row["path"][1:].split("-")[0]) + 1
    assert sorted(given_ids) == list(range(len(given_ids)))
    assert mark(bases[-1]) == len(given_ids) - 1


def test_users_cannot_set_the_mark(tmp_path: Path) -> None:
    from headwater.log.actions.model import DomainMetadata

    snapshot = create(tmp_path, properties=TRACKED)
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_domain(DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":0}'))
    with pytest.raises(InvalidCommitError, match="set by the commit itself"):
        transaction.commit(Operation("WRITE"))


def test_files_are_told_apart_by_path_not_by_add_action(tmp_path: Path) -> None:
    # The same add again, with better statistics only.
    snapshot = append(create(tmp_path, properties=TRACKED), file("a", 4))
    better = Add("a", 10, modification_time=1, data_change=False, stats='{"numRecords":4,"nullCount":{"id":0}}')
    assert identities(append(snapshot, better)) == {"a": (0, 1)}
