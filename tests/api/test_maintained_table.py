"""The maintenance methods of `DeltaTable`, as scripts call them; what they make is read by others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater import DeltaTable
from headwater.errors import InvalidCommitError, MissingFilesError, RetentionError, TableAlreadyExistsError
from support.oracles.delta_spark_oracle import DeltaSparkOracle
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater, operations
from support.stores.storage_servers import Endpoint, moto_server
from support.tables.delta_tables import DeltaTable as HandMade
from support.tables.delta_tables import field, inline_vector, relative_vectors

pytestmark = pytest.mark.spark
CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE = "spark.sql.files.ignoreMissingFiles"


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def without_check(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(CHECK, "false")
    yield
    spark.conf.unset(CHECK)


def ids(frame: object) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())  # type: ignore[attr-defined]


def three_versions(spark: SparkSession, path: Path, **properties: str) -> DeltaTable:
    hw.write(spark.range(3).coalesce(1), path, properties=properties)
    hw.write(spark.range(3, 6).coalesce(1), path, mode="append")
    hw.write(spark.range(6, 9).coalesce(1), path, mode="overwrite")
    return DeltaTable.forPath(spark, path)


def test_vacuum_restore_and_history(
    spark: SparkSession, tmp_path: Path, without_check: None, delta_spark: DeltaSparkOracle
) -> None:
    table = three_versions(spark, tmp_path / "t", **{"delta.enableChangeDataFeed": "true"})

    shown = table.vacuum(0, dryRun=True)
    assert shown.columns == ["path"]
    assert len(shown.collect()) == 2
    assert all(row["path"].startswith(f"file:{tmp_path}/t/part-") for row in shown.collect())
    restored = table.restoreToVersion(1)
    assert restored.collect()[0].asDict()["num_restored_files"] == 2
    assert restored.columns == [
        *("table_size_after_restore", "num_of_files_after_restore", "num_removed_files"),
        *("num_restored_files", "removed_files_size", "restored_files_size"),
    ]
    assert [row[0] for row in by_all(spark, tmp_path / "t")] == list(range(6))
    changes = hw.read_changes(spark, tmp_path / "t", starting_version=3).groupBy("_change_type").count().collect()
    assert dict(changes) == {"insert": 6, "delete": 3}

    done = table.vacuum(0)

    assert (done.columns, done.count()) == ([], 0)
    assert [row[0] for row in by_all(spark, tmp_path / "t")] == list(range(6))
    assert len(delta_spark.rows(tmp_path / "t")) == 6
    assert operations(tmp_path / "t")[-3:] == ["RESTORE", "VACUUM START", "VACUUM END"]
    assert not [name for name in os.listdir(tmp_path / "t") if name.startswith("incomplete")]
    with pytest.raises(MissingFilesError):
        table.restoreToVersion(2)
    spark.conf.set(IGNORE, "true")
    try:
        table.restoreToVersion(2)
    finally:
        spark.conf.unset(IGNORE)


def test_vacuum_takes_an_inventory_and_heeds_the_settings(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(spark, tmp_path / "t")
    names = [name for name in os.listdir(tmp_path / "t") if name.endswith(".parquet")]
    rows = [(f"file:{tmp_path}/t/{name}", 1, False, 1) for name in names]
    inventory = spark.createDataFrame(rows, "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT")
    with pytest.raises(RetentionError, match="retentionDurationCheck"):
        table.vacuum(0)
    assert table.vacuum(168, dryRun=True, inventory=inventory).count() == 0  # tombstones are younger than that
    spark.conf.set(CHECK, "false")
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    try:
        assert table.vacuum(0, dryRun=True, inventory=inventory).count() == 2
        table.vacuum(0, lite=True)
    finally:
        spark.conf.unset(CHECK)
        spark.conf.unset("spark.databricks.delta.vacuum.logging.enabled")
    assert len([name for name in os.listdir(tmp_path / "t") if name.endswith(".parquet")]) == 1
    assert len(operations(tmp_path / "t")) == 3


def test_restore_to_a_timestamp_is_in_the_sessions_zone(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(spark, tmp_path / "t")
    for version in range(3):
        moment = 1_706_702_400 + version * 3_600  # 2024-01-31 12:00:00 UTC
        os.utime(tmp_path / "t" / "_delta_log" / f"{version:020}.json", (moment, moment))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table.restoreToTimestamp("2024-01-31 14:30:00")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert ids(table.toDF()) == list(range(6))
    with pytest.raises(hw.VersionNotFoundError):
        table.restoreToTimestamp("1999-01-01")


def test_clones_are_read_by_everyone(spark: SparkSession, tmp_path: Path, delta_spark: DeltaSparkOracle) -> None:
    source = HandMade(
        tmp_path / "my source",
        field("id", "long"),
        features=("deletionVectors",),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    [vector] = relative_vectors(source.path, [0, 1])
    source.append(pa.table({"id": [1, 2, 3]}), "a b.parquet", deletionVector=vector)
    source.append(pa.table({"id": [4, 5]}), deletionVector=inline_vector([0]))
    table = DeltaTable.forPath(spark, source.path)

    deep = table.clone(str(tmp_path / "deep"))
    shallow = table.clone(str(tmp_path / "shallow"), isShallow=True, properties={"owner": "me"})
    old = table.cloneAtVersion(1, str(tmp_path / "old"))
    assert (ids(deep.toDF()), ids(shallow.toDF()), ids(old.toDF())) == ([3, 5], [3, 5], [3])
    for path in ("deep", "shallow"):
        assert delta_spark.rows(tmp_path / path) == ['{"id":3}', '{"id":5}']
    assert [row[0] for row in by_duckdb(tmp_path / "deep")] == [3, 5]  # it takes absolute paths for relative ones
    assert hw.open_log(tmp_path / "shallow").properties["owner"] == "me"

    hw.write(spark.range(7, 8), source.path, mode="append")
    with pytest.raises(TableAlreadyExistsError):
        table.clone(str(tmp_path / "deep"))
    again = table.clone(str(tmp_path / "deep"), replace=True)
    [newest, _] = hw.open_log(tmp_path / "deep").history()
    assert newest.operation_metrics["numCopiedFiles"] == "1"
    assert ids(again.toDF()) == [3, 5, 7]
    hw.write(spark.range(9, 10), tmp_path / "shallow", mode="append")
    assert ids(DeltaTable.forPath(spark, tmp_path / "shallow").toDF()) == [3, 5, 9]
    assert ids(table.toDF()) == [3, 5, 7]


def test_a_deep_clone_goes_to_another_store_by_the_executors(spark: SparkSession, s3: Endpoint, tmp_path: Path) -> None:
    table = three_versions(spark, tmp_path / "t")
    uri = f"{s3.root}/{tmp_path.name}"

    remote = table.clone(uri, storage_options=s3.options)
    back = remote.clone(str(tmp_path / "back"))

    assert ids(remote.toDF()) == ids(back.toDF()) == [6, 7, 8]
    assert by_headwater(spark, tmp_path / "back") == [(6,), (7,), (8,)]


def test_purging_deletion_vectors_rewrites_just_the_files_that_have_them(
    spark: SparkSession, tmp_path: Path, delta_spark: DeltaSparkOracle
) -> None:
    source = HandMade(
        tmp_path / "t",
        field("id", "long"),
        field("p", "string"),
        partition_columns=("p",),
        features=("deletionVectors",),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    for p in ("a", "b"):
        values = {"partitionValues": {"p": p}}
        source.append(pa.table({"id": [1, 2, 3]}), **values, deletionVector=inline_vector([0]))
        source.append(pa.table({"id": [4]}), **values)
    table = DeltaTable.forPath(spark, source.path)

    shown = table.reorg().where("p = 'a'").executePurge()

    assert shown.columns == ["path", "metrics"]
    metrics = shown.collect()[0]["metrics"]
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, 1)
    vectors = hw.open_log(source.path).files(columns=["deletionVector"]).column("deletionVector")
    assert len(vectors) - vectors.null_count == 1
    table.reorg().executePurge()
    assert by_headwater(spark, source.path) == by_duckdb(source.path)
    assert ids(table.toDF()) == [2, 2, 3, 3, 4, 4]
    assert len(delta_spark.rows(source.path)) == 6
    [newest, *_] = hw.open_log(source.path).history()
    assert newest.operation == "REORG"
    assert newest.operation_parameters["applyPurge"] == "true"
    table.generate("symlink_format_manifest")  # possible, now that there are no vectors any more
    assert (source.path / "_symlink_format_manifest" / "p=a" / "manifest").exists()
    with pytest.raises(ValueError):
        table.generate("something else")


def test_manifests_are_kept_up_to_date_by_writes(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    frame = spark.sql("SELECT id, id % 2 AS p FROM range(2)").coalesce(1)
    hw.write(frame, tmp_path / "t", partition_by="p", properties=properties)

    hw.write(frame.where("p = 1"), tmp_path / "t", mode="append")

    manifests = tmp_path / "t" / "_symlink_format_manifest"
    lines = [line for file in sorted(manifests.rglob("manifest")) for line in file.read_text().splitlines()]
    assert len(lines) == 3
    assert spark.read.parquet(*lines).count() == 3
    with pytest.raises(InvalidCommitError):
        DeltaTable.forPath(spark, tmp_path / "t").setProperties({"delta.enableDeletionVectors": "true"})


def test_all_of_it_works_on_spark_connect(remote: SparkSession, tmp_path: Path) -> None:
    table = three_versions(remote, tmp_path / "t")
    remote.conf.set(CHECK, "false")

    assert table.vacuum(0, dryRun=True).count() == 2
    assert table.restoreToVersion(0).collect()[0]["num_restored_files"] == 1
    assert table.vacuum(0).columns == []
    assert ids(table.clone(str(tmp_path / "clone")).toDF()) == [0, 1, 2]
    remote.range(2).coalesce(1).write.parquet(str(tmp_path / "raw"))
    assert ids(DeltaTable.convertToDelta(remote, f"parquet.`{tmp_path}/raw`").toDF()) == [0, 1]
