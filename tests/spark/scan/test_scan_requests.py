"""Scans of chosen files, with other deletion vectors and with places of rows; scans of one snapshot again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

import headwater as hw
from headwater.log.actions.deletion_vectors import inline_vector as inline
from headwater.log.actions.model import Add
from headwater.log.files.live import file_table, with_vectors
from headwater.log.snapshot import Snapshot
from headwater.spark.scan.backends import scan
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN
from headwater.spark.scan.request import ScanRequest
from support.tables.delta_tables import DeltaTable, field, inline_vector, mapped

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MAPPED = {"delta.columnMapping.mode": "name"}


def ids(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 3), pa.int64())})


def values(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Three files of three rows, one row deleted."""
    made = DeltaTable(tmp_path / "t", field("id", "long"), features=("deletionVectors",))
    made.append(ids(0), "a.parquet", deletionVector=inline_vector([0]))
    made.append(ids(10), "b.parquet")
    made.append(ids(20), "c.parquet")
    return made


def test_only_the_given_files_are_read(spark: SparkSession, table: DeltaTable) -> None:
    snapshot = hw.open_log(table.path)
    files = snapshot.files("id < 15")
    assert values(scan(spark, ScanRequest(snapshot, files))) == [1, 2, 10, 11, 12]
    assert values(scan(spark, ScanRequest(snapshot, files.slice(0, 0)))) == []


def test_given_files_need_not_be_live(spark: SparkSession, table: DeltaTable) -> None:
    before = hw.open_log(table.path)
    table.commit({"remove": {"path": "b.parquet", "dataChange": True}})
    after = hw.open_log(table.path)
    files = before.files().filter(pa.compute.equal(before.files().column("path"), "b.parquet"))
    assert values(scan(spark, ScanRequest(after, files))) == [10, 11, 12]


def test_deletion_vectors_of_given_files_count(spark: SparkSession, table: DeltaTable) -> None:
    snapshot = hw.open_log(table.path)
    files = with_vectors(snapshot.files(), {"b.parquet": inline(BitMap64([1, 2]))})
    assert values(scan(spark, ScanRequest(snapshot, files))) == [1, 2, 10, 20, 21, 22]


def test_rows_are_located_by_the_numbers_of_files(spark: SparkSession, table: DeltaTable) -> None:
    snapshot = hw.open_log(table.path)
    files = snapshot.files(columns=["path", "size", "modificationTime", "deletionVector"])
    numbers = [{"a.parquet": 7, "b.parquet": 5, "c.parquet": 6}[path] for path in files.column("path").to_pylist()]
    numbered = files.append_column(FILE_COLUMN, pa.array(numbers, pa.int32()))
    frame = scan(spark, ScanRequest(snapshot, numbered, locate_rows=True))
    assert frame.columns == ["id", FILE_COLUMN, ROW_COLUMN]
    assert sorted(frame.where("id < 20").collect()) == [(1, 7, 1), (2, 7, 2), (10, 5, 0), (11, 5, 1), (12, 5, 2)]


def test_files_that_are_not_committed_are_read(spark: SparkSession, table: DeltaTable) -> None:
    add = msgspec.convert(table.file(ids(30), "d.parquet")["add"], Add)
    assert values(scan(spark, ScanRequest(hw.open_log(table.path), file_table([add])))) == [30, 31, 32]


@pytest.mark.parametrize("kind", ["plain", "mapped", "vectors"])
def test_a_scan_has_the_columns_of_the_table_and_those_of_its_files(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    fields = [mapped("p", "integer", "x", 1), mapped("id", "long", "y", 2)] if kind == "mapped" else []
    made = DeltaTable(
        tmp_path / "t",
        *(fields or [field("p", "integer"), field("id", "long")]),
        partition_columns=("p",),
        configuration=MAPPED if kind == "mapped" else {},
        features=("deletionVectors", "columnMapping"),
    )
    rows = ids(0).rename_columns(["y" if kind == "mapped" else "id"])
    vector = {"deletionVector": inline_vector([0])} if kind == "vectors" else {}
    made.append(rows, "a.parquet", partitionValues={"x" if kind == "mapped" else "p": "1"}, **vector)
    frame = scan(spark, ScanRequest(hw.open_log(made.path)))
    assert frame.columns == ["p", "id"]
    shown = frame.select("*", frame.metadataColumn("_metadata"))
    assert shown.columns == ["p", "id", "_metadata"]
    assert {row._metadata.file_name for row in shown.collect()} == {"a.parquet"}
    assert {row._metadata.row_index - row.id for row in shown.collect()} == {0}


def test_a_second_scan_of_a_snapshot_uses_what_the_first_has_listed(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hw.open_log(table.path)
    first = scan(spark, ScanRequest(snapshot))
    listed: list[object] = []
    files = Snapshot.files

    def counted(self: Snapshot, *arguments: object) -> pa.Table:
        listed.append(arguments)
        return files(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Snapshot, "files", counted)
    second = scan(spark, ScanRequest(snapshot))
    assert not listed
    pairs = first.join(second, first["id"] == second["id"] - 10).select(first["id"])
    assert values(pairs) == [1, 2, 10, 11, 12]
