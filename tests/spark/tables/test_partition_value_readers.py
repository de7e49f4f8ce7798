"""Partition values that others wrote, and values that others must read: the same rows for every reader and command.

Other readers are delta-spark (where it is installed), DuckDB and deltalake. What a session's time zone decides is
decided as delta-spark does it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ConstraintViolationError, CorruptLogError
from headwater.spark.scan.python import scan_in_python
from headwater.spark.scan.request import ScanRequest
from support.oracles.reader_votes import by_deltalake, by_duckdb
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark

_ZONE = "spark.sql.session.timeZone"
DATES = ["2024-1-5", "+10000-01-01", "10000-01-01", "-0001-01-01", "0000-02-29", " 2024-01-05 ", "2024", None]
INSTANTS = [
    "2024-01-05 01:02:03",
    "2024-1-5 1:2:3.25",
    "2024-03-10 02:30:00",  # an hour that does not occur in Los Angeles
    "2024-11-03 01:30:00",  # one that occurs twice
    "2024-01-05T01:02:03Z",
    "2024-01-05T01:02:03.1234567+02:00",
    "2024-01-05 01:02:03 Europe/Berlin",
    "2024-01-05",
    "+10000-01-01T00:00:00.000000Z",
    "-0001-01-01 00:00:00",
    None,
]
LOOSE: dict[str, list[str | None]] = {
    "date": DATES,
    "timestamp": INSTANTS,
    "timestamp_ntz": INSTANTS,
    "boolean": ["true", "True", "1", " y ", "f", "NO", None],
    "integer": [" 5", "+5", "05", "5.7", "-0"],
    "double": [" 1.5", "1E3", "-0.0", "nan", "-inf", "1.5d"],
    "decimal(10,2)": ["1.5", " +1.50", "1e2", "1.555"],
}


def table(path: Path, type_: str, texts: list[str | None], nullable: bool = True) -> Path:
    """One file for each text, with its number in `x`."""
    features = ("timestampNtz",) if type_ == "timestamp_ntz" else ()
    made = DeltaTable(
        path, field("x", "integer"), field("p", type_, nullable), partition_columns=("p",), features=features
    )
    rows = [pa.table({"x": pa.array([number], pa.int32())}) for number in range(len(texts))]
    made.commit(*(made.file(one, partitionValues={"p": text}) for one, text in zip(rows, texts, strict=True)))
    return path


@contextmanager
def zone_of_session(spark: SparkSession, zone: str) -> Iterator[None]:
    before = spark.conf.get(_ZONE)
    spark.conf.set(_ZONE, zone)
    try:
        yield
    finally:
        spark.conf.set(_ZONE, str(before))


def found(frame: DataFrame) -> list[int]:
    return sorted(row.x for row in frame.select("x").collect())


def shown(frame: DataFrame) -> dict[int, str | None]:
    """The values as Spark's text, which knows years of any length."""
    return {row.x: row.p for row in frame.selectExpr("x", "CAST(p AS STRING) AS p").collect()}


def in_python(spark: SparkSession, path: Path) -> DataFrame:
    """The table as it is read where Spark has no filesystem, in the session's zone."""
    from headwater.spark.scan.request import in_session_zone

    snapshot = in_session_zone(spark, hw.open_log(path))
    return scan_in_python(spark, ScanRequest(snapshot))


