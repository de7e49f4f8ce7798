"""VACUUM: delete the files of a table that no retained version needs.

What is deleted is decided first (`headwater.maintenance.vacuum_plan`), then recorded in the history where delta-spark
does that too, then deleted in parallel. Being interrupted does no harm: every file that is gone was not needed.
"""

from __future__ import annotations

import math
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import DeltaConcurrentModificationException, RetentionError
from headwater.log.draft import Operation
from headwater.log.file_uris import hadoop_root
from headwater.log.opening import open_snapshot
from headwater.log.retention import LONGEST_MS, tombstone_retention_ms
from headwater.log.transaction import Transaction
from headwater.maintenance.last_vacuum import record_vacuumed_version
from headwater.maintenance.progress import Silence
from headwater.maintenance.vacuum_plan import plan_full, plan_lite
from headwater.storage.copying import delete_data
from headwater.storage.local import LocalStore
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.maintenance.progress import Progress
    from headwater.maintenance.vacuum_plan import VacuumMode, VacuumPlan

HOUR_MS = 3_600_000
_BATCH = 1_000
_PARALLEL = 8
_COMMIT_ATTEMPTS = 20


@dataclass(frozen=True)
class Vacuumed:
    """What a VACUUM has deleted, or would delete."""

    snapshot: Snapshot
    """The version by which it was decided."""
    plan: VacuumPlan
    cutoff_ms: int
    is_dry_run: bool

    @property
    def num_files(self) -> int:
        """How many files and emptied directories."""
        return int(self.plan.objects.num_rows) + len(self.plan.directories)

    @property
    def size_bytes(self) -> int:
        """How much they take."""
        return self.plan.size_bytes

    def paths(self) -> Iterator[str]:
        """The files and directories, as Hadoop spells them."""
        root = hadoop_root(self.snapshot.uri)
        for batch in _batches(self.plan.objects.column("key")):
            yield from (f"{root}/{key}" for key in batch)
        yield from (f"{root}/{prefix.rstrip('/')}" for prefix in self.plan.directories)

    def paths_table(self) -> pa.Table:
        """The same as a table with the column `path`."""
        import pyarrow as pa

        from headwater.log.columns import strings

        texts = [path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in self.paths()]
        return pa.table({"path": strings(texts).cast(pa.string())})


def vacuum(
    ctx: LogContext,
    *,
    retention_hours: float | None = None,
    mode: VacuumMode = "FULL",
    dry_run: bool = False,
    enforce_retention: bool = True,
    inventory: pa.Table | None = None,
    in_history: bool | None = None,
    progress: Progress | None = None,
) -> Vacuumed:
    """Delete the files that no version of the last `retention_hours` needs.

    Args:
        ctx: the table's log.
        retention_hours: by default what `delta.deletedFileRetentionDuration` says (a week).
        mode: `FULL` looks at all files that are there, `LITE` only at those that the log says were removed.
        dry_run: only find out what would be deleted.
        enforce_retention: refuse a shorter retention than the table's property.
        inventory: what is there, instead of a listing; see `headwater.maintenance.inventory`.
        in_history: whether to record the start and the end as commits; by default as delta-spark does it, which is
            everywhere but on S3.
        progress: where to report to.

    Raises:
        RetentionError: the retention is too short, or no number.
        InvalidCommitError: `LITE` is not possible, because the log does not reach far enough back.
        UnsupportedProtocolError: the table needs a feature that is not supported (spec: "Vacuum Protocol Check").
    """
    if mode not in ("FULL", "LITE"):
        raise ValueError(f"VACUUM is FULL or LITE, not {mode!r}")
    if mode == "LITE" and inventory is not None:
        raise ValueError("VACUUM LITE looks at the log alone: an inventory is for VACUUM FULL.")
    progress = progress or Silence()
    snapshot = open_snapshot(ctx)
    ctx.check_writable(snapshot.protocol, snapshot.metadata)
    retention_ms = _retention_ms(snapshot, retention_hours, enforce_retention)
    cutoff_ms = ctx.clock_ms() - retention_ms
    if mode == "LITE":
        plan = plan_lite(snapshot, cutoff_ms)
    else:
        plan = plan_full(snapshot, cutoff_ms, progress, inventory)
    found = Vacuumed(snapshot, plan, cutoff_ms, dry_run)
    if dry_run:
        return found
    history = _History(ctx, _is_recorded(snapshot) if in_history is None else in_history)
    given_ms = None if retention_hours is None else retention_ms
    history.start(snapshot, found, given_ms, enforce_retention)
    try:
        _delete(ctx, plan, progress)
    except BaseException:
        with suppress(Exception):  # what went wrong is the thing to report
            history.end("FAILED", {})
        raise
    metrics = {"numDeletedFiles": found.num_files, "numVacuumedDirectories": plan.directory_count}
    history.end("COMPLETED", metrics)
    record_vacuumed_version(ctx.store, plan.vacuumed_version)
    return found


