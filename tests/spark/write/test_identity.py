"""Identity columns in tables: values are unique across writes and writers, and the mark is kept in the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.errors import ConstraintViolationError
from headwater.spark.write import write as write_attempt
from support.oracles.reader_votes import by_all, by_headwater
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MARK = "delta.identity.highWaterMark"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def counting(path: str, *more: dict[str, Any], start: int = 1, step: int = 1, explicit: bool = False) -> None:
    metadata = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": explicit,
    }
    columns = (*more, field("id", "long", **metadata), field("x", "long"))
    DeltaTable(Path(path), *columns, writer_features=("identityColumns",))


def xs(spark: SparkSession, count: int, partitions: int = 1) -> Any:
    return spark.range(0, count, 1, partitions).withColumnRenamed("id", "x")


def mark(path: str) -> int:
    value: int = hw.open_log(path).schema.field("id").metadata[MARK]
    return value


def test_writes_go_on_where_the_last_one_ended(spark: SparkSession, path: str) -> None:
    counting(path, start=10, step=5)
    hw.write(xs(spark, 2), path, mode="append")
    assert mark(path) == 15
    hw.write(xs(spark, 2), path, mode="append")
    assert by_all(spark, path) == [(10, 0), (15, 1), (20, 0), (25, 1)]
    assert mark(path) == 25


def test_counting_down(spark: SparkSession, path: str) -> None:
    counting(path, start=0, step=-1)
    hw.write(xs(spark, 3), path, mode="append")
    assert mark(path) == -2
    hw.write(xs(spark, 1), path, mode="append")
    assert sorted(row[0] for row in by_headwater(spark, path)) == [-3, -2, -1, 0]


def test_many_tasks_never_share_a_value(spark: SparkSession, path: str) -> None:
    counting(path)
    for _ in range(2):
        hw.write(xs(spark, 100, 8), path, mode="append")
    values = [row[0] for row in by_headwater(spark, path)]
    assert len(set(values)) == 200
    assert mark(path) == max(values)


def test_the_mark_is_known_for_columns_without_statistics(spark: SparkSession, path: str) -> None:
    counting(path, *(field(f"c{i}", "long") for i in range(40)))
    hw.write(xs(spark, 3), path, mode="append")
    assert mark(path) == 3


def test_an_empty_write_leaves_the_mark_alone(spark: SparkSession, path: str) -> None:
    counting(path)
    hw.write(xs(spark, 0), path, mode="append")
    assert MARK not in hw.open_log(path).schema.field("id").metadata


def test_values_of_ones_own(spark: SparkSession, path: str) -> None:
    counting(path, explicit=True)
    hw.write(spark.sql("SELECT 7L AS id, 0L AS x"), path, mode="append")
    assert MARK not in hw.open_log(path).schema.field("id").metadata
    assert by_all(spark, path) == [(7, 0)]


def test_values_of_ones_own_are_refused_where_the_table_counts(spark: SparkSession, path: str) -> None:
    counting(path)
    with pytest.raises(ConstraintViolationError, match=r"df\.drop\('id'\)"):
        hw.write(spark.sql("SELECT 7L AS id, 0L AS x"), path, mode="append")
    assert hw.open_log(path).version == 0


def test_rearranging_keeps_the_values(spark: SparkSession, path: str) -> None:
    counting(path)
    hw.write(xs(spark, 4, 2), path, mode="append")
    before = by_headwater(spark, path)
    hw.write(hw.read(spark, path).coalesce(1), path, mode="overwrite", data_change=False)
    assert by_headwater(spark, path) == before


def test_concurrent_writers_never_give_out_the_same_value(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting(path)
    original = write_attempt.write_files
    rivals = iter(range(3))

    def write_files(*arguments: Any) -> Any:
        files = original(*arguments)
        for _ in rivals:  # three times another writer commits between our files and our commit
            monkeypatch.setattr(write_attempt, "write_files", original)
            hw.write(xs(spark, 2), path, mode="append")
            monkeypatch.setattr(write_attempt, "write_files", write_files)
            break
        return files

    monkeypatch.setattr(write_attempt, "write_files", write_files)
    result = hw.write(xs(spark, 2), path, mode="append")
    assert result is not None
    assert result.version == 4
    values = [row[0] for row in by_headwater(spark, path)]
    assert sorted(values) == list(range(1, 9))
    assert mark(path) == 8


def test_a_writer_that_always_loses_gives_up(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.errors import MetadataChangedException
    from headwater.spark.write import write as module

    counting(path)
    monkeypatch.setattr(module, "_MAX_REWRITES", 2)
    original = write_attempt.write_files

    def write_files(*arguments: Any) -> Any:
        files = original(*arguments)
        monkeypatch.setattr(write_attempt, "write_files", original)
        hw.write(xs(spark, 1), path, mode="append")
        monkeypatch.setattr(write_attempt, "write_files", write_files)
        return files

    monkeypatch.setattr(write_attempt, "write_files", write_files)
    with pytest.raises(MetadataChangedException):
        hw.write(xs(spark, 1), path, mode="append")
    assert sorted(row[0] for row in by_headwater(spark, path)) == [1, 2]
