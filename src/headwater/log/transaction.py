"""The one commit path: what was read, what changes, and the race for the next version (spec `000`, "Writes").

Every operation makes a `Transaction`, tells it what it reads and what it changes, and commits. Losing the race for a
version is ordinary: the winners are checked for conflicts, the rules of the table's features run again on the newest
table, and the same data files are committed one version later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    ConcurrentWriteException,
    CorruptLogError,
    InvalidCommitError,
    UnsupportedProtocolError,
)
from headwater.log.commit import CommitActions
from headwater.log.conflicts import Challenger, Winner, check
from headwater.log.draft import Attempt, Draft, Operation
from headwater.log.draft_checks import check_actions, check_rearrangement
from headwater.log.encoding import encode_commit
from headwater.log.opening import created, extend, newer_commits
from headwater.log.overtaken import check_not_overtaken, created_by_another
from headwater.log.paths import canonical
from headwater.log.publishing import publish
from headwater.log.read_set import ReadSet
from headwater.log.replay import commit_files
from headwater.log.row_changes import RowChange, RowChanges, RowPlan, check_enabled
from headwater.log.upkeep import keep_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headwater.log.actions import Add, AddCdcFile, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.conflicts import IsolationLevel
    from headwater.log.context import LogContext
    from headwater.log.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.log.split_actions import MergeSkip

MAX_ATTEMPTS = 1_000
"""How often a commit is tried before it gives up; each loss means that somebody else has succeeded."""
_FIRST_WAIT_S = 0.002
_LONGEST_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that has happened."""

    version: int
    snapshot: Snapshot
    """The table right after the commit."""
    attempts: int
    rows: RowPlan = field(default_factory=RowPlan)
    """What came of the rows that were given to `Transaction.delete_rows`."""


