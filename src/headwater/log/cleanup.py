"""Metadata cleanup: deleting what of the log nobody can ask for any more (spec: "Metadata Cleanup").

Commits are kept for `delta.logRetentionDuration` (30 days), counted to midnight UTC. The newest checkpoint that is not
newer than the newest commit before that stays, with everything after it; what is older goes. A checkpoint that cannot
be read covers nothing: then nothing is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ObjectNotFoundError
from headwater.log import names
from headwater.log.checkpoint import Checkpoint
from headwater.log.retention import DAY_MS, log_retention_ms
from headwater.log.segment import sort_listing
from headwater.log.timeline import first_in_commit_version, in_commit_timestamp, newest_commit_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectMeta


def clean_up(snapshot: Snapshot) -> list[str]:
    """Delete expired log files, if `delta.enableExpiredLogCleanup` (true by default) allows it.

    Args:
        snapshot: the newest version of the table.

    Returns:
        The keys of the files that were deleted.

    Raises:
        CorruptLogError: a checkpoint that everything would depend on cannot be read. Nothing was deleted, or (when it
            is only about sidecars) no sidecar.
        StorageError: the store failed; what is left of the log is complete.
    """
    if snapshot.metadata.configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return []
    cutoff_ms = cutoff_timestamp_ms(snapshot)
    if snapshot.base.cleaned_up_before_ms == cutoff_ms:
        return []
    deleted: list[str] = []
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


def cutoff_timestamp_ms(snapshot: Snapshot) -> int:
    """The midnight (UTC) from which on all of the log is kept."""
    oldest_ms = snapshot.ctx.clock_ms() - log_retention_ms(snapshot.metadata.configuration)
    return oldest_ms - oldest_ms % DAY_MS


def _may_have_older(snapshot: Snapshot, cutoff_ms: int) -> bool:
    """Whether there may be commits before the cut-off: a young table need not be listed."""
    ctx = snapshot.ctx
    try:
        if first_in_commit_version(snapshot.protocol, snapshot.metadata) == 0:
            return in_commit_timestamp(ctx, 0) <= cutoff_ms
        return ctx.store.head(names.commit_key(0)).modified_ms <= cutoff_ms
    except ObjectNotFoundError:
        return True


def _expired(snapshot: Snapshot, metas: list[ObjectMeta], cutoff_ms: int) -> list[str]:
    """The keys of commits, checkpoints, checksums and compacted files that are no longer needed, oldest first."""
    listing = sort_listing(metas)
    commit = newest_commit_at(snapshot.ctx, listing, cutoff_ms, snapshot.protocol, snapshot.metadata)
    checkpoint = None if commit is None else listing.checkpoint_at_or_before(commit)
    if checkpoint is None:
        return []
    expired = [meta.key for meta in metas if _is_before(meta, checkpoint.version)]
    if expired:
        _check_complete(Checkpoint(snapshot.ctx.store, checkpoint))
    return expired


def _is_before(meta: ObjectMeta, version: int) -> bool:
    name = names.parse(meta.key.rpartition("/")[2])
    if name is None:
        return False
    return name.version < version or (name.kind == "compacted" and name.version == version)


def _check_complete(checkpoint: Checkpoint) -> None:
    """Raise unless a checkpoint, with all its sidecars, can stand for everything before it."""
    _ = checkpoint.table_state
    for chunk in (*checkpoint.adds, *checkpoint.removes):
        _ = chunk.num_rows


def _orphans(snapshot: Snapshot, sidecars: list[ObjectMeta], metas: Iterable[ObjectMeta]) -> list[str]:
    """The sidecars that no checkpoint names and that no checkpoint in the making can still name."""
    now_ms = snapshot.ctx.clock_ms()
    newest_ms = now_ms - now_ms % DAY_MS - DAY_MS
    old = [meta.key for meta in sidecars if meta.modified_ms < newest_ms]
    if not old:
        return []
    named = set(_named_sidecars(snapshot, sort_listing(metas)))
    return [key for key in old if key not in named]


def _named_sidecars(snapshot: Snapshot, listing: LogListing) -> Iterable[str]:
    for candidates in listing.checkpoints.values():
        for files in candidates:
            yield from Checkpoint(snapshot.ctx.store, files).sidecar_keys
