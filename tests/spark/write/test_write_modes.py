"""Replacing what is there: everything, some partitions, or the rows that match a condition."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headwater as hw
from headwater.errors import (
    ColumnNotFoundError,
    ConcurrentAppendException,
    ConstraintViolationError,
    InvalidCommitError,
)
from headwater.spark.write import write as write_attempt
from support.oracles.reader_votes import by_all, by_duckdb, by_headwater
from support.tables.delta_tables import DeltaTable, field, inline_vector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def pairs(spark: SparkSession, *rows: tuple[int, str | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id long, p string").coalesce(1)


def actions(path: str, kind: str, version: int | None = None) -> list[dict[str, Any]]:
    version = hw.open_log(path).version if version is None else version
    lines = Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for line in lines if kind in (action := json.loads(line))]


def interrupted(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Run something between the files of a write and its commit, once."""
    original = write_attempt.write_files

    def write_files(*arguments: Any) -> Any:
        files = original(*arguments)
        monkeypatch.setattr(write_attempt, "write_files", original)
        action()
        return files

    monkeypatch.setattr(write_attempt, "write_files", write_files)


# --- modes --------------------------------------------------------------------------------------------------


def test_error_and_ignore(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path, mode="ignore")
    assert hw.write(pairs(spark, (2, "a")), path, mode="Ignore") is None
    for mode in ("error", "errorIfExists"):
        with pytest.raises(hw.TableAlreadyExistsError, match="already"):
            hw.write(pairs(spark, (2, "a")), path, mode=mode)
    assert by_all(spark, path) == [(1, "a")]


