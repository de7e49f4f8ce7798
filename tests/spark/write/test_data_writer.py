"""Spark jobs that write data files: both ways, on a disk, on an object store and on Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pyarrow.parquet as pq
import pytest

from headwater.errors import PartitionValueError, SchemaError, StorageError, WriteOptionError
from headwater.log.actions.paths import partition_directory
from headwater.log.schema import LONG, StructField, StructType
from headwater.parquet.plan import WriteTarget, plan_files
from headwater.spark.scan.read import read
from headwater.spark.write.files import write_files
from support.tables.delta_tables import mapped
from support.tables.written_tables import data_files, table_of, target_of, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PYTHON = {"target_file_size": 2**40}
"""A target size is what Spark's own writer cannot keep, so Python writes."""
BOTH = pytest.mark.parametrize("way", [{}, PYTHON], ids=["native", "python"])
ALL_TYPES = """
    SELECT id, tinyint(id - 2) b1, smallint(id) s2, int(id) i4, if(id = 3, NULL, float(id) / 3) f,
      CASE WHEN id = 1 THEN double('NaN') WHEN id = 2 THEN -0.0D WHEN id = 4 THEN double('-Infinity') ELSE 0.0D END d,
      cast(id - 2.5 AS decimal(5,2)) m1, cast(-id AS decimal(15,1)) m2, cast(id * 1e20 AS decimal(38,10)) m3,
      id % 2 = 0 flag, if(id = 2, NULL, repeat(string(id), 40)) s, repeat('é', int(id) * 900) long,
      binary(string(id)) bin,
      date_add(DATE'0001-01-01', int(id) * 100000) day, timestamp_micros(id * 1234567891234 - 1) ts,
      TIMESTAMP_NTZ'1582-10-04 12:00:00.123456' wall, if(id = 1, NULL, array(id, NULL)) arr, map('k', id, 'l', NULL) m,
      if(id = 4, NULL, named_struct('x', id, 'in', named_struct('y', if(id = 0, NULL, string(id))))) st,
      cast(NULL AS string) nothing
    FROM range(0, 5, 1, 1)"""


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(str(row) for row in frame.collect())


def footers(path: Path) -> list[Any]:
    return [pq.read_metadata(path / name) for name in data_files(path)]


# --- both ways -------------------------------------------------------------------------------------------------


