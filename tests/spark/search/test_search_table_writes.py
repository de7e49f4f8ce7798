"""Creating search tables and writing to them: every type of Spark's comes back as it was."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.api.search_table import SearchTable
from support.search.search_tables import SCHEMA, log_rows, make_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TYPES = (
    "byte TINYINT, short SMALLINT, int INT, long BIGINT, float FLOAT, double DOUBLE, dec DECIMAL(10,2), "
    "wide DECIMAL(38,10), text STRING, bytes BINARY, yes BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "took INTERVAL DAY TO SECOND, s STRUCT<a: INT, b: ARRAY<STRING>>, list ARRAY<INT>, pairs MAP<STRING, DOUBLE>, "
    "`odd name.x` STRING"
)
VALUES: list[tuple[Any, ...]] = [
    (
        -128, 32767, -(2**31), 2**63 - 1, 0.1, float("nan"), Decimal("12345678.90"), Decimal("-12345678901234567.8"),
        "grün 😀\x00 \\ \" '", b"\x00\xff", True, date(1, 1, 1), datetime(2024, 3, 1, 12, 0, 0, 123_457, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999), timedelta(days=-3, microseconds=1),
        {"a": 1, "b": ["x", None]}, [1, None, 3], {"k": 1.5, "n": None}, "odd",
    ),
    tuple(None for _ in range(19)),
    (
        0, 0, 0, -(2**63), float("-inf"), -0.0, Decimal("0.00"), Decimal("0E-10"), "", b"", False, date(9999, 12, 31),
        datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 31), timedelta(0), {"a": None, "b": None}, [], {}, " ",
    ),
]  # fmt: skip


def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(VALUES, TYPES).coalesce(1)
    variant = frame.selectExpr("*", 'parse_json(\'{"v": [1, "x"]}\') AS v')
    table = SearchTable.create(spark, tmp_path / "types", variant)
    table.write(variant)

    back = table.toDF()

    shown = ["*", "to_json(v) AS v_text"]
    wanted = variant.selectExpr(*shown).drop("v").collect()
    assert sorted(map(repr, back.selectExpr(*shown).drop("v").collect())) == sorted(map(repr, wanted))
    assert [(f.name, f.dataType) for f in back.schema] == [(f.name, f.dataType) for f in variant.schema]
    for condition in ("long = 9223372036854775807", "at = TIMESTAMP '2024-03-01 12:00:00.123457Z'", "text = ''"):
        assert back.where(condition).count() == 1, condition
    assert table.count("s.a:1 OR pairs.k:1.5") == 1
    assert table.count("list:3") == 1
    table.merge_splits("1G")
    assert sorted(map(repr, table.toDF().selectExpr(*shown).drop("v").collect())) == sorted(map(repr, wanted))


def test_a_table_is_created_once(spark: SparkSession, tmp_path: Path) -> None:
    table = SearchTable.create(
        spark, tmp_path / "logs", SCHEMA, types={"message": "text"}, description="of our servers"
    )
    log = tmp_path / "logs" / "_transaction_log"
    first = (log / f"{0:020}.json").read_bytes()
    assert [next(iter(json.loads(line))) for line in first.splitlines()] == ["protocol", "metaData"]
    with pytest.raises(hw.TableAlreadyExistsError, match="forPath"):
        SearchTable.create(spark, tmp_path / "logs", "id INT")
    again = SearchTable.create(spark, tmp_path / "logs", "id INT", if_not_exists=True)
    assert again.toDF().columns == table.toDF().columns
    assert (log / f"{0:020}.json").read_bytes() == first
    assert SearchTable.isSearchTable(spark, tmp_path / "logs")
    assert not SearchTable.isSearchTable(spark, tmp_path / "nothing")
    with pytest.raises(hw.TableNotFoundError):
        SearchTable.forPath(spark, tmp_path / "nothing")


def test_fields_are_chosen_by_arguments_and_by_the_options_that_users_know(spark: SparkSession, tmp_path: Path) -> None:
    schema = "title STRING, body STRING, client STRING, secret STRING, note STRING"
    by_options = SearchTable.create(
        spark,
        tmp_path / "options",
        schema,
        options={
            "spark.indextables.indexing.typemap.body": "text",
            "spark.indextables.indexing.tokenizer.body": "en_stem",
            "spark.indextables.indexing.typemap.client": "ip",
            "spark.indextables.indexing.indexonlyfields": "secret",
            "spark.indextables.indexing.storeonlyfields": "note",
            "spark.indextables.checkpoint.interval": "3",
        },
    )
    by_arguments = SearchTable.create(
        spark,
        tmp_path / "arguments",
        schema,
        types={"body": "text", "client": "ip"},
        tokenizers={"body": "en_stem"},
        indexed_only=["secret"],
        stored_only=["note"],
    )
    row = "SELECT 'T' AS title, 'Connections failed' AS body, '10.1.2.3' AS client, 's3' AS secret, 'n' AS note"
    for table in (by_options, by_arguments):
        table.write(spark.sql(row))
        assert table.count("body:failing AND client:10.0.0.0/8 AND secret:s3") == 1
        assert table.toDF().columns == ["title", "body", "client", "note"]
        with pytest.raises(hw.SearchQueryError, match="not indexed"):
            table.count("note:n")
    assert by_options.detail().first().fields == by_arguments.detail().first().fields  # type: ignore[union-attr]
    with pytest.raises(hw.SearchConfigError):
        SearchTable.create(spark, tmp_path / "wrong", schema, types={"body": "essay"})
    for column in ("a ARRAY<INT>", "b BINARY", "v VARIANT"):
        with pytest.raises(hw.SearchConfigError, match="partitioned by"):
            SearchTable.create(spark, tmp_path / "wrong", f"id INT, {column}", partition_by=column[0])
    with pytest.raises(hw.WriteOptionError, match="DDL text"):
        SearchTable.create(spark, tmp_path / "wrong", 42)


def test_columns_are_matched_by_name_and_values_converted(spark: SparkSession, tmp_path: Path) -> None:
    table = SearchTable.create(
        spark, tmp_path / "logs", "id BIGINT NOT NULL, host STRING, took INT", partition_by="host"
    )
    table.write(spark.sql("SELECT 7L AS TOOK, 1 AS Id, '' AS host UNION ALL SELECT 8, 2, 'web/1 a=b%'"))
    table.write(spark.sql("SELECT 3L AS id"))

    assert sorted(map(tuple, table.toDF().collect())) == [(1, None, 7), (2, "web/1 a=b%", 8), (3, None, None)]
    assert table.toDF().where("host = 'web/1 a=b%'").count() == table.count('host:"web/1 a=b%"') == 1
    with pytest.raises(hw.SchemaMismatchError, match="colour"):
        table.write(spark.sql("SELECT 1L AS id, 'red' AS colour"))
    with pytest.raises(hw.SchemaMismatchError, match="NOT NULL"):
        table.write(spark.sql("SELECT 'web-1' AS host"))
    with pytest.raises(hw.ConstraintViolationError, match="id"):
        table.write(spark.sql("SELECT CAST(NULL AS BIGINT) AS id"))
    with pytest.raises(hw.ValueConversionError, match="took"):
        table.write(spark.sql("SELECT 1L AS id, 99999999999L AS took"))
    assert table.snapshot.version == 2


def test_columns_with_a_collation_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(hw.UnsupportedProtocolError, match="collation"):
        hw.SearchTable.create(spark, tmp_path, "id INT, name STRING COLLATE UTF8_LCASE")
    with pytest.raises(hw.TableNotFoundError):
        hw.SearchTable.forPath(spark, tmp_path)


def test_modes_and_limits(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=20)
    rows = spark.createDataFrame(log_rows(100, 110), SCHEMA).coalesce(1)

    written = table.write(rows, "overwrite", max_records_per_split=4, user_metadata="again")

    assert written.version == 2
    assert dict(written.metrics) == {
        "numFiles": 3,
        "numOutputRows": 10,
        "numOutputBytes": table.snapshot.size_bytes,
        "numRemovedFiles": 2,
    }
    assert sorted(row.id for row in table.toDF().collect()) == list(range(100, 110))
    assert table.count(version=1) == 20
    assert table.history(1).first().userMetadata == "again"  # type: ignore[union-attr]
    for mode, data, message in [("ignore", rows, "append or overwrite"), ("append", [1], "Spark DataFrame")]:
        with pytest.raises(hw.WriteOptionError, match=message):
            table.write(data, mode)  # type: ignore[arg-type]
    with pytest.raises(hw.WriteOptionError, match="max_records_per_split"):
        table.write(rows, max_records_per_split=0)
    assert table.write(rows.where("false")).metrics["numOutputRows"] == 0


def test_a_write_that_fails_leaves_no_split(spark: SparkSession, tmp_path: Path) -> None:
    table = SearchTable.create(spark, tmp_path / "logs", "id BIGINT, n INT")
    bad = spark.range(0, 1000, 1, 1).selectExpr("id", "CAST(1 / (id - 900) AS INT) AS n")
    with pytest.raises(Exception, match=r"(DIVI|divi)"):
        table.write(bad)
    assert list((tmp_path / "logs").rglob("*.split")) == []
    assert table.snapshot.version == 0
