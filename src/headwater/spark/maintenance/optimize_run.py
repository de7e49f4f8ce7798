"""Running OPTIMIZE: groups are rewritten at the same time, each in a Spark job of its own, and committed in batches.

What is committed stays, whatever happens to the rest. An interruption stops the jobs and commits nothing more; files
that no commit names are left for VACUUM.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import TYPE_CHECKING

from headwater.spark.maintenance.optimize_commit import RewrittenGroup
from headwater.spark.parallel_jobs import ParallelJobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.maintenance.progress import Progress
    from headwater.spark.maintenance.optimize_commit import Commits
    from headwater.spark.maintenance.optimize_plan import FileGroup
    from headwater.spark.maintenance.optimize_rewrite import GroupRewriter
    from headwater.spark.maintenance.optimize_settings import OptimizeSettings


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
    ready: list[RewrittenGroup] = []
    failures: list[Exception] = []
    waiting = list(reversed(groups))
    running: set[Future[RewrittenGroup]] = set()
    with ParallelJobs(rewriter.spark, "optimize", settings.max_threads) as jobs:
        while running or (waiting and not failures):
            while waiting and not failures and len(running) < settings.max_threads:
                running.add(jobs.submit(partial(_rewritten, rewriter, waiting.pop())))
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
    if failures:
        raise failures[0]


def _rewritten(rewriter: GroupRewriter, group: FileGroup) -> RewrittenGroup:
    return RewrittenGroup(group, tuple(rewriter.rewrite(group)))
