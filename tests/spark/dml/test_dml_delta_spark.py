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

    from delta_spark_oracle import DeltaSparkOracle

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


def rows_of(delta_spark: DeltaSparkOracle, query: str, path: Path) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in delta_spark.sql(query.format(path)))


def feed_of(delta_spark: DeltaSparkOracle, path: Path) -> list[str]:
    found = [json.loads(row) for row in delta_spark.rows(path, readChangeFeed="true", startingVersion=1)]
    kept = [{k: v for k, v in row.items() if k != "_commit_timestamp"} for row in found]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)
