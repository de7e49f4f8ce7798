"""Opening a table whose checkpoints are JSON (spec 002: "Checkpoint Reading", "Error Scenarios").

A checkpoint that cannot be read is passed over: older log files tell the same, only slower. Where they are gone there
is no table to give, and the error says which checkpoint it depends on: that it is damaged, or what the store said when
it was asked for it again and again. Version 0 must be there, whatever a checkpoint says.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import (
    CorruptLogError,
    HeadwaterError,
    MissingCommitError,
    ObjectNotFoundError,
    StorageError,
    StorageThrottledError,
    TableNotFoundError,
    VersionNotFoundError,
)
from headwater.log.base_files import BaseFiles
from headwater.log.commit import CommitActions
from headwater.log.fetched import FetchedStore
from headwater.log.json_checkpoint import read_json_checkpoint
from headwater.log.missing_versions import first_version_lost
from headwater.log.opening import read_commits, snapshot_of
from headwater.log.segment import find_segment

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.json_checkpoint import JsonCheckpoint
    from headwater.log.segment import CheckpointFiles, LogSegment
    from headwater.log.snapshot import Snapshot

_LOG = logging.getLogger("headwater.log")
_ATTEMPTS = 3
"""How often the log is listed anew when version files of the listing are gone before they are read."""


def open_from_json(ctx: LogContext, version: int | None) -> Snapshot:
    """The snapshot of a version, or the newest one.

    Raises:
        CorruptLogError: version 0 or a version file is damaged, or a checkpoint that everything depends on.
        StorageError: the store fails; also when it does not give a checkpoint that everything depends on.
    """
    passed_over: dict[int, CorruptLogError | StorageError] = {}
    attempts_left = _ATTEMPTS
    while True:
        try:
            segment = find_segment(ctx, version, frozenset(passed_over))
        except (MissingCommitError, VersionNotFoundError, TableNotFoundError) as error:
            if passed_over:
                raise _lost(ctx, passed_over, error) from error
            raise
        fetched = replace(ctx, store=FetchedStore(ctx.store, _needed(ctx, segment)))
        files = segment.checkpoint
        try:
            commits = read_commits(fetched, segment.commits)
            base = BaseFiles(None if files is None else _read_checkpoint(fetched, files))
        except ObjectNotFoundError as error:
            # Log cleanup has deleted it since it was listed: then there is a newer checkpoint.
            attempts_left -= 1
            if attempts_left == 0:
                raise MissingCommitError(
                    f"{ctx.uri} cannot be opened at version {segment.version}: the log was listed {_ATTEMPTS} times, "
                    f"and each time a log file was gone when it should be read: {error}"
                ) from error
            continue
        except _UnreadableCheckpointError as error:
            assert files is not None, "a checkpoint was read"
            _LOG.warning("%s: checkpoint %d is passed over: %s", ctx.uri, files.version, error.reason)
            passed_over[files.version] = error.reason
            continue
        _check_first_version(fetched, commits)
        return snapshot_of(ctx, segment, base, commits)


class _UnreadableCheckpointError(Exception):
    """A checkpoint is damaged, or the store did not give it."""

    def __init__(self, reason: CorruptLogError | StorageError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _read_checkpoint(ctx: LogContext, files: CheckpointFiles) -> JsonCheckpoint:
    """A checkpoint; a store that does not answer is asked again, as that may pass.

    Raises:
        ObjectNotFoundError: it is not there any more.
        _UnreadableCheckpointError: it is damaged, or the store never gave it.
    """
    for wait_s in (*ctx.missing_object_waits_s, None):
        try:
            return read_json_checkpoint(ctx, files)
        except ObjectNotFoundError:
            raise
        except StorageThrottledError as error:
            if wait_s is None:
                raise _UnreadableCheckpointError(error) from error
            ctx.sleep(wait_s)
        except (CorruptLogError, StorageError) as error:
            raise _UnreadableCheckpointError(error) from error
    raise AssertionError("the last attempt returns or raises")


def _needed(ctx: LogContext, segment: LogSegment) -> list[str]:
    """The keys of all files that opening a segment takes and that are not known: they are fetched in one call."""
    metas = [commit.meta for commit in segment.commits]
    if segment.checkpoint is not None:
        metas += segment.checkpoint.files
    keys = [meta.key for meta in metas if ctx.cache is None or not ctx.cache.knows(meta)]
    first = ctx.format.commit_key(0)
    starts_at_0 = bool(segment.commits) and segment.commits[0].version == 0
    return keys if starts_at_0 else [*keys, first]


def _lost(
    ctx: LogContext, passed_over: dict[int, CorruptLogError | StorageError], why: HeadwaterError
) -> HeadwaterError:
    """The error for a table whose checkpoints cannot be read and whose older version files are gone.

    It is the store's own error if the store did not give one of them: a failure that passes is no damage.
    """
    newest = max(passed_over)
    for version in sorted(passed_over, reverse=True):
        error = passed_over[version]
        if isinstance(error, StorageError):
            error.add_note(
                f"{ctx.uri} depends on its checkpoint of version {version}: the version files that could stand for it "
                f"are not all there any more ({why}). Try again."
            )
            return error
    return CorruptLogError(
        f"{ctx.uri}: failed to read checkpoint at version {newest} ({passed_over[newest]}), and the version files that "
        f"could stand for it are not all there any more: {why}"
    )


def _check_first_version(ctx: LogContext, commits: tuple[CommitActions, ...]) -> None:
    """Raise unless version 0 can be read, and has what it must have."""
    key = ctx.format.commit_key(0)
    try:
        known = commits and commits[0].version == 0
        actions = (commits[0] if known else CommitActions.of(0, ctx.store.get(key), ctx.format)).table_actions
    except ObjectNotFoundError:
        raise first_version_lost(ctx, "is missing") from None
    except CorruptLogError as error:
        raise first_version_lost(ctx, f"is damaged ({error})") from error
    for name, action in (("protocol", actions.protocol), ("metaData", actions.metadata)):
        if action is None:
            raise first_version_lost(ctx, f"has no {name} action")
