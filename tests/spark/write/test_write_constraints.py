"""Rules of a table hold for every row that gets into it, whoever made the table; what breaks one leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake

import headwater as hw
from headwater.errors import ConstraintViolationError, DeltaInvariantViolationException
from support.oracles.reader_votes import by_all, by_headwater
from support.tables.delta_tables import DeltaTable, field, struct_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def table(path: str, *fields: dict[str, Any], features: tuple[str, ...], **configuration: str) -> DeltaTable:
    named = {name.replace("__", "."): text for name, text in configuration.items()}
    return DeltaTable(Path(path), *fields, configuration=named, writer_features=features)


def test_a_violation_stops_the_write_and_commits_nothing(spark: SparkSession, path: str) -> None:
    hw.write(spark.range(3), path, properties={"delta.constraints.small": "id < 10"})
    with pytest.raises(ConstraintViolationError, match=r"CHECK constraint small \(id < 10\).*id = 10") as raised:
        hw.write(spark.range(11), path, mode="append")
    assert isinstance(raised.value, DeltaInvariantViolationException)
    assert path in str(raised.value)
    assert hw.open_log(path).version == 0
    assert by_all(spark, path) == [(0,), (1,), (2,)]


def test_the_first_write_is_checked_too(spark: SparkSession, path: str) -> None:
    with pytest.raises(ConstraintViolationError):
        hw.write(spark.range(3), path, properties={"delta.constraints.small": "id < 2"})
    with pytest.raises(hw.TableNotFoundError):
        hw.open_log(path)


def test_constraints_of_another_writer(spark: SparkSession, path: str) -> None:
    import pyarrow as pa

    write_deltalake(path, pa.table({"id": [1]}))
    RustTable(path).alter.add_constraint({"positive": "id > 0"})
    hw.write(spark.range(1, 3), path, mode="append")
    with pytest.raises(ConstraintViolationError, match="positive"):
        hw.write(spark.range(1), path, mode="append")
    assert by_all(spark, path) == [(1,), (1,), (2,)]


def test_partitioned_writes_are_checked(spark: SparkSession, path: str) -> None:
    frame = spark.range(6).selectExpr("id", "id % 2 AS p")
    hw.write(frame, path, partition_by="p", properties={"delta.constraints.c": "p < 2"})
    with pytest.raises(ConstraintViolationError, match="p = 2"):
        hw.write(spark.sql("SELECT 1L AS id, 2L AS p"), path, mode="append")


def test_not_null_columns(spark: SparkSession, path: str) -> None:
    inner = struct_of(field("x", "long", nullable=False))
    table(path, field("id", "long", nullable=False), field("s", inner), features=("invariants",))
    hw.write(spark.sql("SELECT 1 AS id, NULL AS s"), path, mode="append")
    hw.write(spark.sql("SELECT 2 AS id, named_struct('x', 1) AS s"), path, mode="append")
    with pytest.raises(ConstraintViolationError, match="id is NOT NULL"):
        hw.write(spark.sql("SELECT CAST(NULL AS INT) AS id"), path, mode="append")
    with pytest.raises(ConstraintViolationError, match=r"s\.x is NOT NULL"):
        hw.write(spark.sql("SELECT 1 AS id, named_struct('x', NULL) AS s"), path, mode="append")
    with pytest.raises(hw.SchemaMismatchError, match="NOT NULL, and the data has no such column"):
        hw.write(spark.sql("SELECT named_struct('x', 1) AS s"), path, mode="append")
    assert by_headwater(spark, path) == [(1, None), (2, (1,))]


def test_invariants(spark: SparkSession, path: str) -> None:
    invariant = json.dumps({"expression": {"expression": "x > 3"}})
    DeltaTable(Path(path), field("x", "integer", **{"delta.invariants": invariant}))
    hw.write(spark.sql("SELECT 4 AS x"), path, mode="append")
    with pytest.raises(ConstraintViolationError, match="x > 3"):
        hw.write(spark.sql("SELECT 3 AS x"), path, mode="append")
    assert by_headwater(spark, path) == [(4,)]


def test_generated_columns_can_be_partitions(spark: SparkSession, path: str) -> None:
    day = field("day", "date", **{"delta.generationExpression": "CAST(at AS DATE)"})
    definition = DeltaTable(
        Path(path), field("at", "timestamp"), day, partition_columns=("day",), writer_features=("generatedColumns",)
    )
    frame = spark.sql("SELECT TIMESTAMP'2024-01-31 12:00:00Z' AS at")
    hw.write(frame, path, mode="append")
    [file] = hw.open_log(path).files().to_pylist()
    assert dict(file["partitionValues"]) == {"day": "2024-01-31"}
    with pytest.raises(ConstraintViolationError, match="generated as"):
        hw.write(frame.selectExpr("at", "DATE'2024-02-01' AS day"), path, mode="append")
    assert definition.version == 0


def test_defaults(spark: SparkSession, path: str) -> None:
    columns = (field("id", "long"), field("state", "string", CURRENT_DEFAULT="upper('new')"))
    table(path, *columns, features=("allowColumnDefaults",))
    hw.write(spark.range(1), path, mode="append")
    hw.write(spark.sql("SELECT 1L AS id, NULL AS state"), path, mode="append")
    assert by_all(spark, path) == [(0, "NEW"), (1, None)]


def test_lengths(spark: SparkSession, path: str) -> None:
    DeltaTable(Path(path), field("code", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(2)"))
    hw.write(spark.sql("SELECT 'ab ' AS code"), path, mode="append")
    with pytest.raises(ConstraintViolationError, match=r"varchar\(2\)"):
        hw.write(spark.sql("SELECT 'abc' AS code"), path, mode="append")
    assert by_all(spark, path) == [("ab",)]
