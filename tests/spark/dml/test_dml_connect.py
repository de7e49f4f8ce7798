"""DELETE and UPDATE on Spark Connect, and where Spark has no filesystem for the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.connect import functions as csf

import headwater as hw
from support.oracles.reader_votes import by_duckdb
from support.stores.storage_servers import moto_server
from support.tables.dml_tables import metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("vectors", "mapping"), [("false", "id"), ("true", "name")])
def test_rows_are_changed_on_connect(remote: SparkSession, tmp_path: Path, vectors: str, mapping: str) -> None:
    path = str(tmp_path / "t")
    properties = {
        "delta.enableDeletionVectors": vectors,
        "delta.columnMapping.mode": mapping,
        "delta.enableRowTracking": "true",
        "delta.enableChangeDataFeed": "true",
    }
    hw.write(remote.sql("SELECT id, id % 2 AS p, 'x' AS v FROM range(8)").coalesce(1), path, properties=properties)
    hw.write(remote.sql("SELECT 20L AS id, 0L AS p, 'x' AS v"), path, mode="append")
    ids = {row.id: row._row_id for row in hw.read(remote, path, row_tracking=True).collect()}
    table = hw.DeltaTable.forPath(remote, path).alias("t")
    table.delete((csf.col("t.id") > 1) & (csf.col("v") == "x") & (csf.col("id") < 4))
    table.update("t.id IN (5, 7) AND p = 1", {"v": csf.concat("v", csf.lit("y")), "p": "9"})
    expected = [(0, 0, "x"), (1, 1, "x"), (20, 0, "x"), (4, 0, "x"), (5, 9, "xy"), (6, 0, "x"), (7, 9, "xy")]
    assert by_duckdb(path) == expected
    assert {row.id: row._row_id for row in hw.read(remote, path, row_tracking=True).collect()} == {
        i: ids[i] for i, _, _ in expected
    }
    changes = hw.read_changes(remote, path, 2).groupBy("_change_type").count().collect()
    assert {tuple(row) for row in changes} == {("delete", 2), ("update_preimage", 2), ("update_postimage", 2)}
    with pytest.raises(hw.FilterError, match="deterministic"):
        table.delete(csf.rand() > 0.5)
    with pytest.raises(hw.ColumnNotFoundError, match="nothing"):
        table.delete("nothing = 1")
    with pytest.raises(hw.ConstraintViolationError, match="Nothing was committed"):
        hw.DeltaTable.forPath(remote, path).addConstraint("small", "id < 5")


def test_rows_are_changed_where_python_reads_the_files(spark: SparkSession, tmp_path: Path) -> None:
    with moto_server() as s3:
        uri, options = f"{s3.root}/{tmp_path.name}/t", s3.options
        frame = spark.sql("SELECT id, id % 2 AS p, 'x' AS v FROM range(6)").coalesce(1)
        properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
        hw.write(frame, uri, partition_by="p", properties=properties, storage_options=options)
        table = hw.DeltaTable.forPath(spark, uri, storage_options=options)
        table.delete("id = 3 AND v = 'x'")
        table.update("id > 3", {"v": "'y'"})
        table.setProperties({"delta.enableDeletionVectors": "false"})
        table.delete("id = 0 AND v = 'x'")
        found = hw.read(spark, uri, row_tracking=True, storage_options=options).collect()
        assert sorted((r.id, r.v, r._row_commit_version) for r in found) == [
            (1, "x", 0), (2, "x", 0), (4, "y", 2), (5, "y", 2)]  # fmt: skip
        assert len({r._row_id for r in found}) == 4


def test_metrics_are_those_of_the_history(remote: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    hw.write(remote.sql("SELECT id FROM range(4)").coalesce(1), path)
    hw.DeltaTable.forPath(remote, path).delete("id = 3")
    assert metrics(path) == {"numRemovedFiles": 1, "numAddedFiles": 1, "numDeletedRows": 1, "numCopiedRows": 3}
