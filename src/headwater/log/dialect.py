"""What differs between the transaction logs of Delta tables and of search tables (spec 002, IndexTables).

Replay, snapshots, transactions, conflicts, time travel and pruning are the same code for both. A `LogDialect` names the
files, decodes and encodes their lines, opens and checkpoints the table, and verifies its log. `DELTA` is in
`headwater.log.delta.dialect`, `INDEXTABLES` in `headwater.log.indextables.dialect`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol as Interface

    import msgspec
    import pyarrow as pa

    from headwater.log.actions.decode import CommitActions, FileKey
    from headwater.log.actions.model import Add, FileActionLine, Metadata, Protocol, Remove, TableActionLine
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.context import LogContext
    from headwater.log.delta.checksum import Discrepancy
    from headwater.log.files.chunks import MemoryChunk
    from headwater.log.indextables.actions import MergeSkip
    from headwater.log.segment import Gap, LogSegment
    from headwater.log.snapshot import BaseFiles, Snapshot

    class Definition(Interface):
        """A log file that holds the protocol and the metaData of a version."""

        @property
        def protocol(self) -> Protocol | None: ...
        @property
        def metadata(self) -> Metadata | None: ...


DialectName: TypeAlias = Literal["delta", "indextables"]
FileKind: TypeAlias = Literal["commit", "compacted", "classic", "multipart", "uuid", "json", "crc"]

MAX_VERSION = 2**63 - 1
"""Versions are longs; a file name with a larger number is not a log file."""

_LOG = logging.getLogger("headwater.log")


@dataclass(frozen=True, slots=True)
class LogName:
    """The kind of a log file and the versions it covers, parsed from its name."""

    kind: FileKind
    version: int
    end_version: int = 0
    """Last version that a compacted file covers."""
    part: int = 0
    parts: int = 0
    uuid: str = ""


class LogDialect(ABC):
    """One kind of transaction log."""

    name: ClassVar[DialectName]
    title: ClassVar[str]
    """What users call such a table."""
    directory: ClassVar[str]
    """The log directory below the table's root; ends with `/`."""
    not_found_prefix: ClassVar[str] = ""
    """How the message begins that no table was found."""
    occupied_advice: ClassVar[str] = "Choose an empty place, or move the files away."
    """What to do where other files are in the place of a new table."""
    empty_text_is_null: ClassVar[bool]
    """Whether an empty partition value means null."""
    add_type: ClassVar[type[Add]]
    table_line: ClassVar[msgspec.json.Decoder[Any]]
    """Decodes a line for everything but file actions."""

    # --- names ----------------------------------------------------------------------------------------

    @abstractmethod
    def parse(self, name: str) -> LogName | None:
        """Parse a file name in the log directory; None if readers ignore such a file."""

    def commit_key(self, version: int) -> str:
        return f"{self.first_key_of(version)}.json"

    def first_key_of(self, version: int) -> str:
        """Return a key that sorts right before every log file of this version (for `list_from`)."""
        return f"{self.directory}{version:020d}"

    @property
    def last_checkpoint_key(self) -> str:
        return self.directory + "_last_checkpoint"

    # --- actions --------------------------------------------------------------------------------------

    @abstractmethod
    def file_lines(self, commit: CommitActions) -> list[FileActionLine]:
        """Decode the lines of a commit for their file actions."""

    @abstractmethod
    def reconcile(self, commit: CommitActions) -> dict[FileKey, Add | Remove]:
        """Return the file actions of one commit by key; see `commit_files`."""

    def merge_skips(self, lines: Sequence[TableActionLine]) -> dict[str, MergeSkip]:  # noqa: ARG002
        """Return the `mergeskip` actions of decoded lines, by canonical path."""
        return {}

    def operation_of(self, commit: CommitActions) -> str | None:  # noqa: ARG002
        """Infer the operation of a commit that does not record one; None where that is not possible."""
        return None

    @property
    @abstractmethod
    def file_columns(self) -> dict[str, pa.DataType]:
        """The columns of `Snapshot.files`."""

    @abstractmethod
    def chunk(self, adds: Sequence[Add]) -> MemoryChunk:
        """Turn `add` actions of commits into columns."""

    # --- opening --------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, ctx: LogContext, version: int | None) -> Snapshot:
        """Open a version of the table, or the newest one."""

    @abstractmethod
    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """Open the newest version, reading only what came after a snapshot."""

    @abstractmethod
    def resolve_gap(self, ctx: LogContext, gap: Gap) -> LogSegment:
        """Return the segment that counts where a commit is missing.

        Raises:
            CorruptLogError, VersionNotFoundError: the gap is an error.
        """

    def definition(self, ctx: LogContext, base: BaseFiles, commits: Sequence[CommitActions]) -> Definition | None:  # noqa: ARG002
        """Return what tells protocol and metaData when the commits after the checkpoint do not."""
        return base.checkpoint

    # --- writing --------------------------------------------------------------------------------------

    @abstractmethod
    def encode(self, draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
        """Return the bytes of a commit."""

    @abstractmethod
    def check_merge_skips(self, ctx: LogContext) -> None:
        """Raise `InvalidCommitError` unless the log has `mergeskip` actions."""

    @abstractmethod
    def log_retention_ms(self, snapshot: Snapshot) -> int:
        """Return how long commits stay in the log."""

    def after_commit(self, snapshot: Snapshot, before: Snapshot | None) -> Snapshot:
        """Do what is due after the commit of `snapshot`, which followed `before`.

        The commit has happened, so nothing here may fail it: problems are logged and left for the next writer.

        Returns:
            The same version of the table, from its new checkpoint where one was written.

        Raises:
            LogCleanupError: a log file could not be deleted, and the options of the table ask for an error then.
        """
        if snapshot.ctx.cache is not None:
            snapshot.ctx.cache.invalidate_newest()
        self.write_checksum(snapshot, before)
        for hook in snapshot.ctx.after_commit:
            try:
                hook(snapshot)
            except Exception:
                name = getattr(hook, "__name__", hook)
                _LOG.warning("%s: %s failed after version %d", snapshot.uri, name, snapshot.version, exc_info=True)
        return self.checkpoint_if_due(snapshot)

    def write_checksum(self, snapshot: Snapshot, before: Snapshot | None) -> None:  # noqa: B027
        """Write the checksum of a new version, in a log that has checksums."""

    @abstractmethod
    def checkpoint_if_due(self, snapshot: Snapshot) -> Snapshot:
        """Write a checkpoint if the interval is over, and clean up the log behind it."""

    # --- looking at a log -----------------------------------------------------------------------------

    @abstractmethod
    def verify(self, snapshot: Snapshot) -> list[Discrepancy]:
        """Return everything in the log that contradicts something else in it."""

    def checksum_state(self, snapshot: Snapshot) -> Literal["found", "missing", "damaged", "not applicable"]:  # noqa: ARG002
        """Tell whether the version has a checksum file, in a log that has such files."""
        return "not applicable"

    @abstractmethod
    def removed_files(self, snapshot: Snapshot) -> pa.Table:
        """Return all removed files that the log still tells of, with the columns of `Snapshot.tombstones`."""
