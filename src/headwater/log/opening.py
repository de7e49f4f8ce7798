"""Opening and refreshing snapshots (spec `000`: "Reads").

Find the segment, read its commits, take protocol and metaData from the newest place that has them, and ask the gate
whether the table can be read at all. A refresh reads only what came after.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import (
    CorruptLogError,
    MissingCommitError,
    ObjectNotFoundError,
    UnsupportedProtocolError,
    VersionCleanedUpError,
)
from headwater.log.base_files import BaseFiles
from headwater.log.checkpoint import Checkpoint
from headwater.log.checksum import VersionChecksum, read_checksum
from headwater.log.commit import CommitActions
from headwater.log.last_checkpoint import hinted_version
from headwater.log.replay import commit_files, replay_files
from headwater.log.segment import NOT_ASKED_MS, CommitFile, LogSegment, find_segment, list_log
from headwater.log.snapshot import Snapshot
from headwater.log.timeline import to_ms, version_at
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime

    from headwater.log.actions import Metadata, Protocol
    from headwater.log.context import LogContext

_ATTEMPTS = 3
"""How often the log is listed anew when commits of the listing are gone before they are read."""

_LONG_TAIL = 200
"""A refreshed snapshot with more commits than this after its checkpoint looks for a newer checkpoint."""


def open_snapshot(
    ctx: LogContext, version: int | None = None, timestamp: str | datetime | date | int | None = None
) -> Snapshot:
    """The snapshot of a version, of a point in time, or the newest one."""
    if timestamp is not None:
        if version is not None:
            raise ValueError("give a version or a timestamp, not both")
        latest = open_snapshot(ctx)
        version = version_at(ctx, to_ms(timestamp), latest)
        if version == latest.version:
            return latest
    if ctx.format.json_checkpoints:
        from headwater.log.json_opening import open_from_json

        return open_from_json(ctx, version)
    for attempts_left in reversed(range(_ATTEMPTS)):
        segment, commits = _read_segment(ctx, version)
        base = BaseFiles(None if segment.checkpoint is None else Checkpoint(ctx.store, segment.checkpoint))
        try:
            return snapshot_of(ctx, segment, base, commits)
        except (CorruptLogError, VersionCleanedUpError) as error:
            # Log cleanup may have deleted the checkpoint since it was listed: then there is a newer one.
            if attempts_left == 0 or not isinstance(error.__cause__, ObjectNotFoundError):
                raise
    raise AssertionError("the last attempt returns or raises")


def refresh(snapshot: Snapshot) -> Snapshot:
    """The newest version of the table, starting from what a snapshot already knows.

    The next commits are asked for by name, which is cheaper than a listing. When there is none, `_last_checkpoint` (or,
    without one, a listing) tells whether the log goes on all the same: cleanup deletes the oldest commits first.
    """
    ctx = snapshot.ctx
    if snapshot.segment.unreachable:  # the gap may be closed, or what stood behind it gone
        return open_snapshot(ctx)
    new: list[CommitActions] = []
    for commit in newer_commits(snapshot):
        new.append(commit)
        if len(new) % _LONG_TAIL == 0 and (_hint(ctx) or 0) > snapshot.version:
            return open_snapshot(ctx)
    if _goes_on_elsewhere(snapshot, reached=snapshot.version + len(new)):
        return open_snapshot(ctx)
    return extend(snapshot, *new) if new else snapshot


def newer_commits(snapshot: Snapshot) -> Iterator[CommitActions]:
    """The commits after a snapshot, asked for one by one until there is none."""
    version = snapshot.version + 1
    ctx = snapshot.ctx
    while (data := _get_or_none(ctx, ctx.format.commit_key(version))) is not None:
        yield CommitActions.of(version, data, ctx.format)
        version += 1


def extend(snapshot: Snapshot, *new: CommitActions) -> Snapshot:
    """The snapshot after further commits, which are in the log already; nothing is read again."""
    ctx = snapshot.ctx
    files = [*snapshot.segment.commits, *map(_commit_file, new)]
    segment = replace(snapshot.segment, version=new[-1].version, commits=tuple(files), commit_meta=files[-1].meta)
    extended = snapshot_of(ctx, segment, snapshot.base, (*snapshot.commits, *new), known=snapshot)
    if (extended.protocol, extended.metadata) == (snapshot.protocol, snapshot.metadata):
        # Decoding a schema of many columns would take longer than a small commit.
        known = ("schema", "mapping_mode", "shape")
        vars(extended).update({name: vars(snapshot)[name] for name in known if name in vars(snapshot)})
    if "_tail" in vars(snapshot):
        vars(extended)["_tail"] = replay_files(new, before=snapshot._tail)
    if "_table_state" in vars(snapshot):
        vars(extended)["_table_state"] = snapshot._table_state.then(new)
    if "_known_checksum" in vars(snapshot):
        vars(extended)["_known_checksum"] = vars(snapshot)["_known_checksum"]
    return extended


def created(ctx: LogContext, commit: CommitActions) -> Snapshot:
    """The snapshot of a table that has just got its first commit."""
    file = _commit_file(commit)
    segment = LogSegment(commit.version, None, (file,), file.meta)
    return snapshot_of(ctx, segment, BaseFiles(None), (commit,))


def _goes_on_elsewhere(snapshot: Snapshot, reached: int) -> bool:
    """Whether the log must be looked at afresh, having read all commits up to `reached`.

    Commits that are gone were cleaned up behind a checkpoint; a tail that has become long had better start from one.
    """
    ctx = snapshot.ctx
    own = snapshot.segment.commit_meta
    hint = _hint(ctx)
    if hint is None:
        latest = list_log(ctx, snapshot.version).latest
        if latest is None:  # the table is gone, unless the listing lags behind
            return own is None or not _exists(ctx, own.key)
        return latest > reached
    if hint > reached:
        return True
    if hint > snapshot.version and len(snapshot.commits) + reached - snapshot.version > _LONG_TAIL:
        return True
    return reached == snapshot.version and own is not None and not _exists(ctx, own.key)


def snapshot_of(
    ctx: LogContext,
    segment: LogSegment,
    base: BaseFiles,
    commits: tuple[CommitActions, ...],
    known: Snapshot | None = None,
) -> Snapshot:
    """The snapshot of a segment whose commits were read, if the table can be read at all."""
    protocol, metadata = _newest(commits if known is None else commits[len(known.commits) :])
    if known is not None:
        # `known` saw all but the newest commits, which were searched first.
        protocol, metadata = protocol or known.protocol, metadata or known.metadata
    elif base.checkpoint is not None and (protocol is None or metadata is None):
        source = (_trusted_checksum(ctx, commits) if ctx.trust_checksum else None) or base.checkpoint
        protocol, metadata = protocol or source.protocol, metadata or source.metadata
    where = f"{ctx.uri} at version {segment.version}"
    if protocol is None:
        raise CorruptLogError(f"{where} has no protocol action in its log: this is not a complete {ctx.format.title}.")
    if metadata is None:
        raise CorruptLogError(f"{where} has no metaData action in its log: this is not a complete {ctx.format.title}.")
    try:
        ctx.check_readable(protocol, metadata)
    except UnsupportedProtocolError as error:
        raise UnsupportedProtocolError(f"{where} cannot be read: {error}", error.features) from error
    except CorruptLogError as error:
        raise CorruptLogError(f"{where} cannot be read: {error}") from error
    if not metadata.schema_string:
        raise CorruptLogError(f"{where} has a metaData action without schemaString: its columns are not known.")
    return Snapshot(ctx, segment, base, commits, protocol, metadata)


def _trusted_checksum(ctx: LogContext, commits: tuple[CommitActions, ...]) -> VersionChecksum | None:
    """The checksum of the newest commit, if it is complete and was written by the transaction that made the commit."""
    if not commits:
        return None
    checksum = read_checksum(ctx.store, commits[-1].end_version)
    if not isinstance(checksum, VersionChecksum) or checksum.protocol is None or checksum.metadata is None:
        return None
    made_by = (commits[-1].commit_info or {}).get("txnId")
    return checksum if checksum.txn_id is not None and checksum.txn_id == made_by else None


def _newest(commits: tuple[CommitActions, ...]) -> tuple[Protocol | None, Metadata | None]:
    protocol = metadata = None
    for commit in reversed(commits):
        actions = commit.table_actions
        protocol = protocol or actions.protocol
        metadata = metadata or actions.metadata
        if protocol is not None and metadata is not None:
            break
    return protocol, metadata


def _read_segment(ctx: LogContext, version: int | None) -> tuple[LogSegment, tuple[CommitActions, ...]]:
    """The segment of a version and its commits, found anew if log cleanup deletes some of them meanwhile."""
    attempts_left = _ATTEMPTS
    while True:
        segment = find_segment(ctx, version)
        try:
            return segment, read_commits(ctx, segment.commits)
        except ObjectNotFoundError as error:
            attempts_left -= 1
            if attempts_left == 0:
                raise MissingCommitError(
                    f"{ctx.uri} cannot be opened at version {segment.version}: the log was listed {_ATTEMPTS} times, "
                    f"and each time a commit was gone when it should be read: {error}"
                ) from error


def read_commits(ctx: LogContext, files: tuple[CommitFile, ...]) -> tuple[CommitActions, ...]:
    """The commits of a segment. Raises `ObjectNotFoundError` when one is gone."""
    if ctx.cache is not None:
        return ctx.cache.commits(ctx, [file.meta for file in files], [file.version for file in files])
    commits: list[CommitActions] = []
    for file, data in zip(files, ctx.store.get_many([f.meta.key for f in files]), strict=True):
        commit = CommitActions(file.version, file.end_version, file.meta.key, data, ctx.format)
        if file.instead_of and not _is_sound(commit):
            commits += _read_instead(ctx, file.version, file.instead_of)
        else:
            commits.append(commit)
    return tuple(commits)


def _is_sound(compacted: CommitActions) -> bool:
    """Whether a compacted file is what the spec says: reconciled. Some are mere concatenations of commits."""
    try:
        _ = compacted.table_actions
        commit_files(compacted)
    except CorruptLogError:
        return False
    return True


def _read_instead(ctx: LogContext, first: int, metas: tuple[ObjectMeta, ...]) -> list[CommitActions]:
    contents = ctx.store.get_many([meta.key for meta in metas])
    return [
        CommitActions(version, version, meta.key, data)
        for version, (meta, data) in enumerate(zip(metas, contents, strict=True), first)
    ]


def _hint(ctx: LogContext) -> int | None:
    return hinted_version(ctx.store, ctx.format.last_checkpoint_key)


def _get_or_none(ctx: LogContext, key: str) -> bytes | None:
    try:
        return ctx.store.get(key)
    except ObjectNotFoundError:
        return None


def _commit_file(commit: CommitActions) -> CommitFile:
    return CommitFile(commit.version, commit.version, ObjectMeta(commit.key, len(commit.data), NOT_ASKED_MS))


def _exists(ctx: LogContext, key: str) -> bool:
    try:
        ctx.store.head(key)
    except ObjectNotFoundError:
        return False
    return True
