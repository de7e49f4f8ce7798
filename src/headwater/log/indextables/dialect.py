"""The transaction log of search tables, as a dialect (spec 002: "Checkpoint Reading", "Error Scenarios").

A checkpoint that cannot be read is skipped: older log files tell the same, only slower. Where they are gone, the error
names the checkpoint that the table depends on, and why it could not be read. Version 0 must be there, whatever a
checkpoint says, and versions after a gap do not count.

The log has no checksums, but it can contradict itself. `verify` reports versions behind a gap; versions that hold
actions they must not hold; checkpoints that are damaged or differ from the version files; and a wrong hint.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from headwater.errors import (
    CorruptLogError,
    HeadwaterError,
    LogCleanupError,
    MissingCommitError,
    ObjectNotFoundError,
    StorageError,
    StorageThrottledError,
    TableNotFoundError,
    VersionNotFoundError,
)
from headwater.log import opening
from headwater.log.actions.decode import CommitActions, file_actions, file_key, replay_files
from headwater.log.actions.paths import canonical
from headwater.log.delta.checksum import Discrepancy
from headwater.log.dialect import LogDialect, LogName
from headwater.log.indextables import actions
from headwater.log.indextables.actions import SplitAdd, SplitTableLine
from headwater.log.segment import CommitFile, LogSegment, find_segment, hinted_version, list_log, missing_commit
from headwater.log.snapshot import BaseFiles
from headwater.storage.base import ForwardingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headwater.log.actions.decode import FileKey
    from headwater.log.actions.model import Add, FileActionLine, Remove, TableActionLine
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.context import LogContext
    from headwater.log.files.chunks import MemoryChunk
    from headwater.log.indextables.actions import MergeSkip
    from headwater.log.indextables.checkpoint import JsonCheckpoint
    from headwater.log.segment import CheckpointFiles, Gap, LogListing
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


_LOG = logging.getLogger("headwater.log")
_ATTEMPTS = 3
"""How often the log is listed again when version files of the listing are gone before they are read."""


class IndexTablesDialect(LogDialect):
    """The log below `_transaction_log`.

    >>> INDEXTABLES.commit_key(42)
    '_transaction_log/00000000000000000042.json'
    """

    name = "indextables"
    title = "search table"
    directory = "_transaction_log/"
    not_found_prefix = "No transaction log found: "
    empty_text_is_null = False
    add_type = SplitAdd
    table_line = msgspec.json.Decoder(SplitTableLine)

    def parse(self, name: str) -> LogName | None:
        return actions.parse_name(name)

    def file_lines(self, commit: CommitActions) -> list[FileActionLine]:
        return actions.file_lines(commit)

    def reconcile(self, commit: CommitActions) -> dict[FileKey, Add | Remove]:
        """Return the file actions by key: of several actions for one file the last one counts."""
        return {file_key(action): action for action in file_actions(commit)}

    def merge_skips(self, lines: Sequence[TableActionLine]) -> dict[str, MergeSkip]:
        found = (line.mergeskip for line in cast("Sequence[SplitTableLine]", lines))
        return {canonical(skip.path): skip for skip in found if skip is not None}

    def operation_of(self, commit: CommitActions) -> str:
        return actions.operation_of(commit)

    @property
    def file_columns(self) -> dict[str, pa.DataType]:
        from headwater.log.indextables.checkpoint import SPLIT_COLUMNS

        return SPLIT_COLUMNS

    def chunk(self, adds: Sequence[Add]) -> MemoryChunk:
        from headwater.log.indextables.checkpoint import SplitChunk

        return SplitChunk(adds)

    def open(self, ctx: LogContext, version: int | None) -> Snapshot:
        return _open(ctx, version)

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        return opening.refresh(snapshot)

    def resolve_gap(self, ctx: LogContext, gap: Gap) -> LogSegment:
        """Return the segment of the version before the gap (spec 002: "Version Gap")."""
        if gap.ends_before:
            return _segment_before(gap)
        newest = max(gap.listing.checkpoints, default=0)
        if gap.missing == 0:
            raise _first_version_lost(ctx, "is missing")
        if gap.wanted < newest:
            raise VersionNotFoundError(
                f"{ctx.uri} has no version {gap.wanted} any more: its log files have been cleaned up. "
                f"The versions from {newest} on are available."
            )
        raise missing_commit(ctx, gap)

    def encode(self, draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
        return actions.encode_version(draft, attempt, transaction_id, facts)

    def check_merge_skips(self, ctx: LogContext) -> None:
        """Do nothing: the log has such actions."""

    def log_retention_ms(self, snapshot: Snapshot) -> int:
        return snapshot.ctx.options.over(snapshot.metadata.configuration).log_retention_ms

    def checkpoint_if_due(self, snapshot: Snapshot) -> Snapshot:
        return _checkpoint_if_due(snapshot)

    def verify(self, snapshot: Snapshot) -> list[Discrepancy]:
        return _verify(snapshot)

    def removed_files(self, snapshot: Snapshot) -> pa.Table:
        """Return the removed files of every version file: checkpoints keep no tombstones."""
        import pyarrow as pa

        from headwater.log.files.chunks import REMOVE_COLUMNS, MemoryChunk

        versions = (file_actions(commit) for commit in _versions(snapshot, list_log(snapshot.ctx)))
        removes = [action for found in versions for action in found if isinstance(action, actions.SplitRemove)]
        chunk = MemoryChunk(removes, REMOVE_COLUMNS)
        return pa.table({name: chunk.column(name) for name in REMOVE_COLUMNS})


INDEXTABLES = IndexTablesDialect()


def _checkpoint_if_due(snapshot: Snapshot) -> Snapshot:
    """Write a checkpoint every `spark.indextables.checkpoint.interval` versions, and clean up behind it."""
    ctx = snapshot.ctx
    try:
        interval = ctx.options.over(snapshot.metadata.configuration).checkpoint_interval
        if snapshot.version == 0 or snapshot.version % interval:
            return snapshot
        from headwater.log.indextables.checkpoint import write_json_checkpoint
        from headwater.log.indextables.cleanup import clean_up_by_age

        rebased = write_json_checkpoint(snapshot)
        if ctx.cache is not None:
            ctx.cache.invalidate_all()
    except Exception:
        _LOG.warning("%s: no checkpoint of version %d", snapshot.uri, snapshot.version, exc_info=True)
        return snapshot
    try:
        clean_up_by_age(rebased)
    except LogCleanupError:
        raise  # the options of the table ask for it
    except Exception:
        _LOG.warning("%s: the log was not cleaned up at version %d", snapshot.uri, snapshot.version, exc_info=True)
    return rebased


def _segment_before(gap: Gap) -> LogSegment:
    last, commits = gap.missing - 1, gap.listing.commits
    first = 0 if gap.checkpoint is None else gap.checkpoint.version + 1
    files = tuple(CommitFile(version, version, commits[version]) for version in range(first, gap.missing))
    unreachable = tuple(sorted(version for version in commits if version > gap.missing))
    return LogSegment(last, gap.checkpoint, files, commits.get(last), unreachable)


def _open(ctx: LogContext, version: int | None) -> Snapshot:
    """Open a version, or the newest one.

    Raises:
        CorruptLogError: version 0 or a version file is damaged, or a checkpoint that everything depends on.
        StorageError: the store fails; also when it does not give a checkpoint that everything depends on.
    """
    unreadable: dict[int, CorruptLogError | StorageError] = {}
    attempts_left = _ATTEMPTS
    while True:
        try:
            segment = find_segment(ctx, version, frozenset(unreadable))
        except (MissingCommitError, VersionNotFoundError, TableNotFoundError) as error:
            if unreadable:
                raise _lost(ctx, unreadable, error) from error
            raise
        fetched = replace(ctx, store=FetchedStore(ctx.store, _needed(ctx, segment)))
        files = segment.checkpoint
        try:
            commits = _read_commits(fetched, segment.commits)
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
            unreadable[files.version] = error.reason
            continue
        _check_first_version(fetched, commits)
        return opening.snapshot_of(ctx, segment, base, commits)


def _read_commits(ctx: LogContext, files: tuple[CommitFile, ...]) -> tuple[CommitActions, ...]:
    if ctx.cache is not None:
        return ctx.cache.commits(ctx, [file.meta for file in files], [file.version for file in files])
    contents = ctx.store.get_many([file.meta.key for file in files])
    return tuple(CommitActions.of(f.version, data, ctx.dialect) for f, data in zip(files, contents, strict=True))


class _UnreadableCheckpointError(Exception):
    """A checkpoint is damaged, or the store did not give it."""

    def __init__(self, reason: CorruptLogError | StorageError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _read_checkpoint(ctx: LogContext, files: CheckpointFiles) -> JsonCheckpoint:
    """Read a checkpoint; ask a store that does not answer again, because the failure may pass.

    Raises:
        ObjectNotFoundError: it no longer exists.
        _UnreadableCheckpointError: it is damaged, or the store never gave it.
    """
    from headwater.log.indextables.checkpoint import read_json_checkpoint

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
    """Return the keys of all files that opening a segment takes and that are not cached, to fetch them in one call."""
    metas = [commit.meta for commit in segment.commits]
    if segment.checkpoint is not None:
        metas += segment.checkpoint.files
    keys = [meta.key for meta in metas if ctx.cache is None or not ctx.cache.knows(meta)]
    first = ctx.dialect.commit_key(0)
    starts_at_0 = bool(segment.commits) and segment.commits[0].version == 0
    return keys if starts_at_0 else [*keys, first]


def _first_version_lost(ctx: LogContext, problem: str) -> CorruptLogError:
    """Return the error for a table whose version 0 is lost or damaged (spec 002: "Corrupted Version 0")."""
    return CorruptLogError(
        f"No transaction log found: version 0 of {ctx.uri} ({ctx.dialect.commit_key(0)}) {problem}. It holds the "
        "table's protocol and metaData, and without it the table cannot be read. Restore it from a backup, or create "
        "the table again with the same schema."
    )


def _lost(
    ctx: LogContext, unreadable: dict[int, CorruptLogError | StorageError], why: HeadwaterError
) -> HeadwaterError:
    """Return the error for a table whose checkpoints cannot be read and whose older version files are gone.

    It is the store's own error if the store did not give one of them, because such a failure may pass.
    """
    newest = max(unreadable)
    for version in sorted(unreadable, reverse=True):
        error = unreadable[version]
        if isinstance(error, StorageError):
            error.add_note(
                f"{ctx.uri} depends on its checkpoint of version {version}: the version files that could stand for it "
                f"are not all there any more ({why}). Try again."
            )
            return error
    return CorruptLogError(
        f"{ctx.uri}: failed to read checkpoint at version {newest} ({unreadable[newest]}), and the version files that "
        f"could stand for it are not all there any more: {why}"
    )


def _check_first_version(ctx: LogContext, commits: tuple[CommitActions, ...]) -> None:
    """Raise unless version 0 can be read, and has what it must have."""
    key = ctx.dialect.commit_key(0)
    try:
        known = commits and commits[0].version == 0
        actions = (commits[0] if known else CommitActions.of(0, ctx.store.get(key), ctx.dialect)).table_actions
    except ObjectNotFoundError:
        raise _first_version_lost(ctx, "is missing") from None
    except CorruptLogError as error:
        raise _first_version_lost(ctx, f"is damaged ({error})") from error
    for name, action in (("protocol", actions.protocol), ("metaData", actions.metadata)):
        if action is None:
            raise _first_version_lost(ctx, f"has no {name} action")


class FetchedStore(ForwardingStore):
    """A store of which some objects were fetched in one call; each is returned once.

    If that call fails, every object is read by itself, so that the error names the right one.
    """

    def __init__(self, inner: ObjectStore, keys: Sequence[str]) -> None:
        super().__init__(inner)
        self._ready: dict[str, bytes] = {}
        with contextlib.suppress(StorageError):
            self._ready = dict(zip(keys, inner.get_many(keys), strict=True))

    def get(self, key: str) -> bytes:
        ready = self._ready.pop(key, None)
        return self._inner.get(key) if ready is None else ready

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        ready = {key: self._ready.pop(key) for key in keys if key in self._ready}
        missing = [key for key in keys if key not in ready]
        if missing:
            ready |= zip(missing, self._inner.get_many(missing), strict=True)
        return [ready[key] for key in keys]


def _verify(snapshot: Snapshot) -> list[Discrepancy]:
    """Yield every discrepancy in the log up to a version, and what follows a gap after it."""
    listing = list_log(snapshot.ctx)
    versions = _versions(snapshot, listing)
    return [
        *_gap(snapshot, listing),
        *_contents(versions),
        *_checkpoints(snapshot, listing, versions),
        *_hint(snapshot, listing),
    ]


def _versions(snapshot: Snapshot, listing: LogListing) -> list[CommitActions]:
    ctx = snapshot.ctx
    wanted = [version for version in sorted(listing.commits) if version <= snapshot.version]
    contents = ctx.store.get_many([listing.commits[version].key for version in wanted])
    return [CommitActions.of(version, data, ctx.dialect) for version, data in zip(wanted, contents, strict=True)]


def _gap(snapshot: Snapshot, listing: LogListing) -> Iterator[Discrepancy]:
    for commit in snapshot.segment.commits:
        if commit.version not in listing.commits:
            yield Discrepancy(commit.meta.key, "version file", "one for every version", "missing: it was there before")
    ignored = snapshot.segment.unreachable
    if ignored:
        key = snapshot.ctx.dialect.commit_key(snapshot.version + 1)
        found = f"missing: the versions behind it do not count ({', '.join(map(str, ignored))})"
        yield Discrepancy(key, "version file", "one for every version", found)


def _contents(versions: list[CommitActions]) -> Iterator[Discrepancy]:
    """Check that version 0 is exactly `protocol` and `metaData`, and that no other version has a `metaData`."""
    for commit in versions:
        try:
            lines = commit.table_lines()
            files = [type(action).__name__.removeprefix("Split").lower() for action in file_actions(commit)]
        except CorruptLogError as error:
            yield Discrepancy(commit.key, "actions", "valid actions", str(error))
            continue
        found = Counter(files)
        found["protocol"] = sum(line.protocol is not None for line in lines)
        found["metaData"] = sum(line.meta_data is not None for line in lines)
        if commit.version == 0:
            counted = {name: count for name, count in found.items() if count}
            if counted != {"protocol": 1, "metaData": 1}:
                yield Discrepancy(commit.key, "actions", {"protocol": 1, "metaData": 1}, counted)
        elif found["metaData"]:
            yield Discrepancy(commit.key, "metaData", "only in version 0", found["metaData"])


def _checkpoints(snapshot: Snapshot, listing: LogListing, versions: list[CommitActions]) -> Iterator[Discrepancy]:
    from headwater.log.indextables.checkpoint import read_json_checkpoint

    for version in sorted(listing.checkpoints):
        if version > snapshot.version:
            continue
        files = listing.checkpoints[version][0]
        try:
            checkpoint = read_json_checkpoint(snapshot.ctx, files)
        except ObjectNotFoundError:
            continue  # cleaned up since it was listed
        except CorruptLogError as error:
            yield Discrepancy(files.files[0].key, "content", "a checkpoint that can be read", str(error))
            continue
        yield from _against_versions(checkpoint, [commit for commit in versions if commit.version <= version])


def _against_versions(checkpoint: JsonCheckpoint, commits: list[CommitActions]) -> Iterator[Discrepancy]:
    """Compare a checkpoint with the version files, where all of them still exist."""
    if [commit.version for commit in commits] != list(range(checkpoint.version + 1)):
        return
    key = checkpoint.files.files[0].key
    try:
        newest = replay_files(commits)
        table = [commit.table_actions for commit in commits]
    except CorruptLogError:
        return  # said already
    live = sorted(path for (path, _), action in newest.items() if not hasattr(action, "deletion_timestamp"))
    found = sorted(canonical(add.path) for add in checkpoint.live)
    if live != found:
        yield Discrepancy(key, "add", live, found)
    protocol = next((actions.protocol for actions in reversed(table) if actions.protocol is not None), None)
    metadata = next((actions.metadata for actions in reversed(table) if actions.metadata is not None), None)
    if protocol != checkpoint.protocol:
        yield Discrepancy(key, "protocol", protocol, checkpoint.protocol)
    if metadata != checkpoint.metadata:
        yield Discrepancy(key, "metaData", metadata, checkpoint.metadata)


def _hint(snapshot: Snapshot, listing: LogListing) -> Iterator[Discrepancy]:
    key = snapshot.ctx.dialect.last_checkpoint_key
    version = hinted_version(snapshot.ctx.store, key)
    if version is not None and version not in listing.checkpoints:
        yield Discrepancy(key, "version", sorted(listing.checkpoints), version)
