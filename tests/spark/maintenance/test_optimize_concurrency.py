"""OPTIMIZE among other writers, when a part of it fails, when it is interrupted; and after writes by itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater import DeltaTable
from headwater.spark.maintenance import optimize as optimize_auto
from headwater.spark.maintenance import rewrite as optimize_rewrite
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater, operations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headwater.spark.maintenance.plan import FileGroup

pytestmark = pytest.mark.spark


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with two partitions of two files each."""
    place = str(tmp_path / "t")
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    for start in (0, 10):
        rows = spark.range(start, start + 10, 1, 1).selectExpr("id", "cast(id % 2 as int) as p")
        new = {"partition_by": "p", "properties": properties} if start == 0 else {}
        hw.write(rows, place, mode="append", **new)
    return place


def rewriting(monkeypatch: pytest.MonkeyPatch, then: Callable[[FileGroup], None]) -> None:
    """Do something when a group is rewritten and not committed yet."""
    original = optimize_rewrite.GroupRewriter.rewrite

    def rewrite(self: Any, group: FileGroup) -> Any:
        adds = original(self, group)
        then(group)
        return adds

    monkeypatch.setattr(optimize_rewrite.GroupRewriter, "rewrite", rewrite)


def once(action: Callable[[], None]) -> Callable[[FileGroup], None]:
    waiting = [action]

    def run(_: FileGroup) -> None:
        if waiting:
            waiting.pop()()

    return run


def test_an_append_meanwhile_disturbs_nobody(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = spark.createDataFrame([(100, 0)], "id long, p int")
    rewriting(monkeypatch, once(lambda: hw.write(more, path, mode="append") and None))  # type: ignore[func-returns-value]
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert operations(path)[-2:] == ["WRITE", "OPTIMIZE"]
    assert hw.open_log(path).num_files == 3
    assert len(by_headwater(spark, path)) == 21


def test_rows_deleted_meanwhile_stay_deleted(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable.forPath(spark, path)
    rewriting(monkeypatch, once(lambda: table.delete("id = 3")))
    [row] = table.optimize().executeCompaction().collect()
    assert (row.metrics.numFilesAdded, row.metrics.numFilesRemoved) == (2, 4)
    assert operations(path)[-3:] == ["DELETE", "OPTIMIZE", "OPTIMIZE"]
    assert hw.open_log(path).num_files == 2
    expected = {(i, i % 2) for i in range(20) if i != 3}
    assert set(by_headwater(spark, path)) == set(by_duckdb(path)) == expected


def test_a_table_that_is_changed_all_the_time_gives_a_conflict(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable.forPath(spark, path)
    ids = iter(range(1, 20, 2))
    rewriting(monkeypatch, lambda _: table.delete(f"id = {next(ids)}"))
    with pytest.raises(hw.ConcurrentDeleteDeleteException):
        table.optimize().where("p = 1").executeCompaction()
    assert len(by_headwater(spark, path)) == 17


def test_what_is_done_when_a_group_fails_is_kept(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(group: FileGroup) -> None:
        if group.partition_values["p"] == "1":
            raise hw.StorageError("the disk is full")

    before = by_headwater(spark, path)
    rewriting(monkeypatch, fail)
    with pytest.raises(hw.StorageError, match="full"):
        DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert hw.open_log(path).num_files == 3
    assert by_headwater(spark, path) == before


def test_an_interruption_leaves_the_table_as_it_is(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: FileGroup) -> None:
        raise KeyboardInterrupt

    version = hw.open_log(path).version
    rewriting(monkeypatch, stop)
    with pytest.raises(KeyboardInterrupt):
        DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert hw.open_log(path).version == version


def test_writes_join_small_files_if_the_table_wants_that(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(tmp_path / "auto")
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "3")
    try:
        hw.write(spark.range(0, 2, 1, 2), place, properties={"delta.autoOptimize.autoCompact": "true"})
        assert hw.open_log(place).num_files == 2
        done = hw.write(spark.range(2, 3, 1, 1), place, mode="append")
        assert done is not None
        assert done.version == 1
        [commit] = hw.open_log(place).history(1)
        assert (commit.operation, (commit.operation_parameters or {})["auto"]) == ("OPTIMIZE", "true")
        assert by_all(spark, place) == [(0,), (1,), (2,)]

        def broken(*_: object) -> None:
            raise MemoryError("none left")

        monkeypatch.setattr(optimize_rewrite.GroupRewriter, "rewrite", broken)
        with caplog.at_level(logging.WARNING, optimize_auto.__name__):
            hw.write(spark.range(3, 6, 1, 3), place, mode="append")
        assert "none left" in caplog.text
        assert len(by_headwater(spark, place)) == 6
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