def test_overwrite_removes_all_files_in_the_same_commit(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b")), path, partition_by="p")
    result = hw.write(pairs(spark, (3, "c")), path, mode="overwrite")
    assert result is not None
    assert result.metrics["numRemovedFiles"] == 2
    assert by_all(spark, path) == [(3, "c")]
    removes = actions(path, "remove")
    assert all(r["dataChange"] and r["extendedFileMetadata"] and r["size"] > 0 for r in removes)
    assert sorted(r["partitionValues"]["p"] for r in removes) == ["a", "b"]
    assert hw.read(spark, path, version=0).count() == 2


def test_overwrite_can_change_schema_and_partitioning(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path, partition_by="p")
    frame = spark.sql("SELECT 'x' AS id, 7 AS q")
    with pytest.raises(hw.SchemaMismatchError):
        hw.write(frame, path, mode="overwrite")
    hw.write(frame, path, mode="overwrite", overwrite_schema=True, partition_by="q")
    assert by_all(spark, path) == [("x", 7)]
    assert hw.open_log(path).partition_columns == ["q"]
    hw.write(frame, path, mode="overwrite", overwrite_schema=True)
    assert hw.open_log(path).partition_columns == []
    assert [f.name for f in hw.open_log(path, version=0).schema] == ["id", "p"]


# --- dynamic partitions ----------------------------------------------------------------------------------------


def test_dynamic_overwrite_replaces_the_partitions_that_are_written(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b"), (3, None), (4, "")), path, partition_by="p")
    hw.write(pairs(spark, (5, "b"), (6, None)), path, mode="overwrite", partition_overwrite="dynamic")
    # An empty text is null in partition values, so the fourth row was in the partition of nulls.
    assert by_headwater(spark, path) == [(1, "a"), (5, "b"), (6, None)]


def test_dynamic_overwrite_without_rows_replaces_nothing(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path, partition_by="p")
    hw.write(pairs(spark, (2, "a")).where("false"), path, mode="overwrite", partition_overwrite="dynamic")
    assert by_all(spark, path) == [(1, "a")]


def test_the_setting_of_the_session_makes_overwrites_dynamic(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b")), path, partition_by="p")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        hw.write(pairs(spark, (3, "a")), path, mode="overwrite")
        assert by_all(spark, path) == [(2, "b"), (3, "a")]
        hw.write(pairs(spark, (4, "a")), path, mode="overwrite", partition_overwrite="static")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert by_all(spark, path) == [(4, "a")]


def test_partitions_are_compared_by_value_not_by_text(spark: SparkSession, path: str) -> None:
    at = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)
    table = DeltaTable(Path(path), field("id", "long"), field("at", "timestamp"), partition_columns=("at",))
    table.append(pa.table({"id": [1]}), partitionValues={"at": "2024-01-31 12:00:00"})
    table.append(pa.table({"id": [2]}), partitionValues={"at": "2024-01-31T12:00:00.000000Z"})
    table.append(pa.table({"id": [3]}), partitionValues={"at": "2024-01-31 12:00:01"})
    frame = spark.createDataFrame([(9, at)], "id long, at timestamp")
    hw.write(frame, path, mode="overwrite", partition_overwrite="dynamic")
    assert [row[0] for row in by_headwater(spark, path)] == [3, 9]


def test_partitions_of_several_columns(spark: SparkSession, path: str) -> None:
    rows = [(i, i % 2, float(i % 3)) for i in range(6)]
    frame = spark.createDataFrame(rows, "id long, a int, b double")
    hw.write(frame, path, partition_by=["a", "b"])
    hw.write(frame.where("id = 4").selectExpr("id + 100 AS id", "a", "b"), path, mode="overwrite",
             partition_overwrite="dynamic")  # fmt: skip
    assert [row[0] for row in by_all(spark, path)] == [0, 1, 104, 2, 3, 5]


def test_concurrent_writers_of_other_partitions_do_not_conflict(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b")), path, partition_by="p")
    interrupted(monkeypatch, lambda: hw.write(pairs(spark, (3, "b")), path, mode="append"))
    hw.write(pairs(spark, (4, "a")), path, mode="overwrite", partition_overwrite="dynamic")
    assert by_all(spark, path) == [(2, "b"), (3, "b"), (4, "a")]
    interrupted(monkeypatch, lambda: hw.write(pairs(spark, (5, "a")), path, mode="append"))
    with pytest.raises(ConcurrentAppendException):
        hw.write(pairs(spark, (6, "a")), path, mode="overwrite", partition_overwrite="dynamic")


# --- replace_where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["p = 'b'", "p >= 'b' AND P < 'c'", "upper(p) = 'B'", "p IN ('b', 'z')"])
def test_a_condition_on_partitions_removes_files_and_reads_none(spark: SparkSession, path: str, where: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, None)), path, partition_by="p")
    result = hw.write(pairs(spark, (9, "b")), path, mode="overwrite", replace_where=where)
    assert result is not None
    assert (result.metrics["numRemovedFiles"], result.metrics["numFiles"]) == (1, 1)
    assert result.metrics["numDeletedRows"] == 2
    assert by_all(spark, path) == [(1, "a"), (4, "c"), (5, None), (9, "b")]


@pytest.mark.parametrize("partition_by", [None, "p"])
def test_a_condition_on_data_rewrites_the_files_that_match(
    spark: SparkSession, path: str, partition_by: str | None
) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "a"), (3, "a")), path, partition_by=partition_by)
    hw.write(pairs(spark, (11, "a"), (12, "a")), path, mode="append")
    hw.write(spark.createDataFrame([(None, "n")], "id long, p string"), path, mode="append")
    result = hw.write(pairs(spark, (2, "new")), path, mode="overwrite", replace_where="id BETWEEN 2 AND 5")
    assert result is not None
    assert (result.metrics["numRemovedFiles"], result.metrics["numCopiedRows"]) == (1, 1)
    assert result.metrics["numDeletedRows"] == 2
    assert by_all(spark, path) == [(1, "a"), (11, "a"), (12, "a"), (2, "new"), (None, "n")]


def test_only_files_with_a_matching_row_are_touched(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (9, "a")), path)
    hw.write(pairs(spark, (2, "a"), (8, "a")), path, mode="append")
    hw.write(pairs(spark, (8, "b")), path, mode="overwrite", replace_where="abs(id) = 8")
    assert len(actions(path, "remove")) == 1
    assert by_all(spark, path) == [(1, "a"), (2, "a"), (8, "b"), (9, "a")]


def test_rows_that_were_deleted_stay_deleted(spark: SparkSession, path: str) -> None:
    table = DeltaTable(Path(path), field("id", "long"), features=("deletionVectors",))
    table.append(pa.table({"id": [1, 2, 3]}), deletionVector=inline_vector([1]))
    hw.write(spark.sql("SELECT 3L AS id"), path, mode="overwrite", replace_where="id = 3")
    assert by_headwater(spark, path) == [(1,), (3,)]
    assert by_duckdb(path) == [(1,), (3,)]
    [remove] = actions(path, "remove")
    assert remove["deletionVector"]["cardinality"] == 1


def test_rows_that_do_not_match_the_condition_are_refused(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path, partition_by="p")
    for rows in ([(2, "b")], [(2, None)]):
        with pytest.raises(ConstraintViolationError, match=r"replace_where.*\(p = 'a'\)"):
            hw.write(pairs(spark, *rows), path, mode="overwrite", replace_where="p = 'a'")
    assert hw.open_log(path).version == 0


