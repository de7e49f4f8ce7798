"""Every way to give a table columns, properties and constraints refuses what the others refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.errors import HeadwaterError, InvalidCommitError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BAD_COLUMNS = {
    "day-time interval": "INTERVAL '1' DAY",
    "year-month interval": "INTERVAL '1' YEAR",
    "interval in an array": "array(INTERVAL '1' DAY)",
    "collation": "'a' COLLATE UTF8_LCASE",
    "collation in a struct": "named_struct('s', 'a' COLLATE UNICODE_CI)",
    "collation in an array": "array('a' COLLATE UTF8_LCASE)",
}


def frame(spark: SparkSession, column: str) -> DataFrame:
    return spark.range(2).selectExpr("id", f"{column} AS x")


def by_write(spark: SparkSession, path: Path, df: DataFrame) -> None:
    hw.write(df, path)


def by_overwrite(spark: SparkSession, path: Path, df: DataFrame) -> None:
    hw.write(spark.range(2), path)
    hw.write(df, path, mode="overwrite", overwrite_schema=True)


def by_evolution(spark: SparkSession, path: Path, df: DataFrame) -> None:
    hw.write(spark.range(2), path)
    hw.write(df, path, mode="append", merge_schema=True)


def by_builder(spark: SparkSession, path: Path, df: DataFrame) -> None:
    hw.DeltaTable.create(spark).location(str(path)).addColumns(df.schema).execute()


def by_replacing_builder(spark: SparkSession, path: Path, df: DataFrame) -> None:
    hw.write(spark.range(2), path)
    hw.DeltaTable.replace(spark).location(str(path)).addColumns(df.schema).execute()


WAYS: dict[str, Callable[[SparkSession, Path, DataFrame], None]] = {
    "write": by_write,
    "overwrite": by_overwrite,
    "evolution": by_evolution,
    "builder": by_builder,
    "replacing builder": by_replacing_builder,
}


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_no_table_may_have_are_refused(spark: SparkSession, tmp_path: Path, way: str) -> None:
    for number, (kind, column) in enumerate(BAD_COLUMNS.items()):
        path = tmp_path / str(number)
        with pytest.raises(SchemaError, match=r"column x.*(?:has no type|has a collation)"):
            WAYS[way](spark, path, frame(spark, column))
        log = path / "_delta_log"
        texts = [file.read_text() for file in log.glob("*.json")] if log.exists() else []
        assert not any("interval" in text or "__COLLATIONS" in text for text in texts), kind


def test_a_table_with_a_collated_column_from_elsewhere_can_be_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    data = frame(spark, "'a' COLLATE UTF8_LCASE")
    foreign_table(tmp_path, data)
    hw.write(data, tmp_path, mode="append")
    assert hw.read(spark, tmp_path).where("x = 'A'").count() == 2


def foreign_table(path: Path, df: DataFrame) -> None:
    """An empty table as a writer leaves it that does not check types."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": df.schema.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


# --- constraints ----------------------------------------------------------------------------------------

CONSTRAINT = "delta.constraints.c"


def constrained_by_write(spark: SparkSession, path: Path, condition: str) -> None:
    hw.write(spark.range(2), path, properties={CONSTRAINT: condition})


def constrained_by_overwrite(spark: SparkSession, path: Path, condition: str) -> None:
    hw.write(spark.range(2), path)
    hw.write(spark.range(2), path, mode="overwrite", overwrite_schema=True, properties={CONSTRAINT: condition})


def constrained_by_builder(spark: SparkSession, path: Path, condition: str) -> None:
    builder = hw.DeltaTable.create(spark).location(str(path)).addColumn("id", "BIGINT")
    builder.property(CONSTRAINT, condition).execute()


def constrained_by_replacing_builder(spark: SparkSession, path: Path, condition: str) -> None:
    hw.write(spark.range(2), path)
    builder = hw.DeltaTable.createOrReplace(spark).location(str(path)).addColumn("id", "BIGINT")
    builder.property(CONSTRAINT, condition).execute()


def constrained_by_clone(spark: SparkSession, path: Path, condition: str) -> None:
    hw.write(spark.range(2), path / "source")
    table = hw.DeltaTable.forPath(spark, str(path / "source"))
    table.clone(str(path / "target"), isShallow=True, properties={CONSTRAINT: condition})


def constrained_by_alter(spark: SparkSession, path: Path, condition: str) -> None:
    hw.write(spark.range(2), path)
    hw.DeltaTable.forPath(spark, str(path)).addConstraint("c", condition)


CONSTRAINED: dict[str, Callable[[SparkSession, Path, str], None]] = {
    "write": constrained_by_write,
    "overwrite": constrained_by_overwrite,
    "builder": constrained_by_builder,
    "replacing builder": constrained_by_replacing_builder,
    "clone": constrained_by_clone,
    "alter": constrained_by_alter,
}


@pytest.mark.parametrize("way", CONSTRAINED)
def test_a_constraint_that_makes_no_sense_gets_into_no_table(spark: SparkSession, tmp_path: Path, way: str) -> None:
    for number, condition in enumerate(("nosuch > 1", "id +", "id + 1", "id IN (SELECT 1)", "count(id) > 0")):
        path = tmp_path / str(number)
        path.mkdir()
        with pytest.raises(HeadwaterError):
            CONSTRAINED[way](spark, path, condition)
        assert not any(CONSTRAINT in file.read_text() for file in path.rglob("*.json")), condition


@pytest.mark.parametrize("way", ["write", "overwrite", "clone", "alter"])
def test_a_constraint_that_rows_break_gets_into_no_table(spark: SparkSession, tmp_path: Path, way: str) -> None:
    with pytest.raises(HeadwaterError):
        CONSTRAINED[way](spark, tmp_path, "id > 0")
    assert not any(CONSTRAINT in file.read_text() for file in tmp_path.rglob("*.json"))


def test_a_constraint_stays_a_condition_on_the_columns_when_the_table_is_overwritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    hw.write(spark.range(2), tmp_path, properties={CONSTRAINT: "id >= 0"})
    with pytest.raises(InvalidCommitError, match="constraint c"):
        hw.write(spark.range(2).selectExpr("id AS other"), tmp_path, mode="overwrite", overwrite_schema=True)


def test_a_default_of_a_declared_column_is_a_value_of_its_type(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType(
        [StructField("id", LongType()), StructField("n", LongType(), metadata={"CURRENT_DEFAULT": "x"})]
    )
    with pytest.raises(InvalidCommitError, match="default of column n"):
        hw.DeltaTable.create(spark).location(str(tmp_path)).addColumns(schema).execute()
