"""CONVERT TO DELTA: directories of Parquet files become tables that every reader agrees on."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater import DeltaTable
from headwater.errors import NotParquetError, SchemaMismatchError, TableNotFoundError
from headwater.spark.maintenance.convert import partition_values_of, schema_of
from headwater.storage import open_store
from support.oracles.delta_spark_oracle import DeltaSparkOracle
from support.oracles.reader_votes import by_all, operations
from support.stores.storage_servers import moto_server

pytestmark = pytest.mark.spark


def stats(path: Path) -> list[dict[str, Any]]:
    found = hw.open_log(path).files(columns=["path", "stats"]).sort_by("path").column("stats").to_pylist()
    return [json.loads(text) for text in found]


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_a_partitioned_directory_becomes_a_table_in_place(
    spark: SparkSession, tmp_path: Path, delta_spark: DeltaSparkOracle
) -> None:
    root = tmp_path / "raw"
    frame = spark.sql(
        "SELECT id, CAST(id AS STRING) AS name, CAST(id AS DOUBLE) AS x, CAST(id % 2 AS INT) AS p, "
        "IF(id = 3, NULL, 'a/b c') AS q FROM range(4)"
    )
    frame.coalesce(1).write.partitionBy("p", "q").parquet(str(root))
    write(root / "p=1" / "q=z" / "more.parquet", id=[7], extra=["new"])
    (root / "_metadata.txt").write_text("hidden")
    before = {file: file.stat().st_mtime_ns for file in root.rglob("*.parquet")}

    table = DeltaTable.convertToDelta(spark, f"parquet.`{root}`", "p INT, q STRING")
    DeltaTable.convertToDelta(spark, f"parquet.`{root}`")  # it is one already

    assert {file: file.stat().st_mtime_ns for file in root.rglob("*.parquet")} == before
    rows = by_all(spark, root)
    assert sorted(table.toDF().collect()) == sorted(rows, key=lambda row: row[0])
    assert [tuple(row) for row in table.toDF().orderBy("id").collect()] == [
        (0, "0", 0.0, None, 0, "a/b c"),
        (1, "1", 1.0, None, 1, "a/b c"),
        (2, "2", 2.0, None, 0, "a/b c"),
        (3, "3", 3.0, None, 1, None),
        (7, None, None, "new", 1, "z"),
    ]
    assert len(delta_spark.rows(root)) == 5
    assert operations(root) == ["CONVERT"]
    [summary] = hw.open_log(root).history()
    assert summary.operation_parameters["partitionedBy"] == '["p","q"]'
    assert summary.operation_metrics == {"numConvertedFiles": "4"}
    by_spark = next(s for s in stats(root) if s["numRecords"] == 2)
    assert (by_spark["minValues"], by_spark["maxValues"]) == (
        {"id": 0, "name": "0", "x": -0.0},
        {"id": 2, "name": "2", "x": 2.0},
    )


def test_bounds_are_taken_only_where_they_mean_the_same(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime(2024, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "f": pa.array([1.0, float("nan")]),
            "i": pa.array([1, 2], pa.int32()),
            "u": pa.array([1, 2**32 - 1], pa.uint32()),
            "old": pa.array([moment, moment], pa.timestamp("ns")),
            "ms": pa.array([moment, moment], pa.timestamp("ms", "UTC")),
            "us": pa.array([moment, moment], pa.timestamp("us", "UTC")),
            "d": [date(2024, 1, 31), None],
            "n": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(10, 2)),
        }
    )
    (tmp_path / "t").mkdir()
    names = [name for name in table.column_names if name not in ("old",)]
    pq.write_table(table.select(names), tmp_path / "t" / "a.parquet")
    pq.write_table(table.select(["old"]), tmp_path / "t" / "b.parquet", use_deprecated_int96_timestamps=True)

    frame = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/t`").toDF()

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    assert (types["old"], types["us"], types["u"]) == ("timestamp", "timestamp", "bigint")
    assert frame.where("old IS NOT NULL").count() == 2
    # NaN, which this writer leaves out of its bounds, is greater than every number.
    assert hw.open_log(tmp_path / "t").files("f > 100").num_rows == 2
    [first, second] = stats(tmp_path / "t")
    assert first["minValues"] == {"i": 1, "us": "2024-01-31T12:00:00.000Z", "d": "2024-01-31", "n": -2.25}
    assert first["nullCount"]["d"] == 1
    assert second == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}, "tightBounds": True}


def test_what_cannot_be_converted_is_said_so_and_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "p=1" / "a.parquet", id=[1])
    identifier = f"parquet.`{root}`"

    for schema, message in [
        (None, "expecting 0 partition columns, but 'p=1/' has 1 partition column"),
        ("q INT", "has 1 partition column"),
        ("p INT, q INT", "expecting 2 partition columns"),
        ("p DATE", "is no date"),
    ]:
        with pytest.raises(SchemaMismatchError, match=message):
            DeltaTable.convertToDelta(spark, identifier, schema)
    write(root / "p=2" / "b.parquet", id=["text"])
    with pytest.raises(SchemaMismatchError, match="column id is string, and other files have bigint"):
        DeltaTable.convertToDelta(spark, identifier, "p INT")
    (root / "p=2" / "b.parquet").write_text("not Parquet")
    with pytest.raises(NotParquetError, match="is not a Parquet file"):
        DeltaTable.convertToDelta(spark, identifier, "p INT")
    with pytest.raises(TableNotFoundError, match="no files"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/nothing`")
    for bad in ("my_table", f"orc.`{root}`", str(root)):
        with pytest.raises(ValueError):
            DeltaTable.convertToDelta(spark, bad)
    assert not (root / "_delta_log").exists()


def test_a_directory_on_an_object_store_is_converted(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", id=[1, 2])
    with moto_server() as s3:
        uri = f"{s3.root}/{tmp_path.name}"
        open_store(uri, s3.options).put("p=x/a.parquet", (tmp_path / "a.parquet").read_bytes())

        table = DeltaTable.convertToDelta(spark, f"parquet.`{uri}`", "p STRING", storage_options=s3.options)

        assert sorted(map(tuple, table.toDF().collect())) == [(1, "x"), (2, "x")]


def test_partition_values_are_those_of_the_directories() -> None:
    from headwater.log.schema import DATE, INTEGER, STRING, TIMESTAMP, StructField

    fields = [StructField("y", INTEGER), StructField("d", DATE), StructField("s", STRING), StructField("t", TIMESTAMP)]
    directory = "y=007/d=2024-01-31/s=a%2Fb%25/t=2024-01-31 12%3A00%3A00/"
    empty = "Y=__HIVE_DEFAULT_PARTITION__/d=__HIVE_DEFAULT_PARTITION__/s=/t=__HIVE_DEFAULT_PARTITION__/"

    found = partition_values_of([directory, empty], fields, "file:///t")

    assert found[directory] == {"y": "7", "d": "2024-01-31", "s": "a/b%", "t": "2024-01-31T12:00:00Z"}
    assert found[empty] == dict.fromkeys(["y", "d", "s", "t"])


def test_nanoseconds_are_refused(tmp_path: Path) -> None:
    from headwater.errors import SchemaError

    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet", version="2.6")
    file = pq.ParquetFile(tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="nanoseconds"):
        schema_of(file.metadata, file.schema_arrow)
