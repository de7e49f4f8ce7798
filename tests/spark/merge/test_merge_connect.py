"""MERGE on Spark Connect, where there is no JVM to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.connect import functions as F

import headwater as hw

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_all_clauses_act_on_spark_connect(remote: SparkSession, tmp_path: Path, vectors: str) -> None:
    rows = remote.createDataFrame([(i, f"v{i}") for i in range(6)], "id long, v string").coalesce(1)
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    hw.write(rows, tmp_path, properties=properties)
    source = remote.createDataFrame([(i, f"s{i}") for i in range(3, 8)], "id long, v string").alias("s")
    table = hw.DeltaTable.forPath(remote, tmp_path).alias("t")

    [result] = (
        table.merge(source, F.col("t.id") == F.col("s.id"))  # type: ignore[arg-type]
        .whenMatchedDelete("s.id = 3")
        .whenMatchedUpdate(set={"v": F.concat("t.v", "s.v")})  # type: ignore[dict-item]
        .whenNotMatchedInsertAll("id < 7")
        .whenNotMatchedBySourceUpdate("id = 0", {"v": "upper(v)"})
        .execute()
        .collect()
    )

    assert tuple(result) == (5, 3, 1, 1)
    after = sorted(tuple(row) for row in table.toDF().collect())
    assert after == [(0, "V0"), (1, "v1"), (2, "v2"), (4, "v4s4"), (5, "v5s5"), (6, "s6")]
    changes = hw.read_changes(remote, tmp_path, 1).select("_change_type", "id", "v").collect()
    assert sorted(tuple(row) for row in changes) == [
        ("delete", 3, "v3"),
        ("insert", 6, "s6"),
        ("update_postimage", 0, "V0"),
        ("update_postimage", 4, "v4s4"),
        ("update_postimage", 5, "v5s5"),
        ("update_preimage", 0, "v0"),
        ("update_preimage", 4, "v4"),
        ("update_preimage", 5, "v5"),
    ]
