"""Spark jobs beside each other, each in a thread of its own: they share the cores that one alone would leave idle."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from headwater.spark.functions import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType

    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_PATIENCE_S = 0.2


class ParallelJobs:
    """Threads that run Spark jobs, within a context. If that ends by an error, all jobs are stopped."""

    def __init__(self, spark: SparkSession, name: str, max_threads: int) -> None:
        """Args: the session, what the jobs are for, and how many may run at a time."""
        self._spark = spark
        self._tag = f"headwater-{name}-{uuid4()}"
        self._pool = ThreadPoolExecutor(max_threads, f"headwater-{name}")
        self._running: list[Future[Any]] = []

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Let a thread do work that runs jobs, with the local properties of this one (scheduler pool, job group)."""
        spark, tag = self._spark, self._tag

        def tagged() -> _T:
            mark, unmark = (
                (spark.addTag, spark.removeTag)
                if is_connect(spark)
                else (spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag)
            )
            mark(tag)
            try:
                return work()
            finally:
                unmark(tag)

        future = self._pool.submit(copy_context().run, _inherited(spark, tagged))
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
        """Stop all jobs; again and again, for one may be about to start just now."""
        # Of the context and not of the session, where that is possible: files are written in clones of the session.
        spark = self._spark
        interrupt = spark.interruptTag if is_connect(spark) else spark.sparkContext.cancelJobsWithTag
        for future in self._running:
            future.cancel()
        while wait(self._running, timeout=_PATIENCE_S).not_done:
            interrupt(self._tag)


def _inherited(spark: SparkSession, work: Callable[[], _T]) -> Callable[[], _T]:
    if is_connect(spark):
        return work
    from pyspark.util import inheritable_thread_target

    inherited: Callable[[], _T] = inheritable_thread_target(spark)(work)
    return inherited
