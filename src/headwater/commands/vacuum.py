"""VACUUM: delete the files of a table that no retained version needs.

The plan comes first (`headwater.commands.vacuum_plan`), then the record in the history, as delta-spark writes it, then
the files are deleted in parallel. An interruption does no harm: every file that is gone was not needed.
"""

from __future__ import annotations

import math
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.commands.progress import Silence
from headwater.commands.vacuum_plan import plan_full, plan_lite, record_vacuumed_version
from headwater.errors import DeltaConcurrentModificationException, RetentionError
from headwater.log.actions.paths import hadoop_root
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration.properties import DELETED_FILE_RETENTION, LONGEST_MS
from headwater.log.opening import open_snapshot
from headwater.storage.copying import delete_data
from headwater.storage.local import LocalStore
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headwater.commands.progress import Progress
    from headwater.commands.vacuum_plan import VacuumMode, VacuumPlan
    from headwater.features.context import TableRef
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

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
        """The number of files and emptied directories."""
        return int(self.plan.objects.num_rows) + len(self.plan.directories)

    @property
    def size_bytes(self) -> int:
        return self.plan.size_bytes

    def paths(self) -> Iterator[str]:
        """Return the files and directories, as Hadoop spells them."""
        root = hadoop_root(self.snapshot.uri)
        for batch in _batches(self.plan.objects.column("key")):
            yield from (f"{root}/{key}" for key in batch)
        yield from (f"{root}/{prefix.rstrip('/')}" for prefix in self.plan.directories)

    def paths_table(self) -> pa.Table:
        """Return the same as a table with the column `path`."""
        import pyarrow as pa

        from headwater.log.files.arrow import strings

        texts = [path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in self.paths()]
        return pa.table({"path": strings(texts).cast(pa.string())})


@dataclass(frozen=True, slots=True)
class VacuumRequest:
    """What to delete, or to find.

    Attributes:
        table: the table.
        retention_hours: keep what versions of the last hours need; by default those that
            `delta.deletedFileRetentionDuration` says (a week).
        mode: `FULL` looks at all files that are there, `LITE` only at those that the log says were removed.
        dry_run: only find out what would be deleted.
        enforce_retention: refuse a shorter retention than the table's property.
        inventory: what is there, instead of a listing; see `headwater.commands.vacuum_plan`.
        in_history: whether to record the start and the end as commits; by default as delta-spark does it, which is
            everywhere but on S3.
    """

    table: TableRef
    retention_hours: float | None = None
    mode: VacuumMode = "FULL"
    dry_run: bool = False
    enforce_retention: bool = True
    inventory: pa.Table | None = None
    in_history: bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("FULL", "LITE"):
            raise ValueError(f"VACUUM is FULL or LITE, not {self.mode!r}")
        if self.mode == "LITE" and self.inventory is not None:
            raise ValueError("VACUUM LITE looks at the log alone: an inventory is for VACUUM FULL.")


def vacuum(request: VacuumRequest, progress: Progress | None = None) -> Vacuumed:
    """Delete the files that no retained version needs.

    Raises:
        RetentionError: the retention is too short, or not a number.
        InvalidCommitError: `LITE` is not possible, because the log does not reach far enough back.
        UnsupportedProtocolError: the table needs a feature that is not supported (spec: "Vacuum Protocol Check").
    """
    progress = progress or Silence()
    ctx = request.table.context()
    snapshot = open_snapshot(ctx)
    ctx.check_writable(snapshot.configuration)
    retention_ms = _retention_ms(snapshot, request.retention_hours, request.enforce_retention)
    cutoff_ms = ctx.clock_ms() - retention_ms
    if request.mode == "LITE":
        plan = plan_lite(snapshot, cutoff_ms)
    else:
        plan = plan_full(snapshot, cutoff_ms, progress, request.inventory)
    found = Vacuumed(snapshot, plan, cutoff_ms, request.dry_run)
    if request.dry_run:
        return found
    history = _History(ctx, _is_recorded(snapshot) if request.in_history is None else request.in_history)
    given_ms = None if request.retention_hours is None else retention_ms
    history.start(snapshot, found, given_ms, request.enforce_retention)
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
    configured_ms = snapshot.configuration[DELETED_FILE_RETENTION]
    if hours is None:
        return configured_ms
    if type(hours) not in (int, float) or hours != hours or abs(hours) == math.inf:
        raise RetentionError(f"the retention of VACUUM is a number of hours, not {hours!r}")
    if hours < 0:
        raise RetentionError(f"the retention of VACUUM cannot be negative: {hours} hours")
    retention_ms = round(min(hours, LONGEST_MS // HOUR_MS) * HOUR_MS)
    if enforced and retention_ms < configured_ms:
        raise RetentionError(
            f"{snapshot.uri}: {hours:g} hours are less than the time for which the table keeps removed files, "
            f"{configured_ms / HOUR_MS:g} hours (delta.deletedFileRetentionDuration). Whoever reads an older version, "
            "or writes at this moment, could lose files. If nobody does, switch the check off: "
            "spark.databricks.delta.retentionDurationCheck.enabled = false, or --no-retention-check."
        )
    return retention_ms


def _is_recorded(snapshot: Snapshot) -> bool:
    """Return whether to record: not on S3, where the reference implementation does not either."""
    return parse_uri(snapshot.uri).kind != "s3"


@dataclass(frozen=True)
class _History:
    """The two commits that record a VACUUM; they change nothing."""

    ctx: LogContext
    is_on: bool

    def start(self, snapshot: Snapshot, found: Vacuumed, given_ms: int | None, checked: bool) -> None:
        default_ms = snapshot.configuration[DELETED_FILE_RETENTION]
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