def logged(path: Path) -> list[str | None]:
    """The partition values of the newest commit that adds files."""
    for file in sorted((path / "_delta_log").glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if adds := [action["add"] for action in actions if "add" in action]:
            return sorted((add["partitionValues"]["p"] for add in adds), key=str)
    raise AssertionError("no files")


# --- texts of others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
@pytest.mark.parametrize("type_", LOOSE)
def test_values_are_those_that_delta_spark_reads(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path, type_: str, zone: str
) -> None:
    if zone != "UTC" and type_ != "timestamp":
        pytest.skip("the zone matters for instants only")
    path = table(tmp_path / "t", type_, LOOSE[type_])
    delta_spark.sql(f"SET {_ZONE}={zone}")
    try:
        theirs = delta_spark.sql(f"SELECT x, CAST(p AS STRING) AS p FROM delta.`{path}`")
    finally:
        delta_spark.sql(f"SET {_ZONE}=UTC")
    with zone_of_session(spark, zone):
        assert shown(hw.read(spark, path)) == {row["x"]: row.get("p") for row in theirs}
        assert shown(in_python(spark, path)) == {row["x"]: row.get("p") for row in theirs}


def test_spark_connect_reads_the_same_values(spark: SparkSession, remote: SparkSession, tmp_path: Path) -> None:
    for type_, zone in (("date", "UTC"), ("timestamp", "America/Los_Angeles"), ("timestamp_ntz", "UTC")):
        path = table(tmp_path / type_, type_, LOOSE[type_])
        with zone_of_session(spark, zone), zone_of_session(remote, zone):
            assert shown(hw.read(remote, path)) == shown(hw.read(spark, path))


def test_commands_mean_the_rows_that_a_query_finds_by_far_dates(spark: SparkSession, tmp_path: Path) -> None:
    conditions = {"p > DATE'9999-12-31'": [1, 2], "p IN (DATE'-0001-01-01', DATE'2024-01-05')": [0, 3, 5]}
    for number, (condition, rows) in enumerate(conditions.items()):
        path = table(tmp_path / f"t{number}", "date", DATES)
        assert found(hw.read(spark, path).where(condition)) == rows
        assert found(hw.read(spark, path, where=condition)) == rows
        made = hw.DeltaTable.forPath(spark, str(path))
        made.update(condition, {"x": "x + 100"})
        assert [x - 100 for x in found(hw.read(spark, path)) if x >= 100] == rows
        made.delete(condition)
        assert found(hw.read(spark, path)) == sorted(set(range(len(DATES))) - set(rows))


def test_a_dynamic_overwrite_and_a_merge_find_far_and_loose_values(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", "date", DATES)
    new = spark.sql("SELECT 50 AS x, DATE'+10000-01-01' AS p UNION ALL SELECT 51, DATE'2024-01-05'")
    hw.write(new, path, "overwrite", partition_overwrite="dynamic")
    assert found(hw.read(spark, path)) == [3, 4, 6, 7, 50, 51]
    source = spark.sql("SELECT DATE'-0001-01-01' AS p").alias("s")
    hw.DeltaTable.forPath(spark, str(path)).alias("t").merge(source, "t.p = s.p").whenMatchedDelete().execute()
    assert found(hw.read(spark, path)) == [4, 6, 7, 50, 51]


def test_an_upsert_by_far_dates_finds_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hw.write(spark.sql("SELECT DATE'+10000-01-01' AS k, 1 AS x UNION ALL SELECT DATE'-0001-01-01', 2"), path)
    source = spark.sql("SELECT DATE'+10000-01-01' AS k, 10 AS x UNION ALL SELECT DATE'2024-01-05', 3").alias("s")
    merge = hw.DeltaTable.forPath(spark, str(path)).alias("t").merge(source, "t.k = s.k")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert found(hw.read(spark, path)) == [2, 3, 10]


def test_a_text_that_is_no_value_is_an_error_that_names_the_column(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", "date", ["2024-01-05", "today"])
    with pytest.raises(CorruptLogError, match="'p' is not a valid date: 'today'"):
        hw.read(spark, path).collect()
    with pytest.raises(CorruptLogError, match="'p' is not a valid date: 'today'"):
        hw.DeltaTable.forPath(spark, str(path)).delete("p = DATE'2024-01-05'")


# --- values for others ----------------------------------------------------------------------------------------

WRITTEN = {
    "DATE'+10000-01-01'": ("+10000-01-01", "10000-01-01"),
    "DATE'-0001-01-01'": ("-0001-01-01", "0002-01-01 (BC)"),
    "TIMESTAMP'+10000-01-01 00:00:00'": ("+10000-01-01T00:00:00Z", "10000-01-01 00:00:00+00"),
    "TIMESTAMP'-0001-01-01 00:00:00.5'": ("-0001-01-01T00:00:00.500000Z", "0002-01-01 (BC) 00:00:00.5+00"),
    "TIMESTAMP_NTZ'+10000-01-01 00:00:00'": ("+10000-01-01 00:00:00", "10000-01-01 00:00:00"),
}


@pytest.mark.parametrize("value", WRITTEN)
def test_other_readers_understand_far_years_that_we_write(spark: SparkSession, tmp_path: Path, value: str) -> None:
    path = tmp_path / "t"
    hw.write(spark.sql(f"SELECT 1 AS x, {value} AS p"), path, partition_by="p")
    text, by_others = WRITTEN[value]
    assert logged(path) == [text]
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT p::VARCHAR FROM delta_scan('{path}')").fetchall()
    assert rows == [(by_others,)]
    assert hw.read(spark, path).where(f"p = {value}").count() == 1


def test_delta_spark_reads_far_years_that_we_write(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path
) -> None:
    for number, value in enumerate(WRITTEN):
        path = tmp_path / str(number)
        hw.write(spark.sql(f"SELECT 1 AS x, {value} AS p"), path, partition_by="p")
        [ours] = shown(hw.read(spark, path)).values()
        assert delta_spark.sql(f"SELECT CAST(p AS STRING) AS p FROM delta.`{path}`") == [{"p": ours}]


# --- zones ----------------------------------------------------------------------------------------------------


def test_a_command_in_another_zone_means_the_rows_that_a_query_there_finds(spark: SparkSession, tmp_path: Path) -> None:
    texts: list[str | None] = ["2024-01-05 01:02:03", "2024-01-05T09:02:03Z", "2024-01-05T01:02:03Z", None]
    condition = "p = TIMESTAMP'2024-01-05 01:02:03'"
    with zone_of_session(spark, "America/Los_Angeles"):
        path = table(tmp_path / "t", "timestamp", texts)
        assert found(hw.read(spark, path).where(condition)) == [0, 1]
        assert found(hw.read(spark, path, where=condition)) == [0, 1]
        made = hw.DeltaTable.forPath(spark, str(path))
        made.update(condition, {"x": "x + 100"})
        assert found(hw.read(spark, path)) == [2, 3, 100, 101]
        made.addConstraint("night", "p IS NULL OR hour(p) IN (1, 17)")  # in the log's zone it would be 9
        made.delete(condition)
        assert found(hw.read(spark, path)) == [2, 3]
        dynamic = table(tmp_path / "dynamic", "timestamp", texts)
        new = spark.sql("SELECT 50 AS x, TIMESTAMP'2024-01-05 01:02:03' AS p")
        hw.write(new, dynamic, "overwrite", partition_overwrite="dynamic")
        assert found(hw.read(spark, dynamic)) == [2, 3, 50]
        assert logged(dynamic) == ["2024-01-05T09:02:03Z"]


def test_files_that_are_written_again_show_the_same_instants_to_everybody(spark: SparkSession, tmp_path: Path) -> None:
    """OPTIMIZE keeps the text, which means what it meant; rows that move get an instant that names its zone."""
    text = "2024-01-05 01:02:03"
    with zone_of_session(spark, "America/Los_Angeles"):
        path = table(tmp_path / "t", "timestamp", [text, text])
        before = shown(hw.read(spark, path))
        made = hw.DeltaTable.forPath(spark, str(path))
        made.optimize().executeCompaction()
        assert logged(path) == [text]
        assert shown(hw.read(spark, path)) == before
        made.alias("t").merge(
            hw.read(spark, path).where("x = 0").alias("s"), "t.x = s.x AND t.p = s.p"
        ).whenMatchedUpdate(set={"p": "s.p + INTERVAL 1 HOUR"}).execute()
        assert shown(hw.read(spark, path)) == {0: "2024-01-05 02:02:03", 1: text}
    assert "2024-01-05T10:02:03Z" in logged(path)


def test_the_same_table_in_two_zones_is_not_one_cached_plan(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", "timestamp", ["2024-01-05 01:02:03"])
    cached = hw.read(spark, path).selectExpr("CAST(p AS LONG) AS s").cache()
    try:
        [in_utc] = [row.s for row in cached.collect()]
        with zone_of_session(spark, "America/Los_Angeles"):
            [there] = [row.s for row in hw.read(spark, path).selectExpr("CAST(p AS LONG) AS s").collect()]
        assert there == in_utc + 8 * 3600
    finally:
        cached.unpersist()


def test_the_change_feed_shows_the_instants_that_the_table_shows(spark: SparkSession, tmp_path: Path) -> None:
    fields = (field("x", "integer"), field("p", "timestamp"))
    made = DeltaTable(
        tmp_path / "t", *fields, partition_columns=("p",), configuration={"delta.enableChangeDataFeed": "true"}
    )
    made.append(pa.table({"x": pa.array([0], pa.int32())}), partitionValues={"p": "2024-01-05 01:02:03"})
    with zone_of_session(spark, "+02:00"):
        feed = hw.read_changes(spark, made.path, starting_version=1)
        assert [row.p for row in feed.selectExpr("CAST(p AS STRING) AS p").collect()] == ["2024-01-05 01:02:03"]
        assert feed.where("p = TIMESTAMP'2024-01-04 23:02:03Z'").count() == 1


def test_a_converted_directory_has_the_instants_that_spark_reads_from_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with zone_of_session(spark, "America/Los_Angeles"):
        frame = spark.sql("SELECT 1 AS x, TIMESTAMP'2024-01-05 01:02:03' AS p")
        frame.write.partitionBy("p").parquet(str(path))
        hw.DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p timestamp")
        assert shown(hw.read(spark, path)) == {1: "2024-01-05 01:02:03"}
    assert logged(path) == ["2024-01-05T09:02:03Z"]


# --- empty text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "empty"), [("STRING", "''"), ("VARCHAR(3)", "''"), ("BINARY", "X''")])
def test_an_empty_partition_value_is_null_before_any_rule_looks_at_it(
    spark: SparkSession, tmp_path: Path, type_: str, empty: str
) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("x", "INT").addColumn("p", type_, nullable=False)
    builder.addColumn("known", "BOOLEAN", generatedAlwaysAs="p IS NOT NULL").partitionedBy("p").execute()
    made = hw.DeltaTable.forPath(spark, path)
    one = f"CAST('a' AS {'BINARY' if type_ == 'BINARY' else 'STRING'})"
    hw.write(spark.sql(f"SELECT 1 AS x, {one} AS p"), path, "append")
    source = spark.sql(f"SELECT 1 AS x, {empty} AS p UNION ALL SELECT 2, {empty}").alias("s")
    merge = made.alias("t").merge(source, "t.x = s.x")
    for command in (
        lambda: hw.write(spark.sql(f"SELECT 2 AS x, {empty} AS p"), path, "append"),
        lambda: hw.write(spark.sql(f"SELECT 2 AS x, {empty} AS p"), path, "overwrite", partition_overwrite="dynamic"),
        lambda: made.update(set={"p": empty}),
        lambda: merge.whenMatchedUpdate(set={"p": "s.p"}).execute(),
        lambda: merge.whenNotMatchedInsert(values={"x": "s.x", "p": "s.p"}).execute(),
    ):
        with pytest.raises(ConstraintViolationError, match="column p is NOT NULL"):
            command()
    assert found(hw.read(spark, path)) == [1]


def test_a_check_sees_null_for_an_empty_partition_value(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hw.write(spark.sql("SELECT 1 AS x, 'a' AS p"), path, partition_by="p")
    made = hw.DeltaTable.forPath(spark, str(path))
    made.addConstraint("known", "p IS NOT NULL")
    with pytest.raises(ConstraintViolationError, match="known"):
        hw.write(spark.sql("SELECT 2 AS x, '' AS p"), path, "append")
    with pytest.raises(ConstraintViolationError, match="known"):
        made.update(set={"p": "''"})
    made.dropConstraint("known")
    with pytest.raises(ConstraintViolationError, match="replace_where"):
        hw.write(spark.sql("SELECT 2 AS x, '' AS p"), path, "overwrite", replace_where="p = ''")


def test_generated_columns_are_made_of_null_for_an_empty_partition_value(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = hw.DeltaTable.create(spark).location(path).addColumn("x", "STRING").addColumn("p", "STRING")
    builder = builder.addColumn("missing", "BOOLEAN", generatedAlwaysAs="p IS NULL")
    builder.addColumn("q", "STRING", generatedAlwaysAs="x").partitionedBy("p", "q").execute()
    hw.write(spark.sql("SELECT '' AS x, '' AS p"), path, "append")
    hw.write(spark.sql("SELECT '' AS x, 'a' AS p, '' AS q"), path, "append")
    assert sorted(hw.read(spark, path).collect(), key=str) == [("", "a", False, None), ("", None, True, None)]
    hw.DeltaTable.forPath(spark, path).update("p = 'a'", {"p": "''"})
    assert hw.read(spark, path).collect() == [("", None, True, None), ("", None, True, None)]


def test_blanks_are_no_empty_text(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hw.write(spark.sql("SELECT 1 AS x, ' ' AS p"), path, partition_by="p")
    assert hw.read(spark, path).collect() == [(1, " ")]
    assert by_duckdb(path) == by_deltalake(path) == [(1, " ")]


def test_a_table_with_nulls_where_none_may_be_can_be_read_and_mended(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", "string", ["a", "", None], nullable=False)
    assert sorted(hw.read(spark, path).collect(), key=str) == [(0, "a"), (1, None), (2, None)]
    assert found(hw.read(spark, path).where("p IS NULL")) == [1, 2]
    hw.DeltaTable.forPath(spark, str(path)).update("x = 1", {"p": "'b'"})
    hw.DeltaTable.forPath(spark, str(path)).delete("p IS NULL")
    assert sorted(hw.read(spark, path).collect()) == [(0, "a"), (1, "b")]
