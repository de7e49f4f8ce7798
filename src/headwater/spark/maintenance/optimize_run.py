"""Running OPTIMIZE: groups are rewritten at the same time, each in a Spark job of its own, and committed in batches.

What is committed stays, whatever happens to the rest. An interruption stops the jobs and commits nothing more; files
that no commit names are left for VACUUM.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from headwater.spark.functions import is_connect
from headwater.spark.maintenance.optimize_commit import RewrittenGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from headwater.maintenance.progress import Progress
    from headwater.spark.maintenance.optimize_commit import Commits
    from headwater.spark.maintenance.optimize_plan import FileGroup
    from headwater.spark.maintenance.optimize_rewrite import GroupRewriter
    from headwater.spark.maintenance.optimize_settings import OptimizeSettings

_T = TypeVar("_T")
_PATIENCE_S = 0.2


def run_groups(
    groups: Sequence[FileGroup],
    rewriter: GroupRewriter,
    commits: Commits,
    settings: OptimizeSettings,
    progress: Progress,
) -> None:
    """Rewrite all groups and commit them.

    When a group fails, those that are done are committed, and the failure is raised.
    """
    spark = rewriter.spark
    tag = f"headwater-optimize-{uuid4()}"
    ready: list[RewrittenGroup] = []
    failures: list[Exception] = []
    waiting = list(reversed(groups))
    running: set[Future[RewrittenGroup]] = set()
    with ThreadPoolExecutor(settings.max_threads, "headwater-optimize") as pool:
        try:
            while running or (waiting and not failures):
                while waiting and not failures and len(running) < settings.max_threads:
                    running.add(_submitted(pool, spark, tag, rewriter, waiting.pop()))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    error = future.exception()
                    if isinstance(error, Exception):
                        failures.append(error)
                    else:
                        ready.append(future.result())
                        progress.advance()
                if sum(one.group.size_bytes for one in ready) >= settings.batch_bytes:
                    batch, ready = ready, []
                    commits.commit(batch)
            commits.commit(ready)
        except BaseException:
            _stop(spark, tag, running)
            raise
    if failures:
        raise failures[0]


def _stop(spark: SparkSession, tag: str, running: set[Future[RewrittenGroup]]) -> None:
    """Stop the jobs of all groups; again and again, for one may be about to start its job just now."""
    # Of the context and not of the session, where that is possible: files are written in clones of the session.
    interrupt = spark.interruptTag if is_connect(spark) else spark.sparkContext.cancelJobsWithTag
    while wait(running, timeout=_PATIENCE_S).not_done:
        interrupt(tag)


def _submitted(
    pool: ThreadPoolExecutor, spark: SparkSession, tag: str, rewriter: GroupRewriter, group: FileGroup
) -> Future[RewrittenGroup]:
    def work() -> RewrittenGroup:
        mark, unmark = (
            (spark.addTag, spark.removeTag)
            if is_connect(spark)
            else (spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag)
        )
        mark(tag)
        try:
            return RewrittenGroup(group, tuple(rewriter.rewrite(group)))
        finally:
            unmark(tag)

    return pool.submit(copy_context().run, _in_thread_of(spark, work))


def _in_thread_of(spark: SparkSession, work: Callable[[], _T]) -> Callable[[], _T]:
    """Work that runs in another thread with the local properties of this one (scheduler pool, job group)."""
    if is_connect(spark):
        return work
    from pyspark.util import inheritable_thread_target

    inherited: Callable[[], _T] = inheritable_thread_target(spark)(work)
    return inherited
