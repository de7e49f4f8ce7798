"""Upkeep of the log after a commit: checksum, checkpoint, compaction, cleanup.

The commit has happened; nothing here can take it back. So nothing here may fail it: what goes wrong is logged and left
for the next writer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.errors import LogCleanupError

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

_LOG = logging.getLogger("headwater.log")


def keep_up(snapshot: Snapshot, before: Snapshot | None) -> Snapshot:
    """Do what is due after the commit of `snapshot`, which followed `before`.

    Returns:
        The same version of the table, from its new checkpoint where one was written.

    Raises:
        LogCleanupError: a log file could not be deleted, and the options of the table ask for an error then.
    """
    if snapshot.ctx.cache is not None:
        snapshot.ctx.cache.invalidate_newest()
    if snapshot.ctx.format.has_checksums:
        _write_checksum(snapshot, before)
    for hook in snapshot.ctx.after_commit:
        try:
            hook(snapshot)
        except Exception:
            _LOG.warning("%s: %s failed after version %d", snapshot.uri, hook.__name__, snapshot.version, exc_info=True)
    try:
        _compact(snapshot)
    except Exception:
        _LOG.warning("%s: no log compaction at version %d", snapshot.uri, snapshot.version, exc_info=True)
    try:
        return _json_checkpoint(snapshot) if snapshot.ctx.format.json_checkpoints else _checkpoint(snapshot)
    except LogCleanupError:
        raise  # the user wants to know
    except Exception:
        _LOG.warning("%s: no checkpoint of version %d", snapshot.uri, snapshot.version, exc_info=True)
        return snapshot


def _write_checksum(snapshot: Snapshot, before: Snapshot | None) -> None:
    from headwater.log.checksum_writer import write_checksum

    try:
        write_checksum(snapshot, before)
    except Exception:
        _LOG.warning("%s: no checksum for version %d", snapshot.uri, snapshot.version, exc_info=True)


def _compact(snapshot: Snapshot) -> None:
    """Every so many commits after a checkpoint, if the context asks for it."""
    interval = snapshot.ctx.compaction_interval
    if interval is None:
        return
    checkpoint = snapshot.segment.checkpoint
    since = snapshot.version if checkpoint is None else snapshot.version - checkpoint.version - 1
    if (since + 1) % interval == 0:
        from headwater.log.compaction import compact_log

        compact_log(snapshot, snapshot.version - interval + 1, snapshot.version)


def _checkpoint(snapshot: Snapshot) -> Snapshot:
    """A checkpoint every `delta.checkpointInterval` commits, and then the cleanup of what it covers."""
    from headwater.log.checkpoint_policy import checkpoint_interval

    if snapshot.version == 0 or snapshot.version % checkpoint_interval(snapshot):
        return snapshot
    from headwater.log.checkpoint_writer import write_checkpoint
    from headwater.log.checksum_writer import carry_over
    from headwater.log.cleanup import clean_up

    rebased = carry_over(snapshot, write_checkpoint(snapshot))
    try:
        clean_up(rebased)
    except Exception:
        _LOG.warning("%s: the log was not cleaned up at version %d", snapshot.uri, snapshot.version, exc_info=True)
    return rebased


def _json_checkpoint(snapshot: Snapshot) -> Snapshot:
    """A checkpoint in JSON every so many versions (`spark.indextables.checkpoint.interval`), and then the cleanup."""
    interval = snapshot.ctx.options.over(snapshot.metadata.configuration).checkpoint_interval
    if snapshot.version == 0 or snapshot.version % interval:
        return snapshot
    from headwater.log.cleanup_by_age import clean_up_by_age
    from headwater.log.json_checkpoint import write_json_checkpoint

    rebased = write_json_checkpoint(snapshot)
    if snapshot.ctx.cache is not None:
        snapshot.ctx.cache.invalidate_all()
    try:
        clean_up_by_age(rebased)
    except LogCleanupError:
        raise
    except Exception:
        _LOG.warning("%s: the log was not cleaned up at version %d", snapshot.uri, snapshot.version, exc_info=True)
    return rebased
