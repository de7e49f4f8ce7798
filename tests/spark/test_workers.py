"""Rows reach the wanted number of tasks, workers freeze their objects once, and parallel jobs can be stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headwater.spark import workers
from headwater.spark.scan.python import _MERGED_ROWS, _merged
from headwater.spark.workers import (
    ParallelJobs,
    distribute,
    in_workers,
    packed,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = pa.table({"row": pa.array(range(11), pa.int64())})


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("num_tasks", [1, 2, 3, 7, 11, 50])
def test_rows_are_dealt_out_to_so_many_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, private: bool, is_local: bool, num_tasks: int
) -> None:
    if not is_local:
        monkeypatch.setattr(workers, "_LOCAL_BYTES", 0)
    before = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)

    hands = distribute(spark, ROWS, num_tasks, private=private).rdd.glom().collect()

    assert sorted(row["row"] for hand in hands for row in hand) == list(range(11))
    sizes = [len(hand) for hand in hands]
    assert len(sizes) == min(num_tasks, 11)
    by_itself = is_local and (private or num_tasks == workers.core_count(spark))
    assert max(sizes) - min(sizes) <= (1 if by_itself else 2)
    assert spark.conf.get("spark.sql.leafNodeDefaultParallelism", None) == before


def test_the_first_rows_are_in_different_hands(spark: SparkSession) -> None:
    """The largest come first: they must not all be for one task."""
    hands = distribute(spark, ROWS, 3, private=True).rdd.glom().collect()
    assert sorted(min(row["row"] for row in hand) for hand in hands) == [0, 1, 2]


def test_a_setting_of_the_user_decides_how_many_partitions_there_are_by_themselves(spark: SparkSession) -> None:
    private = spark.newSession()
    private.conf.set("spark.sql.leafNodeDefaultParallelism", "5")
    assert [distribute(private, ROWS, number).rdd.getNumPartitions() for number in (2, 5, 9)] == [2, 5, 9]


def test_workers_take_their_modules_out_of_garbage_collection(spark: SparkSession) -> None:
    def count(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        yield pa.record_batch({"frozen": pa.array([gc.get_freeze_count()], pa.int64())})

    [row] = in_workers(distribute(spark, ROWS, 1), count, "frozen long").collect()
    assert row.frozen > 10_000


def test_packed_rows_come_back_as_they_were() -> None:
    assert unpacked(packed(ROWS).column(0)[0].as_py()) == ROWS
    assert unpacked(packed(ROWS.to_batches()[0]).column(0)[0].as_buffer()) == ROWS


def test_tiny_batches_are_put_together_and_large_ones_stay() -> None:
    tiny = [pa.record_batch({"n": pa.array([number], pa.int64())}) for number in range(5)]
    large = pa.record_batch({"n": pa.array(range(_MERGED_ROWS), pa.int64())})

    found = list(_merged(iter([large, *tiny[:3], large, *tiny[3:]])))

    assert [batch.num_rows for batch in found] == [_MERGED_ROWS, _MERGED_ROWS + 3, 2]
    assert found[0] is large
    assert pa.Table.from_batches(found) == pa.Table.from_batches([large, *tiny[:3], large, *tiny[3:]])


def test_wide_rows_are_not_put_together_without_end() -> None:
    wide = [pa.record_batch({"n": pa.array(["x" * 700_000])}) for _ in range(5)]
    assert [batch.num_rows for batch in _merged(iter(wide))] == [2, 2, 1]


# --- jobs beside each other ------------------------------------------------------------------------------


def test_jobs_beside_each_other_have_the_local_properties_of_their_caller(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("headwater.test", "mine")
    try:
        with ParallelJobs(spark, "test", 2) as jobs:
            found = [jobs.submit(lambda: context.getLocalProperty("headwater.test")) for _ in range(3)]
            counted = jobs.submit(lambda: spark.range(7).count())
            assert [one.result() for one in found] == ["mine"] * 3
            assert counted.result() == 7
    finally:
        context.setLocalProperty("headwater.test", None)


def test_an_error_stops_the_jobs_that_still_run(spark: SparkSession) -> None:
    def sleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        time.sleep(120)
        yield from batches

    futures = []

    def fail() -> None:
        with ParallelJobs(spark, "test", 1) as jobs:
            futures.append(jobs.submit(lambda: spark.range(1).mapInArrow(sleep, "id long").count()))
            futures.append(jobs.submit(lambda: 1))
            time.sleep(0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    running, waiting = futures
    assert "cancelled" in str(running.exception()), "it would have slept much longer, and then succeeded"
    assert waiting.cancelled()
