"""The file index in the planner: which files a query reads, however the query is written."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.spark import jvm as bulk
from headwater.spark.scan.backends import scan
from headwater.spark.scan.explain import scans
from headwater.spark.scan.file_index import PythonFileIndex
from headwater.spark.scan.read import read
from headwater.spark.scan.request import ScanRequest
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FILES = 20
ROWS = 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 files, 4 partitions: ids ascend from file to file, and every file has names of its own."""
    path = tmp_path_factory.mktemp("index") / "table"
    table = DeltaTable(
        path, field("id", "long"), field("part", "string"), field("name", "string"), partition_columns=("part",)
    )
    actions = []
    for i in range(FILES):
        ids = list(range(i * ROWS, (i + 1) * ROWS))
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{i:02d}-{n}" for n in ids]})
        # Directories that lie about the partition: only the log counts.
        actions.append(table.file(rows, f"part=wrong/{i}.parquet", partitionValues={"part": f"p{i % 4}"}))
    table.commit(*actions)
    return path


@pytest.fixture
def frame(spark: SparkSession, path: Path) -> DataFrame:
    return read(spark, path)


def kept(frame: DataFrame) -> list[int]:
    return sorted(scan.files_kept for scan in scans(frame))


@pytest.mark.parametrize(
    ("sql", "files", "rows"),
    [
        ("true", 20, 200),
        ("part = 'p1'", 5, 50),
        ("part in ('p1', 'p2')", 10, 100),
        ("part > 'p2'", 5, 50),
        ("part is null", 0, 0),
        ("part = 'wrong'", 0, 0),
        ("upper(part) = 'P3'", 5, 50),
        ("substring(part, 2) in ('0', '2') and id < 40", 2, 20),
        ("id = 57", 1, 1),
        ("id between 95 and 104", 2, 10),
        ("id in (3, 77, 199)", 3, 3),
        ("name like '07-%'", 1, 10),
        ("name = '07-70' or id < 5", 2, 6),
        ("name = '07-70' or part = 'p0'", 20, 51),  # see `test_filters_on_both_kinds_of_columns_reach_no_scan`
        ("(part = 'p0' and id < 5) or (part = 'p1' and id < 15)", 2, 10),
        ("id > 150 and part = 'p3'", 2, 19),
        ("abs(id) = 57", 20, 1),
        ("not (id < 190)", 1, 10),
    ],
)
def test_queries_read_only_the_files_they_need(frame: DataFrame, sql: str, files: int, rows: int) -> None:
    found = frame.where(sql)
    assert found.count() == rows
    assert kept(found.select("id")) == [files]


