"""Files whose paths are not in normal form are read, changed, restored and kept like any others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater import DeltaTable
from support.oracles.delta_spark_oracle import DeltaSparkOracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PATHS = {
    "./a": "a",
    "d//b": "d/b",
    "d/../c": "c",
    "%64/e%2Ff": "d/e/f",
    "file:{root}//g": "g",
    "file://localhost{root}/./h": "h",
    "link/i": "real/i",
    "../{name}/j": "j",
    "a%2520k": "a%20k",
}


def odd_table(root: Path, *, vectors: bool) -> Path:
    """A table of ten rows a file."""
    (root / "_delta_log").mkdir(parents=True)
    os.symlink(root / "real", root / "link")
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    metadata = {"id": "odd", "format": {"provider": "parquet", "options": {}}, "schemaString": SCHEMA}
    metadata |= {"partitionColumns": [], "configuration": {"delta.enableDeletionVectors": str(vectors).lower()}}
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for number, (path, key) in enumerate(PATHS.items()):
        file = root / key
        file.parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table({"id": range(number * 10, number * 10 + 10)}), file)
        named = path.format(root=root, name=root.name)
        add = {"path": named, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
        actions.append({"add": {**add, "dataChange": True, "stats": '{"numRecords":10}'}})
    commit = "\n".join(json.dumps(action) for action in actions)
    (root / "_delta_log" / f"{0:020d}.json").write_text(commit)
    return root


@pytest.mark.parametrize("vectors", [True, False])
def test_every_operation_finds_files_however_they_are_spelled(
    spark: SparkSession, tmp_path: Path, vectors: bool
) -> None:
    root = odd_table(tmp_path / "t", vectors=vectors)
    table = DeltaTable.forPath(spark, str(root))

    def ids() -> list[int]:
        return sorted(row.id for row in table.toDF().collect())

    everything = list(range(10 * len(PATHS)))
    assert ids() == everything
    table.delete("id % 10 = 3")
    assert ids() == [n for n in everything if n % 10 != 3]
    table.update("id % 10 = 4", {"id": "id + 1000"})
    left = sorted(n + 1000 if n % 10 == 4 else n for n in everything if n % 10 != 3)
    assert ids() == left
    table.optimize().executeCompaction()
    assert ids() == left
    table.restoreToVersion(0)
    assert ids() == everything
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert ids() == everything
    assert hw.open_log(root).verify() == []


def test_delta_spark_takes_these_spellings_for_the_same_files(tmp_path: Path, delta_spark: DeltaSparkOracle) -> None:
    root = odd_table(tmp_path / "t", vectors=False)
    removed = ["a", "d/./b", "x/../c"]
    lines = [json.dumps({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}) for path in removed]
    (root / "_delta_log" / f"{1:020d}.json").write_text("\n".join(lines))
    for name in ("../t/j", "file://localhost"):  # it reads neither
        commit = root / "_delta_log" / f"{0:020d}.json"
        commit.write_text("\n".join(line for line in commit.read_text().splitlines() if name not in line))

    theirs = sorted(json.loads(row)["id"] for row in delta_spark.rows(root))

    log = hw.open_log(root)
    assert len(theirs) == 10 * log.num_files
    assert log.num_files == len(PATHS) - len(removed) - 2
