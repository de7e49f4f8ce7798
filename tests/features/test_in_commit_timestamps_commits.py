"""In-commit timestamps (spec: "Writer Requirements for In-Commit Timestamps")."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import (
    NOW_MS,
    alter,
    altered,
    append,
    commit_definition,
    commit_lines,
    context,
    create,
    file,
    reopened,
)

TIMED = {"delta.enableInCommitTimestamps": "true"}
ENABLED_AT = "delta.inCommitTimestampEnablementTimestamp"
ENABLED_IN = "delta.inCommitTimestampEnablementVersion"


def at(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """The same table, seen by a writer with another clock."""
    return replace(snapshot, ctx=replace(snapshot.ctx, clock_ms=lambda: now_ms))


def recorded(snapshot: Snapshot) -> int:
    first = commit_lines(snapshot)[0]
    assert next(iter(first)) == "commitInfo", "commitInfo is the first action"
    assert next(iter(first["commitInfo"])) == "inCommitTimestamp"
    return int(first["commitInfo"]["inCommitTimestamp"])


def modified(path: Path, version: int, time_ms: int) -> None:
    os.utime(path / "_delta_log" / f"{version:020d}.json", ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def test_the_first_commit_has_the_time_of_its_attempt_and_no_provenance(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=TIMED)
    assert recorded(snapshot) == NOW_MS
    assert snapshot.timestamp == NOW_MS
    assert not {ENABLED_AT, ENABLED_IN} & set(snapshot.properties)


def test_times_always_increase_even_when_clocks_go_back(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=TIMED)
    assert recorded(append(at(snapshot, NOW_MS - 50_000), file("a"))) == NOW_MS + 1
    assert recorded(append(at(reopened(snapshot), NOW_MS), file("b"))) == NOW_MS + 2
    assert recorded(append(at(reopened(snapshot), NOW_MS + 10), file("c"))) == NOW_MS + 10


def test_racing_writers_get_increasing_times(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={**TIMED, "delta.enableRowTracking": "true"})
    racers = [Transaction(snapshot.ctx, snapshot) for _ in range(3)]
    for number, racer in enumerate(racers):
        racer.add([file(f"f{number}", 5)])
    snapshots = [racer.commit(Operation("WRITE")).snapshot for racer in racers]
    assert [recorded(s) for s in snapshots] == [NOW_MS + 1, NOW_MS + 2, NOW_MS + 3]
    assert sorted(snapshots[-1].files().column("baseRowId").to_pylist()) == [0, 5, 10]


def test_tables_without_the_feature_have_no_such_field(tmp_path: Path) -> None:
    assert "inCommitTimestamp" not in commit_lines(create(tmp_path))[0]["commitInfo"]


def test_enabling_records_where_it_happened(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a"))
    modified(tmp_path, 1, NOW_MS - 100_000)
    snapshot = alter(reopened(snapshot), delta__enableInCommitTimestamps="true")
    assert recorded(snapshot) == NOW_MS
    assert snapshot.properties[ENABLED_IN] == "2"
    assert snapshot.properties[ENABLED_AT] == str(NOW_MS)


def test_enabling_happens_after_the_modification_time_of_the_commit_before(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    modified(tmp_path, 0, NOW_MS + 5_000)
    snapshot = alter(reopened(snapshot), delta__enableInCommitTimestamps="true")
    assert recorded(snapshot) == NOW_MS + 5_001
    assert snapshot.properties[ENABLED_AT] == str(NOW_MS + 5_001)


def test_the_provenance_follows_when_another_writer_was_first(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    table = altered(snapshot, delta__enableInCommitTimestamps="true")
    append(snapshot, file("a"))
    modified(tmp_path, 1, NOW_MS + 7)
    after = commit_definition(snapshot, table)
    assert after.properties[ENABLED_IN] == str(after.version) == "2"
    assert after.properties[ENABLED_AT] == str(recorded(after)) == str(NOW_MS + 8)


def test_a_writer_who_meets_the_feature_on_the_way_follows_it(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    modified(tmp_path, 0, NOW_MS - 1)
    late = Transaction(snapshot.ctx, snapshot)
    late.add([file("a")])
    alter(reopened(snapshot), delta__enableInCommitTimestamps="true")
    assert recorded(late.commit(Operation("WRITE")).snapshot) == NOW_MS + 1


def test_later_changes_keep_the_provenance(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    snapshot = alter(snapshot, delta__enableInCommitTimestamps="true")
    before = {key: snapshot.properties[key] for key in (ENABLED_AT, ENABLED_IN)}
    snapshot = alter(snapshot, owner="me")
    assert {key: snapshot.properties[key] for key in before} == before


def test_disabling_forgets_the_provenance(tmp_path: Path) -> None:
    snapshot = alter(create(tmp_path), delta__enableInCommitTimestamps="true")
    snapshot = alter(snapshot, delta__enableInCommitTimestamps="false")
    assert not {ENABLED_AT, ENABLED_IN} & set(snapshot.properties)
    assert "inCommitTimestamp" not in commit_lines(snapshot)[0]["commitInfo"]


def test_time_travel_goes_by_the_recorded_times(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=TIMED)
    for number in range(3):
        snapshot = append(at(snapshot, NOW_MS + 1_000 * (number + 1)), file(f"f{number}"))
    assert hw.open_log(tmp_path, timestamp=NOW_MS + 1_999).version == 1
    assert [commit.timestamp for commit in snapshot.history()] == [NOW_MS + 1_000 * n for n in (3, 2, 1, 0)]


@settings(max_examples=20)
@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=8), st.integers(0, 7))
def test_whatever_the_clocks_say_times_increase(tmp_path_factory, clocks: list[int], enabled_at: int) -> None:
    path = tmp_path_factory.mktemp("t")
    snapshot = create(path)
    times: list[int] = []
    for number, offset in enumerate(clocks):
        snapshot = at(snapshot, snapshot.timestamp + offset)
        before = snapshot.timestamp
        if number == enabled_at:
            snapshot = alter(snapshot, delta__enableInCommitTimestamps="true")
        else:
            snapshot = append(snapshot, file(f"f{number}"))
        if number >= enabled_at:
            times.append(recorded(snapshot))
            assert times[-1] > before
    assert times == sorted(set(times))


def test_the_context_of_a_table_has_all_rules(tmp_path: Path) -> None:
    assert context(tmp_path).commit_rules
