"""Delete log files that are no longer needed (spec: "Metadata Cleanup").

Commits are kept for `delta.logRetentionDuration` (30 days), counted to midnight UTC. The newest checkpoint that is not
newer than the newest commit before that stays, with everything after it; what is older goes. A checkpoint that cannot
be read covers nothing: then nothing is deleted. Temporary files that killed writers left behind go after a day.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import ObjectNotFoundError
from headwater.log.commit.history import in_commit_timestamp, newest_commit_at
from headwater.log.configuration.properties import DAY_MS, ENABLE_EXPIRED_LOG_CLEANUP, LOG_RETENTION
from headwater.log.delta import names
from headwater.log.delta.checkpoint.read import Checkpoint
from headwater.log.segment import sort_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headwater.log.context import LogContext
    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectMeta


_HADOOP_TEMPORARY = re.compile(
    r"\.{1,2}(?:\d{20}\.[\w.-]+|_last_checkpoint)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp(?:\.crc)?", re.ASCII
)
"""What Spark leaves in a log when it is killed before it renames it: nothing ever refers to it."""


def clean_up(snapshot: Snapshot) -> list[str]:
    """Delete expired log files, if `delta.enableExpiredLogCleanup` (true by default) allows it.

    Returns:
        The keys of the files that were deleted.

    Raises:
        CorruptLogError: a checkpoint that everything would depend on cannot be read. Nothing was deleted, or (when it
            is only about sidecars) no sidecar.
        StorageError: the store failed; what is left of the log is complete.
    """
    if not snapshot.configuration[ENABLE_EXPIRED_LOG_CLEANUP]:
        return []
    cutoff_ms = cutoff_timestamp_ms(snapshot)
    if snapshot.base.cleaned_up_before_ms == cutoff_ms:
        return []
    deleted = delete_abandoned(snapshot.ctx, names.LOG_DIR, names.SIDECAR_DIR)
    if _may_have_older(snapshot, cutoff_ms):
        store = snapshot.ctx.store
        # Sidecars before checkpoints: a checkpoint that is written meanwhile has new ones.
        sidecars = store.list_from(names.SIDECAR_DIR)
        metas = store.list_from(names.LOG_DIR)
        expired = _expired(snapshot, metas, cutoff_ms)
        # Oldest first: whenever this ends, the rest of the log goes on without a gap.
        store.delete_many(expired)
        deleted += expired
        kept = set(expired)
        orphans = _orphans(snapshot, sidecars, [meta for meta in metas if meta.key not in kept])
        store.delete_many(orphans)
        deleted += orphans
    snapshot.base.cleaned_up_before_ms = cutoff_ms
    return deleted


def delete_abandoned(ctx: LogContext, *directories: str) -> list[str]:
    """Delete what writers left in some directories of a log that were killed while they wrote: files with our own
    temporary names that are older than a day.

    Only disks have any. Should the writer live after all, it finds its file gone and writes it again.

    Returns:
        The keys of the files that were deleted.
    """
    find: Callable[[str], list[ObjectMeta]] | None = getattr(ctx.store, "temporary_files", None)
    if find is None:
        return []
    before_ms = abandoned_before_ms(ctx)
    old = [meta.key for directory in directories for meta in find(directory) if meta.modified_ms < before_ms]
    ctx.store.delete_many(old)
    return old


def abandoned_before_ms(ctx: LogContext) -> int:
    """Return the time before which temporary files count as abandoned."""
    return ctx.clock_ms() - DAY_MS


def cutoff_timestamp_ms(snapshot: Snapshot) -> int:
    """Return the midnight (UTC) from which on all of the log is kept."""
    oldest_ms = snapshot.ctx.clock_ms() - snapshot.configuration[LOG_RETENTION]
    return oldest_ms - oldest_ms % DAY_MS


def _may_have_older(snapshot: Snapshot, cutoff_ms: int) -> bool:
    """Tell whether there may be commits before the cut-off: a young table need not be listed."""
    ctx = snapshot.ctx
    try:
        if snapshot.configuration.first_in_commit_version == 0:
            return in_commit_timestamp(ctx, 0) <= cutoff_ms
        return ctx.store.head(ctx.dialect.commit_key(0)).modified_ms <= cutoff_ms
    except ObjectNotFoundError:
        return True


def _expired(snapshot: Snapshot, metas: list[ObjectMeta], cutoff_ms: int) -> list[str]:
    """The keys of commits, checkpoints, checksums and compacted files that are no longer needed, oldest first."""
    listing = sort_listing(metas, snapshot.ctx.dialect)
    commit = newest_commit_at(snapshot.ctx, listing, cutoff_ms, snapshot.configuration)
    checkpoint = None if commit is None else listing.checkpoint_at_or_before(commit)
    if checkpoint is None:
        return []
    expired = [meta.key for meta in metas if _is_before(meta, checkpoint.version)]
    expired += [meta.key for meta in metas if meta.modified_ms < cutoff_ms and _is_hadoop_temporary(meta)]
    if expired:
        _check_complete(Checkpoint(snapshot.ctx, checkpoint))
    return expired


def _is_before(meta: ObjectMeta, version: int) -> bool:
    name = names.parse(meta.key.rpartition("/")[2])
    if name is None:
        return False
    return name.version < version or (name.kind == "compacted" and name.version == version)


def _is_hadoop_temporary(meta: ObjectMeta) -> bool:
    return _HADOOP_TEMPORARY.fullmatch(meta.key.rpartition("/")[2]) is not None


def _check_complete(checkpoint: Checkpoint) -> None:
    """Raise unless a checkpoint, with all its sidecars, can stand for everything before it."""
    _ = checkpoint.table_state
    for chunk in (*checkpoint.adds, *checkpoint.removes):
        _ = chunk.num_rows


def _orphans(snapshot: Snapshot, sidecars: list[ObjectMeta], metas: Iterable[ObjectMeta]) -> list[str]:
    """Return the sidecars that no checkpoint names and that no checkpoint in the making can still name."""
    now_ms = snapshot.ctx.clock_ms()
    newest_ms = now_ms - now_ms % DAY_MS - DAY_MS
    old = [meta.key for meta in sidecars if meta.modified_ms < newest_ms]
    if not old:
        return []
    named = set(_named_sidecars(snapshot, sort_listing(metas, snapshot.ctx.dialect)))
    return [key for key in old if key not in named]


def _named_sidecars(snapshot: Snapshot, listing: LogListing) -> Iterable[str]:
    for candidates in listing.checkpoints.values():
        for files in candidates:
            yield from Checkpoint(snapshot.ctx, files).sidecar_keys
