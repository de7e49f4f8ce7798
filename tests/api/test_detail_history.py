"""`DeltaTable.history` and `detail`: the columns of DESCRIBE HISTORY and DESCRIBE DETAIL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import DeltaTable
from support.tables.delta_tables import DeltaTable as HandMade
from support.tables.delta_tables import field

if TYPE_CHECKING:
    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "my table")
    write_deltalake(path, pa.table({"id": [1, 2], "day": ["a", "b"]}), partition_by=["day"], description="what for")
    return path


def test_the_history_as_delta_users_know_it(spark: SparkSession, path: str) -> None:
    RustTable(path).delete("id = 1")
    rows = DeltaTable.forPath(spark, path).history().collect()
    assert [(row.version, row.operation) for row in rows] == [(1, "DELETE"), (0, "WRITE")]
    commits = hw.open_log(path).history()
    assert [row.timestamp.astimezone(UTC) for row in rows] == [
        datetime.fromtimestamp(commit.timestamp / 1000, UTC) for commit in commits
    ]
    assert rows[0].operationParameters["predicate"] == "id = 1"
    assert rows[0].operationMetrics["num_deleted_rows"] == "1"
    assert DeltaTable.forPath(spark, path).history(1).count() == 1
    with pytest.raises(ValueError, match="negative"):
        DeltaTable.forPath(spark, path).history(-1)


def test_jobs_notebooks_and_odd_values_in_the_history(spark: SparkSession, tmp_path: Path) -> None:
    made = HandMade(tmp_path / "t", field("id", "long"))
    info: dict[str, Any] = {
        "operation": "MERGE",
        "operationParameters": {"predicate": None, "matchedPredicates": [{"a": 1}], "flag": True},
        "job": {"jobId": "7", "runId": 8},
        "notebook": {"notebookId": "9"},
        "clusterId": "c",
        "userName": "somebody",
        "readVersion": 0,
        "isBlindAppend": False,
        "userMetadata": "note",
    }
    made.commit({"commitInfo": info})
    row = DeltaTable.forPath(spark, tmp_path / "t").history(1).first()
    assert row.operationParameters == {"predicate": None, "matchedPredicates": '[{"a": 1}]', "flag": "true"}
    assert (row.job.jobId, row.job.runId, row.job.jobName, row.notebook.notebookId) == ("7", "8", None, "9")
    assert (row.clusterId, row.userName, row.readVersion, row.isBlindAppend) == ("c", "somebody", 0, False)
    assert row.userMetadata == "note"


def test_the_details(spark: SparkSession, path: str) -> None:
    [row] = DeltaTable.forPath(spark, path).detail().collect()
    snapshot = hw.open_log(path)
    assert (row.format, row.id, row.name, row.description) == ("delta", snapshot.metadata.id, None, "what for")
    assert row.location == f"file:{path}"
    assert (row.partitionColumns, row.clusteringColumns) == (["day"], [])
    assert (row.numFiles, row.sizeInBytes) == (2, snapshot.size_bytes)
    assert (row.minReaderVersion, row.minWriterVersion) == (1, 2)
    assert row.tableFeatures == ["appendOnly", "invariants"]
    assert row.lastModified.astimezone(UTC) == datetime.fromtimestamp(snapshot.timestamp / 1000, UTC)


def test_the_same_columns_as_delta_spark_and_the_same_values(
    spark: SparkSession, delta_spark: DeltaSparkOracle, path: str
) -> None:
    table = DeltaTable.forPath(spark, path)
    table.setProperties({"delta.columnMapping.mode": "name", "my": "1"})
    table.addColumns({"amount": "decimal(10,2)"}, position="FIRST")
    table.renameColumn("amount", "sum")
    table.addConstraint("positive", "id > 0")

    detail, history = f"DESCRIBE DETAIL delta.`{path}`", f"DESCRIBE HISTORY delta.`{path}`"
    for statement, ours in ((detail, table.detail()), (history, table.history())):
        assert as_json(ours) == sorted(map(str, map(_comparable, delta_spark.sql(statement))))


def as_json(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("to_json(struct(*)) AS json").collect()
    return sorted(str(_comparable(json.loads(row.json))) for row in rows)


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    maps = {name: dict(sorted(value.items())) for name, value in row.items() if isinstance(value, dict)}
    return dict(sorted({**row, **maps}.items()))