def _retention_ms(snapshot: Snapshot, hours: float | None, enforced: bool) -> int:
    configured_ms = tombstone_retention_ms(snapshot.metadata.configuration)
    if hours is None:
        return configured_ms
    if type(hours) not in (int, float) or hours != hours or abs(hours) == math.inf:
        raise RetentionError(f"the retention of VACUUM is a number of hours, not {hours!r}")
    if hours < 0:
        raise RetentionError(f"the retention of VACUUM cannot be negative, as {hours} hours are")
    retention_ms = round(min(hours, LONGEST_MS // HOUR_MS) * HOUR_MS)
    if enforced and retention_ms < configured_ms:
        raise RetentionError(
            f"{snapshot.uri}: {hours:g} hours are shorter than what the table retains removed files for, "
            f"{configured_ms / HOUR_MS:g} hours (delta.deletedFileRetentionDuration). Whoever reads an older version, "
            "or writes at this moment, could lose files. If nobody does, switch the check off: "
            "spark.databricks.delta.retentionDurationCheck.enabled = false, or --no-retention-check."
        )
    return retention_ms


def _is_recorded(snapshot: Snapshot) -> bool:
    """On S3 the reference implementation writes no such commits: they may need another service there."""
    return parse_uri(snapshot.uri).kind != "s3"


@dataclass(frozen=True)
class _History:
    """The two commits that tell of a VACUUM; they change nothing."""

    ctx: LogContext
    is_on: bool

    def start(self, snapshot: Snapshot, found: Vacuumed, given_ms: int | None, checked: bool) -> None:
        default_ms = tombstone_retention_ms(snapshot.metadata.configuration)
        parameters: dict[str, Any] = {"retentionCheckEnabled": checked, "defaultRetentionMillis": default_ms}
        if given_ms is not None:
            parameters["specifiedRetentionMillis"] = given_ms
        metrics = {"numFilesToDelete": found.num_files, "sizeOfDataToDelete": found.size_bytes}
        self._commit(Operation("VACUUM START", parameters, metrics))

    def end(self, status: str, metrics: dict[str, int]) -> None:
        self._commit(Operation("VACUUM END", {"status": status}, metrics))

    def _commit(self, operation: Operation) -> None:
        if not self.is_on:
            return
        for attempts_left in reversed(range(_COMMIT_ATTEMPTS)):
            try:
                Transaction(self.ctx, open_snapshot(self.ctx)).commit(operation, "SnapshotIsolation")
            except DeltaConcurrentModificationException:  # somebody has altered the table, which is nothing to us
                if not attempts_left:
                    raise
            else:
                return


def _delete(ctx: LogContext, plan: VacuumPlan, progress: Progress) -> None:
    """Delete objects many at a time, then the directories that are empty."""
    store = ctx.store
    progress.begin("Deleting files", plan.objects.num_rows)

    def delete(keys: list[str]) -> None:
        delete_data(store, keys)
        progress.advance(len(keys))

    with ThreadPoolExecutor(_PARALLEL, "headwater-vacuum") as pool:
        try:
            futures = [pool.submit(delete, keys) for keys in _batches(plan.objects.column("key"))]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    if len(plan.companions):
        delete_data(store, [key.decode("utf-8", "surrogateescape") for key in plan.companions.to_pylist()])
    if isinstance(store, LocalStore):
        for prefix in plan.directories:
            store.remove_directory(prefix)


def _batches(keys: pa.ChunkedArray) -> Iterator[list[str]]:
    for start in range(0, len(keys), _BATCH):
        some = keys.slice(start, _BATCH).to_pylist()
        yield [key.decode("utf-8", "surrogateescape") for key in some]
