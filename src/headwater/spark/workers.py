"""Run work in Spark's Python workers and in parallel jobs, and describe ranges of data files for them.

Two costs of a task beside its work are kept small. A few rows that the driver has reach the tasks without a shuffle:
Spark cuts local data into as many partitions as it has cores, or as a setting says. And between two tasks a worker
collects garbage among all its objects, most of them modules: `freeze_gc_once` excludes them.
"""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from headwater.log.schema.types import hidden
from headwater.parquet.read import END, PATH, SIZE, START
from headwater.spark.functions import (
    default_parallelism,
    interrupt_jobs,
    jvm_session,
    tagged_jobs,
    with_local_properties,
)
from headwater.spark.session import in_private_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession

    Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


_PARTITIONS_SETTING = "spark.sql.leafNodeDefaultParallelism"
_BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_SMALL_BATCH_BYTES = 4 * 2**20
_LOCAL_BYTES = 16 * 2**20
"""Spark may not treat larger data as local."""
_UNKNOWN_CORES = 8
_NOT_PLAIN = frozenset("`.*")
"""`DataFrame.__getitem__` gives these characters a meaning."""


def in_workers(frame: DataFrame, work: Work, schema: Any) -> DataFrame:
    """Do what `mapInArrow` does, for any column names, in workers whose garbage collector is frozen."""

    names = frame.columns
    is_odd = any(not _NOT_PLAIN.isdisjoint(name) for name in names)

    @wraps(work)
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        return work((batch.rename_columns(names) for batch in batches) if is_odd else batches)

    # PySpark looks the columns up by name, and takes names with dots for paths.
    return (frame.toDF(*map(str, range(len(names)))) if is_odd else frame).mapInArrow(run, schema)


def in_small_batches(job: DataFrame) -> DataFrame:
    """Let Spark cut the batches of a job by few bytes, so that a worker begins before Spark has all packs."""
    return in_private_session(job, {_BATCH_BYTES_SETTING: str(_SMALL_BATCH_BYTES)})


PACKED_SCHEMA = "rows binary"


def packed(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Pack many rows into one value of `PACKED_SCHEMA`, which Spark only moves."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    data = sink.getvalue()
    offsets = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])], names=["rows"])


