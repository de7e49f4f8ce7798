"""A new table has its place to itself: neither plain Parquet files nor another kind of table are taken over."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater import DeltaTable, SearchTable
from headwater.errors import HeadwaterError, InvalidCommitError, TableAlreadyExistsError
from headwater.features.context import TableRef
from headwater.log.files.listing import claimed
from headwater.spark.write import write as write_attempt
from support.oracles.delta_spark_oracle import DeltaSparkError, DeltaSparkOracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(2, "new")], "id long, p string").coalesce(1)


def plain(path: Path) -> dict[str, bytes]:
    """A directory of plain Parquet files, and what is in it."""
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1], "p": ["old"]}), path / "part-00000-mine.parquet")
    return contents(path)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_a_directory_of_plain_parquet_is_not_written_to(rows: DataFrame, tmp_path: Path, mode: str) -> None:
    before = plain(tmp_path / "t")

    with pytest.raises(InvalidCommitError, match=r"part-00000-mine\.parquet.*convertToDelta"):
        hw.write(rows, tmp_path / "t", mode=mode)

    assert contents(tmp_path / "t") == before


@pytest.mark.parametrize("inside", ["p=1", "_p=1", "deep/er", "other/_delta_log/../p=2"])
def test_files_in_directories_count_too(rows: DataFrame, tmp_path: Path, inside: str) -> None:
    before = plain(tmp_path / "t" / os.path.normpath(inside))

    with pytest.raises(InvalidCommitError, match="belong to no table"):
        hw.write(rows, tmp_path / "t", mode="append")

    assert contents(tmp_path / "t" / os.path.normpath(inside)) == before


def test_hidden_files_and_what_a_killed_write_left_are_in_nobodys_way(rows: DataFrame, tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".part.crc", "_temporary/0/x", "incomplete-0b5bd8c0-52f0-4ea6-9a5f-3a3f3fa5f0f1/x"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_text("")

    hw.write(rows, tmp_path / "t", mode="append")

    assert hw.open_log(tmp_path / "t").num_files == 1
    assert not list((tmp_path / "t").glob("_creating-*"))


def test_clones_and_declared_tables_take_nothing_over_either(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    hw.write(rows, tmp_path / "source")
    source = DeltaTable.forPath(spark, str(tmp_path / "source"))
    before = plain(tmp_path / "t")

    for is_shallow in (True, False):
        with pytest.raises(InvalidCommitError, match="convertToDelta"):
            source.clone(str(tmp_path / "t"), isShallow=is_shallow, replace=True)
    for build in (DeltaTable.create, DeltaTable.createOrReplace, DeltaTable.createIfNotExists):
        with pytest.raises(InvalidCommitError, match="convertToDelta"):
            build(spark).location(str(tmp_path / "t")).addColumn("id", "BIGINT").execute()

    assert contents(tmp_path / "t") == before


def test_a_converted_directory_is_appended_to_and_keeps_its_files(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    plain(tmp_path / "t")
    table = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 't'}`")

    hw.write(rows, tmp_path / "t", mode="append")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    assert sorted(row.id for row in table.toDF().collect()) == [1, 2]


def test_delta_spark_refuses_such_directories_too(tmp_path: Path, delta_spark: DeltaSparkOracle) -> None:
    plain(tmp_path / "t")
    for statement in ("CREATE TABLE delta.`{}` USING delta AS SELECT 2L id", "INSERT INTO delta.`{}` SELECT 2L, 'x'"):
        with pytest.raises(DeltaSparkError, match=r"ALREADY_EXISTS|NON_EMPTY_LOCATION|TABLE_NOT_FOUND"):
            delta_spark.sql(statement.format(tmp_path / "t"))


# --- writers that were killed, and others at the same time ---------------------------------------------


class KilledError(BaseException):
    """Ends a process, for a test."""


def test_a_first_write_that_was_killed_can_be_repeated(
    rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = write_attempt.write_files

    def killed(*arguments: Any) -> Any:
        original(*arguments)
        # What a killed process does not do any more.
        monkeypatch.setattr("headwater.storage.local.LocalStore.delete_many", lambda _store, _keys: None)
        raise KilledError

    monkeypatch.setattr(write_attempt, "write_files", killed)
    with pytest.raises(KilledError):
        hw.write(rows, tmp_path / "t", mode="append")
    assert list((tmp_path / "t").glob("part-*"))
    monkeypatch.undo()

    hw.write(rows, tmp_path / "t", mode="append")

    assert hw.open_log(tmp_path / "t").num_files == 1
    assert not list((tmp_path / "t").glob("_creating-*"))


def test_two_who_create_a_table_at_the_same_time_do_not_stand_in_each_others_way(
    rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = write_attempt.write_files

    def meanwhile(*arguments: Any) -> Any:
        files = original(*arguments)
        monkeypatch.setattr(write_attempt, "write_files", original)
        hw.write(rows, tmp_path / "t", mode="append")
        return files

    monkeypatch.setattr(write_attempt, "write_files", meanwhile)
    hw.write(rows, tmp_path / "t", mode="append")

    assert hw.open_log(tmp_path / "t").num_files == 2
    assert not list((tmp_path / "t").glob("_creating-*"))


def test_a_first_write_that_fails_leaves_the_place_as_it_was(tmp_path: Path) -> None:
    ctx = TableRef(tmp_path / "t").context()
    with contextlib.suppress(ValueError), claimed(ctx):
        assert list((tmp_path / "t").glob("_creating-*"))
        raise ValueError
    assert not list((tmp_path / "t").iterdir())


def test_a_delta_table_and_a_search_table_created_at_the_same_time_do_not_both_succeed(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    with claimed(TableRef(tmp_path / "t").context()), pytest.raises(TableAlreadyExistsError, match="Delta table"):
        SearchTable.create(spark, tmp_path / "t", rows)


# --- a Delta table and a search table ------------------------------------------------------------------


def test_a_search_table_and_a_delta_table_are_not_created_in_one_place(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    delta, search = tmp_path / "delta", tmp_path / "search"
    hw.write(rows, delta)
    SearchTable.create(spark, search, rows)
    before = [contents(delta), contents(search)]

    with pytest.raises(TableAlreadyExistsError, match="Delta table"):
        SearchTable.create(spark, delta, rows)
    for write in (
        lambda: hw.write(rows, search, mode="append"),
        lambda: DeltaTable.create(spark).location(str(search)).addColumn("id", "BIGINT").execute(),
        lambda: DeltaTable.forPath(spark, str(delta)).clone(str(search), isShallow=True, replace=True),
        lambda: DeltaTable.convertToDelta(spark, f"parquet.`{search}`"),
    ):
        with pytest.raises(TableAlreadyExistsError, match="search table"):
            write()

    assert [contents(delta), contents(search)] == before


def test_splits_whose_log_is_lost_are_not_taken_over(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    table = SearchTable.create(spark, tmp_path / "t", rows)
    table.write(rows)
    shutil.rmtree(tmp_path / "t" / "_transaction_log")
    hw_invalidate(tmp_path / "t")

    with pytest.raises(InvalidCommitError, match=r"\.split"):
        SearchTable.create(spark, tmp_path / "t", rows)


def hw_invalidate(path: Path) -> None:
    from headwater.search.table_log import invalidate_cache

    invalidate_cache(path)


def test_a_directory_with_a_table_in_it_is_not_converted(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    plain(tmp_path / "t")
    hw.write(rows, tmp_path / "t" / "inner")

    with pytest.raises(HeadwaterError, match="inner/"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 't'}`")
