"""A session that understands Delta: `format("delta")`, SQL, names, errors; and what may be in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headwater

pytestmark = pytest.mark.spark

SOURCE = str(Path(headwater.__file__).parents[1])


def run_script(text: str, tmp_path: Path, *command: str, **environment: str) -> list[Any]:
    """Run a script in a process of its own, and return what it has printed as JSON, line by line."""
    script = tmp_path / "script.py"
    script.write_text(text)
    env = {**os.environ, "PYTHONPATH": SOURCE, "PYSPARK_PYTHON": sys.executable, **environment}
    done = subprocess.run(
        [*(command or (sys.executable,)), str(script)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


SCRIPT_FOR_DELTA_SPARK = """
import json, sys, tempfile
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.errors import AnalysisException
from delta import configure_spark_with_delta_pip
from delta.tables import DeltaTable
from delta.exceptions import ConcurrentAppendException

builder = (
    SparkSession.builder.appName("shop")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
    .config("spark.ui.enabled", "false")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
path = tempfile.mkdtemp() + "/orders"
spark.range(5).withColumn("name", col("id").cast("string")).write.format("delta").save(path)
table = DeltaTable.forPath(spark, path)
table.delete("id = 0")
updates = spark.createDataFrame([(1, "one"), (9, "nine")], "id long, name string")
(
    table.alias("t").merge(updates.alias("u"), "t.id = u.id")
    .whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
)
print(json.dumps(sorted([r.id, r.name] for r in spark.read.format("delta").load(path).collect())))
spark.sql(f"CREATE TABLE orders USING delta LOCATION '{path}'")
print(json.dumps(spark.sql("SELECT count(*) AS n FROM orders VERSION AS OF 0").first().n))
print(json.dumps([r.operation for r in spark.sql("DESCRIBE HISTORY orders").collect()]))
spark.sql("OPTIMIZE orders")
try:
    spark.read.format("delta").load(path + "/nothing").show()
except AnalysisException as error:
    print(json.dumps({"condition": error.getCondition(), "state": error.getSqlState()}))
print(json.dumps(issubclass(ConcurrentAppendException, Exception)))
spark.stop()
"""


def test_a_script_for_delta_spark_runs_unchanged(tmp_path: Path) -> None:
    found = run_script(SCRIPT_FOR_DELTA_SPARK, tmp_path, sys.executable, "-m", "headwater.cli", "run")

    assert found[0] == [[1, "one"], [2, "2"], [3, "3"], [4, "4"], [9, "nine"]]
    assert found[1][:2] == ["MERGE", "DELETE"]
    assert found[2] == {"condition": "DELTA_TABLE_NOT_FOUND", "state": "42P01"}
