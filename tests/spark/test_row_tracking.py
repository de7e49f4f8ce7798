"""Row ids and row commit versions: the file's defaults, and materialized values where a file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_tables import DeltaTable, field, inline_vector

from headwater.errors import SchemaError
from headwater.spark.row_tracking import RowTrackingDisabledError
from headwater.spark.scan import read

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
