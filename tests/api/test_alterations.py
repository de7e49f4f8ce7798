"""The ALTER-like methods of `DeltaTable`: what needs Spark, and what readers make of the result."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import headwater as hw
from headwater import DeltaTable
from headwater.errors import ColumnNotFoundError, ConstraintViolationError, InvalidCommitError, SchemaError
from support.oracles.altered_tables import by_duckdb, by_headwater, operations

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    point = pa.struct([("x", pa.int32()), ("y", pa.string())])
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "amount": pa.array([5, None], pa.int32()),
            "point": pa.array([{"x": 1, "y": "a"}, None], point),
        }
    )
    write_deltalake(str(tmp_path / "t"), rows)
    return str(tmp_path / "t")


@pytest.fixture
def table(spark: SparkSession, path: str) -> DeltaTable:
    return DeltaTable.forPath(spark, path)


def test_a_constraint_that_all_rows_fulfil(spark: SparkSession, table: DeltaTable, path: str) -> None:
    table.addConstraint("positive", "id > 0")
    assert operations(path)[-1] == "ADD CONSTRAINT"
    with pytest.raises(ConstraintViolationError, match="positive"):
        hw.write(spark.sql("SELECT -1L AS id"), path, mode="append")
    table.dropConstraint("Positive")
    hw.write(spark.sql("SELECT -1L AS id"), path, mode="append")
    table.dropConstraint("positive", if_exists=True)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id > 1", r"cannot be added: 1 row breaks it\. One of them has id = 1\."),
        ("amount > 0", "1 row breaks it. One of them has amount = None"),  # null is not true
        ("id > 5", "2 rows break it"),
        ("point.x = 1", "1 row breaks it"),
    ],
)
def test_a_constraint_that_rows_break(table: DeltaTable, path: str, expression: str, message: str) -> None:
    with pytest.raises(ConstraintViolationError, match=message):
        table.addConstraint("c", expression)
    assert hw.open_log(path).version == 0


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id + 1", "must be a condition"),
        ("nope > 1", "cannot be resolved"),
        ("max(id) > 1", "calls max, which is not one of"),
        ("id > (select 1)", "subquery"),
        ("id >", "cannot be"),
        ("", "needs an expression"),
    ],
)
def test_what_is_no_constraint(table: DeltaTable, path: str, expression: str, message: str) -> None:
    with pytest.raises(InvalidCommitError, match=message):
        table.addConstraint("c", expression)
    assert hw.open_log(path).version == 0


def test_not_null(spark: SparkSession, table: DeltaTable, path: str) -> None:
    with pytest.raises(ConstraintViolationError, match=r"amount cannot be NOT NULL: 1 row breaks it.*id = 2"):
        table.setNullable("amount", False)
    table.setNullable("id", False)
    table.setNullable("point.x", False)  # the row without a point has no x that could be missing
    assert not hw.open_log(path).schema.field("id").nullable
    with pytest.raises(ConstraintViolationError, match="NOT NULL"):
        hw.write(spark.sql("SELECT nullif(1L, id) AS id FROM range(1, 3)"), path, mode="append")
    table.dropNotNull("id")
    hw.write(spark.sql("SELECT 1 AS amount"), path, mode="append")
    assert len(by_headwater(spark, path)) == 3


def test_defaults(spark: SparkSession, table: DeltaTable, path: str) -> None:
    with pytest.raises(InvalidCommitError, match="addFeatureSupport"):
        table.setDefault("amount", "7")
    table.addFeatureSupport("allowColumnDefaults")
    table.setDefault("amount", "3 + 4")
    hw.write(spark.sql("SELECT 9L AS id"), path, mode="append")
    assert table.toDF().where("id = 9").first().amount == 7
    for expression, message in [("'abc'", "must be of type int"), ("id", "does not depend on other columns")]:
        with pytest.raises(InvalidCommitError, match=message):
            table.setDefault("amount", expression)
    with pytest.raises(ColumnNotFoundError):
        table.setDefault("nope", "1")
    table.dropDefault("amount")
    hw.write(spark.sql("SELECT 10L AS id"), path, mode="append")
    assert table.toDF().where("id = 10").first().amount is None


def test_columns_as_pyspark_declares_them(spark: SparkSession, table: DeltaTable, path: str) -> None:
    table.addColumns({"city": "string", "tags": T.ArrayType(T.StringType())}, position="AFTER id")
    table.addColumns([T.StructField("note", T.StringType(), metadata={"comment": "free text"})])
    table.addColumns({"point.z": "double"})
    assert table.toDF().columns == ["id", "city", "tags", "amount", "point", "note"]
    assert hw.open_log(path).schema.field("note").metadata == {"comment": "free text"}
    assert [row[:4] for row in by_headwater(spark, path)] == [(1, None, None, 5), (2, None, None, None)]
    assert table.toDF().where("id = 1").select("point.x", "point.z").first() == (1, None)
    with pytest.raises(SchemaError, match="NOT NULL"):
        table.addColumns(T.StructType([T.StructField("n", T.IntegerType(), False)]))


def test_renamed_and_dropped_columns_read_right_everywhere(spark: SparkSession, table: DeltaTable, path: str) -> None:
    table.setProperties({"delta.columnMapping.mode": "name"})
    table.renameColumn("amount", "sum of it")
    table.dropColumns("point")
    assert table.toDF().columns == ["id", "sum of it"]
    assert by_headwater(spark, path) == by_duckdb(path) == [(1, 5), (2, None)]
    hw.write(spark.sql("SELECT 3L AS id, 8 AS `sum of it`"), path, mode="append")
    assert by_headwater(spark, path) == by_duckdb(path) == [(1, 5), (2, None), (3, 8)]
    with pytest.raises(ValueError, match="name the columns"):
        table.dropColumns()
    table.dropColumns("point", if_exists=True)


def test_a_wider_type_holds_old_and_new_values(spark: SparkSession, table: DeltaTable, path: str) -> None:
    table.setProperties({"delta.enableTypeWidening": "true"})
    table.setColumnType("amount", "bigint")
    table.setColumnType("point.x", T.LongType())
    hw.write(spark.sql("SELECT 3L AS id, 5000000000L AS amount"), path, mode="append")
    assert sorted(r.amount for r in table.toDF().where("amount is not null").collect()) == [5, 5_000_000_000]
    assert by_duckdb(path)[0][:2] == (1, 5)


def test_row_tracking_on_an_existing_table(spark: SparkSession, table: DeltaTable, path: str) -> None:
    table.setProperties({"delta.enableRowTracking": "true"})
    hw.write(spark.sql("SELECT 3L AS id"), path, mode="append")
    rows = hw.read(spark, path, row_tracking=True).select("id", "_row_id").orderBy("id").collect()
    assert len({row._row_id for row in rows}) == 3
    assert [row._row_id for row in rows][:2] == [0, 1]


def test_clustering_moving_and_describing(table: DeltaTable, path: str) -> None:
    table.clusterBy("id")
    assert table.detail().first().clusteringColumns == ["id"]
    table.clusterBy(None)
    assert table.detail().first().clusteringColumns == []
    with pytest.raises(ValueError, match="None to end"):
        table.clusterBy()
    table.reorderColumn("amount", "FIRST")
    assert table.toDF().columns == ["amount", "id", "point"]
    table.setColumnComment("amount", "in euros")
    assert table.toDF().schema["amount"].metadata.get("comment") == "in euros"
    assert operations(path)[1:] == ["CLUSTER BY", "CLUSTER BY", "CHANGE COLUMN", "CHANGE COLUMN"]


def test_domains_and_the_protocol(table: DeltaTable, path: str) -> None:
    table.setDomainMetadata("com.example.lineage", "{}")
    assert hw.open_log(path).domain_metadata == {"com.example.lineage": "{}"}
    table.removeDomainMetadata("com.example.lineage")
    table.dropFeatureSupport("domainMetadata")
    table.upgradeTableProtocol(1, 7)
    assert hw.open_log(path).protocol.min_writer_version == 7
    table.unsetProperties(["a"], if_exists=True)


def test_on_spark_connect(remote: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(remote, path)
    with pytest.raises(ConstraintViolationError, match="1 row breaks it"):
        table.addConstraint("big", "id > 1")
    with pytest.raises(InvalidCommitError, match="cannot be resolved"):
        table.addConstraint("bad", "nope > 1")
    table.addConstraint("positive", "id > 0")
    table.setNullable("id", False)
    assert [row.operation for row in table.history().collect()] == ["CHANGE COLUMN", "ADD CONSTRAINT", "WRITE"]
    assert table.detail().collect()[0].numFiles == 1
    made = DeltaTable.create(remote).location(f"{path}2").addColumn("a", "int")
    assert made.addColumn("b", "int", generatedAlwaysAs="a + 1").execute().toDF().columns == ["a", "b"]