def unpacked(data: bytes | bytearray | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


@contextmanager
def jemalloc_pool() -> Iterator[None]:
    """Let Arrow allocate from jemalloc, which keeps memory; other allocators return it, and get it zeroed again."""
    before = pa.default_memory_pool()
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


_is_frozen = False


def freeze_gc_once() -> None:
    """Exclude all objects that this worker has from garbage collection, at the first call."""
    global _is_frozen
    if not _is_frozen:
        gc.freeze()
        _is_frozen = True


def core_count(spark: SparkSession) -> int:
    """Return how many tasks run at a time; a guess on Spark Connect, which does not tell."""
    known = default_parallelism(spark)
    return _UNKNOWN_CORES if known is None else max(1, known)


def distribute(
    spark: SparkSession, table: pa.Table, num_tasks: int, *, private: bool = False, in_runs: bool = False
) -> DataFrame:
    """Distribute rows that the driver has over tasks, in turn.

    Args:
        spark: the session, of either kind.
        table: the rows.
        num_tasks: how many tasks share them.
        private: the DataFrame is for a job of ours, and no user ever sees it.
        in_runs: rather let each task have rows that follow each other, where that costs nothing.
    """
    num_tasks = min(num_tasks, max(1, table.num_rows))
    is_local = jvm_session(spark) is not None and table.nbytes <= _LOCAL_BYTES
    is_enough = is_local and num_tasks == _local_partitions(spark, table)
    if not is_enough and not (is_local and private):
        # One partition first: what comes from a single one is distributed evenly.
        return spark.createDataFrame(table).coalesce(1).repartition(num_tasks)
    frame = spark.createDataFrame(table if in_runs else _in_slices(table, num_tasks))
    return frame if is_enough else in_private_session(frame, {_PARTITIONS_SETTING: str(num_tasks)})


def _local_partitions(spark: SparkSession, table: pa.Table) -> int:
    """Return how many partitions Spark makes of local data by itself."""
    text = spark.conf.get(_PARTITIONS_SETTING, None)
    return int(min(max(1, table.num_rows), int(text) if text else core_count(spark)))


def _in_slices(table: pa.Table, num_slices: int) -> pa.Table:
    """Order rows so that slices of equal length hold what distributing in turn gives them.

    >>> import pyarrow as pa
    >>> _in_slices(pa.table({"row": [0, 1, 2, 3, 4]}), 2)["row"].to_pylist()
    [1, 3, 0, 2, 4]
    """
    count = table.num_rows
    bounds = [number * count // num_slices for number in range(num_slices + 1)]
    longer, shorter = iter(range(count % num_slices)), iter(range(count % num_slices, num_slices))
    owners = [next(longer if end - start > count // num_slices else shorter) for start, end in pairwise(bounds)]
    return table.take(pa.array(np.concatenate([np.arange(owner, count, num_slices) for owner in owners])))


_T = TypeVar("_T")
_PATIENCE_S = 0.2


class ParallelJobs:
    """Threads that run Spark jobs, within a context. If the context ends by an error, all jobs are stopped."""

    def __init__(self, spark: SparkSession, name: str, max_threads: int) -> None:
        self._spark = spark
        self._tag = f"headwater-{name}-{uuid4()}"
        self._pool = ThreadPoolExecutor(max_threads, f"headwater-{name}")
        self._running: list[Future[Any]] = []

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Run jobs in a thread, with the local properties of this one (scheduler pool, job group)."""
        spark, tag = self._spark, self._tag

        def tagged() -> _T:
            with tagged_jobs(spark, tag):
                return work()

        future = self._pool.submit(copy_context().run, with_local_properties(spark, tagged))
        self._running = [*(one for one in self._running if not one.done()), future]
        return future

    def __enter__(self) -> ParallelJobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._stop()
        finally:
            self._pool.shutdown()

    def _stop(self) -> None:
        """Stop all jobs, repeatedly: one may be about to start."""
        for future in self._running:
            future.cancel()
        while wait(self._running, timeout=_PATIENCE_S).not_done:
            interrupt_jobs(self._spark, self._tag)


ONLY_COLUMN = hidden("only_rows")
"""A column of file ranges: a deletion vector whose rows alone count, or null."""


class FileRange(NamedTuple):
    """Row groups of a file that begin between two offsets; `values` has partition values, deletion vectors and more.

    `size_bytes` is the size of the whole file.
    """

    uri: str
    size_bytes: int
    start: int
    end: int
    values: dict[str, pa.Scalar]

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.end >= self.size_bytes


def file_ranges(batch: pa.RecordBatch) -> Iterator[FileRange]:
    plain = (PATH, SIZE, START, END)
    others = {name: batch.column(name) for name in batch.schema.names if name not in plain}
    columns = [batch.column(name).to_pylist() for name in plain]
    for position, (uri, size_bytes, start, end) in enumerate(zip(*columns, strict=True)):
        yield FileRange(uri, size_bytes, start, end, {name: column[position] for name, column in others.items()})


@dataclass(frozen=True)
class RowMask:
    """Which rows of a file count: all, or only some; never the deleted ones."""

    deleted: BitMap64 | None
    only: BitMap64 | None

    def has_rows(self, start: int, end: int) -> bool:
        """Say whether any row from `start` to before `end` may count: others need not be decoded."""
        return self.only is None or bool(self.only.range_cardinality(start, end))

    def of(self, batch: pa.RecordBatch, first_row: int, *, located: bool) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Return the rows of a batch that count, and (if `located`) their positions; it starts at `first_row`."""
        if self.only is None and self.deleted is None and not located:
            return batch, None
        from pyroaring import BitMap64

        every = BitMap64(range(first_row, first_row + batch.num_rows))
        rows = every if self.only is None else every & self.only
        rows = rows if self.deleted is None else rows - self.deleted
        positions = _as_array(rows)
        if len(rows) == batch.num_rows:
            return batch, positions
        places = pa.compute.subtract(positions, first_row)
        if 2 * len(rows) < batch.num_rows:
            return batch.take(places), positions
        mask = np.zeros(batch.num_rows, bool)  # quicker than to gather most of the rows
        mask[places.to_numpy()] = True
        return batch.filter(pa.array(mask)), positions


def _as_array(rows: BitMap64) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.to_array())])
