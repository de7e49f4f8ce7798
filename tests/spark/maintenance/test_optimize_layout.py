"""Z-order and clustering: rows lie so that conditions skip files, and stay the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater import DeltaTable
from support.oracles.reader_votes import by_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MAX_SIZE = "spark.databricks.delta.optimize.maxFileSize"
VALUES = {
    "i": "hash(id, 1)",
    "f": "CASE WHEN id % 50 = 0 THEN double('NaN') ELSE hash(id, 2) / 7 END",
    "d": "cast(hash(id, 3) AS decimal(20, 4)) / 8",
    "day": "date_add(date'2024-01-01', hash(id, 4) % 2000)",
    "at": "timestamp_seconds(hash(id, 5))",
    "local": "cast(timestamp_seconds(hash(id, 6)) AS timestamp_ntz)",
    "s": "CASE WHEN id % 20 = 0 THEN null ELSE hex(hash(id, 7)) END",
    "n": "named_struct('x', hash(id, 8) % 5)",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def max_size(spark: SparkSession) -> Iterator[Any]:
    yield lambda size: spark.conf.set(MAX_SIZE, str(size))
    spark.conf.unset(MAX_SIZE)


def added(result: Any) -> int:
    [row] = result.collect()
    return int(row.metrics.numFilesAdded)


def test_every_type_can_be_ordered_by(spark: SparkSession, path: str, max_size: Any) -> None:
    hw.write(spark.range(0, 2000, 1, 2).selectExpr("id", *(f"{v} AS {k}" for k, v in VALUES.items())), path)
    before = sorted(map(str, hw.read(spark, path).collect()))
    max_size(hw.open_log(path).size_bytes // 8)
    for columns in (["i", "f"], ["d", "day", "s"], ["at", "local", "n.x"]):
        assert added(DeltaTable.forPath(spark, path).optimize().executeZOrderBy(columns)) >= 6
        counts = [json.loads(text)["numRecords"] for text in hw.open_log(path).files().column("stats").to_pylist()]
        # Every file has its share: a fixed sample is all rows here, so cells are as even as the values allow.
        assert max(counts) <= 1.3 * 2000 / len(counts)
    assert sorted(map(str, hw.read(spark, path).collect())) == before
    [commit] = hw.open_log(path).history(1)
    assert (commit.operation_parameters or {})["zOrderBy"] == '["at","local","n.x"]'


def test_a_point_condition_on_any_column_skips_most_files(spark: SparkSession, path: str, max_size: Any) -> None:
    hw.write(spark.range(0, 4000, 1, 1).selectExpr(*(f"hash(id, {i}) AS c{i}" for i in range(4))), path)
    max_size(hw.open_log(path).size_bytes // 25)
    number = added(DeltaTable.forPath(spark, path).optimize().executeZOrderBy("c0", "c1", "c2", "c3"))
    snapshot = hw.open_log(path)
    assert snapshot.num_files == number >= 20
    points = [tuple(row) for row in hw.read(spark, path).where("c0 % 400 = 0").collect()]
    met = [[snapshot.files(f"c{i} = {row[i]}").num_rows for row in points] for i in range(4)]
    skipping = [1 - sum(column) / len(column) / number for column in met]
    # At best 1 - 25 ** -0.25, which is 55 %; a sort by one column would give the others nothing.
    assert min(skipping) > 0.4
    assert sum(skipping) / 4 > 0.5


def test_clustering_takes_new_files_and_leaves_clustered_ones(spark: SparkSession, path: str, max_size: Any) -> None:
    def write(start: int) -> None:
        rows = spark.range(start, start + 2000, 1, 2).selectExpr("id", "hash(id) AS h", "repeat('x', 20) AS t")
        hw.write(rows, path, mode="append", cluster_by=["h", "id"] if start == 0 else None)

    write(0)
    max_size(hw.open_log(path).size_bytes // 4)
    table = DeltaTable.forPath(spark, path)
    assert added(table.optimize().executeCompaction()) == 4
    first = hw.open_log(path).files()
    assert set(first.column("clusteringProvider").to_pylist()) == {"headwater"}
    assert added(table.optimize().executeCompaction()) == 0
    write(5000)
    [row] = table.optimize().executeCompaction().collect()
    assert row.metrics.clusteringStats.inputOtherFiles.numFiles == 2
    assert row.metrics.clusteringStats.inputZCubeFiles.numFiles == 0
    paths = set(hw.open_log(path).files().column("path").to_pylist())
    assert set(first.column("path").to_pylist()) < paths
    assert len(by_all(spark, path)) == 4000
    table.clusterBy("id")
    assert added(table.optimize().executeCompaction()) >= 8
    [commit] = hw.open_log(path).history(1)
    assert (commit.operation_parameters or {})["clusterBy"] == '["id"]'
    with pytest.raises(hw.WriteOptionError, match="is clustered"):
        table.optimize().where("id = 1").executeCompaction()
    with pytest.raises(hw.WriteOptionError, match="is clustered"):
        table.optimize().executeZOrderBy("id")


def test_small_clustered_files_are_joined(spark: SparkSession, path: str) -> None:
    table = None
    for start in (0, 100):
        hw.write(spark.range(start, start + 100, 1, 2), path, mode="append", cluster_by="id" if start == 0 else None)
        table = DeltaTable.forPath(spark, path)
        table.optimize().executeCompaction()
    assert hw.open_log(path).num_files == 1
    assert by_all(spark, path) == sorted(((i,) for i in range(200)), key=str)
