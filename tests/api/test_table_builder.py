"""`DeltaTableBuilder`, as scripts for delta-spark call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import headwater as hw
from headwater import DeltaTable, DeltaTableBuilder, IdentityGenerator
from headwater.errors import (
    InvalidCommitError,
    InvalidTablePropertyError,
    SchemaError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from headwater.log.schema import StructType
from headwater.log.schema.spark import parse_type
from support.oracles.altered_tables import by_duckdb, by_headwater, operations

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def events(builder: DeltaTableBuilder, path: str) -> DeltaTableBuilder:
    return (
        builder.location(path)
        .comment("hello")
        .addColumn("id", "BIGINT", nullable=False, comment="the id")
        .addColumn("ts", T.TimestampType())
        .addColumn("day", "date", generatedAlwaysAs="cast(ts as date)")
        .addColumn("counted", "bigint", generatedAlwaysAs=IdentityGenerator(5, 2))
        .addColumn("given", "bigint", generatedByDefaultAs=IdentityGenerator())
        .property("delta.appendOnly", "false")
        .property("my.prop", "x")
    )


def test_a_table_is_declared_as_delta_spark_declares_it(spark: SparkSession, path: str) -> None:
    table = events(DeltaTable.create(spark), path).partitionedBy("day").execute()

    assert table.toDF().count() == 0
    snapshot = hw.open_log(path)
    fields = {f["name"]: f for f in json.loads(snapshot.metadata.schema_string)["fields"]}
    # What delta-spark 4.4 writes for the same declaration.
    assert fields["id"] == {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the id"}}
    assert fields["day"]["metadata"] == {"delta.generationExpression": "cast(ts as date)"}
    assert fields["counted"]["metadata"] == {
        "delta.identity.start": 5,
        "delta.identity.step": 2,
        "delta.identity.allowExplicitInsert": False,
    }
    assert fields["given"]["metadata"]["delta.identity.allowExplicitInsert"] is True
    assert snapshot.metadata.description == "hello"
    assert snapshot.properties == {"delta.appendOnly": "false", "my.prop": "x"}
    assert snapshot.partition_columns == ["day"]
    assert operations(path) == ["CREATE TABLE"]


def test_rows_written_to_it_get_their_values(spark: SparkSession, path: str) -> None:
    events(DeltaTable.create(spark), path).execute()
    hw.write(spark.sql("SELECT 1L AS id, TIMESTAMP '2024-01-31 12:00:00' AS ts"), path, mode="append")
    [row] = DeltaTable.forPath(spark, path).toDF().select("id", "day", "counted", "given").collect()
    assert (row.id, str(row.day), row.counted, row.given) == (1, "2024-01-31", 5, 1)


def test_columns_of_a_dataframe(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT 1 AS a, named_struct('x', 1L) AS s, cast('q' AS varchar(3)) AS v")
    DeltaTable.create(spark).location(path).addColumns(frame.schema).addColumns(
        [T.StructField("z", T.DateType())]
    ).execute()
    assert [str(f) for f in hw.open_log(path).schema] == ["a:int", "s:struct<x:bigint>", "v:string", "z:date"]


def test_a_varchar_keeps_its_length(spark: SparkSession, path: str) -> None:
    DeltaTable.create(spark).location(path).addColumn("v", "varchar(3)").addColumn("w", T.CharType(2)).execute()
    declared = [f.metadata["__CHAR_VARCHAR_TYPE_STRING"] for f in hw.open_log(path).schema]
    assert declared == ["varchar(3)", "char(2)"]


def test_create_and_its_kin(spark: SparkSession, path: str) -> None:
    with pytest.raises(TableNotFoundError):
        DeltaTable.replace(spark).location(path).addColumn("a", "int").execute()
    DeltaTable.create(spark).location(path).addColumn("a", "int").execute()
    with pytest.raises(TableAlreadyExistsError):
        DeltaTable.create(spark).location(path).addColumn("a", "int").execute()
    hw.write(spark.sql("SELECT 1 AS a"), path, mode="append")
    kept = DeltaTable.createIfNotExists(spark).location(path).addColumn("other", "int").execute()
    assert kept.toDF().columns == ["a"]
    replaced = (
        DeltaTable.replace(spark)
        .location(path)
        .addColumn("b", "int")
        .addColumn("c", "int")
        .partitionedBy("c")
        .execute()
    )
    assert replaced.toDF().columns == ["b", "c"]
    again = (
        DeltaTable.createOrReplace(spark)
        .location(path)
        .addColumn("b", "int")
        .addColumn("s", "struct<x: int, y: int>")
        .clusterBy("b", "s.x")
        .property("delta.columnMapping.mode", "name")
        .execute()
    )
    assert again.detail().first().clusteringColumns == ["b", "s.x"]
    assert operations(path) == ["CREATE TABLE", "WRITE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"]
    hw.write(spark.sql("SELECT 7 AS b, named_struct('x', 1, 'y', 2) AS s"), path, mode="append")
    assert [row[0] for row in by_duckdb(path)] == [row[0] for row in by_headwater(spark, path)] == [7]
    assert hw.read(spark, path, version=1).collect()[0].a == 1


def test_the_session_may_be_left_out(spark: SparkSession, path: str) -> None:
    assert DeltaTable.create().location(Path(path)).addColumn("a", "int").execute().toDF().columns == ["a"]


def declare(spark: SparkSession, path: str) -> DeltaTableBuilder:
    return DeltaTable.create(spark).location(path).addColumn("a", "int").addColumn("b", "int")


GENERATED: list[tuple[str, str, str]] = [
    ("int", "nope + 1", "cannot be resolved. Did you mean"),
    ("string", "a + 1", "is declared as string, but its expression .* is of type int"),
    ("double", "rand()", "depends on more than the row"),
    ("date", "current_date", "depends on more than the row"),
    ("timestamp", "now()", "depends on more than the row"),
    ("bigint", "unix_timestamp()", "depends on more than the row"),
    ("int", "max(a)", "calls max, which is not one of"),
    ("bigint", "sum(a) over ()", "window"),
    ("int", "(select 1)", "subquery"),
    ("int", "a +", "cannot be"),
    ("int", "  ", "needs an expression"),
    ("int", "only_here(a)", "calls only_here, which is not one of"),
]


@pytest.mark.parametrize(("type_", "expression", "message"), GENERATED)
def test_generated_columns_that_no_writer_could_compute(
    spark: SparkSession, path: str, type_: str, expression: str, message: str
) -> None:
    spark.udf.register("only_here", lambda x: x, "int")
    with pytest.raises(InvalidCommitError, match=message):
        declare(spark, path).addColumn("g", type_, generatedAlwaysAs=expression).execute()
    assert not Path(path).exists()


def test_a_generated_column_does_not_use_another(spark: SparkSession, path: str) -> None:
    builder = declare(spark, path).addColumn("g", "int", generatedAlwaysAs="a + 1")
    with pytest.raises(InvalidCommitError, match="not generated"):
        builder.addColumn("h", "int", generatedAlwaysAs="g + 1").execute()


def test_generated_columns_of_any_type(spark: SparkSession, path: str) -> None:
    builder = declare(spark, path).addColumn("s", "struct<x: int NOT NULL>")
    builder.addColumn("g", "array<int>", generatedAlwaysAs="array(a, b)")
    builder.addColumn("h", "int", generatedAlwaysAs="s.x * 2")
    builder.addColumn("i", "varchar(10)", generatedAlwaysAs="concat('unix_timestamp() ', a)").execute()
    assert hw.open_log(path).protocol.min_writer_version == 4


def test_what_cannot_be_declared(spark: SparkSession, path: str) -> None:
    table = declare(spark, path)
    with pytest.raises(InvalidCommitError, match="later release"):
        table.tableName("events")
    with pytest.raises(InvalidCommitError, match=r"location\(path\)"):
        DeltaTable.create(spark).addColumn("a", "int").execute()
    with pytest.raises(SchemaError, match="column c: 'itn' is not a type"):
        table.addColumn("c", "itn")
    with pytest.raises(TypeError, match="SQL text or a PySpark DataType"):
        table.addColumn("c", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not both"):
        table.addColumn("c", "bigint", generatedAlwaysAs="a", generatedByDefaultAs=IdentityGenerator())
    with pytest.raises(TypeError, match="IdentityGenerator"):
        table.addColumn("c", "bigint", generatedByDefaultAs="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="StructFields"):
        table.addColumns(["c"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text"):
        table.property("delta.appendOnly", True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one column"):
        table.partitionedBy([])
    with pytest.raises(ValueError, match="cannot be 0"):
        IdentityGenerator(1, 0)
    with pytest.raises(ValueError, match="64 bits"):
        IdentityGenerator(2**63)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.addColumn("A", "int"), SchemaError, "same name"),
        (lambda t: t.addColumn("x y", "int"), SchemaError, "cannot be stored"),
        (lambda t: t.addColumn("i", "int", generatedAlwaysAs=IdentityGenerator()), InvalidCommitError, "bigint"),
        (lambda t: t.partitionedBy("z"), hw.ColumnNotFoundError, "no column z"),
        (lambda t: t.partitionedBy("a", "b"), InvalidCommitError, "all of its columns"),
        (lambda t: t.partitionedBy(["a"]).clusterBy("b"), InvalidCommitError, "clustered and partitioned"),
        (lambda t: t.property("delta.nope", "1"), InvalidTablePropertyError, "no table property"),
    ],
)
def test_tables_that_cannot_be(
    spark: SparkSession, path: str, change: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        change(declare(spark, path)).execute()
    assert not Path(path, "_delta_log").exists()


@pytest.mark.parametrize(
    "text",
    [
        "INT",
        "long",
        "Decimal(12, 3)",
        "dec",
        "numeric(4)",
        "timestamp_ltz",
        "timestamp_ntz",
        "real",
        "byte",
        "map<string, array<struct<a: int, `b c` varchar(3) not null comment 'it''s'>>>",
    ],
)
def test_types_in_sql_mean_what_spark_means(spark: SparkSession, text: str) -> None:
    from pyspark.sql.types import _parse_datatype_string

    declared = T.StructType([T.StructField("c", _parse_datatype_string(text))])
    assert parse_type(text) == StructType.from_json(declared.json()).field("c").type
