"""The change data feed: recorded and derived changes, ranges by version and time, and what must be refused."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ChangeDataError, TimeTravelError
from headwater.spark.scan.read import read_changes
from support.tables.change_histories import (
    ENABLED,
    FILTERS,
    HISTORIES,
    History,
    added_removed_and_rearranged_files,
    changing_table,
    ids,
)
from support.tables.delta_tables import DeltaTable, field, struct_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def changes(spark: SparkSession, table: DeltaTable, *range_: int, **options: Any) -> list[tuple[Any, ...]]:
    frame = read_changes(spark, table.path, *range_, **options).drop("_commit_timestamp")
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return changing_table(tmp_path / "t")


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_rows_that_changed(spark: SparkSession, table: DeltaTable, history: History) -> None:
    expected = history(table)
    assert changes(spark, table, 0) == expected
    for version in range(table.version + 1):
        assert changes(spark, table, version, version) == [row for row in expected if row[-1] == version]
    for sql in FILTERS:
        frame = read_changes(spark, table.path, 0)
        local = spark.createDataFrame(expected, "id long, p string, _change_type string, _commit_version long")
        assert frame.where(sql).count() == local.where(sql).count(), sql


def test_filters_on_versions_and_types_skip_files(spark: SparkSession, table: DeltaTable) -> None:
    added_removed_and_rearranged_files(table)
    frame = read_changes(spark, table.path, 0)
    assert [str(scan).split(": ")[1].split(" files")[0] for scan in hw.scans(frame)] == ["3 of 3"]
    for sql in ("_commit_version = 3", "_change_type = 'delete'"):
        (scan,) = hw.scans(frame.where(sql))
        assert (scan.files_kept, scan.files_total, scan.version) == (1, 3, 4)


def test_ranges_by_time(spark: SparkSession, table: DeltaTable) -> None:
    for n in (1, 2, 3):
        table.append(ids(n), partitionValues={"p": "a"})
    start = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    for version in range(4):
        stamp = (start + datetime.timedelta(hours=version)).timestamp()
        os.utime(table.path / "_delta_log" / f"{version:020d}.json", (stamp, stamp))

    def found(**bounds: str) -> list[int]:
        return [row[0] for row in changes(spark, table, **bounds)]

    assert found(starting_timestamp="2024-07-01 13:00:00") == [1, 2, 3]
    assert found(starting_timestamp="2024-07-01 13:00:01") == [2, 3]
    assert found(starting_timestamp="2024-07-01 12:30:00", ending_timestamp="2024-07-01 14:59:59") == [1, 2]
    (at,) = read_changes(spark, table.path, 2, 2).select("_commit_timestamp").toArrow().column(0).to_pylist()
    assert at == start + datetime.timedelta(hours=2)
    with pytest.raises(hw.VersionNotFoundError):
        found(starting_timestamp="2024-07-01 15:00:01")


@pytest.mark.parametrize(("first", "last"), [(5, None), (-1, None), (2, 1), (0, 9)])
def test_ranges_that_do_not_exist(spark: SparkSession, table: DeltaTable, first: int, last: int | None) -> None:
    table.append(ids(1), partitionValues={"p": "a"})
    table.append(ids(2), partitionValues={"p": "a"})
    with pytest.raises(hw.VersionNotFoundError):
        read_changes(spark, table.path, first, last)


def test_a_start_must_be_given_once(spark: SparkSession, table: DeltaTable) -> None:
    for bounds in ({}, {"starting_version": 0, "starting_timestamp": "2024-01-01"}):
        with pytest.raises(TimeTravelError):
            read_changes(spark, table.path, **bounds)


def test_versions_without_the_feed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(1))
    table.commit({"metaData": {**table.metadata, "configuration": ENABLED}})
    table.append(ids(2))
    with pytest.raises(ChangeDataError, match="not enabled in version 1"):
        read_changes(spark, table.path, 1)
    assert changes(spark, table, 2) == [(2, "insert", 3)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((field("other", "long"),), "id was dropped or renamed"),
        ((field("id", "string"),), "id was bigint and is string"),
        ((field("id", "long", nullable=False),), "may not be null any more"),
        ((field("id", "long"), field("n", "long", nullable=False)), "n was added and may not be null"),
    ],
)
def test_schema_changes_that_lose_or_change_rows_are_refused(
    spark: SparkSession, tmp_path: Path, fields: tuple[dict[str, Any], ...], reason: str
) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), configuration=ENABLED)
    table.append(ids(1))
    table.commit({"metaData": {**table.metadata, "schemaString": json.dumps(struct_of(*fields))}})
    with pytest.raises(ChangeDataError, match=reason):
        read_changes(spark, table.path, 0)
    assert read_changes(spark, table.path, 0, 1).count() == 1


def test_added_columns_are_null_in_older_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), configuration=ENABLED)
    table.append(ids(1))
    wider = struct_of(field("id", "long"), field("note", "string"))
    table.commit({"metaData": {**table.metadata, "schemaString": json.dumps(wider)}})
    table.append(pa.table({"id": pa.array([2], pa.int64()), "note": ["new"]}))
    frame = read_changes(spark, table.path, 0).drop("_commit_timestamp")
    assert sorted(tuple(r) for r in frame.collect()) == [(1, None, "insert", 1), (2, "new", "insert", 3)]


def test_changes_whose_commits_are_gone(spark: SparkSession, table: DeltaTable) -> None:
    table.append(ids(1), partitionValues={"p": "a"})
    (table.path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(hw.HeadwaterError):
        read_changes(spark, table.path, 0)
