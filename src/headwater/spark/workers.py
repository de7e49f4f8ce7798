"""Work for Spark's Python workers: a table of tasks is dealt out to them, and a function gets what each one has.

Both halves of what a task costs beside its work are kept small. Few rows that the driver has need no shuffle to reach
the tasks: Spark cuts local data into as many partitions as it has cores, or as a setting says. And between two tasks a
worker collects garbage among all objects that it has, most of them modules: they are taken out of that once.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.spark.functions import is_connect
from headwater.spark.private_session import in_private_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PARTITIONS_SETTING = "spark.sql.leafNodeDefaultParallelism"
_BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNWEIGHED_ROWS = 4_000
_SMALL_BATCH_BYTES = 4 * 2**20
_LOCAL_BYTES = 16 * 2**20
"""More than that might not be local data for Spark."""
_UNKNOWN_CORES = 8
_NOT_PLAIN = frozenset("`.*")
"""Names with these mean something else to `DataFrame.__getitem__`."""


def in_workers(frame: DataFrame, work: Work, schema: Any) -> DataFrame:
    """`mapInArrow`, by workers that are settled.

    Args:
        frame: the rows that the function gets.
        work: the function.
        schema: of its result: one of Spark's, or DDL.
    """

    names = frame.columns
    is_odd = any(not _NOT_PLAIN.isdisjoint(name) for name in names)

    @wraps(work)
    def settled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        return work((batch.rename_columns(names) for batch in batches) if is_odd else batches)

    # PySpark looks the columns up by name, and takes names with dots for paths.
    return (frame.toDF(*map(str, range(len(names)))) if is_odd else frame).mapInArrow(settled, schema)


def unweighed(job: DataFrame) -> DataFrame:
    """A job for whose workers batches are cut by the number of rows alone, which are `UNWEIGHED_ROWS`.

    Spark weighs a batch after each row that it adds, to cut it by its bytes; that takes as long as adding the row. Only
    for rows of which none is large: batches are held in memory.
    """
    if is_connect(job):
        return job
    return in_private_session(job, {_BATCH_BYTES_SETTING: str(2**31 - 1), _BATCH_ROWS_SETTING: str(UNWEIGHED_ROWS)})


def in_small_batches(job: DataFrame) -> DataFrame:
    """A job for whose workers batches have few bytes: a worker that gets packs begins before Spark has all of them."""
    return job if is_connect(job) else in_private_session(job, {_BATCH_BYTES_SETTING: str(_SMALL_BATCH_BYTES)})


PACKED_SCHEMA = "rows binary"


def packed(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Many rows as one of `PACKED_SCHEMA`, for tasks whose rows are none of Spark's business."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    data = sink.getvalue()
    offsets = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])], names=["rows"])


def unpacked(data: bytes | bytearray | pa.Buffer) -> pa.Table:
    """The rows that were packed."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


@contextmanager
def thrifty_memory() -> Iterator[None]:
    """Let Arrow take memory from an allocator that keeps it; others give it back, and get it zeroed again."""
    before = pa.default_memory_pool()
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


_is_settled = False


def settle() -> None:
    """Take all objects that this worker has by now out of garbage collection, the first time that it is called."""
    global _is_settled
    if not _is_settled:
        gc.freeze()
        _is_settled = True


def core_count(spark: SparkSession) -> int:
    """How many tasks run at a time; a guess on Spark Connect, which does not tell."""
    return _UNKNOWN_CORES if is_connect(spark) else max(1, int(spark.sparkContext.defaultParallelism))


def dealt(
    spark: SparkSession, table: pa.Table, num_tasks: int, *, private: bool = False, in_runs: bool = False
) -> DataFrame:
    """Rows that the driver has, dealt out to tasks, one after the other.

    Args:
        spark: the session, of either kind.
        table: the rows.
        num_tasks: how many tasks share them.
        private: the DataFrame is for a job of ours, and no user ever sees it.
        in_runs: rather let each task have rows that follow each other, where that costs nothing.
    """
    num_tasks = min(num_tasks, max(1, table.num_rows))
    is_local = not is_connect(spark) and table.nbytes <= _LOCAL_BYTES
    is_enough = is_local and num_tasks == _local_partitions(spark, table)
    if not is_enough and not (is_local and private):
        # One partition first: what comes from a single one is dealt out evenly.
        return spark.createDataFrame(table).coalesce(1).repartition(num_tasks)
    frame = spark.createDataFrame(table if in_runs else _in_slices(table, num_tasks))
    return frame if is_enough else in_private_session(frame, {_PARTITIONS_SETTING: str(num_tasks)})


def _local_partitions(spark: SparkSession, table: pa.Table) -> int:
    """How many partitions Spark makes of local data by itself."""
    text = spark.conf.get(_PARTITIONS_SETTING, None)
    return int(min(max(1, table.num_rows), int(text) if text else core_count(spark)))


def _in_slices(table: pa.Table, num_slices: int) -> pa.Table:
    """The rows in an order in which slices of equal length hold what dealing would give them.

    >>> import pyarrow as pa
    >>> _in_slices(pa.table({"row": [0, 1, 2, 3, 4]}), 2)["row"].to_pylist()
    [1, 3, 0, 2, 4]
    """
    count = table.num_rows
    bounds = [number * count // num_slices for number in range(num_slices + 1)]
    longer, shorter = iter(range(count % num_slices)), iter(range(count % num_slices, num_slices))
    hands = [next(longer if end - start > count // num_slices else shorter) for start, end in pairwise(bounds)]
    return table.take(pa.array(np.concatenate([np.arange(hand, count, num_slices) for hand in hands])))
