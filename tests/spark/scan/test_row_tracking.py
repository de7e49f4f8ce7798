"""Row ids and row commit versions: the file's defaults, and materialized values where a file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import RowTrackingDisabledError, SchemaError
from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, field, inline_vector

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ENABLED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}


def tracked_table(path: Path, *, configuration: dict[str, str], columns: tuple[str, ...] = ("id",)) -> DeltaTable:
    return DeltaTable(
        path,
        *(field(name, "long") for name in columns),
        configuration=configuration,
        features=("deletionVectors",),
        writer_features=("rowTracking", "domainMetadata"),
    )


def test_defaults_materialized_values_and_deleted_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = tracked_table(tmp_path / "t", configuration=ENABLED)
    table.append(
        pa.table({"id": pa.array([10, 11, 12], pa.int64())}),
        baseRowId=100,
        defaultRowCommitVersion=1,
        deletionVector=inline_vector([1]),
    )
    table.append(
        pa.table(
            {
                "id": pa.array([20, 21], pa.int64()),
                "_row-id-col-1": pa.array([7, None], pa.int64()),
                "_row-commit-version-col-1": pa.array([None, 0], pa.int64()),
            }
        ),
        baseRowId=200,
        defaultRowCommitVersion=2,
    )
    frame = read(spark, table.path, row_tracking=True)
    assert frame.columns == ["id", "_row_id", "_row_commit_version"]
    assert sorted(frame.collect()) == [(10, 100, 1), (12, 102, 1), (20, 7, 2), (21, 201, 0)]
    assert frame.where("_row_id = 102").select("id").collect() == [(12,)]
    assert read(spark, table.path).columns == ["id"]


def test_a_table_that_never_materialized(spark: SparkSession, tmp_path: Path) -> None:
    table = tracked_table(tmp_path / "t", configuration={"delta.enableRowTracking": "true"})
    table.append(pa.table({"id": pa.array([1, 2], pa.int64())}), baseRowId=0, defaultRowCommitVersion=1)
    assert sorted(read(spark, table.path, row_tracking=True).collect()) == [(1, 0, 1), (2, 1, 1)]


def test_a_table_without_row_tracking_refuses(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    with pytest.raises(RowTrackingDisabledError, match=r"delta\.enableRowTracking"):
        read(spark, table.path, row_tracking=True)


def test_a_column_of_the_same_name_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = tracked_table(tmp_path / "t", configuration=ENABLED, columns=("id", "_ROW_ID"))
    with pytest.raises(SchemaError, match="_row_id"):
        read(spark, table.path, row_tracking=True)


def ids(spark: SparkSession, path: Path) -> dict[int, tuple[int, int]]:
    rows = read(spark, path, row_tracking=True).collect()
    return {row.id: (row._row_id, row._row_commit_version) for row in rows}


@pytest.mark.parametrize("how", ["UPDATE", "MERGE"])
def test_rows_that_change_while_tracking_is_off_do_not_keep_their_old_commit_versions(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    """Given rows whose versions stand in a file, when tracking is off they change, and on again, then they are new."""
    frame = spark.range(6).selectExpr("id", "id AS v").coalesce(1)
    hw.write(frame, tmp_path, properties={"delta.enableRowTracking": "true"})
    table = hw.DeltaTable.forPath(spark, tmp_path)
    table.update("id = 0", {"v": "-1L"})
    before = ids(spark, tmp_path)
    assert before[0][1] == 1
    assert {before[id_] for id_ in range(1, 6)} == {(id_, 0) for id_ in range(1, 6)}, "the file has them in a column"
    table.setProperties({"delta.enableRowTracking": "false"})
    if how == "UPDATE":
        table.update("id = 3", {"v": "-3L"})
    else:
        source = spark.createDataFrame([(3, -3)], "id bigint, v bigint")
        merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    changed_at = hw.open_log(tmp_path).version
    table.setProperties({"delta.enableRowTracking": "true"})
    after = ids(spark, tmp_path)
    assert after[3][1] >= changed_at
    assert len({row_id for row_id, _ in after.values()}) == 6
    assert {row.id: row.v for row in read(spark, tmp_path).collect()} == {0: -1, 1: 1, 2: 2, 3: -3, 4: 4, 5: 5}


def test_a_property_without_the_feature_does_not_track_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), configuration=ENABLED)
    table.append(pa.table({"id": pa.array([10], pa.int64())}))
    with pytest.raises(RowTrackingDisabledError, match="row tracking is off"):
        read(spark, table.path, row_tracking=True)
