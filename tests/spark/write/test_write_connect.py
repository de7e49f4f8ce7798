"""Writing on Spark Connect: the same commits, with DataFrame operations only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from support.oracles.reader_votes import by_deltalake, by_duckdb
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def test_tables_are_created_and_grow(remote: SparkSession, path: str) -> None:
    frame = remote.sql("SELECT id, id % 2 AS p, named_struct('a', 'x') AS s FROM range(4)")
    result = hw.write(frame, path, partition_by="p")
    assert result is not None
    assert result.metrics["numOutputRows"] == 4
    hw.write(remote.sql("SELECT 1 AS P, 9 AS ID, 'y' AS new"), path, mode="append", merge_schema=True)
    assert [row[0] for row in by_duckdb(path)] == [0, 1, 2, 3, 9]
    assert by_deltalake(path)[-1] == (9, 1, None, "y")


def test_rows_are_replaced(remote: SparkSession, path: str) -> None:
    frame = remote.sql("SELECT id, id % 2 AS p FROM range(4)")
    hw.write(frame, path, partition_by="p")
    hw.write(remote.sql("SELECT 7L AS id, 1L AS p"), path, mode="overwrite", partition_overwrite="dynamic")
    assert by_duckdb(path) == [(0, 0), (2, 0), (7, 1)]
    hw.write(remote.sql("SELECT 8L AS id, 0L AS p"), path, mode="overwrite", replace_where="p = 0")
    hw.write(remote.sql("SELECT 6L AS id, 5L AS p"), path, mode="overwrite", replace_where="id < 8")
    assert by_duckdb(path) == [(6, 5), (8, 0)]


def test_rules_are_checked_and_values_filled_in(remote: SparkSession, path: str) -> None:
    counting = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
    DeltaTable(
        Path(path),
        field("n", "long", **counting),
        field("id", "long", nullable=False),
        field("twice", "long", **{"delta.generationExpression": "id * 2"}),
        field("xs", {"type": "array", "elementType": "byte", "containsNull": False}),
        configuration={"delta.constraints.small": "id < 10"},
        writer_features=("identityColumns", "generatedColumns", "checkConstraints", "invariants"),
    )
    hw.write(remote.sql("SELECT 3 AS id, array(1, 2) AS xs").coalesce(1), path, mode="append")
    assert by_duckdb(path) == [(1, 3, 6, [1, 2])]
    for sql, error, message in (
        ("SELECT 10 AS id", hw.ConstraintViolationError, "small.*id = 10"),
        ("SELECT 1 AS id, array(1, NULL) AS xs", hw.ConstraintViolationError, "xs.element is NOT NULL"),
        ("SELECT 1 AS id, array(1, 300) AS xs", hw.ValueConversionError, "tinyint"),
        ("SELECT 1 AS id, 3L AS twice", hw.ConstraintViolationError, "generated"),
        ("SELECT 'x' AS id", hw.SchemaMismatchError, "bigint"),
    ):
        with pytest.raises(error, match=message):
            hw.write(remote.sql(sql), path, mode="append")
    assert hw.open_log(path).version == 1


def test_a_rule_that_spark_does_not_understand(remote: SparkSession, path: str) -> None:
    from headwater.errors import InvalidCommitError

    DeltaTable(
        Path(path),
        field("id", "long"),
        configuration={"delta.constraints.c": "nothing > 1"},
        writer_features=("checkConstraints",),
    )
    with pytest.raises(InvalidCommitError, match="nothing"):
        hw.write(remote.range(1), path, mode="append")
