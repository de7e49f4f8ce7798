"""PURGE, partitions, checkpoints, caches, and what a table says of itself."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.api.search_table import SearchTable
from headwater.spark.search.upkeep import CHECK_OPTION
from support.search.search_tables import append, make_table, no_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SearchTable:
    return make_table(
        spark, tmp_path_factory.mktemp("kept") / "logs", writes=1, rows=60, partition_by="day", name="logs"
    )


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * 3600
    os.utime(path, (then, then))


def test_purge_deletes_what_no_version_of_its_retention_needs(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    table = make_table(spark, root, writes=1, rows=20)
    old = sorted(root.glob("*.split"))
    for path in old:
        age(path, 1_000)
    leftover, young = root / "part-00000-leftover.split", root / "part-00000-young.split"
    other = root / "notes.txt"
    for path in (leftover, young, other):
        path.write_bytes(b"...")
    age(leftover, 1_000)
    age(other, 1_000)
    table.merge_splits("1G")  # removes the old ones, just now

    dry = table.purge(dry_run=True)
    assert (dry.num_files, dry.is_dry_run, leftover.exists()) == (1, True, True)
    assert table.purge().paths == (leftover.name,)
    assert (leftover.exists(), young.exists(), other.exists()) == (False, True, True)
    assert all(path.exists() for path in old)  # the versions of the last week need them
    assert table.count(version=1) == 20

    with pytest.raises(hw.RetentionError, match="too short"):
        table.purge(0)
    spark.conf.set(CHECK_OPTION, "false")
    try:
        assert set(table.purge(0).paths) == {path.name for path in [*old, young]}
    finally:
        spark.conf.unset(CHECK_OPTION)
    assert table.count() == 20
    assert len(table.toDF().collect()) == 20


@pytest.mark.parametrize("hours", [-1, float("nan"), "a week", True])
def test_a_retention_that_is_none_is_refused(table: SearchTable, hours: object) -> None:
    with pytest.raises(hw.RetentionError, match="number of hours"):
        table.purge(hours)  # type: ignore[arg-type]


def test_partitions_are_dropped_by_the_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=60, partition_by="day")
    rows = {row.day: row["count"] for row in table.toDF().groupBy("day").count().collect()}
    with no_jobs(spark):
        dropped = table.drop_partitions("day = '2024-03-01' OR day IS NULL")
        assert table.drop_partitions("day = '1999-01-01'") is None
    assert dropped is not None
    assert table.count() == rows["2024-03-02"] + rows["2024-03-03"]
    assert table.count(version=1) == 60
    assert table.history(1).first().operation == "DROP PARTITIONS"  # type: ignore[union-attr]
    for condition, message in {
        "level = 'ERROR'": "level is no partition column",
        "upper(day) = 'X'": "cannot decide",
        "day = day": "cannot decide",
        "true": "cannot decide",
    }.items():
        with pytest.raises(hw.FilterError, match=message):
            table.drop_partitions(condition)


def test_checkpoints_are_written_every_ten_versions_and_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=10)
    log = tmp_path / "logs" / "_transaction_log"
    assert table.checkpoint() == 1
    assert (log / f"{1:020}.checkpoint.json").exists()
    for number in range(9):
        append(spark, table, 10 + number, 11 + number)
    assert (log / f"{10:020}.checkpoint.json").exists()
    assert table.count() == 19
    assert hw.SearchTable.forPath(spark, tmp_path / "logs").count(version=4) == 13


def test_a_table_tells_what_it_is_and_what_happened(table: SearchTable, spark: SparkSession) -> None:
    detail = table.detail().first()
    assert detail is not None
    assert (detail.format, detail.name, detail.version, detail.numRecords) == ("indextables", "logs", 1, 60)
    assert detail.partitionColumns == ["day"]
    assert detail.numSplits == table.snapshot.num_files
    fields = {field.name: field for field in detail.fields}
    assert (fields["message"].kind, fields["message"].tokenizer) == ("text", "default")
    assert fields["message.raw"].kind == "string"
    assert [row.operation for row in table.history().collect()] == ["WRITE", "CREATE TABLE"]
    metrics = table.history(1).first().operationMetrics  # type: ignore[union-attr]
    assert metrics["numOutputRows"] == "60"


def test_prewarmed_splits_are_answered_without_reading_the_bundles(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=30)
    with no_jobs(spark):
        assert table.prewarm() == table.snapshot.num_files
        assert table.prewarm(filter="id > 1000") == 0


def test_another_process_is_seen_after_the_cache_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=10)
    assert table.count() == 10
    log = tmp_path / "logs" / "_transaction_log"
    remove = '{"remove":{"path":"%s","deletionTimestamp":1,"dataChange":true}}'
    paths = table.snapshot.files(columns=["path"]).column("path").to_pylist()
    (log / f"{2:020}.json").write_text("\n".join(remove % path for path in paths))
    table.invalidate_cache()
    assert table.count() == 0


def test_the_face_has_both_spellings() -> None:
    for snake, camel in {
        "for_path": "forPath",
        "to_df": "toDF",
        "is_search_table": "isSearchTable",
        "merge_splits": "mergeSplits",
        "drop_partitions": "dropPartitions",
    }.items():
        assert hasattr(SearchTable, snake)
        assert hasattr(SearchTable, camel)
