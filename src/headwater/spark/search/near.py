"""Small answers without a Spark job: whether splits are near the driver, and asking them there, some at a time.

A Spark job costs a few hundred milliseconds before it does anything. The index of a split on the driver's own disk
answers in much less than that, so counts, the best rows and aggregates are asked there, unless there is very much to
unpack and executors could share the work.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from headwater.spark.functions import is_connect
from headwater.spark.search.split_places import SplitPlaces
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from headwater.search.split import Split
    from headwater.spark.search.opening import OpenTable
    from headwater.spark.search.split_places import SplitRef

_T = TypeVar("_T")

_PATIENCE_S = 0.005
"""So long splits are asked one after the other; threads share the rest."""
MAX_BYTES = 2 << 30
"""On a cluster, more than this is asked of the executors."""


def is_near(table: OpenTable, splits: Sequence[SplitRef]) -> bool:
    """Whether the driver should ask these splits itself."""
    if not splits:
        return True
    if parse_uri(table.uri).kind != "local" or is_connect(table.spark):
        return False
    return _runs_here(table.spark) or sum(split.size_bytes for split in splits) <= MAX_BYTES


def map_splits(table: OpenTable, splits: Sequence[SplitRef], ask: Callable[[Split], _T]) -> list[_T]:
    """What each split answers, in order; several are asked at the same time, unless they answer at once."""
    places = SplitPlaces(table.uri, table.storage_options)
    found: list[_T] = []
    began = time.perf_counter()
    for ref in splits:
        # An open split answers in less time than it takes to hand it to a thread.
        found.append(ask(places.open(ref)))
        if time.perf_counter() - began > _PATIENCE_S:
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


def _runs_here(spark: SparkSession) -> bool:
    """Whether the executors are in the driver's process, so that they have nothing that it lacks."""
    return str(spark.sparkContext.master).startswith("local")
