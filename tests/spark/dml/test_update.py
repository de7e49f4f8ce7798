"""UPDATE: values, types and rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

import headwater as hw
from support.oracles.reader_votes import by_all, by_headwater
from support.tables.delta_tables import DeltaTable, field
from support.tables.dml_tables import actions, metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def test_all_rows_get_new_values_from_their_old_ones(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT id, id * 10 AS v FROM range(3)").coalesce(1), path)
    table = hw.DeltaTable.forPath(spark, path)
    table.update(set={"ID": "v", "v": sf.col("id")})
    assert by_all(spark, path) == [(0, 0), (10, 1), (20, 2)]
    assert metrics(path) == {"numRemovedFiles": 1, "numAddedFiles": 1, "numUpdatedRows": 3}
    table.alias("t").update(sf.col("t.id") == 10, {"t.v": sf.lit(7)})
    assert by_all(spark, path) == [(0, 0), (10, 7), (20, 2)]
    expected = {"numRemovedFiles": 1, "numAddedFiles": 1, "numUpdatedRows": 1, "numCopiedRows": 2}
    assert metrics(path) == expected
    table.update("id > 100", {"v": "1"})
    assert hw.open_log(path).version == 2


def test_fields_of_structs_are_set_one_by_one(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1 AS id, CAST(NULL AS STRUCT<a: INT, b: STRUCT<c: INT, d: STRING>>) AS s"), path)
    hw.write(spark.sql("SELECT 2 AS id, named_struct('a', 1, 'b', named_struct('c', 2, 'd', 'x')) AS s"), path,
             mode="append")  # fmt: skip
    hw.DeltaTable.forPath(spark, path).update(set={"s.b.c": "id + 5L", "s.a": "s.b.c"})
    rows = {row.id: row.s.asDict(recursive=True) for row in hw.read(spark, path).collect()}
    assert rows[2] == {"a": 2, "b": {"c": 7, "d": "x"}}
    assert rows[1] == {"a": None, "b": {"c": 6, "d": None}}  # as delta-spark has it


def test_rows_move_to_the_partition_that_is_set(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT id, id % 2 AS p FROM range(4)").coalesce(1), path, partition_by="p")
    hw.DeltaTable.forPath(spark, path).update("p = 1 AND id > 1", {"p": "0"})
    assert by_all(spark, path) == [(0, 0), (1, 1), (2, 0), (3, 0)]
    hw.DeltaTable.forPath(spark, path).update("p = 1", {"p": "5"})  # a whole file, of which nothing need be found
    assert {add["partitionValues"]["p"] for add in actions(path, "add")} == {"5"}
    assert by_all(spark, path) == [(0, 0), (1, 5), (2, 0), (3, 0)]


@pytest.fixture
def ruled(path: str, spark: SparkSession) -> hw.DeltaTable:
    """A table with rules, and one row: n = 1, id = 3, twice = 6, xs = [1], code = 'ab'."""
    counting = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
    DeltaTable(
        Path(path),
        field("n", "long", **counting),
        field("id", "long", nullable=False),
        field("twice", "long", **{"delta.generationExpression": "id * 2"}),
        field("xs", {"type": "array", "elementType": "byte", "containsNull": False}),
        field("code", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        configuration={"delta.constraints.small": "id < 10"},
        writer_features=("identityColumns", "generatedColumns", "checkConstraints", "invariants"),
    )
    hw.write(spark.sql("SELECT 3 AS id, array(1) AS xs, 'ab' AS code").coalesce(1), path, mode="append")
    return hw.DeltaTable.forPath(spark, path)


def test_generated_columns_follow_and_rules_hold(ruled: hw.DeltaTable, spark: SparkSession, path: str) -> None:
    ruled.update("id = 3", {"id": "4", "xs": "array(2L)", "code": "'x'"})
    assert by_headwater(spark, path) == [(1, 4, 8, [2], "x  ")]
    ruled.update(set={"id": "5", "twice": "10"})
    assert by_headwater(spark, path) == [(1, 5, 10, [2], "x  ")]
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"id": "10"}, hw.ConstraintViolationError, "small.*id = 10.*Nothing was committed"),
        ({"id": "NULL"}, hw.ConstraintViolationError, "id is NOT NULL"),
        ({"twice": "1"}, hw.ConstraintViolationError, "generated"),
        ({"xs": "array(NULL)"}, hw.ConstraintViolationError, "xs.element is NOT NULL"),
        ({"xs": "array(300)"}, hw.ValueConversionError, "tinyint"),
        ({"code": "'long text'"}, hw.ConstraintViolationError, "too long"),
        ({"n": "7"}, hw.ConstraintViolationError, "identity column"),
        ({"id": "'seven'"}, hw.SchemaMismatchError, "string cannot be stored as bigint"),
        ({"nothing": "1"}, hw.ColumnNotFoundError, "nothing"),
        ({"id": "nothing + 1"}, hw.ColumnNotFoundError, "nothing"),
        ({"id": "1 +"}, hw.FilterError, "cannot be evaluated"),
        ({"id": "1", "ID": "2"}, hw.SchemaError, "twice"),
        ({"xs.element": "1"}, hw.SchemaError, "structs"),
        ({"id": 5}, TypeError, "lit"),
        ({3: "id"}, TypeError, "column names"),
        ({}, ValueError, "set"),
    ]
    for values, error, message in cases:
        with pytest.raises(error, match=message):
            ruled.update(set=values)
    assert hw.open_log(path).version == 3


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_values_of_the_moment_are_the_same_in_table_and_feed(spark: SparkSession, path: str, vectors: str) -> None:
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors}
    frame = spark.sql("SELECT id, 'x' AS v, current_timestamp() AS at FROM range(4)").coalesce(1)
    hw.write(frame, path, properties=properties)
    hw.DeltaTable.forPath(spark, path).update("id > 1 AND at < current_timestamp()", {"v": "uuid()", "at": "now()"})
    rows = {tuple(row) for row in hw.read(spark, path).collect() if row.id > 1}
    changes = hw.read_changes(spark, path, 1).where("_change_type = 'update_postimage'")
    assert {tuple(row) for row in changes.select("id", "v", "at").collect()} == rows
    assert len({v for _, v, _ in rows} - {"x"}) == 2
