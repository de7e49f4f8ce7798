"""Rows that stay as they are go from file to file without Spark; what only Spark can read, Spark copies."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.errors import UnreadableInPythonError
from headwater.log.actions.model import Add
from headwater.spark.maintenance import rewrite as optimize_rewrite
from headwater.spark.write import copies as file_copies

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[list[Add]]:
    """The files that each job wrote which copied rows without Spark."""
    calls: list[list[Add]] = []

    written = file_copies.Copies._written

    def counted(copies: file_copies.Copies, num_tasks: int | None) -> list[Add]:
        found = written(copies, num_tasks)
        calls.append(found)
        return found

    monkeypatch.setattr(file_copies.Copies, "_written", counted)
    return calls


def files_of(path: Path) -> Any:
    return hw.open_log(path).files()


def test_little_data_is_copied_into_one_file(spark: SparkSession, tmp_path: Path, copied: list[list[Add]]) -> None:
    frame = spark.range(100).selectExpr("cast(id as int) id", "concat('v', id) v")
    hw.write(frame.repartitionByRange(5, "id"), tmp_path)
    hw.DeltaTable.forPath(spark, tmp_path).delete("id % 20 = 3")
    assert [len(adds) for adds in copied] == [1]
    assert files_of(tmp_path).num_rows == 1
    assert {row.id for row in hw.read(spark, tmp_path).collect()} == {n for n in range(100) if n % 20 != 3}


def test_copies_have_statistics_and_partition_values(
    spark: SparkSession, tmp_path: Path, copied: list[list[Add]]
) -> None:
    rows = [(1, "a b/c", 1.5), (2, "a b/c", float("nan")), (3, None, -0.5), (4, None, None)]
    hw.write(spark.createDataFrame(rows, "id int, p string, x double").coalesce(1), tmp_path, partition_by=["p"])
    hw.DeltaTable.forPath(spark, tmp_path).delete("id in (2, 3)")
    assert sorted((add.partition_values["p"] or "") for adds in copied for add in adds) == ["", "a b/c"]
    assert hw.open_log(tmp_path).files(where="id = 1").num_rows == 1
    assert sorted(tuple(row) for row in hw.read(spark, tmp_path).select("id", "x").collect()) == [(1, 1.5), (4, None)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_copies_have_the_columns_of_now(
    spark: SparkSession, tmp_path: Path, mode: str, copied: list[list[Add]]
) -> None:
    properties = {"delta.columnMapping.mode": mode, "delta.enableTypeWidening": "true"}
    frame = spark.createDataFrame(
        [(1, "a", (1, [2])), (2, "b", (3, [4]))], "id int, v string, s struct<a:int,b:array<int>>"
    )
    hw.write(frame.coalesce(1), tmp_path, properties=properties)
    table = hw.DeltaTable.forPath(spark, tmp_path)
    table.renameColumn("v", "w w")
    table.dropColumns("s.b")
    table.addColumns({"extra": "date"})
    hw.write(spark.createDataFrame([(2**40, "c")], "id long, `w w` string"), tmp_path, mode="append", merge_schema=True)
    table.delete("id = 2")
    assert copied, "nothing was copied"
    assert sorted(map(tuple, hw.read(spark, tmp_path).select("id", "`w w`", "s.a", "extra").collect()), key=str) == [
        (1, "a", 1, None),
        (2**40, "c", None, None),
    ]


def test_row_ids_stay(spark: SparkSession, tmp_path: Path, copied: list[list[Add]]) -> None:
    frame = spark.range(10).selectExpr("cast(id as int) id")
    hw.write(frame.coalesce(1), tmp_path, properties={"delta.enableRowTracking": "true"})

    def ids() -> dict[int, tuple[int, int]]:
        rows = hw.read(spark, tmp_path, row_tracking=True).collect()
        return {row.id: (row._row_id, row._row_commit_version) for row in rows}

    before = ids()
    hw.DeltaTable.forPath(spark, tmp_path).delete("id = 3")
    hw.DeltaTable.forPath(spark, tmp_path).delete("id = 7")  # the ids are in the file now
    assert len(copied) == 2
    assert ids() == {number: both for number, both in before.items() if number not in (3, 7)}


def test_files_of_the_old_calendar_are_copied_by_spark(
    spark: SparkSession, tmp_path: Path, copied: list[list[Add]]
) -> None:
    rows = [(1, dt.date(1500, 3, 1)), (2, dt.date(1400, 2, 28)), (3, dt.date(2020, 1, 1))]
    name = "spark.sql.parquet.datetimeRebaseModeInWrite"
    old = spark.conf.get(name)
    spark.conf.set(name, "LEGACY")
    try:
        spark.createDataFrame(rows, "id int, d date").coalesce(1).write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.set(name, str(old))
    hw.DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 't'}`")
    hw.DeltaTable.forPath(spark, tmp_path / "t").delete("id = 3")
    assert copied == []
    assert sorted(tuple(row) for row in hw.read(spark, tmp_path / "t").collect()) == rows[:2]


def test_compaction_copies_too(spark: SparkSession, tmp_path: Path, copied: list[list[Add]]) -> None:
    frame = spark.range(100).selectExpr("cast(id as int) id", "cast(id % 2 as string) p")
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    hw.write(frame.repartitionByRange(4, "id"), tmp_path, partition_by=["p"], properties=properties)
    table = hw.DeltaTable.forPath(spark, tmp_path)
    table.delete("id % 10 = 3")

    def ids() -> dict[int, int]:
        return {row.id: row._row_id for row in hw.read(spark, tmp_path, row_tracking=True).collect()}

    before = ids()
    table.optimize().executeCompaction()
    assert [len(adds) for adds in copied] == [1, 1]
    assert ids() == before
    assert len(before) == 90
    files = files_of(tmp_path)
    assert files.num_rows == 2
    assert files.column("deletionVector").null_count == 2


def test_many_tiny_files_whose_rows_are_sorted_are_read_in_python(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize_rewrite, "_MANY_FILES", 5)
    read: list[str] = []
    scan_in_python = file_copies.scan_in_python

    def counted(*arguments: Any) -> Any:
        read.append(arguments[1].snapshot.uri)
        return scan_in_python(*arguments)

    monkeypatch.setattr(file_copies, "scan_in_python", counted)
    frame = spark.range(60).selectExpr("id", "concat('v', id) v", "timestamp_seconds(id) ts")
    hw.write(frame.repartitionByRange(6, "id"), tmp_path)
    table = hw.DeltaTable.forPath(spark, tmp_path)
    sizes = files_of(tmp_path).column("size").to_pylist()
    table.setProperties({"delta.targetFileSize": str(max(sizes) * 3)})
    table.optimize().executeZOrderBy("v", "id")
    assert len(read) == 1
    assert files_of(tmp_path).num_rows == 2
    assert sorted(hw.read(spark, tmp_path).collect()) == sorted(frame.collect())


def test_files_of_a_partition_are_copied_into_one(spark: SparkSession, tmp_path: Path, copied: list[list[Add]]) -> None:
    """However large each of them is: a task gets them one after the other."""
    rows = spark.range(240).selectExpr("id", "id % 4 as p", "repeat('x', int(pow(id, 2)) % 1000) v")
    for part in range(3):
        hw.write(rows.where(f"id % 3 = {part}").coalesce(1), tmp_path, mode="append", partition_by=["p"])
    assert files_of(tmp_path).num_rows == 12

    hw.DeltaTable.forPath(spark, tmp_path).delete("id > 200 and id % 5 = 0")

    assert [len(adds) for adds in copied] == [4]


# --- many tiny files -------------------------------------------------------------------------------------


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[list[Add]]:
    """The files that each job wrote which gathered tiny files; few are many here."""
    calls: list[list[Add]] = []
    real = file_copies.Copies._gathered

    def noted(copies: file_copies.Copies) -> list[Add]:
        calls.append(real(copies))
        return calls[-1]

    monkeypatch.setattr(file_copies.Copies, "_gathered", noted)
    monkeypatch.setattr(optimize_rewrite, "_MANY_FILES", 4)
    return calls


@pytest.mark.parametrize("mapping", ["none", "id"])
def test_tiny_files_are_gathered_with_all_that_the_log_says_of_their_rows(
    spark: SparkSession, tmp_path: Path, gathered: list[list[Add]], mapping: str
) -> None:
    """Partition values, deletion vectors, missing columns and row ids, as Spark reads them before and after."""
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.columnMapping.mode": mapping,
    }
    rows = spark.range(40).selectExpr("id", "cast(id % 2 as string) p", "struct(id AS x, int(null) AS y) s")
    hw.write(rows.repartition(6), tmp_path, partition_by=["p"], properties=properties)
    table = hw.DeltaTable.forPath(spark, tmp_path)
    table.delete("id % 7 = 0")
    more = rows.selectExpr("id + 100 id", "p", "s", "array('a', null) late")
    hw.write(more.repartition(3), tmp_path, mode="append", merge_schema=True)

    def found() -> list[Any]:
        frame = hw.read(spark, tmp_path, row_tracking=True)
        return sorted(map(str, frame.collect()))

    before = found()
    table.optimize().executeCompaction()

    assert found() == before
    assert [len(adds) for adds in gathered] == [1, 1]
    assert files_of(tmp_path).num_rows == 2
    assert hw.open_log(tmp_path).files(where="id > 139").num_rows == 0, "the new files have statistics"


def test_what_arrow_cannot_read_is_gathered_by_spark(
    spark: SparkSession, tmp_path: Path, gathered: list[list[Add]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hw.write(spark.range(30).repartition(6), tmp_path)
    before = {row.id for row in hw.read(spark, tmp_path).collect()}

    def unreadable(_copies: file_copies.Copies) -> list[Add]:
        raise UnreadableInPythonError("only Spark can")

    monkeypatch.setattr(file_copies.Copies, "_gathered", unreadable)
    hw.DeltaTable.forPath(spark, tmp_path).optimize().executeCompaction()

    assert gathered == []
    assert files_of(tmp_path).num_rows == 1
    assert {row.id for row in hw.read(spark, tmp_path).collect()} == before
