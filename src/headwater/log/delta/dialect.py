"""The transaction log of Delta tables, as a dialect (spec: "Delta Transaction Log Protocol").

After a commit the log gets a checksum, a checkpoint when one is due, and log compaction files if the context asks for
them: the reconciled actions of some commits in one file (spec: "Log Compaction Files"), optional for everybody.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headwater.errors import (
    CorruptLogError,
    InvalidCommitError,
    MissingCommitError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    VersionCleanedUpError,
    VersionNotFoundError,
)
from headwater.log import opening
from headwater.log.actions.decode import (
    CommitActions,
    TableState,
    commit_files,
    decode_lines,
    reconcile_unordered,
    replay_files,
)
from headwater.log.actions.encode import encode_actions, encode_commit
from headwater.log.actions.model import Add, FileActionLine, TableActionLine
from headwater.log.configuration.properties import LOG_RETENTION
from headwater.log.delta import names
from headwater.log.delta.checkpoint.read import Checkpoint
from headwater.log.delta.checksum import Discrepancy, VersionChecksum, carry_over, read_checksum, write_checksum
from headwater.log.delta.cleanup import clean_up
from headwater.log.dialect import LogDialect, LogName
from headwater.log.segment import find_segment, missing_commit
from headwater.log.snapshot import BaseFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headwater.log.actions.decode import FileKey
    from headwater.log.actions.model import Remove
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.context import LogContext
    from headwater.log.dialect import Definition
    from headwater.log.files.chunks import MemoryChunk
    from headwater.log.segment import CommitFile, Gap, LogSegment
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectMeta

_LOG = logging.getLogger("headwater.log")
_FILE_LINE = msgspec.json.Decoder(FileActionLine)
_ATTEMPTS = 3
"""How often the log is listed again when log files of the listing are gone before they are read."""


class DeltaDialect(LogDialect):
    """The log below `_delta_log`."""

    name = "delta"
    title = "Delta table"
    directory = names.LOG_DIR
    occupied_advice = (
        "DeltaTable.convertToDelta makes a Delta table of a directory of Parquet files. Otherwise choose an empty "
        "place, or move the files away."
    )
    empty_text_is_null = True
    add_type = Add
    table_line = msgspec.json.Decoder(TableActionLine)

    def parse(self, name: str) -> LogName | None:
        return names.parse(name)

    def file_lines(self, commit: CommitActions) -> list[FileActionLine]:
        return decode_lines(_FILE_LINE, commit.data, commit.key)

    def reconcile(self, commit: CommitActions) -> dict[FileKey, Add | Remove]:
        return reconcile_unordered(commit)

    @property
    def file_columns(self) -> dict[str, pa.DataType]:
        from headwater.log.files.chunks import ADD_COLUMNS

        return ADD_COLUMNS

    def chunk(self, adds: Sequence[Add]) -> MemoryChunk:
        from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk

        return MemoryChunk(adds, ADD_COLUMNS)

    def open(self, ctx: LogContext, version: int | None) -> Snapshot:
        for attempts_left in reversed(range(_ATTEMPTS)):
            segment, commits = _read_segment(ctx, version)
            base = BaseFiles(None if segment.checkpoint is None else Checkpoint(ctx, segment.checkpoint))
            try:
                return opening.snapshot_of(ctx, segment, base, commits)
            except (CorruptLogError, VersionCleanedUpError) as error:
                # Log cleanup may have deleted the checkpoint since it was listed: then there is a newer one.
                if attempts_left == 0 or not isinstance(error.__cause__, ObjectNotFoundError):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        return opening.refresh(snapshot)

    def resolve_gap(self, ctx: LogContext, gap: Gap) -> LogSegment:
        raise missing_commit(ctx, gap)

    def definition(self, ctx: LogContext, base: BaseFiles, commits: Sequence[CommitActions]) -> Definition | None:
        """Return the checkpoint, or the checksum of the newest commit where the context trusts it.

        It must be complete, and of the transaction that made the commit.
        """
        if base.checkpoint is None or not commits or not ctx.trust_checksum:
            return base.checkpoint
        checksum = read_checksum(ctx.store, commits[-1].end_version)
        if not isinstance(checksum, VersionChecksum) or checksum.protocol is None or checksum.metadata is None:
            return base.checkpoint
        made_by = (commits[-1].commit_info or {}).get("txnId")
        return checksum if checksum.txn_id is not None and checksum.txn_id == made_by else base.checkpoint

    def encode(self, draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
        return encode_commit(draft, attempt, transaction_id, facts)

    def check_merge_skips(self, ctx: LogContext) -> None:
        raise InvalidCommitError(f"{ctx.uri}: the log of a {self.title} has no mergeskip actions.")

    def log_retention_ms(self, snapshot: Snapshot) -> int:
        return snapshot.configuration[LOG_RETENTION]

    def write_checksum(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        try:
            write_checksum(snapshot, before)
        except Exception:
            _LOG.warning("%s: no checksum for version %d", snapshot.uri, snapshot.version, exc_info=True)

    def checkpoint_if_due(self, snapshot: Snapshot) -> Snapshot:
        """Write the compaction file and the checkpoint that are due, and clean up behind the checkpoint."""
        from headwater.log.delta.checkpoint.write import checkpoint_interval, write_checkpoint

        try:
            _compact_if_due(snapshot)
        except Exception:
            _LOG.warning("%s: no log compaction at version %d", snapshot.uri, snapshot.version, exc_info=True)
        try:
            if snapshot.version == 0 or snapshot.version % checkpoint_interval(snapshot):
                return snapshot
            rebased = carry_over(snapshot, write_checkpoint(snapshot))
        except Exception:
            _LOG.warning("%s: no checkpoint of version %d", snapshot.uri, snapshot.version, exc_info=True)
            return snapshot
        try:
            clean_up(rebased)
        except Exception:
            _LOG.warning("%s: the log was not cleaned up at version %d", snapshot.uri, snapshot.version, exc_info=True)
        return rebased

    def verify(self, snapshot: Snapshot) -> list[Discrepancy]:
        from headwater.log.delta.verify import verify

        return verify(snapshot)

    def checksum_state(self, snapshot: Snapshot) -> Literal["found", "missing", "damaged", "not applicable"]:
        checksum = read_checksum(snapshot.ctx.store, snapshot.version)
        if checksum is None:
            return "missing"
        return "damaged" if isinstance(checksum, Discrepancy) else "found"

    def removed_files(self, snapshot: Snapshot) -> pa.Table:
        return snapshot.tombstones(include_expired=True)


DELTA = DeltaDialect()


def _read_segment(ctx: LogContext, version: int | None) -> tuple[LogSegment, tuple[CommitActions, ...]]:
    """Read the commits of a version's segment, which is searched again if log cleanup deletes some meanwhile."""
    attempts_left = _ATTEMPTS
    while True:
        segment = find_segment(ctx, version)
        try:
            return segment, _read_commits(ctx, segment.commits)
        except ObjectNotFoundError as error:
            attempts_left -= 1
            if attempts_left == 0:
                raise MissingCommitError(
                    f"{ctx.uri} cannot be opened at version {segment.version}: the log was listed {_ATTEMPTS} times, "
                    f"and each time a commit was gone when it should be read: {error}"
                ) from error


