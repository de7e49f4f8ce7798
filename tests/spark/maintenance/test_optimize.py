"""OPTIMIZE: fewer files, the same rows, for every reader; and what it says about itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater import DeltaTable
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater
from support.stores.storage_servers import moto_server
from support.tables.delta_tables import DeltaTable as HandMadeTable
from support.tables.delta_tables import field, inline_vector

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark

MAX_SIZE = "spark.databricks.delta.optimize.maxFileSize"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def metrics(result: Any) -> Row:
    [row] = result.collect()
    return row.metrics  # type: ignore[no-any-return]


def actions(path: str, kind: str, version: int | None = None) -> list[dict[str, Any]]:
    version = hw.open_log(path).version if version is None else version
    lines = Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for line in lines if kind in (action := json.loads(line))]


def small_files(spark: SparkSession, path: str, files: int = 3, **named: Any) -> None:
    """A table of several appends; `id` goes on from each to the next, `p` is 0 or 1."""
    for i in range(files):
        rows = spark.range(i * 10, i * 10 + 10, 1, 1).selectExpr("id", "cast(id % 2 as int) as p")
        hw.write(rows, path, mode="append", **named)


# --- compaction ---------------------------------------------------------------------------------------------


def test_small_files_of_each_partition_become_one(spark: SparkSession, path: str) -> None:
    small_files(spark, path, partition_by="p")
    before = by_all(spark, path)
    some = metrics(DeltaTable.forPath(spark, path).optimize().where("p = 1").executeCompaction())
    assert (some.numFilesAdded, some.numFilesRemoved, some.partitionsOptimized) == (1, 3, 1)
    assert (some.totalConsideredFiles, some.totalFilesSkipped) == (3, 0)
    assert some.filesRemoved.totalSize == sum(remove["size"] for remove in actions(path, "remove"))
    rest = metrics(DeltaTable.forPath(spark, path).optimize().executeCompaction())
    assert (rest.numFilesAdded, rest.numFilesRemoved, rest.totalFilesSkipped) == (1, 3, 1)
    assert by_all(spark, path) == before
    assert hw.open_log(path).num_files == 2
    [add] = actions(path, "add")
    assert add["dataChange"] is False
    assert add["path"].startswith("p=0/")
    assert add["partitionValues"] == {"p": "0"}
    assert json.loads(add["stats"])["maxValues"] == {"id": 28}
    assert all(remove["dataChange"] is False for remove in actions(path, "remove"))


def test_nothing_to_do_is_no_commit(spark: SparkSession, path: str) -> None:
    small_files(spark, path, files=2)
    table = DeltaTable.forPath(spark, path)
    assert metrics(table.optimize().executeCompaction()).numFilesAdded == 1
    version = hw.open_log(path).version
    again = metrics(table.optimize().executeCompaction())
    assert (again.numFilesAdded, again.numFilesRemoved, again.totalFilesSkipped) == (0, 0, 1)
    assert again.filesAdded.min is None
    assert hw.open_log(path).version == version


def test_the_history_says_what_was_done(spark: SparkSession, path: str) -> None:
    small_files(spark, path, files=2, partition_by="p")
    DeltaTable.forPath(spark, path).optimize().where("p = 0").executeCompaction()
    [commit] = hw.open_log(path).history(1)
    assert commit.operation == "OPTIMIZE"
    parameters = {"predicate": '["p = 0"]', "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}
    assert commit.operation_parameters == parameters
    assert commit.operation_metrics is not None
    assert commit.operation_metrics["numAddedFiles"] == "1"
    assert commit.operation_metrics["numRemovedFiles"] == "2"
    assert commit.operation_metrics["minFileSize"] == commit.operation_metrics["p50FileSize"]
    assert commit.commit_info["isolationLevel"] == "SnapshotIsolation"


def test_large_files_stay_and_bins_have_the_size_of_the_property(spark: SparkSession, path: str) -> None:
    small_files(spark, path, files=5)
    [size, *_] = hw.open_log(path).file_sizes()
    table = DeltaTable.forPath(spark, path)
    table.setProperties({"delta.targetFileSize": str(int(size * 2.5))})
    assert metrics(table.optimize().executeCompaction()).numFilesAdded == 2
    assert hw.open_log(path).num_files == 3
    table.setProperties({"delta.targetFileSize": "1"})
    assert metrics(table.optimize().executeCompaction()).numFilesAdded == 0


def test_deleted_rows_are_taken_out(spark: SparkSession, tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path, field("id", "long"), features=("deletionVectors",))
    made.append(pa.table({"id": [0, 1, 2, 3]}), deletionVector=inline_vector([1, 3]))
    result = metrics(DeltaTable.forPath(spark, tmp_path).optimize().executeCompaction())
    assert (result.numFilesAdded, result.numFilesRemoved) == (1, 1)
    assert result.deletionVectorStats.numDeletionVectorRowsRemoved == 2
    assert by_headwater(spark, tmp_path) == by_duckdb(tmp_path) == [(0,), (2,)]
    [add] = actions(str(tmp_path), "add")
    assert "deletionVector" not in add
    assert json.loads(add["stats"])["numRecords"] == 2
    made.version = hw.open_log(tmp_path).version
    made.append(pa.table({"id": [7, 8]}), deletionVector=inline_vector([0, 1]))
    DeltaTable.forPath(spark, tmp_path).optimize().executeCompaction()
    assert by_headwater(spark, tmp_path) == by_duckdb(tmp_path) == [(0,), (2,)]
    assert hw.open_log(tmp_path).num_files == 1


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_rows_keep_their_ids_and_commit_versions(spark: SparkSession, path: str, mode: str) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.columnMapping.mode": mode}
    small_files(spark, path, files=1, partition_by="p", properties=properties)
    small_files(spark, path, files=2)

    def tracked() -> list[Any]:
        return sorted(hw.read(spark, path, row_tracking=True).collect())

    before = tracked()
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert hw.open_log(path).num_files == 2
    assert tracked() == before
    [info] = actions(path, "commitInfo")
    assert info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert len(by_headwater(spark, path)) == len(before)


def test_values_of_all_types_come_through(spark: SparkSession, path: str) -> None:
    rows = spark.sql(
        "SELECT id, cast(id AS decimal(30, 10)) AS d, date_add(date'2024-01-01', cast(id AS int)) AS day, "
        "timestamp_micros(id * 1000001) AS at, array(id, null) AS a, map('k', named_struct('x', id)) AS m, "
        "parse_json(concat('{\"v\":', id, '}')) AS v, if(id = 1, double('NaN'), id / 2) AS f, "
        "cast(null AS string) AS p FROM range(4)"
    ).repartition(3, "id")
    hw.write(rows, path, partition_by="p")
    shown = hw.read(spark, path).selectExpr("* except (v)", "to_json(v) as v")
    before = sorted(map(str, shown.collect()))
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert hw.open_log(path).num_files == 1
    shown = hw.read(spark, path).selectExpr("* except (v)", "to_json(v) as v")
    assert sorted(map(str, shown.collect())) == before


# --- what it refuses ----------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused(spark: SparkSession, path: str) -> None:
    properties = {"delta.dataSkippingNumIndexedCols": "1"}
    rows = spark.range(2).selectExpr("id", "1 as late", "true as b", "cast(id as string) as p")
    hw.write(rows, path, partition_by="p", properties=properties)
    table = DeltaTable.forPath(spark, path)
    with pytest.raises(hw.FilterError, match=r"non-partition column 'id'.*\[p\]"):
        table.optimize().where("id = 1").executeCompaction()
    with pytest.raises(hw.ColumnNotFoundError):
        table.optimize().where("nothing = 1").executeCompaction()
    with pytest.raises(hw.FilterError):
        table.optimize().where("p = = 1").executeCompaction()
    with pytest.raises(TypeError, match="SQL"):
        table.optimize().where(5)  # type: ignore[arg-type]
    with pytest.raises(hw.WriteOptionError, match="partition column"):
        table.optimize().executeZOrderBy("p")
    with pytest.raises(hw.WriteOptionError, match="no statistics"):
        table.optimize().executeZOrderBy("late")
    with pytest.raises(hw.WriteOptionError, match="boolean"):
        table.optimize().executeZOrderBy("b")
    with pytest.raises(hw.ColumnNotFoundError):
        table.optimize().executeZOrderBy("nothing")
    with pytest.raises(hw.WriteOptionError, match="one column or more"):
        table.optimize().executeZOrderBy()
    spark.conf.set(MAX_SIZE, "large")
    try:
        with pytest.raises(hw.WriteOptionError, match="maxFileSize"):
            table.optimize().executeCompaction()
    finally:
        spark.conf.unset(MAX_SIZE)
    assert hw.open_log(path).version == 0


# --- what others make of it ---------------------------------------------------------------------------------


def test_delta_spark_agrees_about_result_and_rows(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for place in (ours, theirs):
        small_files(spark, str(place), files=2, cluster_by="id")
    answer = delta_spark._ask(sql=f"OPTIMIZE delta.`{theirs}`")
    result = DeltaTable.forPath(spark, ours).optimize().executeCompaction()
    assert json.loads(result.schema.json()) == json.loads(answer["schema"])
    [row] = answer["rows"]
    expected = json.loads(row)["metrics"]
    found = metrics(result).asDict(recursive=True)
    same = ("numFilesAdded", "numFilesRemoved", "partitionsOptimized", "numBins", "numBatches", "totalConsideredFiles")
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}
    assert found["clusteringStats"]["inputOtherFiles"]["numFiles"] == 2
    assert delta_spark.rows(ours) == delta_spark.rows(theirs)
    [history] = delta_spark.sql(f"DESCRIBE HISTORY delta.`{theirs}` LIMIT 1")
    [commit] = hw.open_log(ours).history(1)
    assert commit.operation_parameters == history["operationParameters"]
    assert set(commit.operation_metrics or {}) == set(history["operationMetrics"])
    delta_spark.sql(f"OPTIMIZE delta.`{ours}`")
    assert delta_spark.rows(ours) == delta_spark.rows(theirs)


def test_spark_connect_can_do_it_too(remote: SparkSession, path: str) -> None:
    small_files(remote, path, files=2, partition_by="p")
    before = by_headwater(remote, path)
    table = DeltaTable.forPath(remote, path)
    assert metrics(table.optimize().where("p = 1").executeCompaction()).numFilesRemoved == 2
    remote.conf.set(MAX_SIZE, str(hw.open_log(path).size_bytes // 8))
    try:
        assert metrics(table.optimize().executeZOrderBy("id")).numFilesAdded > 2
    finally:
        remote.conf.unset(MAX_SIZE)
    assert by_headwater(remote, path) == before


def test_stores_without_a_filesystem_of_sparks_are_optimized_too(spark: SparkSession, tmp_path: Path) -> None:
    with moto_server() as s3:
        uri, options = f"{s3.root}/{tmp_path.name}/t", s3.options
        small_files(spark, uri, files=2, partition_by="p", storage_options=options)
        table = DeltaTable.forPath(spark, uri, storage_options=options)
        assert metrics(table.optimize().executeCompaction()).numFilesRemoved == 4
        assert sorted(row.id for row in table.toDF().collect()) == list(range(20))
        assert hw.open_log(uri, storage_options=options).num_files == 2
