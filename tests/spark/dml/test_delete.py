"""DELETE: what is read, what is written, what the history says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

import headwater as hw
from headwater.errors import ConcurrentAppendException, DeltaConcurrentModificationException, InvalidCommitError
from headwater.spark.dml import delete as delete_module
from support.oracles.reader_votes import by_all, by_duckdb
from support.tables.dml_tables import Row, actions, metrics, rows_of, write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def row(i: int, p: str | None = "a") -> Row:
    return Row(i, p, "x", i, i)


def history(path: str) -> tuple[str | None, object]:
    commit = hw.open_log(path).history(1)[0]
    return commit.operation, commit.operation_parameters


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run something between a command's look at the table and its commit, once."""
    original = delete_module.find_touched

    def find_touched(*arguments: object) -> object:
        monkeypatch.setattr(delete_module, "find_touched", original)
        found = original(*arguments)  # type: ignore[arg-type]
        action()
        return found

    monkeypatch.setattr(delete_module, "find_touched", find_touched)


def test_a_condition_on_partitions_reads_no_data(spark: SparkSession, path: str) -> None:
    write_table(spark, path, [row(1), row(2, "b"), row(3, "b"), row(4, None)], partitioned=True, tasks=1)
    for file in Path(path).rglob("*.parquet"):
        file.unlink()
    table = hw.DeltaTable.forPath(spark, path)
    table.delete("upper(p) = 'B' AND 1 = 1")
    assert metrics(path) == {"numRemovedFiles": 1, "numDeletedRows": 2}
    assert history(path) == ("DELETE", {"predicate": "[\"upper(p) = 'B' AND 1 = 1\"]"})
    table.delete(sf.col("p").isNull())
    assert metrics(path) == {"numRemovedFiles": 1, "numDeletedRows": 1}
    table.delete()
    assert metrics(path) == {"numRemovedFiles": 1, "numDeletedRows": 1}
    assert hw.open_log(path).num_files == 0
    assert history(path) == ("DELETE", {"predicate": '["true"]'})


def test_only_files_that_may_match_are_read(spark: SparkSession, path: str) -> None:
    write_table(spark, path, [row(1), row(2)], [row(11), row(12)], [row(21), row(22)])
    files = hw.open_log(path).files("id > 20").column("path").to_pylist()
    for file in set(hw.open_log(path).files().column("path").to_pylist()) - set(files):
        Path(path, file).rename(Path(path, f"{file}.away"))
    hw.DeltaTable.forPath(spark, path).delete("id > 21")
    assert metrics(path) == {"numRemovedFiles": 1, "numDeletedRows": 1}  # every row of a file: nothing is copied
    for away in Path(path).glob("*.away"):
        away.rename(away.with_suffix(""))
    assert [r.id for r in rows_of(hw.read(spark, path))] == [1, 11, 12, 2, 21]


def test_without_vectors_files_are_written_again(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT id, id AS v FROM range(4)").coalesce(1)
    hw.write(frame, path)
    hw.DeltaTable.forPath(spark, path).delete((sf.col("id") == 2) | sf.lit(None))
    assert metrics(path) == {"numRemovedFiles": 1, "numAddedFiles": 1, "numDeletedRows": 1, "numCopiedRows": 3}
    assert by_all(spark, path) == [(0, 0), (1, 1), (3, 3)]


def test_with_vectors_rows_are_marked(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT id, id AS v FROM range(6)").coalesce(1)
    hw.write(frame, path, properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    table = hw.DeltaTable.forPath(spark, path)
    table.delete("id = 1")
    assert metrics(path) == {"numDeletedRows": 1, "numDeletionVectorsAdded": 1}
    table.delete("id IN (1, 2, 4)")
    assert metrics(path) == {
        "numDeletedRows": 2,
        "numDeletionVectorsAdded": 1,
        "numDeletionVectorsRemoved": 1,
        "numDeletionVectorsUpdated": 1,
    }
    assert not actions(path, "cdc")
    assert by_duckdb(path) == [(0, 0), (3, 3), (5, 5)]
    assert sorted(r.id for r in hw.read_changes(spark, path, 2).collect()) == [2, 4]
    table.delete("id >= 0")
    assert metrics(path) == {"numRemovedFiles": 1, "numDeletedRows": 3, "numDeletionVectorsRemoved": 1}


def test_nothing_is_committed_if_no_row_matches(spark: SparkSession, path: str) -> None:
    write_table(spark, path, [row(1), row(2)])
    table = hw.DeltaTable.forPath(spark, path)
    table.delete("id > 100")
    table.delete("id = 1 AND v = 'nothing'")
    table.delete("false")
    assert hw.open_log(path).version == 0


def test_append_only_tables_keep_their_rows(spark: SparkSession, path: str) -> None:
    write_table(spark, path, [row(1)], appendOnly="true")
    table = hw.DeltaTable.forPath(spark, path)
    with pytest.raises(InvalidCommitError, match=r"DELETE.*Nothing was changed"):
        table.delete("id = 1")
    with pytest.raises(InvalidCommitError, match="UPDATE"):
        table.update(set={"v": "'y'"})


def test_rows_that_others_add_meanwhile_conflict_only_if_they_may_match(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(spark, path, [row(1), row(2)], [row(11), row(12)])
    table = hw.DeltaTable.forPath(spark, path)
    meanwhile(monkeypatch, lambda: write_table(spark, path, [row(30)]))
    table.delete("id = 1")
    meanwhile(monkeypatch, lambda: hw.DeltaTable.forPath(spark, path).delete("id = 11"))
    table.delete("id < 5 AND v = 'x'")
    assert [r.id for r in rows_of(table.toDF())] == [12, 30]
    meanwhile(monkeypatch, lambda: write_table(spark, path, [row(13)]))
    with pytest.raises(ConcurrentAppendException):
        table.delete("id > 11")


def test_different_rows_of_one_file_are_deleted_at_the_same_time(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.sql("SELECT id, id AS v FROM range(6)").coalesce(1)
    hw.write(frame, path, properties={"delta.enableDeletionVectors": "true"})
    table = hw.DeltaTable.forPath(spark, path)
    meanwhile(monkeypatch, lambda: table.delete("id = 1"))
    table.delete("id = 2")
    assert by_duckdb(path) == [(0, 0), (3, 3), (4, 4), (5, 5)]
    meanwhile(monkeypatch, lambda: table.delete("id = 3"))
    with pytest.raises(DeltaConcurrentModificationException):
        table.delete("id IN (3, 4)")
    assert by_duckdb(path) == [(0, 0), (4, 4), (5, 5)]


def test_a_missing_data_file_is_named(spark: SparkSession, path: str) -> None:
    write_table(spark, path, [row(1), row(2)])
    for file in Path(path).glob("*.parquet"):
        shutil.move(file, f"{file}.away")
    with pytest.raises(Exception, match="is gone"):
        hw.DeltaTable.forPath(spark, path).delete("id = 1 AND v = 'x'")
    assert hw.open_log(path).version == 0
