"""The change data feed: recorded and derived changes, ranges by version and time, and what must be refused."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta_tables import DeltaTable, field, inline_vector, struct_of

import headwater as hw
from headwater.log.changes import ChangeDataError
from headwater.spark.changes import read_changes
from headwater.spark.time_travel import TimeTravelError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ENABLED = {"delta.enableChangeDataFeed": "true"}


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def removal(action: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The `remove` for an `add`."""
    kept = {k: v for k, v in action["add"].items() if k in ("path", "partitionValues", "size", "deletionVector")}
    return {"remove": {**kept, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True, **changes}}


def changes(spark: SparkSession, table: DeltaTable, *range_: int, **options: Any) -> list[tuple[Any, ...]]:
    frame = read_changes(spark, table.path, *range_, **options).drop("_commit_timestamp")
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable(
        tmp_path / "t",
        field("id", "long"),
        field("p", "string"),
        partition_columns=("p",),
        configuration=ENABLED,
        features=("deletionVectors",),
    )


def test_added_removed_and_rearranged_files(spark: SparkSession, table: DeltaTable) -> None:
    first = table.append(ids(1, 2), partitionValues={"p": "a"})
    second = table.append(ids(3), partitionValues={"p": "b"})
    table.commit(removal(first))
    compacted = table.file(ids(3), partitionValues={"p": "b"}, dataChange=False)
    table.commit(removal(second, dataChange=False), compacted)
    assert changes(spark, table, 0) == [
        (1, "a", "delete", 3),
        (1, "a", "insert", 1),
        (2, "a", "delete", 3),
        (2, "a", "insert", 1),
        (3, "b", "insert", 2),
    ]
    assert changes(spark, table, 2, 2) == [(3, "b", "insert", 2)]
    assert changes(spark, table, 4) == []


def test_vectors_that_grow_shrink_and_change(spark: SparkSession, table: DeltaTable) -> None:
    action = table.append(ids(0, 1, 2, 3, 4), partitionValues={"p": "a"})
    for rows in ([1, 2], [2, 3], []):
        vector = {"deletionVector": inline_vector(rows)} if rows else {}
        kept = {k: v for k, v in action["add"].items() if k != "deletionVector"}
        replaced = {"add": {**kept, **vector}}
        table.commit(removal(action), replaced)
        action = replaced
    assert changes(spark, table, 2) == [
        (1, "a", "delete", 2),
        (1, "a", "insert", 3),
        (2, "a", "delete", 2),
        (2, "a", "insert", 4),
        (3, "a", "delete", 3),
        (3, "a", "insert", 4),
    ]


def test_deleted_rows_of_added_and_removed_files_do_not_count(spark: SparkSession, table: DeltaTable) -> None:
    action = table.append(ids(0, 1, 2), partitionValues={"p": "a"}, deletionVector=inline_vector([1]))
    table.commit(removal(action))
    assert changes(spark, table, 1) == [
        (0, "a", "delete", 2),
        (0, "a", "insert", 1),
        (2, "a", "delete", 2),
        (2, "a", "insert", 1),
    ]


def test_recorded_changes_speak_for_their_version(spark: SparkSession, table: DeltaTable) -> None:
    old = table.append(ids(1, 2), partitionValues={"p": "a"})
    recorded = pa.table({"id": pa.array([2, 20], pa.int64()), "_change_type": ["update_preimage", "update_postimage"]})
    cdc = table.file(recorded, "_change_data/cdc-1.parquet", partitionValues={"p": "a"})["add"]
    cdc = {k: cdc[k] for k in ("path", "partitionValues", "size")} | {"dataChange": False}
    table.commit(removal(old), table.file(ids(1, 20), partitionValues={"p": "a"}), {"cdc": cdc})
    assert changes(spark, table, 1) == [
        (1, "a", "insert", 1),
        (2, "a", "insert", 1),
        (2, "a", "update_preimage", 2),
        (20, "a", "update_postimage", 2),
    ]
    frame = read_changes(spark, table.path, 0)
    assert frame.where("_commit_version = 1").count() == 2
    assert frame.where("_change_type = 'update_postimage' and p = 'a'").count() == 1
    assert frame.where("p = 'b'").count() == 0


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
