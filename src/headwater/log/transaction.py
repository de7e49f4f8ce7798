"""The one commit path: what was read, what changes, and the race for the next version (spec `000`, "Writes").

Every operation makes a `Transaction`, tells it what it reads and what it changes, and commits. Losing the race for a
version is ordinary: the winners are checked for conflicts, the rules of the table's features run again on the newest
table, and the same data files are committed one version later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import ConcurrentWriteException, InvalidCommitError
from headwater.log.commit import CommitActions, file_key
from headwater.log.conflicts import Challenger, Winner, check
from headwater.log.draft import Attempt, Draft, Operation
from headwater.log.encoding import encode_commit
from headwater.log.opening import extend, newer_commits
from headwater.log.paths import canonical
from headwater.log.publishing import publish
from headwater.log.read_set import ReadSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headwater.log.actions import Add, AddCdcFile, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.conflicts import IsolationLevel
    from headwater.log.context import LogContext
    from headwater.log.expressions import Expression
    from headwater.log.snapshot import Snapshot

MAX_ATTEMPTS = 1_000
"""How often a commit is tried before it gives up; each loss means that somebody else has succeeded."""
_FIRST_WAIT_S = 0.002
_LONGEST_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that has happened."""

    version: int
    snapshot: Snapshot
    """The table right after the commit."""
    attempts: int


