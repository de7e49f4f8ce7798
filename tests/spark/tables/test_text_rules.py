"""Text with rules of its own, `char(n)` and collations: every command means the rows that a query finds.

Tables are made by hand, for delta-spark writes `char(n)` partition values without their blanks, and no collations at
all. Each file has one row, and its number in `x`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.api.search_table import SearchTable
from headwater.errors import ConstraintViolationError, InvalidCommitError
from headwater.spark.scan.python import scan_in_python
from headwater.spark.scan.request import ScanRequest
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CHAR = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
VARCHAR = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}


def collated(collation: str) -> dict[str, Any]:
    return {"__COLLATIONS": {"p": collation, "d": collation}}


KINDS: dict[str, tuple[dict[str, Any], list[str | None]]] = {
    "char": (CHAR, ["ab", "ab   ", "cd", "cdefg", None]),
    "varchar": (VARCHAR, ["ab", "ab   ", "cd", None]),
    "ci": (collated("icu.UNICODE_CI"), ["a", "A", "b", None]),
    "rtrim": (collated("spark.UTF8_BINARY_RTRIM"), ["a", "a  ", "b"]),
}
CONDITIONS = {
    "char": ["p = 'ab'", "d = 'ab'", "p IN ('ab', 'x')", "p <> 'ab' AND length(p) = 5", "p LIKE 'ab' OR d > 'abc'"],
    "varchar": ["p = 'ab'"],
    "ci": ["p = 'A'", "d = 'A'", "p IN ('A', 'C')", "p > 'A'"],
    "rtrim": ["p = 'a' OR d IN ('b ', 'c')"],
}
CASES = [(kind, condition) for kind, conditions in CONDITIONS.items() for condition in conditions]


def table(path: Path, kind: str, **configuration: str) -> Path:
    """One file for each text, which is both its partition value and the value of its one row."""
    metadata, texts = KINDS[kind]
    fields = [field("x", "integer"), field("p", "string", **metadata), field("d", "string", **metadata)]
    made = DeltaTable(path, *fields, partition_columns=("p",), configuration=configuration)
    for number, text in enumerate(texts):
        rows = pa.table({"x": pa.array([number], pa.int32()), "d": pa.array([text], pa.string())})
        made.append(rows, partitionValues={"p": text})
    return path


def found(frame: DataFrame) -> list[int]:
    return sorted(row.x for row in frame.select("x").collect())


def in_python(spark: SparkSession, path: Path) -> DataFrame:
    """The table as it is read where Spark has no filesystem."""
    from headwater.spark.write.values import padded_rows

    snapshot = hw.open_log(path)
    return padded_rows(scan_in_python(spark, ScanRequest(snapshot)), snapshot.schema)


@pytest.mark.parametrize(("kind", "condition"), CASES)
def test_commands_mean_the_rows_that_a_query_finds(
    spark: SparkSession, tmp_path: Path, kind: str, condition: str
) -> None:
    path = table(tmp_path / "read", kind)
    everything = set(found(hw.read(spark, path)))
    rows = found(hw.read(spark, path).where(condition))
    assert found(hw.read(spark, path, where=condition)) == rows
    assert found(in_python(spark, path).where(condition)) == rows

    deleted = table(tmp_path / "deleted", kind)
    hw.DeltaTable.forPath(spark, str(deleted)).delete(condition)
    assert found(hw.read(spark, deleted)) == sorted(everything - set(rows))

    updated = table(tmp_path / "updated", kind)
    hw.DeltaTable.forPath(spark, str(updated)).update(condition, {"x": "x + 100"})
    assert [x - 100 for x in found(hw.read(spark, updated)) if x >= 100] == rows

    replaced = table(tmp_path / "replaced", kind)
    hw.write(hw.read(spark, path).where("false"), replaced, "overwrite", replace_where=condition)
    assert found(hw.read(spark, replaced)) == sorted(everything - set(rows))


@pytest.mark.parametrize("kind", ["char", "ci"])
def test_spark_connect_finds_the_same_rows(
    spark: SparkSession, remote: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = table(tmp_path / "t", kind)
    for condition in CONDITIONS[kind][:3]:
        rows = found(hw.read(spark, path).where(condition))
        assert found(hw.read(remote, path).where(condition)) == rows, condition
        assert found(hw.read(remote, path, where=condition)) == rows, condition
    condition = CONDITIONS[kind][0]
    rows = found(hw.read(spark, path).where(condition))
    everything = set(found(hw.read(spark, path)))
    hw.DeltaTable.forPath(remote, str(path)).delete(condition)
    assert found(hw.read(spark, path)) == sorted(everything - set(rows))


@pytest.mark.parametrize(
    ("kind", "text", "gone"), [("char", "ab", {0, 1}), ("ci", "A", {0, 1}), ("varchar", "ab", {0})]
)
def test_a_dynamic_overwrite_replaces_the_partitions_that_are_equal_for_spark(
    spark: SparkSession, tmp_path: Path, kind: str, text: str, gone: set[int]
) -> None:
    path = table(tmp_path / "t", kind)
    before = set(found(hw.read(spark, path)))
    new = spark.createDataFrame([(50, text, text)], "x int, p string, d string")
    hw.write(new, path, "overwrite", partition_overwrite="dynamic")
    assert found(hw.read(spark, path)) == sorted(before - gone | {50})


def test_both_zeros_are_one_partition_of_a_dynamic_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    made = DeltaTable(tmp_path / "t", field("x", "integer"), field("p", "double"), partition_columns=("p",))
    for number, text in enumerate(["-0.0", "0.0", "NaN", "1.5"]):  # as delta-spark writes them
        made.append(pa.table({"x": pa.array([number], pa.int32())}), partitionValues={"p": text})
    hw.write(spark.sql("SELECT 50 AS x, 0.0D AS p"), made.path, "overwrite", partition_overwrite="dynamic")
    assert found(hw.read(spark, made.path)) == [2, 3, 50]
    hw.write(spark.sql("SELECT 51 AS x, double('NaN') AS p"), made.path, "overwrite", partition_overwrite="dynamic")
    assert found(hw.read(spark, made.path)) == [3, 50, 51]


@pytest.mark.parametrize(("kind", "text", "fewer"), [("char", "ab", 1), ("ci", "A", 2)])
def test_optimize_takes_the_partitions_that_a_query_finds(
    spark: SparkSession, tmp_path: Path, kind: str, text: str, fewer: int
) -> None:
    """Files are joined where the log has the same text: two of `ab   `; two of `a` and two of `A`."""
    path = table(tmp_path / "t", kind)
    hw.write(hw.read(spark, path).selectExpr("x + 10 AS x", "p", "d").coalesce(1), path, "append")
    before = hw.open_log(path).num_files
    hw.DeltaTable.forPath(spark, str(path)).optimize().where(f"p = '{text}'").executeCompaction()
    assert hw.open_log(path).num_files == before - fewer
    assert found(hw.read(spark, path).where(f"p = '{text}'")) == [0, 1, 10, 11]


@pytest.mark.parametrize(
    ("kind", "check", "good", "bad"),
    [
        ("char", "p IN ('ab', 'cd', 'cdefg') OR p IS NULL", "cd", "xy"),
        ("char", "d <> 'zz' OR d IS NULL", "cd", "zz"),
        ("ci", "p <> 'Z' OR p IS NULL", "y", "z"),
        ("ci", "d <> 'Z' OR d IS NULL", "y", "z"),
    ],
)
def test_constraints_are_about_the_rows_that_a_query_shows(
    spark: SparkSession, tmp_path: Path, kind: str, check: str, good: str, bad: str
) -> None:
    path = table(tmp_path / "t", kind)
    made = hw.DeltaTable.forPath(spark, str(path))
    made.addConstraint("rule", check)

    def rows(text: str) -> DataFrame:
        return spark.createDataFrame([(70, text, text)], "x int, p string, d string")

    hw.write(rows(good), path, "append")
    with pytest.raises(ConstraintViolationError, match="rule"):
        hw.write(rows(bad), path, "append")
    with pytest.raises(ConstraintViolationError, match="rule"):
        made.update("x = 70", {"p": f"'{bad}'", "d": f"'{bad}'"})
    merge = made.alias("t").merge(rows(bad).alias("s"), "t.x = s.x")
    with pytest.raises(ConstraintViolationError, match="rule"):
        merge.whenMatchedUpdate(set={"p": "s.p", "d": "s.d"}).execute()
    assert found(hw.read(spark, path).where("x = 70")) == [70]


def test_a_keyed_merge_on_collated_keys_matches_as_the_general_one_does(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", "ci")
    source = spark.sql("SELECT 50 AS x, 'B' COLLATE UNICODE_CI AS p, 'B' COLLATE UNICODE_CI AS d")
    for keys in ("t.d = s.d", "t.p = s.p"):
        merge = hw.DeltaTable.forPath(spark, str(path)).alias("t").merge(source.alias("s"), keys)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert found(hw.read(spark, path)) == [0, 1, 3, 50], keys


def test_generated_columns_compare_padded_text(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("code", "CHAR(5)")
    builder.addColumn("is_ab", "BOOLEAN", generatedAlwaysAs="code = 'ab'").execute()
    hw.write(spark.sql("SELECT 'ab' AS code"), path, "append")
    hw.DeltaTable.forPath(spark, path).update(set={"code": "'ab'"})
    assert hw.read(spark, path).collect() == [("ab   ", True)]


def test_a_search_with_a_filter_counts_the_rows_that_a_query_finds(spark: SparkSession, tmp_path: Path) -> None:
    """The index has text byte by byte, so it must not decide about `char(n)`."""
    rows = hw.read(spark, table(tmp_path / "delta", "char")).drop("p")
    made = SearchTable.create(spark, tmp_path / "t", rows.schema)
    made.write(rows)
    for condition, wanted in (("d = 'ab'", [0, 1]), ("d IN ('ab', 'x')", [0, 1]), ("d <> 'ab'", [2, 3])):
        assert found(made.toDF().where(condition)) == wanted, condition
        assert found(made.search(None, filter=condition)) == wanted, condition
        assert made.count(None, filter=condition) == len(wanted), condition


# --- lengths ------------------------------------------------------------------------------------------------


def test_generated_values_have_the_declared_length(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("x", "STRING")
    builder = builder.addColumn("v", "VARCHAR(3)", generatedAlwaysAs="concat(x, x)")
    builder.addColumn("c", "CHAR(5)", generatedAlwaysAs="concat(x, '!')").execute()
    hw.write(spark.sql("SELECT 'a' AS x"), path, "append")
    assert hw.read(spark, path).collect() == [("a", "aa", "a!   ")]
    made = hw.DeltaTable.forPath(spark, path)
    with pytest.raises(ConstraintViolationError, match=r"too long for column v, which is varchar\(3\)"):
        hw.write(spark.sql("SELECT 'ab' AS x"), path, "append")
    with pytest.raises(ConstraintViolationError, match=r"too long for column v, which is varchar\(3\)"):
        made.update(set={"x": "'ab'"})
    source = spark.sql("SELECT 'a' AS k, 'ab' AS x").alias("s")
    with pytest.raises(ConstraintViolationError, match=r"too long for column v, which is varchar\(3\)"):
        made.alias("t").merge(source, "t.x = s.k").whenMatchedUpdate(set={"x": "s.x"}).execute()
    with pytest.raises(ConstraintViolationError, match=r"too long for column v, which is varchar\(3\)"):
        made.alias("t").merge(source, "t.x = s.x").whenNotMatchedInsert(values={"x": "s.x"}).execute()
    assert hw.read(spark, path).collect() == [("a", "aa", "a!   ")]


def test_given_values_of_generated_columns_are_compared_at_their_length(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("x", "STRING")
    builder.addColumn("c", "CHAR(3)", generatedAlwaysAs="x").execute()
    hw.write(spark.sql("SELECT 'a' AS x, 'a' AS c"), path, "append")
    assert hw.read(spark, path).collect() == [("a", "a  ")]
    with pytest.raises(ConstraintViolationError, match="generated"):
        hw.write(spark.sql("SELECT 'a' AS x, 'b' AS c"), path, "append")


def test_defaults_have_the_declared_length(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("x", "INT")
    builder = builder.addColumn("c", "CHAR(3)").addColumn("v", "VARCHAR(3)").addColumn("s", "STRUCT<n: VARCHAR(2)>")
    builder.property("delta.feature.allowColumnDefaults", "supported").execute()
    made = hw.DeltaTable.forPath(spark, path)
    for column, expression in (
        ("v", "'abcd'"),
        ("c", "'abcd'"),
        ("v", "concat('ab', 'cd')"),
        ("s", "named_struct('n', 'abc')"),
    ):
        with pytest.raises(InvalidCommitError, match=f"the default of column {column} must be of type .*too long"):
            made.setDefault(column, expression)
    made.setDefault("c", "'a'")
    made.setDefault("v", "'abc   '")
    hw.write(spark.sql("SELECT 1 AS x"), path, "append")
    source = spark.sql("SELECT 2 AS x").alias("s")
    made.alias("t").merge(source, "t.x = s.x").whenNotMatchedInsert(values={"x": "s.x"}).execute()
    assert sorted(hw.read(spark, path).collect()) == [(1, "a  ", "abc", None), (2, "a  ", "abc", None)]


def test_a_default_that_another_writer_has_left_is_held_against_the_length(spark: SparkSession, tmp_path: Path) -> None:
    too_long = field("v", "string", **{"CURRENT_DEFAULT": "'abcdefg'", **VARCHAR})
    made = DeltaTable(tmp_path / "t", field("x", "integer"), too_long, writer_features=("allowColumnDefaults",))
    with pytest.raises(ConstraintViolationError, match=r"too long for column v, which is varchar\(5\)"):
        hw.write(spark.sql("SELECT 1 AS x"), made.path, "append")