def test_conditions_that_are_none(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path)
    with pytest.raises(ColumnNotFoundError, match="nothing"):
        hw.write(pairs(spark, (1, "a")), path, mode="overwrite", replace_where="nothing = 1")
    with pytest.raises(hw.FilterError):
        hw.write(pairs(spark, (1, "a")), path, mode="overwrite", replace_where="id = ")


def test_a_concurrent_append_that_may_match_conflicts(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw.write(pairs(spark, (1, "a"), (20, "a")), path)
    interrupted(monkeypatch, lambda: hw.write(pairs(spark, (30, "b")), path, mode="append"))
    hw.write(pairs(spark, (2, "a")), path, mode="overwrite", replace_where="id < 10")
    assert by_all(spark, path) == [(2, "a"), (20, "a"), (30, "b")]
    interrupted(monkeypatch, lambda: hw.write(pairs(spark, (5, "b")), path, mode="append"))
    with pytest.raises(ConcurrentAppendException):
        hw.write(pairs(spark, (2, "a")), path, mode="overwrite", replace_where="id < 10")


def test_row_ids_survive_a_rewrite(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "a"), (3, "a")), path, properties={"delta.enableRowTracking": "true"})
    before = {row.id: row._row_id for row in hw.read(spark, path, row_tracking=True).collect()}
    hw.write(pairs(spark, (2, "b")), path, mode="overwrite", replace_where="id = 2")
    after = {row.id: (row._row_id, row._row_commit_version) for row in
             hw.read(spark, path, row_tracking=True).collect()}  # fmt: skip
    assert after[1] == (before[1], 0)
    assert after[3] == (before[3], 0)
    assert after[2] not in {(i, 0) for i in before.values()}
    assert hw.open_log(path).history(1)[0].commit_info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert by_duckdb(path) == [(1, "a"), (2, "b"), (3, "a")]
    names = {key for stats in hw.open_log(path).files().column("stats").to_pylist()
             for key in json.loads(stats)["nullCount"]}  # fmt: skip
    assert names == {"id", "p"}


def test_row_ids_survive_a_rewrite_of_files_whose_columns_are_found_by_id(spark: SparkSession, path: str) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.columnMapping.mode": "id"}
    hw.write(pairs(spark, (1, "a"), (2, "a"), (3, "a")), path, properties=properties)
    hw.write(pairs(spark, (1, "b")), path, mode="overwrite", replace_where="id = 1")
    after = {row.id: row._row_id for row in hw.read(spark, path, row_tracking=True).collect()}
    assert (after[2], after[3]) == (1, 2)
    assert hw.open_log(path).history(1)[0].commit_info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert by_duckdb(path) == [(1, "b"), (2, "a"), (3, "a")]


def test_changes_are_recorded(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "a")), path, properties={"delta.enableChangeDataFeed": "true"})
    hw.write(pairs(spark, (2, "b")), path, mode="overwrite", replace_where="id = 2")
    changes = hw.read_changes(spark, path, starting_version=1).collect()
    assert {(row.id, row.p, row._change_type) for row in changes} == {(2, "a", "delete"), (2, "b", "insert")}
    assert all(action["path"].startswith("_change_data/") for action in actions(path, "cdc"))


# --- rearranging ----------------------------------------------------------------------------------------------------


def test_rows_can_be_rearranged_without_changing_data(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a")), path)
    hw.write(pairs(spark, (2, "b")), path, mode="append")
    result = hw.write(hw.read(spark, path).coalesce(1), path, mode="overwrite", data_change=False)
    assert result is not None
    assert result.metrics["numFiles"] == 1
    assert not any(action["dataChange"] for kind in ("add", "remove") for action in actions(path, kind))
    assert by_all(spark, path) == [(1, "a"), (2, "b")]


def test_rows_do_not_vanish_by_rearranging(spark: SparkSession, path: str) -> None:
    hw.write(pairs(spark, (1, "a"), (2, "b")), path)
    with pytest.raises(InvalidCommitError, match="dataChange"):
        hw.write(pairs(spark, (1, "a")), path, mode="overwrite", data_change=False)


def test_rearranging_does_not_fight_appends(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(path, pa.table({"id": [1], "p": ["a"]}))
    interrupted(monkeypatch, lambda: hw.write(pairs(spark, (2, "b")), path, mode="append"))
    hw.write(hw.read(spark, path), path, mode="overwrite", data_change=False)
    assert by_all(spark, path) == [(1, "a"), (2, "b")]