class Transaction:
    """Changes to one table that become visible together or not at all.

    Args:
        ctx: the table's log.
        snapshot: the version that the transaction reads; None to create a table.
    """

    def __init__(self, ctx: LogContext, snapshot: Snapshot | None) -> None:
        self.ctx = ctx
        self.snapshot = snapshot
        self.id = ctx.new_id()
        """Recorded in the commit, by which its writer knows it again."""
        self._reads = ReadSet()
        self._draft = Draft(Operation(""))
        self._isolation: IsolationLevel | None = None
        if snapshot is not None:
            ctx.check_writable(snapshot.protocol, snapshot.metadata)

    # --- what is read ------------------------------------------------------------------------------

    def read_files(self, where: Expression | None = None, columns: list[str] | None = None) -> pa.Table:
        """The live files that may hold matching rows; from now on other writers may not add or remove such rows."""
        if self.snapshot is None:
            raise InvalidCommitError(f"{self.ctx.uri} does not exist yet: there are no files to read.")
        wanted = None if columns is None else list(dict.fromkeys([*columns, "path"]))
        files = self.snapshot.files(where, wanted)
        self._reads = self._reads.and_all() if where is None else self._reads.and_matching(where)
        self.reads_paths(files.column("path").to_pylist())
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

    def progress_of(self, app_id: str) -> int | None:
        """The version that an application has recorded; nobody else may record one until the commit."""
        self._reads = self._reads.and_app(app_id)
        return None if self.snapshot is None else self.snapshot.app_transactions.get(app_id)

    # --- what changes ------------------------------------------------------------------------------

    @property
    def draft(self) -> Draft:
        """What the transaction asks for so far."""
        return self._draft

    def add(self, files: Iterable[Add]) -> None:
        """Add data files (already written, under unique names)."""
        self._draft = replace(self._draft, adds=(*self._draft.adds, *files))

    def remove(self, files: Iterable[Remove]) -> None:
        """Remove data files."""
        self._draft = replace(self._draft, removes=(*self._draft.removes, *files))

    def add_changes(self, files: Iterable[AddCdcFile]) -> None:
        """Add change data files."""
        self._draft = replace(self._draft, cdc=(*self._draft.cdc, *files))

    def set_metadata(self, metadata: Metadata) -> None:
        """Replace the table's `metaData`."""
        self._draft = replace(self._draft, metadata=metadata)

    def set_protocol(self, protocol: Protocol) -> None:
        """Replace the table's `protocol`."""
        self._draft = replace(self._draft, protocol=protocol)

    def record_progress(self, txn: Txn) -> None:
        """Record how far an application has come (an idempotent write)."""
        self._draft = replace(self._draft, txns=(*self._draft.txns, txn))

    def set_domain(self, domain: DomainMetadata) -> None:
        """Set (or, with `removed`, remove) a metadata domain."""
        self._draft = replace(self._draft, domains=(*self._draft.domains, domain))

    @property
    def metadata(self) -> Metadata | None:
        """The `metaData` that will be in force after the commit, as far as this transaction knows."""
        return self._draft.metadata or (None if self.snapshot is None else self.snapshot.metadata)

    @property
    def protocol(self) -> Protocol | None:
        """The `protocol` that will be in force after the commit, as far as this transaction knows."""
        return self._draft.protocol or (None if self.snapshot is None else self.snapshot.protocol)

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
        draft = replace(self._draft, operation=operation)
        _check_actions(draft)
        self._isolation = isolation
        base = self.snapshot
        for attempt_number in range(1, MAX_ATTEMPTS + 1):
            attempt = self._attempt(draft, base)
            final = draft
            for rule in self.ctx.commit_rules:
                final = rule(final, attempt)
            attempt = replace(
                attempt,
                protocol=final.protocol or attempt.protocol,
                metadata=final.metadata or attempt.metadata,
            )
            self.ctx.check_writable(attempt.protocol, attempt.metadata)
            data = encode_commit(final, attempt, self.id, self._facts(draft))
            if publish(self.ctx, attempt.version, data, self.id):
                return self._committed(base, attempt.version, data, attempt_number)
            base = self._after_winners(draft, base)
            self.ctx.sleep(self._wait_s(attempt_number))
        raise ConcurrentWriteException(
            f"{self.ctx.uri}: {operation.name} lost the race for the next version {MAX_ATTEMPTS} times. "
            "There are very many writers: let some of them wait, or write less often."
        )

    def _attempt(self, draft: Draft, base: Snapshot | None) -> Attempt:
        protocol = draft.protocol or (None if base is None else base.protocol)
        metadata = draft.metadata or (None if base is None else base.metadata)
        if protocol is None or metadata is None:
            raise InvalidCommitError(f"{self.ctx.uri}: the first commit of a table needs protocol and metaData.")
        version = 0 if base is None else base.version + 1
        return Attempt(version, base, protocol, metadata, self.ctx.clock_ms())

    def _facts(self, draft: Draft) -> dict[str, Any]:
        """What the commit says about its reads."""
        challenger = self._challenger(draft)
        facts: dict[str, Any] = {"isolationLevel": challenger.isolation, "isBlindAppend": challenger.is_blind_append}
        return facts if self.snapshot is None else {"readVersion": self.snapshot.version, **facts}

    def _challenger(self, draft: Draft) -> Challenger:
        return Challenger(draft, self._reads, self._isolation_level(draft), self.ctx.uri)

    def _isolation_level(self, draft: Draft) -> IsolationLevel:
        if self._isolation is not None:
            return self._isolation
        if (draft.adds or draft.removes) and not draft.changes_data:
            return "SnapshotIsolation"  # rows are only moved
        configuration = {} if self.snapshot is None else self.snapshot.metadata.configuration
        declared = configuration.get("delta.isolationLevel", "Serializable").lower()
        return "WriteSerializable" if declared == "writeserializable" else "Serializable"

    def _after_winners(self, draft: Draft, base: Snapshot | None) -> Snapshot:
        """The newest table, if this transaction does not conflict with any commit that made it."""
        challenger = self._challenger(draft)
        if base is None:
            raise ConcurrentWriteException(
                f"{self.ctx.uri}: {draft.operation.name} cannot create the table, because another writer just has. "
                "Run the operation again on the table that is there now.",
                winner=0,
            )
        for commit in newer_commits(base):
            check(challenger, Winner(commit, base), base.shape)
            base = extend(base, commit)
        return base

    def _committed(self, base: Snapshot | None, version: int, data: bytes, attempts: int) -> Committed:
        """After the commit: the table as it is now, and the upkeep of the log, which can no longer fail the commit."""
        from headwater.log.opening import created
        from headwater.log.upkeep import keep_up

        commit = CommitActions.of(version, data)
        snapshot = created(self.ctx, commit) if base is None else extend(base, commit)
        return Committed(version, keep_up(snapshot, base), attempts)

    def _wait_s(self, attempt: int) -> float:
        """Random, so that writers who lost together do not meet again; longer after every loss."""
        longest: float = min(_FIRST_WAIT_S * 2.0 ** min(attempt, 20), _LONGEST_WAIT_S)
        return self.ctx.random() * longest


def _check_actions(draft: Draft) -> None:
    """One action per key (spec: "Delta Log Entries"), and none that says nothing."""
    for kind, paths in (("add", draft.adds), ("remove", draft.removes)):
        seen: set[str] = set()
        for action in paths:
            path = canonical(action.path)
            if path in seen:
                raise InvalidCommitError(f"a commit may have only one {kind} action for the file {action.path!r}.")
            seen.add(path)
    added = {file_key(add) for add in draft.adds}
    for remove in draft.removes:
        if file_key(remove) in added:
            raise InvalidCommitError(f"a commit may not both add and remove the logical file {remove.path!r}.")
    _check_unique("txn", [txn.app_id for txn in draft.txns])
    _check_unique("domainMetadata", [domain.domain for domain in draft.domains])
    if any(cdc.data_change for cdc in draft.cdc):
        raise InvalidCommitError("cdc actions do not change data: their dataChange must be false.")


def _check_unique(kind: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidCommitError(f"a commit may have only one {kind} action for {twice!r}.")
