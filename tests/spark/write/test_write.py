"""`hw.write`: tables come into being, grow and are replaced, as every reader sees."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake

import headwater as hw
from headwater.errors import InvalidCommitError, InvalidTablePropertyError, SchemaError, WriteOptionError
from headwater.spark.write import write as write_attempt
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater, operations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def ids(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "id long")


# --- the first write --------------------------------------------------------------------------------------


def test_the_first_write_creates_the_table(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT 1L AS id, 'a' AS p, array(1.5D) AS xs UNION ALL SELECT 2, NULL, NULL")
    result = hw.write(frame, path, partition_by="P", properties={"delta.appendOnly": "true"})
    assert result is not None
    assert result.version == 0
    assert (result.metrics["numOutputRows"], result.metrics["numFiles"]) == (2, 2)
    assert by_all(spark, path) == [(1, "a", [1.5]), (2, None, None)]
    snapshot = hw.open_log(path)
    assert snapshot.partition_columns == ["p"]
    assert snapshot.properties == {"delta.appendOnly": "true"}
    assert operations(path) == ["CREATE TABLE AS SELECT"]


def test_every_type_comes_back(spark: SparkSession, path: str) -> None:
    frame = spark.sql(
        """SELECT 1Y AS a, 2S AS b, 3 AS c, 4L AS d, float(0.5) AS e, 0.25D AS f, 1.50BD AS g, true AS h, X'01' AS i,
        DATE'2024-02-29' AS j, TIMESTAMP'2024-02-29 01:02:03.456789Z' AS k, TIMESTAMP_NTZ'2024-02-29 01:02:03' AS l,
        'text' AS m, map('k', named_struct('x', 1)) AS n"""
    )
    hw.write(frame, path)
    [row] = by_headwater(spark, path)
    assert row[:9] == (1, 2, 3, 4, 0.5, 0.25, pytest.approx(1.5), True, bytearray(b"\1"))
    assert row[9:] == tuple(frame.collect()[0])[9:]
    kinds = [field.dataType.simpleString() for field in hw.read(spark, path).schema]
    assert kinds == [field.dataType.simpleString() for field in frame.schema]
    assert len(by_duckdb(path)) == 1


def test_the_schema_keeps_comments_and_lengths_but_no_rules(spark: SparkSession, path: str) -> None:
    from pyspark.sql import types as t

    schema = t.StructType(
        [
            t.StructField("id", t.LongType(), nullable=False, metadata={"comment": "key", "delta.invariants": "x"}),
            t.StructField("code", t.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        ]
    )
    hw.write(spark.createDataFrame([(1, "a")], schema), path)
    first, second = hw.open_log(path).schema.fields
    assert (first.nullable, first.metadata) == (True, {"comment": "key"})
    assert second.metadata == {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    assert by_all(spark, path) == [(1, "a  ")]


def test_a_table_without_rows(spark: SparkSession, path: str) -> None:
    result = hw.write(ids(spark), path)
    assert result is not None
    assert (result.version, result.metrics["numFiles"]) == (0, 0)
    assert by_headwater(spark, path) == []
    assert hw.open_log(path).num_files == 0


def test_defaults_of_the_session_are_for_new_tables(spark: SparkSession, path: str) -> None:
    key = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
    spark.conf.set(key, "true")
    try:
        hw.write(ids(spark, 1), path)
        hw.write(ids(spark, 1), path, mode="append")
    finally:
        spark.conf.unset(key)
    assert hw.open_log(path).properties["delta.enableChangeDataFeed"] == "true"


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(spark: SparkSession, path: str, mode: str) -> None:
    frame = spark.sql("SELECT 1L AS `my id`, named_struct('a=b', 2) AS s, 'x' AS `p,q`")
    hw.write(frame, path, partition_by=["p,q"], properties={"delta.columnMapping.mode": mode})
    hw.write(frame, path, mode="append")
    assert by_headwater(spark, path) == [(1, (2,), "x"), (1, (2,), "x")]
    assert len(by_duckdb(path)) == 2
    [file] = hw.open_log(path).files().slice(0, 1).to_pylist()
    assert dict(file["partitionValues"]).keys().isdisjoint({"p,q"})


def test_clustering(spark: SparkSession, path: str) -> None:
    columns = ", ".join(f"{i} AS c{i}" for i in range(40))
    hw.write(spark.sql(f"SELECT {columns}"), path, cluster_by=["c39"])
    snapshot = hw.open_log(path)
    assert json.loads(snapshot.domain_metadata["delta.clustering"])["clusteringColumns"] == [["c39"]]
    [stats] = snapshot.files().column("stats").to_pylist()
    assert json.loads(stats)["maxValues"]["c39"] == 39
    assert "c38" not in json.loads(stats)["maxValues"]
    hw.write(spark.sql(f"SELECT {columns}"), path, mode="append", cluster_by="C39")
    with pytest.raises(WriteOptionError, match="clustered by"):
        hw.write(spark.sql(f"SELECT {columns}"), path, mode="append", cluster_by="c1")


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1 AS a, 2 AS A", "same name"),
        ("SELECT named_struct('x', 1, 'X', 2) AS s", "same name"),
        ("SELECT 1 AS `a b`", "columnMapping"),
        ("SELECT array() AS a", "void"),
        ("SELECT NULL AS a", "type"),
    ],
)
def test_columns_that_a_table_cannot_have(spark: SparkSession, path: str, sql: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        hw.write(spark.sql(sql), path)
    assert not Path(path, "_delta_log").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "no write mode 'upsert'"),
        ({"mode": "append", "replace_where": "id > 1"}, "needs mode"),
        ({"mode": "append", "overwrite_schema": True}, "needs mode"),
        ({"mode": "append", "data_change": False}, "rearranged"),
        ({"mode": "append", "partition_overwrite": "dynamic"}, "needs mode"),
        ({"mode": "overwrite", "partition_overwrite": "some"}, "static or dynamic"),
        ({"mode": "overwrite", "replace_where": "id > 1", "overwrite_schema": True}, "cannot go with"),
        ({"partition_by": "id", "cluster_by": "id"}, "exclude"),
        ({"partition_by": ["id", "ID"]}, "twice"),
        ({"txn": ("", 1)}, "application id"),
    ],
)
def test_options_that_make_no_sense(spark: SparkSession, path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WriteOptionError, match=message):
        hw.write(ids(spark, 1), path, **options)


def test_what_is_no_complete_dataframe(spark: SparkSession, path: str) -> None:
    with pytest.raises(WriteOptionError, match="not Table"):
        hw.write(pa.table({"id": [1]}), path)  # type: ignore[arg-type]
    with pytest.raises(WriteOptionError, match="stream"):
        hw.write(spark.readStream.format("rate").load(), path)


def test_properties_that_do_not_exist(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match="appendOnly"):
        hw.write(ids(spark, 1), path, properties={"delta.appendOnyl": "true"})


def test_a_write_does_not_silently_change_the_layout_or_properties(spark: SparkSession, path: str) -> None:
    hw.write(spark.sql("SELECT 1 AS id, 'a' AS p"), path, partition_by="p", properties={"delta.appendOnly": "false"})
    frame = spark.sql("SELECT 1 AS id, 'a' AS p")
    hw.write(frame, path, mode="append", partition_by="P", properties={"delta.appendOnly": "false"})
    with pytest.raises(WriteOptionError, match=r"partitioned by \['p'\]"):
        hw.write(frame, path, mode="append", partition_by="id")
    with pytest.raises(WriteOptionError, match=r"delta\.appendOnly"):
        hw.write(frame, path, mode="append", properties={"delta.appendOnly": "true"})


def test_a_table_with_a_feature_that_is_not_known_is_not_written(spark: SparkSession, path: str) -> None:
    hw.write(ids(spark, 1), path)
    commit = Path(path, "_delta_log", f"{1:020d}.json")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(hw.UnsupportedProtocolError, match="fromTheFuture"):
        hw.write(ids(spark, 2), path, mode="append")


# --- appends ----------------------------------------------------------------------------------------------


def test_appends_to_a_table_of_another_writer(spark: SparkSession, path: str) -> None:
    day = datetime.date(2024, 1, 31)
    write_deltalake(path, pa.table({"id": [1], "day": [day]}), partition_by=["day"])
    hw.write(spark.sql("SELECT DATE'2024-01-31' AS DAY, 2 AS id"), path, mode="append")
    assert by_all(spark, path) == [(1, day), (2, day)]
    write_deltalake(path, pa.table({"id": [3], "day": [day]}), mode="append")
    assert len(by_all(spark, path)) == 3
    assert RustTable(path).history(1)[0]["version"] == 2


def test_a_table_that_is_read_while_it_is_replaced(spark: SparkSession, path: str) -> None:
    hw.write(ids(spark, 1, 2), path)
    hw.write(hw.read(spark, path).selectExpr("id * 10 AS id"), path, mode="overwrite")
    assert by_all(spark, path) == [(10,), (20,)]


def test_the_history_says_what_was_done(spark: SparkSession, path: str) -> None:
    hw.write(ids(spark, 1), path)
    hw.write(ids(spark, 2), path, mode="append", user_metadata="note")
    hw.write(ids(spark, 3), path, mode="overwrite", replace_where="id = 3")
    newest, append, _ = hw.open_log(path).history()
    assert (append.operation, append.user_metadata, append.is_blind_append) == ("WRITE", "note", True)
    assert append.operation_parameters == {"mode": "Append", "partitionBy": "[]"}
    metrics = append.operation_metrics or {}
    assert (metrics["numFiles"], metrics["numOutputRows"]) == ("1", "1")
    assert (newest.operation_parameters or {})["predicate"] == "id = 3"
    assert newest.is_blind_append is False


def test_file_sizes_are_limited(spark: SparkSession, path: str) -> None:
    hw.write(spark.range(0, 10, 1, 1), path, max_records_per_file=4)
    assert hw.open_log(path).num_files == 3


# --- idempotent writes --------------------------------------------------------------------------------------


def test_a_write_that_was_done_is_skipped(spark: SparkSession, path: str) -> None:
    assert hw.write(ids(spark, 1), path, txn=("job", 5)) is not None
    assert hw.write(ids(spark, 2), path, mode="append", txn=("job", 5)) is None
    assert hw.write(ids(spark, 2), path, mode="error", txn=("job", 4)) is None
    assert hw.write(ids(spark, 3), path, mode="append", txn=("job", 6)) is not None
    assert hw.write(ids(spark, 4), path, mode="append", txn=("other", 1)) is not None
    assert by_all(spark, path) == [(1,), (3,), (4,)]
    assert hw.open_log(path).app_transactions == {"job": 6, "other": 1}


def interrupt(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Run something between the files of a write and its commit, once."""
    original = write_attempt.write_files

    def write_files(*arguments: Any) -> Any:
        files = original(*arguments)
        monkeypatch.setattr(write_attempt, "write_files", original)
        action()
        return files

    monkeypatch.setattr(write_attempt, "write_files", write_files)


