"""The splits of a search table: where they are, and how they are asked, on the driver or by a Spark job.

The log names splits by absolute paths (spec 002). A path below the table is opened through the table's own store,
whatever its spelling; any other as it stands.

A Spark job costs a few hundred milliseconds before it does anything. The index of a split on the driver's own disk
answers in much less than that, so counts, the best rows and aggregates are asked there, unless there is very much to
unpack and executors could share the work.
"""

from __future__ import annotations

import heapq
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import pyarrow as pa

from headwater.errors import StorageError
from headwater.log.actions.paths import canonical
from headwater.log.schema import StructType
from headwater.search.split.reader import open_split
from headwater.spark.errors import explained_failures
from headwater.spark.functions import functions_for, jvm_session, no_rows
from headwater.spark.workers import core_count, distribute, freeze_gc_once, in_workers
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.search.split.reader import Split
    from headwater.storage import ObjectStore

    Run = Callable[[Any], Iterator[pa.RecordBatch]]
    """Gives rows for a task."""

_T = TypeVar("_T")


class SplitRef(NamedTuple):
    """A split as the log names it."""

    path: str
    size_bytes: int
    num_records: int | None = None
    footer_start: int | None = None


class SplitPlaces:
    """Opens the splits of one table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._store = open_store(uri, storage_options)
        self._elsewhere = OtherStores(uri, storage_options)
        self._root = canonical(self._store.uri).rstrip("/") + "/"

    def place(self, path: str) -> tuple[ObjectStore, str]:
        """Return the store and the key of a split.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        key = _key_below(path, self._root)
        return (self._store, key) if key is not None else self._elsewhere.locate(canonical(path))

    def open(self, ref: SplitRef) -> Split:
        """Open a split, or return the one that this process has open.

        Raises:
            ObjectNotFoundError: the split does not exist.
            CorruptSplitError: it is damaged.
        """
        store, key = self.place(ref.path)
        return open_split(store, key, size_bytes=ref.size_bytes, footer_start=ref.footer_start)


@lru_cache(maxsize=8_192)
def _key_below(path: str, root: str) -> str | None:
    """Return the key of a split in the table's store; None if it is elsewhere."""
    plain = canonical(path)
    if plain.startswith(root):
        return plain[len(root) :]
    return plain if "://" not in plain and not plain.startswith("/") else None


def absolute_path(uri: str, key: str) -> str:
    """Return the path of a split as the log has it: absolute, percent-encoded.

    >>> absolute_path("/data/my logs", "day=a%2Fb/part-0.split")
    'file:///data/my%20logs/day=a%252Fb/part-0.split'
    """
    location = parse_uri(uri)
    if location.kind == "local":
        return f"file://{quote(location.path.rstrip('/'), safe='/=')}/{quote(key, safe='/=')}"
    return f"{location.uri.rstrip('/')}/{quote(key, safe='/=')}"


def check_reachable(uri: str) -> None:
    """Raise unless executors can reach a table."""
    if parse_uri(uri).kind == "memory":
        raise StorageError(f"{uri} is in the memory of this Python process, where no executor can read or write it")


# --- asking splits ----------------------------------------------------------------------------------------


_SEQUENTIAL_S = 0.005
"""Splits are asked one after the other for this long; threads share the rest."""
MAX_DRIVER_BYTES = 2 << 30
"""On a cluster, executors are asked about more than this."""
_SEARCH_TASK_BYTES = 2**30
"""An index answers in milliseconds, and a task costs Spark some 25 of them: a search has few tasks, one for each core
as long as they are not very large."""


def can_answer_on_driver(spark: SparkSession, uri: str, splits: Sequence[SplitRef]) -> bool:
    """Say whether the driver should ask splits of a table itself: they are on its disk, and not too large."""
    if not splits:
        return True
    if parse_uri(uri).kind != "local" or jvm_session(spark) is None:
        return False
    executors_are_here = str(spark.sparkContext.master).startswith("local")
    return executors_are_here or sum(split.size_bytes for split in splits) <= MAX_DRIVER_BYTES


