"""Open and refresh snapshots.

A dialect finds the segment of a version and reads its commits; here protocol and metaData are taken from the newest
place that has them, and `LogContext.check_readable` decides whether the table can be read. A refresh reads only the
commits that came after.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    UnsupportedProtocolError,
)
from headwater.log.actions.decode import CommitActions, replay_files
from headwater.log.commit.history import to_ms, version_at
from headwater.log.configuration import TableConfiguration
from headwater.log.segment import NOT_ASKED_MS, CommitFile, LogSegment, hinted_version, list_log
from headwater.log.snapshot import BaseFiles, Snapshot
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime

    from headwater.log.actions.model import Metadata, Protocol
    from headwater.log.context import LogContext

_LONG_TAIL = 200
"""A refreshed snapshot with more commits than this after its checkpoint looks for a newer checkpoint."""


def open_snapshot(
    ctx: LogContext, version: int | None = None, timestamp: str | datetime | date | int | None = None
) -> Snapshot:
    """Return the snapshot of a version, of a point in time, or the newest one."""
    if timestamp is not None:
        if version is not None:
            raise ValueError("give a version or a timestamp, not both")
        latest = open_snapshot(ctx)
        version = version_at(ctx, to_ms(timestamp), latest)
        if version == latest.version:
            return latest
    return ctx.dialect.open(ctx, version)


def refresh(snapshot: Snapshot) -> Snapshot:
    """Return the newest version of the table, starting from what a snapshot already knows.

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
    """Return the commits after a snapshot, asked for one by one until there is none."""
    version = snapshot.version + 1
    ctx = snapshot.ctx
    while (data := _get_or_none(ctx, ctx.dialect.commit_key(version))) is not None:
        yield CommitActions.of(version, data, ctx.dialect)
        version += 1


def extend(snapshot: Snapshot, *new: CommitActions) -> Snapshot:
    """Return the snapshot after further commits, which are in the log already; nothing is read again."""
    ctx = snapshot.ctx
    files = [*snapshot.segment.commits, *map(_commit_file, new)]
    segment = replace(snapshot.segment, version=new[-1].version, commits=tuple(files), commit_meta=files[-1].meta)
    extended = snapshot_of(ctx, segment, snapshot.base, (*snapshot.commits, *new), known=snapshot)
    if extended.configuration is snapshot.configuration:
        # Decoding a schema of many columns would take longer than a small commit.
        vars(extended).update({name: vars(snapshot)[name] for name in ("schema", "shape") if name in vars(snapshot)})
    if "_tail" in vars(snapshot):
        vars(extended)["_tail"] = replay_files(new, before=snapshot._tail)
    if "_table_state" in vars(snapshot):
        vars(extended)["_table_state"] = snapshot._table_state.then(new)
    if "_known_checksum" in vars(snapshot):
        vars(extended)["_known_checksum"] = vars(snapshot)["_known_checksum"]
    return extended


def created(ctx: LogContext, commit: CommitActions) -> Snapshot:
    """Return the snapshot of a table that has just got its first commit."""
    file = _commit_file(commit)
    segment = LogSegment(commit.version, None, (file,), file.meta)
    return snapshot_of(ctx, segment, BaseFiles(None), (commit,))


def _goes_on_elsewhere(snapshot: Snapshot, reached: int) -> bool:
    """Tell whether the log must be listed again, having read all commits up to `reached`.

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
    """Return the snapshot of a segment whose commits were read, if the table can be read at all."""
    protocol, metadata = _newest(commits if known is None else commits[len(known.commits) :])
    if known is not None:
        # `known` saw all but the newest commits, which were searched first.
        protocol, metadata = protocol or known.protocol, metadata or known.metadata
    elif protocol is None or metadata is None:
        source = ctx.dialect.definition(ctx, base, commits)
        if source is not None:
            protocol, metadata = protocol or source.protocol, metadata or source.metadata
    where = f"{ctx.uri} at version {segment.version}"
    if protocol is None:
        raise CorruptLogError(f"{where} has no protocol action in its log: this is not a complete {ctx.dialect.title}.")
    if metadata is None:
        raise CorruptLogError(f"{where} has no metaData action in its log: this is not a complete {ctx.dialect.title}.")
    configuration = TableConfiguration(protocol, metadata)
    if known is not None:
        configuration = known.configuration.changed(protocol, metadata)
    try:
        ctx.check_readable(configuration)
    except UnsupportedProtocolError as error:
        raise UnsupportedProtocolError(f"{where} cannot be read: {error}", error.features) from error
    except CorruptLogError as error:
        raise CorruptLogError(f"{where} cannot be read: {error}") from error
    if not metadata.schema_string:
        raise CorruptLogError(f"{where} has a metaData action without schemaString: its columns are not known.")
    return Snapshot(ctx, segment, base, commits, configuration)


def _newest(commits: tuple[CommitActions, ...]) -> tuple[Protocol | None, Metadata | None]:
    protocol = metadata = None
    for commit in reversed(commits):
        actions = commit.table_actions
        protocol = protocol or actions.protocol
        metadata = metadata or actions.metadata
        if protocol is not None and metadata is not None:
            break
    return protocol, metadata


def _hint(ctx: LogContext) -> int | None:
    return hinted_version(ctx.store, ctx.dialect.last_checkpoint_key)


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