def test_of_two_runs_of_the_same_job_one_writes(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw.write(ids(spark, 0), path)
    interrupt(monkeypatch, lambda: hw.write(ids(spark, 1), path, mode="append", txn=("job", 1)))
    assert hw.write(ids(spark, 1), path, mode="append", txn=("job", 1)) is None
    assert by_all(spark, path) == [(0,), (1,)]


# --- races --------------------------------------------------------------------------------------------------


def test_two_writers_that_create_the_same_table(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: hw.write(ids(spark, 1), path, mode="append"))
    result = hw.write(ids(spark, 2), path, mode="append")
    assert result is not None
    assert result.version == 1
    assert by_all(spark, path) == [(1,), (2,)]


def test_only_one_of_them_may_create_it_in_error_mode(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: hw.write(ids(spark, 1), path))
    with pytest.raises(hw.TableAlreadyExistsError):
        hw.write(ids(spark, 2), path)
    assert by_all(spark, path) == [(1,)]


def test_a_job_that_fails_commits_nothing(spark: SparkSession, path: str) -> None:
    hw.write(ids(spark, 1), path)
    with pytest.raises(Exception, match="on purpose"):
        hw.write(spark.range(100).selectExpr("if(id = 99, raise_error('on purpose'), id) AS id"), path, mode="append")
    assert hw.open_log(path).version == 0


def test_an_append_only_table_is_not_overwritten(spark: SparkSession, path: str) -> None:
    hw.write(ids(spark, 1), path, properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidCommitError, match="only allows appends"):
        hw.write(ids(spark, 2), path, mode="overwrite")
