"""Deleting log files of search tables that a checkpoint stands for (spec 002: "File Retention").

A version file goes only if it is older than the retention, its version is before that of a checkpoint that can be read,
and it is neither the current version nor version 0. Older checkpoints stay for a while beside the newest. Temporary
files of killed writers go after a day.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, LogCleanupError, StorageError
from headwater.log.delta.cleanup import delete_abandoned
from headwater.log.indextables.checkpoint import read_json_checkpoint
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from headwater.log.indextables.options import LogSettings
    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectMeta

_LOG = logging.getLogger("headwater.log")


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """The result of a cleanup."""

    deleted: tuple[str, ...] = ()
    """Keys that are gone; those that would be gone when it is a dry run."""
    failed: tuple[str, ...] = ()
    """Keys that the store did not delete."""
    dry_run: bool = False


def clean_up_by_age(snapshot: Snapshot) -> CleanedUp:
    """Delete log files that are no longer needed, or only list them (`spark.indextables.cleanup.dryRun`).

    Raises:
        LogCleanupError: a file could not be deleted, and the failure policy is `fail`.
    """
    settings = snapshot.ctx.options.over(snapshot.metadata.configuration)
    expired = _expired(snapshot, list_log(snapshot.ctx), settings)
    if settings.cleanup_dry_run:
        _LOG.info("%s: cleanup would delete %d log files: %s", snapshot.uri, len(expired), ", ".join(expired))
        return CleanedUp(tuple(expired), dry_run=True)
    abandoned = delete_abandoned(snapshot.ctx, snapshot.ctx.dialect.directory)
    done = _deleted(snapshot, expired, settings)
    return replace(done, deleted=(*done.deleted, *abandoned))


def _expired(snapshot: Snapshot, listing: LogListing, settings: LogSettings) -> list[str]:
    """Return the keys to delete, oldest first: after an interruption the rest can still be read."""
    newest = _newest_readable(snapshot, listing)
    if newest is None:
        return []
    now_ms = snapshot.ctx.clock_ms()

    def is_older(meta: ObjectMeta, retention_ms: int) -> bool:
        return now_ms - meta.modified_ms > retention_ms

    versions = [
        meta.key
        for version, meta in sorted(listing.commits.items())
        if 0 < version < min(newest, snapshot.version) and is_older(meta, settings.log_retention_ms)
    ]
    checkpoints = [
        files.files[0].key
        for version, found in sorted(listing.checkpoints.items())
        for files in found
        if version < newest and is_older(files.files[0], settings.checkpoint_retention_ms)
    ]
    return versions + checkpoints


def _newest_readable(snapshot: Snapshot, listing: LogListing) -> int | None:
    """Return the version of the newest checkpoint that can be read: others replace nothing."""
    for version in sorted(listing.checkpoints, reverse=True):
        if version > snapshot.version:
            continue
        try:
            read_json_checkpoint(snapshot.ctx, listing.checkpoints[version][0])
        except (CorruptLogError, StorageError) as error:
            _LOG.warning("%s: checkpoint %d covers no version files: %s", snapshot.uri, version, error)
            continue
        return version
    return None


def _deleted(snapshot: Snapshot, expired: list[str], settings: LogSettings) -> CleanedUp:
    assert snapshot.ctx.dialect.commit_key(0) not in expired, "version 0 is never deleted"
    deleted: list[str] = []
    failed: list[str] = []
    for key in expired:
        try:
            snapshot.ctx.store.delete_many([key])
            deleted.append(key)
        except StorageError as error:
            if settings.cleanup_failure_policy == "fail":
                raise LogCleanupError(
                    f"{snapshot.uri} at version {snapshot.version}: the log file {key} could not be deleted ({error}). "
                    f"{len(deleted)} others were; the table is complete, and so is every commit."
                ) from error
            _LOG.warning("%s: the log file %s could not be deleted: %s", snapshot.uri, key, error)
            failed.append(key)
    return CleanedUp(tuple(deleted), tuple(failed))
