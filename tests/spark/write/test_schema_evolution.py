"""Tables whose schema follows the data: new columns, wider types, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headwater as hw
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def test_new_columns_need_to_be_asked_for(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1L AS id"), path)
    frame = spark.sql("SELECT 'x' AS name, 2 AS ID")
    with pytest.raises(hw.SchemaMismatchError, match=r"name .* the table has no such column"):
        hw.write(frame, path, mode="append")
    hw.write(frame, path, mode="append", merge_schema=True)
    assert by_all(spark, path) == [(1, None), (2, "x")]
    assert hw.open_log(path).schema.names == ("id", "name")


def test_the_setting_of_the_session_asks_for_all_writes(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1L AS id"), path)
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        hw.write(spark.sql("SELECT 2L AS id, 1 AS a"), path, mode="append")
        with pytest.raises(hw.SchemaMismatchError):
            hw.write(spark.sql("SELECT 2L AS id, 1 AS b"), path, mode="append", merge_schema=False)
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert hw.open_log(path).schema.names == ("id", "a")


def test_new_fields_inside_of_columns(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT named_struct('a', 1) AS s, array(named_struct('x', 1)) AS xs"), path)
    frame = spark.sql("SELECT named_struct('b', 'q', 'A', 2) AS s, array(named_struct('y', 5)) AS xs")
    hw.write(frame, path, mode="append", merge_schema=True)
    assert by_headwater(spark, path) == [((1, None), [(1, None)]), ((2, "q"), [(None, 5)])]
    assert len(by_duckdb(path)) == 2


def test_new_columns_of_a_mapped_table_get_ids(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1L AS id"), path, properties={"delta.columnMapping.mode": "name"})
    hw.write(spark.sql("SELECT 2L AS id, 'x' AS `a b`"), path, mode="append", merge_schema=True)
    snapshot = hw.open_log(path)
    assert snapshot.properties["delta.columnMapping.maxColumnId"] == "2"
    assert snapshot.schema.field("a b").metadata["delta.columnMapping.id"] == 2
    assert by_headwater(spark, path) == [(1, None), (2, "x")]
    assert by_duckdb(path) == [(1, None), (2, "x")]


def test_rules_of_the_table_stay(spark: SparkSession, path: str) -> None:
    table = DeltaTable(Path(path), field("id", "long", nullable=False, comment="key"))
    hw.write(spark.sql("SELECT 1L AS id, 2 AS more"), path, mode="append", merge_schema=True)
    first, more = hw.open_log(path).schema.fields
    assert (first.nullable, first.metadata) == (False, {"comment": "key"})
    assert more.nullable
    assert table.version == 0


def test_types_widen_where_the_table_allows_it(spark: SparkSession, path: str) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    hw.write(spark.sql("SELECT 1 AS a, named_struct('b', 2S) AS s"), path, properties=properties)
    wide = spark.sql("SELECT 3000000000L AS a, named_struct('b', 70000) AS s")
    with pytest.raises(hw.ValueConversionError):
        hw.write(wide, path, mode="append")
    hw.write(wide, path, mode="append", merge_schema=True)
    schema = hw.open_log(path).schema
    assert str(schema) == "struct<a:bigint,s:struct<b:int>>"
    assert schema.field("a").metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert by_headwater(spark, path) == [(1, (2,)), (3000000000, (70000,))]
    assert [row[0] for row in by_duckdb(path)] == [1, 3000000000]


def test_types_do_not_widen_elsewhere(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1 AS a"), path)
    hw.write(spark.sql("SELECT 2L AS a"), path, mode="append", merge_schema=True)
    assert str(hw.open_log(path).schema) == "struct<a:int>"
    with pytest.raises(hw.ValueConversionError, match="3000000000"):
        hw.write(spark.sql("SELECT 3000000000L AS a"), path, mode="append", merge_schema=True)


def test_columns_without_a_type(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1 AS a, NULL AS later"), path)
    assert by_headwater(spark, path) == [(1, None)]
    hw.write(spark.sql("SELECT 2 AS a, NULL AS later"), path, mode="append")
    hw.write(spark.sql("SELECT 3 AS a, 'x' AS later"), path, mode="append", merge_schema=True)
    assert by_all(spark, path) == [(1, None), (2, None), (3, "x")]


def test_evolution_and_replacement_in_one_commit(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1 AS id, 'a' AS p UNION ALL SELECT 2, 'b'"), path, partition_by="p")
    frame = spark.sql("SELECT 3 AS id, 'b' AS p, 0.5D AS extra")
    hw.write(frame, path, mode="overwrite", partition_overwrite="dynamic", merge_schema=True)
    assert by_all(spark, path) == [(1, "a", None), (3, "b", 0.5)]


def test_replacing_rows_while_a_column_is_added(spark: SparkSession, path: str) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    hw.write(spark.sql("SELECT id FROM range(3)").coalesce(1), path, properties=properties)
    frame = spark.sql("SELECT 2L AS id, 'x' AS extra")
    hw.write(frame, path, mode="overwrite", replace_where="id > 1", merge_schema=True)
    assert by_all(spark, path) == [(0, None), (1, None), (2, "x")]


def test_a_table_of_another_writer_evolves(spark: SparkSession, path: str) -> None:
    write_deltalake(path, pa.table({"id": [1]}))
    hw.write(spark.sql("SELECT 2L AS id, 'x' AS name"), path, mode="append", merge_schema=True)
    write_deltalake(path, pa.table({"id": [3], "name": ["y"]}), mode="append")
    assert by_all(spark, path) == [(1, None), (2, "x"), (3, "y")]
    metadata = json.loads(hw.open_log(path).metadata.schema_string)
    assert [f["name"] for f in metadata["fields"]] == ["id", "name"]
