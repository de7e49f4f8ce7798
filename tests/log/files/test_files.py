"""`Snapshot.files`: tables written by deltalake, and what deltalake itself says about their files."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headwater as hw
from headwater.log.filters.expressions import Compare, Literal, column
from headwater.storage import LocalStore


@pytest.fixture
def events(tmp_path: Path) -> str:
    """Three commits of two partitions each; ids are disjoint between files."""
    path = str(tmp_path / "events")
    for day in range(3):
        write_deltalake(
            path,
            pa.table(
                {
                    "day": pa.array([date(2024, 1, 1 + day)] * 4),
                    "kind": ["click", "click", "view", None],
                    "id": pa.array(range(day * 10, day * 10 + 4), pa.int64()),
                    "price": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")], pa.decimal128(9, 2)),
                    "at": pa.array([datetime(2024, 1, 1 + day, hour) for hour in range(4)], pa.timestamp("us", "UTC")),
                }
            ),
            mode="append",
            partition_by=["day", "kind"],
        )
    return path


def paths(snap: hw.Snapshot, where: str | None = None) -> set[str]:
    return set(snap.files(where, columns=["path"]).column("path").to_pylist())


def test_all_files_are_those_that_deltalake_sees(events: str) -> None:
    snap, peer = hw.open_log(events), DeltaTable(events)
    actions = peer.get_add_actions()
    assert sorted(paths(snap)) == sorted(pa.table(actions).column("path").to_pylist())
    assert snap.size_bytes == sum(pa.table(actions).column("size_bytes").to_pylist())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("kind = 'click'", 3),
        ("kind IS NULL", 3),
        ("kind <> 'click'", 3),
        ("day = DATE '2024-01-02'", 3),
        ("day >= '2024-01-02' AND kind = 'view'", 2),
        ("id = 11", 1),
        ("id BETWEEN 2 AND 11", 3),
        ("id IN (0, 23)", 2),
        ("NOT (id < 20)", 3),
        ("price < 0", 3),
        ("price > 1.5", 0),
        ("at >= TIMESTAMP '2024-01-03 02:00:00Z'", 2),
        ("day = '2024-01-01' OR id = 23", 4),
        ("kind LIKE 'vi%'", 3),
        ("id > 1000", 0),
        ("upper(kind) = 'CLICK' AND day = '2024-01-01'", 3),
    ],
)
def test_a_filter_keeps_just_the_files_that_may_match(events: str, where: str, expected: int) -> None:
    assert len(paths(hw.open_log(events), where)) == expected


@pytest.mark.parametrize("where", ["kind = 'click'", "id = 11", "price < 0", "day = '2024-01-01' OR id = 23"])
def test_a_checkpoint_changes_no_answer(events: str, where: str) -> None:
    before = paths(hw.open_log(events), where)
    DeltaTable(events).create_checkpoint()
    after = hw.open_log(events)
    assert after.segment.checkpoint is not None
    assert paths(after, where) == before


def test_rows_of_a_checkpoint_that_were_removed_later_do_not_count(events: str) -> None:
    table = DeltaTable(events)
    table.create_checkpoint()
    table.delete("kind = 'click' AND day = '2024-01-01'")
    table.optimize.compact()
    snap = hw.open_log(events)
    assert sorted(paths(snap)) == sorted(pa.table(DeltaTable(events).get_add_actions()).column("path").to_pylist())
    assert paths(snap, "kind = 'click' AND day = DATE '2024-01-01'") == set()


def test_an_expression_tree_is_as_good_as_sql(events: str) -> None:
    snap = hw.open_log(events)
    expr = Compare(">=", column("ID"), Literal(20))
    assert set(snap.files(expr).column("path").to_pylist()) == paths(snap, "id >= 20")


def test_columns_are_chosen_and_named_as_in_the_spec(events: str) -> None:
    snap = hw.open_log(events)
    table = snap.files(columns=["size", "path"])
    assert table.column_names == ["size", "path"]
    everything = snap.files("kind = 'view' AND id = 2")
    row: dict[str, Any] = everything.to_pylist(maps_as_pydicts="strict")[0]
    assert row["partitionValues"] == {"day": "2024-01-01", "kind": "view"}
    assert json.loads(row["stats"])["numRecords"] == 1
    assert row["dataChange"] is True
    assert row["deletionVector"] is None


def test_bad_requests_say_what_is_wrong(events: str) -> None:
    snap = hw.open_log(events)
    with pytest.raises(ValueError, match="choose from"):
        snap.files(columns=["paht"])
    with pytest.raises(hw.ColumnNotFoundError, match="knd"):
        snap.files("knd = 'click'")
    with pytest.raises(hw.FilterError):
        snap.files("kind = ")


def test_a_second_filter_on_the_same_columns_reads_nothing(events: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(events).create_checkpoint()
    snap = hw.open_log(events)
    assert len(paths(snap, "id = 11 AND kind = 'click'")) == 1
    monkeypatch.setattr(LocalStore, "get_range", lambda *_: pytest.fail("the store was asked again"))
    assert len(paths(snap, "id > 11 AND kind = 'click'")) == 1
    assert len(paths(snap, "id <= 1 OR kind IS NULL")) == 4


def test_tombstones_are_kept_for_a_week_by_default(events: str) -> None:
    DeltaTable(events).delete("id = 2")
    snap = hw.open_log(events)
    removed = snap.tombstones()
    assert removed.num_rows == 1
    [timestamp] = removed.column("deletionTimestamp").to_pylist()
    later = replace(snap, ctx=replace(snap.ctx, clock_ms=lambda: timestamp + 8 * 86_400_000))
    assert later.tombstones().num_rows == 0
    assert later.tombstones(include_expired=True).num_rows == 1