def ask_splits(
    spark: SparkSession,
    snapshot: Snapshot,
    splits: list[SplitRef],
    ask: Callable[[Split], _T],
    combine: Callable[[Iterable[_T]], _T],
) -> list[_T]:
    """Ask every split, on the driver or in a Spark job, whose tasks combine the answers of their splits."""
    if can_answer_on_driver(spark, snapshot.uri, splits):
        return map_splits(snapshot, splits, ask)
    uri, options = snapshot.uri, snapshot.ctx.storage_options

    def answer(task: list[SplitRef]) -> _T:
        places = SplitPlaces(uri, options)
        return combine(ask(places.open(ref)) for ref in task)

    return collect_answers(spark, answer, grouped(splits, core_count(spark)))


def map_splits(snapshot: Snapshot, splits: Sequence[SplitRef], ask: Callable[[Split], _T]) -> list[_T]:
    """Ask each split on the driver, in order; several at the same time, unless they answer at once."""
    places = SplitPlaces(snapshot.uri, snapshot.ctx.storage_options)
    found: list[_T] = []
    began = time.perf_counter()
    for ref in splits:
        # An open split answers in less time than it takes to hand it to a thread.
        found.append(ask(places.open(ref)))
        if time.perf_counter() - began > _SEQUENTIAL_S:
            break
    rest = splits[len(found) :]
    if not rest:
        return found
    count = min(len(rest), os.cpu_count() or 1)

    def answers(number: int) -> list[_T]:
        return [ask(places.open(ref)) for ref in rest[number::count]]

    shares = list(_pool().map(answers, range(count)))
    return found + [shares[position % count][position // count] for position in range(len(rest))]


def _pool() -> ThreadPoolExecutor:
    global _POOL
    if _POOL is None:
        _POOL = ThreadPoolExecutor(os.cpu_count() or 1, "headwater-search")
    return _POOL


_POOL: ThreadPoolExecutor | None = None


def grouped(splits: list[SplitRef], at_least: int, task_bytes: int = _SEARCH_TASK_BYTES) -> list[list[SplitRef]]:
    """Distribute splits over tasks of about the same size: as many as there are cores, more if they are very large.

    >>> [len(task) for task in grouped([SplitRef(str(n), 10, 1) for n in range(10)], 4)]
    [3, 3, 2, 2]
    """
    size_bytes = sum(split.size_bytes for split in splits)
    count = min(len(splits), max(at_least, -(-size_bytes // task_bytes)))
    tasks: list[list[SplitRef]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for split in sorted(splits, key=lambda split: (-split.size_bytes, split.path)):
        load, number = heapq.heappop(heap)
        tasks[number].append(split)
        heapq.heappush(heap, (load + split.size_bytes, number))
    return tasks


# --- Spark jobs -------------------------------------------------------------------------------------------


def collect_answers(spark: SparkSession, answer: Callable[[Any], _T], tasks: Sequence[Any]) -> list[_T]:
    """Run a function on each task, in Python workers, and return what it gives; in no certain order."""

    def run(task: Any) -> Iterator[pa.RecordBatch]:
        found = pa.array([pickle.dumps(answer(task))], pa.binary())
        yield pa.RecordBatch.from_arrays([found], names=["found"])

    with functions_for(spark), explained_failures():
        rows = run_tasks(spark, run, tasks, "found BINARY").collect()
    return [pickle.loads(bytes(row.found)) for row in rows]


def run_tasks(spark: SparkSession, run: Run, tasks: Sequence[Any], shown: Any) -> DataFrame:
    """Return a DataFrame of the rows that a function gives for tasks, each in a Python worker.

    Tasks are pickled; `shown` is a schema of Spark's or DDL.
    """
    if not tasks:
        with functions_for(spark):
            if isinstance(shown, str):
                return spark.createDataFrame([], shown)
            return no_rows(spark, StructType.from_spark(shown))
    listed = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_pickled(run, batches)

    return in_workers(distribute(spark, listed, len(tasks)), work, shown)


def run_pickled(run: Run, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run pickled tasks, which Spark's Arrow functions get as rows of one binary column."""
    freeze_gc_once()
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from run(pickle.loads(task))