def _read_commits(ctx: LogContext, files: tuple[CommitFile, ...]) -> tuple[CommitActions, ...]:
    commits: list[CommitActions] = []
    for file, data in zip(files, ctx.store.get_many([f.meta.key for f in files]), strict=True):
        commit = CommitActions(file.version, file.end_version, file.meta.key, data, ctx.dialect)
        if file.instead_of and not _is_reconciled(commit):
            commits += _read_instead(ctx, file.version, file.instead_of)
        else:
            commits.append(commit)
    return tuple(commits)


def _is_reconciled(compacted: CommitActions) -> bool:
    """Tell whether a compacted file is what the spec says. Some writers only concatenate commits."""
    try:
        _ = compacted.table_actions
        commit_files(compacted)
    except CorruptLogError:
        return False
    return True


def _read_instead(ctx: LogContext, first: int, metas: tuple[ObjectMeta, ...]) -> list[CommitActions]:
    contents = ctx.store.get_many([meta.key for meta in metas])
    return [CommitActions.of(version, data, ctx.dialect) for version, data in enumerate(contents, first)]


def _compact_if_due(snapshot: Snapshot) -> None:
    interval = snapshot.ctx.compaction_interval
    if interval is None:
        return
    checkpoint = snapshot.segment.checkpoint
    since = snapshot.version if checkpoint is None else snapshot.version - checkpoint.version - 1
    if (since + 1) % interval == 0:
        compact_log(snapshot, snapshot.version - interval + 1, snapshot.version)


def compact_log(snapshot: Snapshot, first: int, last: int) -> str | None:
    """Write a log compaction file for the commits from `first` to `last`, both included.

    What later commits may have to suppress stays in it: tombstones, and domains that were removed. `commitInfo` and
    change data files do not.

    Returns:
        The key of the file; None when the commits have no actions that would be in it.

    Raises:
        VersionNotFoundError: some of the commits do not exist (any more).
        StorageError: the store failed.
    """
    if not 0 <= first <= last <= snapshot.version:
        raise VersionNotFoundError(
            f"{snapshot.uri} at version {snapshot.version} has no commits from {first} to {last} to compact."
        )
    commits = _commits(snapshot, first, last)
    data = encode_actions(TableState().then(commits), replay_files(commits).values())
    if not data:
        return None
    key = names.compacted_key(first, last)
    with suppress(ObjectAlreadyExistsError):  # commits never change: another writer wrote the same
        snapshot.ctx.store.put_if_absent(key, data)
    return key


def _commits(snapshot: Snapshot, first: int, last: int) -> list[CommitActions]:
    """Return the commits one by one: those at hand, and the others from the store."""
    dialect = snapshot.ctx.dialect
    known = {commit.version: commit for commit in snapshot.commits if commit.version == commit.end_version}
    missing = [version for version in range(first, last + 1) if version not in known]
    try:
        contents = snapshot.ctx.store.get_many([dialect.commit_key(version) for version in missing])
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"{snapshot.uri}: the commits from {first} to {last} cannot be compacted, because one is gone: {error}"
        ) from error
    known |= {
        version: CommitActions.of(version, data, dialect) for version, data in zip(missing, contents, strict=True)
    }
    return [known[version] for version in range(first, last + 1)]