class Transaction:
    """Changes to one table that become visible together or not at all.

    Args:
        ctx: the table's log.
        snapshot: the version that the transaction reads; None to create a table.

    Raises:
        UnsupportedProtocolError: the table cannot be written.

    Example:
        >>> from headwater.log.actions import Metadata, Protocol
        >>> from headwater.log.context import LogContext
        >>> from headwater.storage import open_store
        >>> anything = lambda protocol, metadata: None
        >>> ctx = LogContext(open_store("memory://transaction-example"), anything, anything)
        >>> transaction = Transaction(ctx, None)
        >>> transaction.set_protocol(Protocol(1, 2))
        >>> transaction.set_metadata(Metadata("1", '{"type":"struct","fields":[]}'))
        >>> transaction.commit(Operation("CREATE TABLE")).version
        0
    """

    def __init__(self, ctx: LogContext, snapshot: Snapshot | None) -> None:
        self.ctx = ctx
        self.snapshot = snapshot
        self.id = ctx.new_id()
        """Recorded in the commit, by which its writer knows it again."""
        self._reads = ReadSet()
        self._adds: list[Add] = []
        self._removes: list[Remove] = []
        self._cdc: list[AddCdcFile] = []
        self._txns: list[Txn] = []
        self._domains: list[DomainMetadata] = []
        self._skips: list[MergeSkip] = []
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._rows = RowChanges()
        self._isolation: IsolationLevel | None = None
        self._is_used = False
        if snapshot is not None:
            self._check_writable(snapshot.protocol, snapshot.metadata)

    # --- what is read ------------------------------------------------------------------------------

    def read_files(self, where: Expression | None = None, columns: list[str] | None = None) -> pa.Table:
        """The live files that may hold matching rows; from now on other writers may not add or remove such rows."""
        if self.snapshot is None:
            raise InvalidCommitError(f"{self.ctx.uri} does not exist yet: there are no files to read.")
        wanted = None if columns is None else list(dict.fromkeys([*columns, "path"]))
        files = self.snapshot.files(where, wanted)
        if where is None:
            self._reads = self._reads.and_all()
        else:
            self._reads = self._reads.and_listed(where, map(canonical, files.column("path").to_pylist()))
        return files

    def reads_paths(self, paths: Iterable[str]) -> None:
        """The rows of these data files were read (paths as the log has them)."""
        self._reads = self._reads.and_files(map(canonical, paths))

    def reads_whole_table(self) -> None:
        """The result depends on every row of the table."""
        self._reads = self._reads.and_all()

    def reads_rows_matching(self, where: Expression) -> None:
        """The result depends on all rows that match, those that are not there yet included."""
        self._reads = self._reads.and_matching(where)

    def looks_for(self, where: Expression) -> None:
        """Rows that match were looked for, wherever they may be; the files of those found are named by `reads_paths`.

        Until the commit others may add no such rows. They may remove files in which none was found.
        """
        self._reads = self._reads.and_listed(where, ())

    def progress_of(self, app_id: str) -> int | None:
        """The version that an application has recorded; nobody else may record one until the commit."""
        self._reads = self._reads.and_app(app_id)
        return None if self.snapshot is None else self.snapshot.app_transactions.get(app_id)

    def domain_of(self, name: str) -> str | None:
        """The configuration of a metadata domain; nobody else may change it until the commit."""
        self._reads = self._reads.and_domain(name)
        return None if self.snapshot is None else self.snapshot.domain_metadata.get(name)

    # --- what changes ------------------------------------------------------------------------------

    @property
    def draft(self) -> Draft:
        """What the transaction asks for so far."""
        return self._draft(Operation(""))

    def add(self, files: Iterable[Add]) -> None:
        """Add data files (already written, under unique names)."""
        self._adds.extend(files)

    def remove(self, files: Iterable[Remove]) -> None:
        """Remove data files."""
        self._removes.extend(files)

    def delete_rows(self, changes: Iterable[RowChange]) -> None:
        """Delete rows of live data files by deletion vectors, and say which other rows of them were read.

        Others may delete other rows of the same files at the same time: both commit. On every attempt to commit, the
        files get vectors that hold the rows which are gone by then and these; a file without any rows left is removed.

        Args:
            changes: by file; changes of the same file are taken together. Other rows of these files than those that
                the changes name do not matter, however the files were read.

        Raises:
            InvalidCommitError: the table does not allow new deletion vectors; or it has no such file, or the file no
                such rows.
        """
        if self.snapshot is None:
            raise InvalidCommitError(f"{self.ctx.uri} does not exist yet: there are no rows to delete.")
        check_enabled(self.ctx.uri, self.protocol, self.metadata)
        self._rows = self._rows.and_rows(changes, self.snapshot)
        self._reads = self._reads.and_files(self._rows.files)

    @property
    def planned_rows(self) -> RowPlan:
        """What the deleted rows come to if nobody else changes their files meanwhile."""
        return self._rows.plan

    def add_changes(self, files: Iterable[AddCdcFile]) -> None:
        """Add change data files."""
        self._cdc.extend(files)

    def set_metadata(self, metadata: Metadata) -> None:
        """Replace the table's `metaData`."""
        self._metadata = metadata

    def set_protocol(self, protocol: Protocol) -> None:
        """Replace the table's `protocol`."""
        self._protocol = protocol

    def record_progress(self, txn: Txn) -> None:
        """Record how far an application has come (an idempotent write)."""
        self._txns.append(txn)

    def skip_merge(self, skips: Iterable[MergeSkip]) -> None:
        """Record files that could not be merged, in a log that has `mergeskip` actions."""
        if not self.ctx.format.has_merge_skips:
            raise InvalidCommitError(f"{self.ctx.uri}: the log of a {self.ctx.format.title} has no mergeskip actions.")
        self._skips.extend(skips)

    def set_domain(self, domain: DomainMetadata) -> None:
        """Set (or, with `removed`, remove) a metadata domain."""
        self._domains.append(domain)

    @property
    def metadata(self) -> Metadata | None:
        """The `metaData` that will be in force after the commit, as far as this transaction knows."""
        return self._metadata or (None if self.snapshot is None else self.snapshot.metadata)

    @property
    def protocol(self) -> Protocol | None:
        """The `protocol` that will be in force after the commit, as far as this transaction knows."""
        return self._protocol or (None if self.snapshot is None else self.snapshot.protocol)

    def _draft(self, operation: Operation) -> Draft:
        return Draft(
            operation,
            adds=tuple(self._adds),
            removes=tuple(self._removes),
            cdc=tuple(self._cdc),
            txns=tuple(self._txns),
            domains=tuple(self._domains),
            protocol=self._protocol,
            metadata=self._metadata,
            skips=tuple(self._skips),
        )

    # --- the commit --------------------------------------------------------------------------------

    def commit(self, operation: Operation, isolation: IsolationLevel | None = None) -> Committed:
        """Make the changes visible, all together.

        Args:
            operation: what the commit says about itself.
            isolation: overrules the table's `delta.isolationLevel`.

        Returns:
            The version that was made, and the table at that version.

        Raises:
            DeltaConcurrentModificationException: another writer's commit stands in the way.
            InvalidCommitError: the protocol or a property of the table forbids the commit.
            CommitStateUnknownError: the store did not say whether the commit was written.
        """
        if self._is_used:
            raise InvalidCommitError(
                f"{self.ctx.uri}: this transaction was committed before, or tried to be. Make a new one."
            )
        draft = self._draft(operation)
        check_actions(draft)
        check_rearrangement(draft, self.snapshot)
        self._is_used, self._isolation = True, isolation
        challenger, base = self._challenger(draft), self.snapshot
        facts = self._facts(challenger)
        for attempt_number in range(1, MAX_ATTEMPTS + 1):
            challenger = self._with_vectors(challenger, base)
            final, attempt = self._completed(challenger, base)
            commit = _readable(self._encoded(final, attempt, facts))
            winner = check_not_overtaken(self.ctx, base) or publish(self.ctx, commit.version, commit.data, self.id)
            if winner is None:
                # From here on nothing may fail: the commit has happened.
                snapshot = created(self.ctx, commit) if base is None else extend(base, commit)
                return Committed(commit.version, keep_up(snapshot, base), attempt_number, challenger.rows.plan)
            challenger, base = self._after_winners(challenger, base, winner)
            self.ctx.sleep(self._wait_s(attempt_number))
        raise ConcurrentWriteException(
            f"{self.ctx.uri}: {operation.name} lost the race for the next version {MAX_ATTEMPTS} times. "
            "There are very many writers: let some of them wait, or write less often."
        )

    def _with_vectors(self, challenger: Challenger, base: Snapshot | None) -> Challenger:
        """The challenger with deletion vectors for the table as it is now; only those that are new are written."""
        if base is None or not challenger.rows:
            return challenger
        return replace(challenger, rows=challenger.rows.written(self.ctx, base.metadata))

    def _completed(self, challenger: Challenger, base: Snapshot | None) -> tuple[Draft, Attempt]:
        """The actions for the next version: what was asked for, completed by the rules of the table as it is now."""
        draft = challenger.draft
        protocol = draft.protocol or (None if base is None else base.protocol)
        metadata = draft.metadata or (None if base is None else base.metadata)
        if protocol is None or metadata is None:
            raise InvalidCommitError(f"{self.ctx.uri}: the first commit of a table needs protocol and metaData.")
        version = 0 if base is None else base.version + 1
        attempt = Attempt(version, base, protocol, metadata, self.ctx.clock_ms())
        final = challenger.rows.added_to(draft, attempt.now_ms)
        for rule in self.ctx.commit_rules:
            final = rule(final, attempt)
        attempt = replace(attempt, protocol=final.protocol or protocol, metadata=final.metadata or metadata)
        self.ctx.check_readable(attempt.protocol, attempt.metadata)
        self._check_writable(attempt.protocol, attempt.metadata)
        if final is not draft:
            check_actions(final)
        return final, attempt

    def _encoded(self, final: Draft, attempt: Attempt, facts: dict[str, Any]) -> CommitActions:
        """The commit in the dialect of the log."""
        if self.ctx.format.has_merge_skips:
            from headwater.log.split_encoding import encode_version

            data = encode_version(final, attempt, self.id, facts)
        else:
            data = encode_commit(final, attempt, self.id, facts)
        return CommitActions.of(attempt.version, data, self.ctx.format)

    def _check_writable(self, protocol: Protocol, metadata: Metadata) -> None:
        try:
            self.ctx.check_writable(protocol, metadata)
        except UnsupportedProtocolError as error:
            raise UnsupportedProtocolError(f"{self.ctx.uri} cannot be written: {error}", error.features) from error
        except CorruptLogError as error:
            raise CorruptLogError(f"{self.ctx.uri} cannot be written: {error}") from error

    def _facts(self, challenger: Challenger) -> dict[str, Any]:
        """What the commit says about its reads."""
        facts: dict[str, Any] = {"isolationLevel": challenger.isolation, "isBlindAppend": challenger.is_blind_append}
        return facts if self.snapshot is None else {"readVersion": self.snapshot.version, **facts}

    def _challenger(self, draft: Draft) -> Challenger:
        return Challenger(draft, self._reads, self._isolation_level(draft), self.ctx.uri, self._rows)

    def _isolation_level(self, draft: Draft) -> IsolationLevel:
        if self._isolation is not None:
            return self._isolation
        if (draft.adds or draft.removes) and not draft.changes_data and not self._rows:
            return "SnapshotIsolation"  # rows are only moved
        configuration = {} if self.snapshot is None else self.snapshot.metadata.configuration
        declared = configuration.get("delta.isolationLevel", "Serializable").lower()
        return "WriteSerializable" if declared == "writeserializable" else "Serializable"

    def _after_winners(
        self, challenger: Challenger, base: Snapshot | None, first: CommitActions
    ) -> tuple[Challenger, Snapshot]:
        """The newest table, if this transaction does not conflict with any commit that made it."""
        if base is None:
            raise created_by_another(self.ctx)
        base, challenger = self._after_winner(challenger, base, first)
        for commit in newer_commits(base):
            base, challenger = self._after_winner(challenger, base, commit)
        return challenger, base

    @staticmethod
    def _after_winner(challenger: Challenger, base: Snapshot, commit: CommitActions) -> tuple[Snapshot, Challenger]:
        winner = Winner(commit, base)
        check(challenger, winner, base.shape)
        return extend(base, commit), challenger.after(winner)

    def _wait_s(self, attempt: int) -> float:
        """Random, so that writers who lost together do not meet again; longer after every loss."""
        longest: float = min(_FIRST_WAIT_S * 2.0 ** min(attempt, 20), _LONGEST_WAIT_S)
        return self.ctx.random() * longest


def _readable(commit: CommitActions) -> CommitActions:
    """The commit, if it says to a reader what it should: once it is in the log, nobody can take it back."""
    try:
        _ = commit.table_actions, commit.commit_info
        commit_files(commit)
    except CorruptLogError as error:
        raise InvalidCommitError(f"the commit would not be readable: {error}") from error
    return commit