def test_filters_on_both_kinds_of_columns_reach_no_scan(
    frame: DataFrame, spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Spark knows of such a filter it keeps to itself: neither as partition filter nor as data filter is it given
    # to `listFiles`. Given to `hw.read`, it prunes.
    offered: list[tuple[str, str]] = []
    listed = PythonFileIndex.apply

    def apply(index: PythonFileIndex, texts: str, filters: Any) -> Any:
        offered.append((filters._1().mkString(), filters._2().mkString()))
        return listed(index, texts, filters)

    monkeypatch.setattr(PythonFileIndex, "apply", apply)
    mixed = "name = '07-70' or part = 'p0'"
    assert frame.where(mixed).count() == 51
    assert offered == [("", "")]
    asked = read(spark, path, where=mixed)
    assert asked.count() == 51
    assert kept(asked.where("id >= 0")) == [6]
    assert kept(read(spark, path)) == [FILES]


def test_the_same_filter_is_listed_once_and_other_filters_do_not_disturb(frame: DataFrame) -> None:
    for _ in range(3):
        for n in range(5):
            rows = frame.where(f"part = 'p{n}' and id >= {n}").select("id", "part").collect()
            assert sorted(row.id for row in rows) == [i for i in range(FILES * ROWS) if i // ROWS % 4 == n and i >= n]
            assert {row.part for row in rows} <= {f"p{n}"}
        assert frame.count() == FILES * ROWS


@pytest.mark.parametrize("limit", [FILES, FILES - 1])
def test_opening_a_table_of_few_files_lists_them(
    spark: SparkSession, path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    rows = bulk.rows

    def counted(session: SparkSession, table: pa.Table, schema: str) -> Any:
        sent.append(table.num_rows)
        return rows(session, table, schema)

    monkeypatch.setattr(bulk, "rows", counted)
    monkeypatch.setattr("headwater.spark.scan.files._MAX_LISTED_AT_ONCE", limit)
    frame = read(spark, path)
    assert sent == ([FILES] if limit == FILES else [])
    assert frame.where("part = 'p1'").count() == 50
    assert sent == ([FILES] if limit == FILES else [5])  # out of the list, or sent for the query


def test_files_in_many_places_of_the_list(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", "integer"), partition_columns=("p",))
    one = pa.table({"id": pa.array([1], pa.int64())})
    table.commit(*(table.file(one, partitionValues={"p": str(n)}) for n in range(150)))
    frame = read(spark, table.path)
    for _ in range(3):
        for sql in ("p % 2 = 0", "p in (1, 3, 149)", "p > 70", f"p in ({', '.join(map(str, range(0, 150, 2)))})"):
            expected = spark.range(150).withColumnRenamed("id", "p").where(sql)
            assert sorted(r.p for r in frame.where(sql).collect()) == sorted(r.p for r in expected.collect()), sql


def test_sql_over_a_view_prunes(frame: DataFrame, spark: SparkSession) -> None:
    frame.createOrReplaceTempView("indexed")
    found = spark.sql("select name from indexed where part = 'p2' and id < 30")
    assert kept(found) == [1]
    assert found.count() == 10


def test_a_filter_above_a_join_prunes_both_sides(frame: DataFrame) -> None:
    found = frame.alias("a").join(frame.alias("b"), "id").where("id = 42")
    assert kept(found) == [1, 1]
    assert found.count() == 1


def test_dynamic_partition_pruning_reads_the_partitions_of_the_dimension(frame: DataFrame, spark: SparkSession) -> None:
    dimension = spark.createDataFrame([("p1", "one"), ("p2", "two")], "part string, label string")
    found = frame.join(dimension.where("label = 'one'").hint("broadcast"), "part")
    assert found.count() == 50
    assert "dynamicpruning" in found._jdf.queryExecution().executedPlan().toString()


def test_a_small_table_is_broadcast_by_its_size_in_the_log(frame: DataFrame) -> None:
    plan = frame.alias("a").join(frame.alias("b"), "id")._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan


def test_self_join_without_aliases(frame: DataFrame) -> None:
    assert frame.join(frame, "id").count() == FILES * ROWS
    assert frame.union(frame).count() == 2 * FILES * ROWS


def test_two_reads_of_one_version_are_the_same_to_the_cache(spark: SparkSession, path: Path) -> None:
    first = read(spark, path).cache()
    try:
        assert first.count() == FILES * ROWS
        again = read(spark, path)
        assert "InMemoryTableScan" in again._jdf.queryExecution().executedPlan().toString()
        assert again.where("part = 'p0'").count() == 50
    finally:
        first.unpersist(blocking=True)


def test_a_part_of_a_table_is_not_the_table_to_the_cache(spark: SparkSession, path: Path) -> None:
    part = scan(spark, ScanRequest(hw.open_log(path), where="id < 10")).cache()
    try:
        assert part.count() == ROWS
        assert read(spark, path).count() == FILES * ROWS
    finally:
        part.unpersist(blocking=True)


def test_refreshing_by_path_lists_no_directory(spark: SparkSession, path: Path, frame: DataFrame) -> None:
    (path / "part=wrong" / "stray.parquet").write_bytes((path / "part=wrong" / "0.parquet").read_bytes())
    spark.catalog.refreshByPath(str(path))
    assert frame.count() == FILES * ROWS


def test_input_files_are_those_of_the_log(frame: DataFrame, path: Path) -> None:
    assert sorted(frame.inputFiles()) == sorted(f"file:{path}/part=wrong/{i}.parquet" for i in range(FILES))


def test_metadata_columns_work(frame: DataFrame, path: Path) -> None:
    row = frame.where("id = 57").select("_metadata.file_path", "_metadata.file_name", "_metadata.row_index").head()
    assert row is not None
    assert (row.file_path, row.file_name, row.row_index) == (f"file:{path}/part=wrong/5.parquet", "5.parquet", 7)


def test_many_threads_plan_at_once(spark: SparkSession, path: Path) -> None:
    def count(part: int) -> int:
        return read(spark, path).where(f"part = 'p{part % 4}' and id >= 0").count()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, range(16))) == [50] * 16


def test_many_threads_plan_over_one_frame(frame: DataFrame) -> None:
    def found(n: int) -> list[tuple[int, str]]:
        rows = frame.where(f"id = {n} or id = {n + 100}").select("id", "part").collect()
        return sorted((row.id, row.part) for row in rows)

    numbers = list(range(0, 100, 3))
    expected = [[(n, f"p{n // 10 % 4}"), (n + 100, f"p{(n + 100) // 10 % 4}")] for n in numbers]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(found, numbers)) == expected


def test_the_index_lives_as_long_as_the_plan(spark: SparkSession, path: Path) -> None:
    read(spark, path).createOrReplaceTempView("lasting")
    for _ in range(3):
        gc.collect()
        spark._jvm.java.lang.System.gc()
        time.sleep(0.05)
    assert spark.sql("select count(*) as n from lasting where part = 'p1'").head().n == 50  # type: ignore[union-attr]


def test_foreach_batch_shares_the_callback_server(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    frame = read(spark, path)

    def batch(rows: DataFrame, _number: int) -> None:
        seen.append(rows.join(frame, rows.value == frame.id).count())

    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 5)
        .load()
        .writeStream.trigger(once=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(batch)
        .start()
    )
    query.awaitTermination(60)
    assert query.exception() is None
    assert seen == [5]


def test_plan_text_names_the_table(frame: DataFrame, path: Path) -> None:
    assert f"[file:{path}]" in frame._jdf.queryExecution().executedPlan().toString()


def test_explanation_says_version_and_files(frame: DataFrame, path: Path) -> None:
    (found,) = scans(frame.where("part = 'p1'"))
    assert (found.table, found.version, found.files_kept, found.files_total) == (f"file:{path}", 1, 5, FILES)
    assert 0 < found.size_bytes_kept < found.size_bytes_total
    assert "version 1: 5 of 20 files" in str(found)