@BOTH
def test_rows_come_back_as_they_were(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(ALL_TYPES)
    adds = write_table(tmp_path, frame, **way, features=("timestampNtz",))
    assert rows_of(read(spark, tmp_path)) == rows_of(frame)
    assert [add.path for add in adds] == data_files(tmp_path)
    assert [add.size for add in adds] == [(tmp_path / add.path).stat().st_size for add in adds]
    assert all(add.modification_time and add.data_change for add in adds)


def test_both_ways_write_the_same_statistics_and_types(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(ALL_TYPES)
    native, python = (
        write_files(frame, target_of(tmp_path / name, frame, **way)) for name, way in (("n", {}), ("p", PYTHON))
    )
    by_spark, by_python = (json.loads(adds[0].stats or "") for adds in (native, python))
    # Spark's footers do not count null arrays and maps.
    assert (by_python["nullCount"].pop("arr"), by_python["nullCount"].pop("m")) == (1, 0)
    assert by_spark == by_python
    kinds = [
        [(c.name, c.physical_type, str(c.logical_type)) for c in map(footer.schema.column, range(footer.num_columns))]
        for footer in (*footers(tmp_path / "n"), *footers(tmp_path / "p"))
    ]
    assert kinds[0] == kinds[1]
    instant = next(kind for kind in kinds[0] if kind[0] == "ts")
    assert instant[1] == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in instant[2]


@BOTH
def test_other_readers_find_every_row_by_the_statistics(
    way: dict[str, Any], spark: SparkSession, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    import deltalake

    frame = spark.sql(ALL_TYPES).drop("wall", "m", "day")
    write_table(tmp_path, frame, **way)
    queries = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path))
    for where in (
        "id = 3",
        "d > 1",
        "d = 0.0",
        "d < -1e308",
        "f > 1.3",
        "m3 = CAST('200000000000000000000' AS DECIMAL(38,10))",
        f"s = '{'4' * 40}'",
        f"s >= '{'4' * 39}'",
        f"long = '{'é' * 3600}'",
        "st.x = 3",
        "nothing IS NULL",
        "nothing IS NOT NULL",
        "flag",
        "ts = TIMESTAMP '1970-01-15 06:56:07.891233Z'",
    ):
        expected = frame.where(where).count()
        assert read(spark, tmp_path, where=where).count() == expected, where
        found = duck.execute(f"SELECT count(*) FROM delta_scan('{tmp_path}') WHERE {where}").fetchall()
        assert found == [(expected,)], where
        counted = queries.execute(f"SELECT count(*) AS n FROM t WHERE {where}").read_all()
        assert counted["n"][0].as_py() == expected, where


@BOTH
def test_no_rows_make_no_file(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(5).where("id > 10")
    assert write_files(frame, target_of(tmp_path, frame, **way)) == []
    assert data_files(tmp_path) == []


@BOTH
def test_a_file_has_no_more_rows_than_asked_for(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 25, 1, 1)
    adds = write_files(frame, target_of(tmp_path, frame, max_records_per_file=10, **way))
    assert sorted(json.loads(add.stats or "")["numRecords"] for add in adds) == [5, 10, 10]


@BOTH
@pytest.mark.parametrize(("codec", "name"), [("zstd", "ZSTD"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")])
def test_compression(way: dict[str, Any], codec: str, name: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 5, 1, 1)
    write_files(frame, target_of(tmp_path, frame, compression=codec, **way))
    [footer] = footers(tmp_path)
    assert footer.row_group(0).column(0).compression == name


@BOTH
def test_settings_of_the_session_neither_count_nor_change(
    way: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    odd = {
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.files.maxRecordsPerFile": "1",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.parquet.fieldId.write.enabled": "false",
    }
    before = {name: spark.conf.get(name) for name in odd}
    for name, value in odd.items():
        spark.conf.set(name, value)
    try:
        frame = spark.sql("SELECT timestamp_micros(id) at, decimal(id) m, array(id) a FROM range(0, 3, 1, 1)")
        write_files(frame, target_of(tmp_path, frame, **way))
        assert {name: spark.conf.get(name) for name in odd} == odd
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    [footer] = footers(tmp_path)
    assert [footer.schema.column(i).physical_type for i in range(3)] == ["INT64", "INT64", "INT64"]
    assert footer.schema.column(2).path == "a.list.element"


@BOTH
def test_what_is_cached_is_what_is_written(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT rand() AS r FROM range(0, 20, 1, 2)").cache()
    try:
        expected = rows_of(frame)
        write_table(tmp_path, frame, **way)
        assert rows_of(read(spark, tmp_path)) == expected
    finally:
        frame.unpersist()


@BOTH
def test_locations_with_odd_characters(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b%20[c]{d}:é?#"
    frame = spark.range(3)
    write_table(path, frame, **way)
    assert read(spark, path).count() == 3


@BOTH
def test_variants(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("""SELECT id, if(id = 1, NULL, parse_json('{"a": [1, "x"]}')) v FROM range(0, 3, 1, 1)""")
    [add] = write_table(tmp_path, frame, **way, features=("variantType",))
    assert rows_of(read(spark, tmp_path).selectExpr("id", "to_json(v)")) == rows_of(
        frame.selectExpr("id", "to_json(v)")
    )
    assert json.loads(add.stats or "")["nullCount"] == {"id": 0, "v": 1}
    [footer] = footers(tmp_path)
    assert sorted(footer.schema.column(i).path for i in range(3)) == ["id", "v.metadata", "v.value"]


@BOTH
def test_voids_are_in_no_file(way: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, NULL AS v, named_struct('x', id, 'v', NULL) AS s FROM range(3)")
    write_table(tmp_path, frame, **way)
    assert {footer.schema.column(i).path for footer in footers(tmp_path) for i in range(footer.num_columns)} == {
        "id",
        "s.x",
    }
    assert rows_of(read(spark, tmp_path)) == rows_of(frame)


# --- column mapping ----------------------------------------------------------------------------------------------


def mapped_schema(*, nested_ids: bool = False) -> StructType:
    inner = mapped("x", "long", "col-x", 3)
    outer = mapped("s", {"type": "struct", "fields": [inner]}, "col-s", 2)
    array = mapped("a", {"type": "array", "elementType": "long", "containsNull": True}, "col-a", 4)
    if nested_ids:
        array["metadata"]["parquet.field.nested.ids"] = {"col-a.element": 100}
    return StructType.from_json(
        {"type": "struct", "fields": [mapped("id", "long", "col-id", 1), outer, array, mapped("p", "long", "col-p", 5)]}
    )


@BOTH
@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_of_mapped_tables_have_physical_names_and_ids(
    way: dict[str, Any], mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT id, named_struct('x', id) s, array(id) a, id % 2 p FROM range(0, 4, 1, 1)")
    adds = write_table(tmp_path, frame, schema=mapped_schema(), mapping_mode=mode, **way)
    assert rows_of(read(spark, tmp_path)) == rows_of(frame)
    assert all(len(add.path.split("/")[0]) == 2 for add in adds)
    [footer] = footers(tmp_path)
    text = str(footer.schema)
    for name, id_ in (("col-id", 1), ("col-s", 2), ("col-x", 3), ("col-a", 4), ("col-p", 5)):
        assert f"field_id={id_} {name}" in text
    assert set(json.loads(adds[0].stats or "")["minValues"]) == {"col-id", "col-s", "col-p"}


def test_nested_ids_are_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, named_struct('x', id) s, array(id) a, id p FROM range(0, 4, 1, 1)")
    write_table(tmp_path, frame, schema=mapped_schema(nested_ids=True), mapping_mode="name")
    [footer] = footers(tmp_path)
    assert "field_id=100 element" in str(footer.schema)


# --- partitions --------------------------------------------------------------------------------------------------


def test_partition_values_of_all_types_are_read_by_all(
    spark: SparkSession, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    import deltalake

    frame = spark.sql(
        """SELECT * FROM VALUES
           (1L, 'a/b=c%d é\\n', DATE'2024-01-31', TIMESTAMP'2024-01-01 12:00:00.123456Z', -1.50BD, true, 0.5D),
           (2L, '', DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59Z', 0.00BD, false, -0.0D),
           (3L, NULL, NULL, NULL, NULL, NULL, NULL) AS t(id, s, d, t, m, b, f)"""
    )
    adds = write_table(tmp_path, frame, partition_columns=("s", "d", "t", "m", "b", "f"))
    values = {json.loads(add.stats or "")["minValues"]["id"]: add.partition_values for add in adds}
    assert values[1] == {
        "s": "a/b=c%d é\n",
        "d": "2024-01-31",
        "t": "2024-01-01T12:00:00.123456Z",
        "m": "-1.50",
        "b": "true",
        "f": "0.5",
    }
    assert values[2]["s"] is None
    assert set(values[3].values()) == {None}
    shown = frame.selectExpr("id", "nullif(s, '')", "d", "m", "b", "f")
    expected = [tuple(row) for row in shown.orderBy("id").collect()]
    for found in (
        read(spark, tmp_path).select("id", "s", "d", "m", "b", "f").orderBy("id").collect(),
        duck.execute(f"SELECT id, s, d, m, b, f FROM delta_scan('{tmp_path}') ORDER BY id").fetchall(),
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(tmp_path))
        .execute("SELECT id, s, d, m, b, f FROM t ORDER BY id")
        .read_all()
        .to_struct_array()
        .to_pylist(),
    ):
        rows = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in found]
        assert rows == expected
    instants = "SELECT id, epoch_us(t) FROM delta_scan('{}') WHERE t IS NOT NULL ORDER BY id"
    assert duck.execute(instants.format(tmp_path)).fetchall() == [(1, 1704110400123456), (2, -1000000)]


def test_directories_are_named_as_spark_names_them(spark: SparkSession) -> None:
    utils = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    for code in (*range(1, 256), 0x20AC, 0x1F600):
        assert partition_directory({"p": chr(code)}) == f"p={utils.escapePathName(chr(code))}", hex(code)


def test_a_task_writes_one_file_for_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, id % 40 AS p FROM range(0, 4000, 1, 2)")
    adds = write_table(tmp_path, frame, partition_columns=("p",))
    assert len(adds) == 80
    assert len({tuple(add.partition_values.items()) for add in adds}) == 40
    assert rows_of(read(spark, tmp_path)) == rows_of(frame)
    assert {footer.schema.names[0] for footer in footers(tmp_path)} == {"id"}


def test_optimized_writes_make_one_file_for_each_small_partition(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, id % 5 AS p FROM range(0, 500, 1, 8)")
    properties = {"delta.autoOptimize.optimizeWrite": "true"}
    adds = write_files(frame, target_of(tmp_path, frame, partition_columns=("p",), properties=properties))
    assert sorted(add.partition_values["p"] or "" for add in adds) == ["0", "1", "2", "3", "4"]
    plain = write_files(frame, target_of(tmp_path, frame, partition_columns=("p",), optimize_write=False))
    assert len(plain) == 40


def test_optimized_writes_of_unpartitioned_tables_make_few_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 16)
    assert len(write_files(frame, target_of(tmp_path, frame, optimize_write=True))) == 1


def test_files_stay_near_their_target_size(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, uuid() AS u FROM range(0, 200000, 1, 1)")
    adds = write_files(frame, target_of(tmp_path, frame, properties={"delta.targetFileSize": "1mb"}))
    sizes = [add.size for add in adds]
    assert sum(sizes) > 4 * 2**20
    assert all(0.6 * 2**20 < size < 1.7 * 2**20 for size in sizes[:-1]), sizes


def test_partition_columns_in_the_files_come_last(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id % 2 AS p, id FROM range(0, 4, 1, 1)")
    write_table(tmp_path, frame, partition_columns=("p",), materialize_partition_columns=True)
    assert {tuple(footer.schema.names) for footer in footers(tmp_path)} == {("id", "p")}
    assert rows_of(read(spark, tmp_path)) == rows_of(frame)


def test_random_prefixes_when_the_table_wants_them(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, id % 2 AS p FROM range(0, 4, 1, 1)")
    properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "4"}
    for partitions in ((), ("p",)):
        adds = write_files(frame, target_of(tmp_path, frame, properties=properties, partition_columns=partitions))
        assert all(len(add.path.split("/")[0]) == 4 for add in adds)


def test_change_files_have_a_directory_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, 'insert' AS _change_type FROM range(0, 4, 1, 1)")
    [add] = write_files(frame, target_of(tmp_path, frame, directory="_change_data", statistics=False))
    assert add.path.startswith("_change_data/cdc-00000-")
    assert add.stats is None


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_failures_leave_nothing_in_the_table(spark: SparkSession, tmp_path: Path) -> None:
    for way in ({}, PYTHON, {"partition_columns": ("p",)}):
        frame = spark.sql("SELECT if(id = 900, raise_error('broken'), id) AS id, id % 3 AS p FROM range(0, 1000, 1, 1)")
        frame = frame.selectExpr("bigint(id) AS id", "p")
        with pytest.raises(Exception, match="broken"):
            write_files(frame, target_of(tmp_path, frame, **way))
        assert data_files(tmp_path) == []


def test_a_partition_value_without_text_is_reported_by_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, X'FF' AS k FROM range(1)")
    with pytest.raises(PartitionValueError, match="column k holds the bytes ff"):
        write_files(frame, target_of(tmp_path, frame, partition_columns=("k",)))


def test_a_disk_that_cannot_be_written_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    frame = spark.range(3)
    with pytest.raises(StorageError, match=r"could not create .*file/t/part-"):
        write_files(frame, target_of(blocked / "t", frame, **PYTHON))


def test_bad_options_are_refused() -> None:
    good = StructType([StructField("p", LONG)])
    with pytest.raises(WriteOptionError, match="compression 'lzo'"):
        plan_files(WriteTarget(uri="/t", schema=good, compression="lzo"))
    with pytest.raises(WriteOptionError, match="max_records_per_file"):
        plan_files(WriteTarget(uri="/t", schema=good, max_records_per_file=0))
    with pytest.raises(WriteOptionError, match=r"delta\.targetFileSize"):
        plan_files(WriteTarget(uri="/t", schema=good, properties={"delta.targetFileSize": "large"}))
    with pytest.raises(SchemaError, match="no column left"):
        plan_files(WriteTarget(uri="/t", schema=good, partition_columns=("p",)))


def test_memory_is_out_of_reach_for_executors(spark: SparkSession) -> None:
    frame = spark.range(3)
    with pytest.raises(StorageError, match="memory of this Python process"):
        write_files(frame, target_of("memory://x/t", frame))


# --- elsewhere ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_files_of_successful_attempts_are_returned(tmp_path: Path) -> None:
    """The first attempt of every task fails after half of its rows."""
    job = Path(__file__).parents[2] / "support" / "jobs" / "retried_write.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "tests"])}
    found = subprocess.run(
        [sys.executable, str(job), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    answers = json.loads(found.stdout.splitlines()[-1])
    for name in ("native", "python", "partitioned"):
        assert answers[name] == {"rows": 2000, "unnamed": 0, "failed": 2}, name


@pytest.mark.slow
def test_an_object_store_without_a_hadoop_filesystem(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.storage import open_store
    from support.stores.storage_servers import moto_server

    with moto_server() as endpoint:
        uri = f"{endpoint.root}/{tmp_path.name}"
        frame = spark.sql("SELECT id, id % 3 AS p, uuid() AS u FROM range(0, 2000, 1, 2)").cache()
        for partitions in ((), ("p",)):
            place = f"{uri}/{len(partitions)}"
            target = target_of(place, frame, partition_columns=partitions, storage_options=endpoint.options)
            adds = write_files(frame, target)
            log = table_of(tmp_path / str(len(partitions)), target, *adds)
            store = open_store(place, endpoint.options)
            for file in (log.path / "_delta_log").iterdir():
                store.put(f"_delta_log/{file.name}", file.read_bytes())
            assert rows_of(read(spark, place, storage_options=endpoint.options)) == rows_of(frame)
            listed = {m.key: m.size_bytes for m in store.list_from("", recursive=True) if "_delta_log" not in m.key}
            assert listed == {add.path: add.size for add in adds}
        with pytest.raises(StorageError, match="bucket"):
            write_files(frame, target_of("s3://no-such-bucket/t", frame, storage_options=endpoint.options))
        frame.unpersist()


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from support.jobs.connect_server import connect_server

    with connect_server() as url:
        session = ConnectSession.builder.remote(url).create()
        try:
            frame = session.sql("SELECT id, id % 3 AS p, timestamp_micros(id) AS ts FROM range(0, 2000, 1, 2)")
            for partitions in ((), ("p",)):
                path = tmp_path / str(len(partitions))
                adds = write_table(path, frame, partition_columns=partitions, optimize_write=bool(partitions))
                assert sum(json.loads(add.stats or "")["numRecords"] for add in adds) == 2000
                assert rows_of(read(session, path)) == rows_of(frame)  # type: ignore[arg-type]
            odd = session.sql("SELECT id, X'FF' AS k FROM range(1)")
            with pytest.raises(PartitionValueError, match="column k"):
                write_files(odd, target_of(tmp_path / "odd", odd, partition_columns=("k",)))
        finally:
            session.stop()
