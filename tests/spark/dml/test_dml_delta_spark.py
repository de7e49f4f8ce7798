"""The same commands by us and by delta-spark, on copies of one table: rows, changes, row ids and metrics agree."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

import headwater as hw

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark

COMPARED = ("numDeletedRows", "numUpdatedRows", "numRemovedFiles", "numDeletionVectorsAdded")


@pytest.mark.parametrize(
    ("vectors", "partitioned", "mapping"), [("false", "PARTITIONED BY (p)", "name"), ("true", "", "id")]
)
def test_both_do_the_same(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path, vectors: str, partitioned: str, mapping: str
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    delta_spark.sql(
        f"CREATE TABLE delta.`{theirs}` (id BIGINT, p BIGINT, v STRING, s STRUCT<a: BIGINT, b: BIGINT>) USING delta "
        f"{partitioned} TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}', "
        f"'delta.columnMapping.mode' = '{mapping}', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableRowTracking' = 'true')"
    )
    delta_spark.sql(
        f"INSERT INTO delta.`{theirs}` SELECT /*+ coalesce(1) */ id, id % 2, 'x', IF(id = 9, NULL, struct(id, id)) "
        "FROM range(12)"
    )
    shutil.copytree(theirs, ours)
    delta_spark.sql(f"DELETE FROM delta.`{theirs}` WHERE id IN (3, 4)")
    delta_spark.sql(f"UPDATE delta.`{theirs}` SET s.a = id + 100, v = concat(v, 'y') WHERE id > 7 AND p = 1")
    table = hw.DeltaTable.forPath(spark, ours)
    table.delete("id IN (3, 4)")
    table.update("id > 7 AND p = 1", {"s.a": "id + 100", "v": "concat(v, 'y')"})

    read = "SELECT id, p, v, s, _metadata.row_id AS row, _metadata.row_commit_version AS version FROM delta.`{}`"
    assert rows_of(delta_spark, read, ours) == rows_of(delta_spark, read, theirs)
    assert feed_of(delta_spark, ours) == feed_of(delta_spark, theirs)
    for mine, other in zip(hw.open_log(ours).history(2), hw.open_log(theirs).history(2), strict=True):
        assert mine.operation == other.operation
        for name in COMPARED:
            assert (mine.operation_metrics or {}).get(name, "0") == (other.operation_metrics or {}).get(name, "0"), name
        assert set(other.operation_metrics or {}) <= set(mine.operation_metrics or {})


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_files_of_which_columns_were_written_are_files_for_delta_spark(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path, mapping: str
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    delta_spark.sql(
        f"CREATE TABLE delta.`{theirs}` (id BIGINT, v STRING, n INT, s STRUCT<a: BIGINT, b: STRING>) USING delta "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', 'delta.columnMapping.mode' = '{mapping}')"
    )
    delta_spark.sql(
        f"INSERT INTO delta.`{theirs}` SELECT /*+ coalesce(1) */ id, concat('v', id % 50), id % 9, "
        "struct(id, IF(id % 3 = 0, NULL, 'b')) FROM range(20000)"
    )
    shutil.copytree(theirs, ours)
    values = "concat('v', id * 100 % 50) AS v, -1 AS n, struct(7L AS a, 'new' AS b) AS s"
    upserts = f"SELECT id * 100 AS id, {values} FROM range(205)"
    delta_spark.sql(f"UPDATE delta.`{theirs}` SET n = n + 1000, s.b = 'set' WHERE id % 1000 = 7")
    delta_spark.sql(
        f"MERGE INTO delta.`{theirs}` t USING ({upserts}) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    table = hw.DeltaTable.forPath(spark, ours)
    table.update("id % 1000 = 7", {"n": "n + 1000", "s.b": "'set'"})
    merge = table.alias("t").merge(spark.sql(upserts).alias("u"), "t.id = u.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    for condition in (
        "true",
        "id BETWEEN 9990 AND 10020",
        "n > 900",
        "n = -1",
        "s.b = 'set'",
        "v = 'v7' AND id > 19000",
    ):
        read = f"SELECT * FROM delta.`{{}}` WHERE {condition}"
        assert rows_of(delta_spark, read, ours) == rows_of(delta_spark, read, theirs), condition
    delta_spark.sql(f"UPDATE delta.`{ours}` SET v = 'again' WHERE n = -1")
    delta_spark.sql(f"UPDATE delta.`{theirs}` SET v = 'again' WHERE n = -1")
    read = "SELECT * FROM delta.`{}`"
    assert rows_of(delta_spark, read, ours) == rows_of(delta_spark, read, theirs)


def rows_of(delta_spark: DeltaSparkOracle, query: str, path: Path) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in delta_spark.sql(query.format(path)))


def feed_of(delta_spark: DeltaSparkOracle, path: Path) -> list[str]:
    found = [json.loads(row) for row in delta_spark.rows(path, readChangeFeed="true", startingVersion=1)]
    kept = [{k: v for k, v in row.items() if k != "_commit_timestamp"} for row in found]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)
