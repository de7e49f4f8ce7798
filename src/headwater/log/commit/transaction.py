"""The one commit path: what was read, what changes, and the race for the next version.

Every operation makes a `Transaction`, tells it what it reads and what it changes, and commits. A transaction that loses
the race for a version checks the winners for conflicts, runs the rules of the table's features again on the newest
table, and commits the same data files one version later.

A store's answer can get lost: the writer then recognizes its own commit by the transaction id. And put-if-absent only
notices another writer while its commit exists: a transaction on an old version first checks that the log after that
version was not cleaned up, or it would write a commit that no reader ever sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    CommitStateUnknownError,
    ConcurrentWriteException,
    CorruptLogError,
    HeadwaterError,
    InvalidCommitError,
    InvalidUriError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
    UnsupportedProtocolError,
    WriteNotDurableError,
)
from headwater.log.actions.decode import CommitActions, commit_files
from headwater.log.actions.paths import canonical
from headwater.log.commit.conflicts import Challenger, Winner, check
from headwater.log.commit.draft import Attempt, Draft, Operation, ReadSet, check_actions, check_rearrangement
from headwater.log.commit.row_changes import RowChange, RowChanges, RowPlan, check_enabled
from headwater.log.configuration import TableConfiguration
from headwater.log.configuration.properties import ISOLATION_LEVEL
from headwater.log.opening import created, extend, newer_commits
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headwater.log.actions.model import Add, AddCdcFile, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.commit.conflicts import IsolationLevel
    from headwater.log.context import LogContext
    from headwater.log.filters.expressions import Expression
    from headwater.log.indextables.actions import MergeSkip
    from headwater.log.snapshot import Snapshot


MAX_ATTEMPTS = 1_000
"""How often a commit is tried before it gives up; each loss means that another writer has succeeded."""
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

    Raises:
        UnsupportedProtocolError: the table cannot be written.

    Example:
        >>> from headwater.log.actions.model import Metadata, Protocol
        >>> from headwater.log.context import LogContext
        >>> from headwater.storage import open_store
        >>> anything = lambda configuration: None
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
        self._configuration = None if snapshot is None else snapshot.configuration
        self._rows = RowChanges()
        self._isolation: IsolationLevel | None = None
        self._is_used = False
        if snapshot is not None:
            self._check_writable(snapshot.configuration)

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
        """Return the version that an application has recorded; other writers may not record one until the commit."""
        self._reads = self._reads.and_app(app_id)
        return None if self.snapshot is None else self.snapshot.app_transactions.get(app_id)

    def domain_of(self, name: str) -> str | None:
        """Return the configuration of a metadata domain; other writers may not change it until the commit."""
        self._reads = self._reads.and_domain(name)
        return None if self.snapshot is None else self.snapshot.domain_metadata.get(name)

    # --- what changes ------------------------------------------------------------------------------

    @property
    def draft(self) -> Draft:
        return self._draft(Operation(""))

    def add(self, files: Iterable[Add]) -> None:
        """Add data files (already written, under unique names)."""
        self._adds.extend(files)

    def remove(self, files: Iterable[Remove]) -> None:
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
        check_enabled(self.ctx.uri, self.snapshot.configuration.changed(self._protocol, self._metadata))
        self._rows = self._rows.and_rows(changes, self.snapshot)
        self._reads = self._reads.and_files(self._rows.files)

    @property
    def planned_rows(self) -> RowPlan:
        """What the deleted rows come to if other writers do not change their files meanwhile."""
        return self._rows.plan

    def add_changes(self, files: Iterable[AddCdcFile]) -> None:
        self._cdc.extend(files)

    def set_metadata(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def set_protocol(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def record_progress(self, txn: Txn) -> None:
        """Record how far an application has come (an idempotent write)."""
        self._txns.append(txn)

    def skip_merge(self, skips: Iterable[MergeSkip]) -> None:
        """Record files that could not be merged, in a log that has `mergeskip` actions."""
        self.ctx.dialect.check_merge_skips(self.ctx)
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

    @property
    def configuration(self) -> TableConfiguration | None:
        """The configuration that will be in force after the commit, as far as this transaction knows."""
        self._configuration = TableConfiguration.after(self._configuration, self._protocol, self._metadata)
        return self._configuration

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
            data = self.ctx.dialect.encode(final, attempt, self.id, facts)
            commit = _readable(CommitActions.of(attempt.version, data, self.ctx.dialect))
            winner = check_log_not_truncated(self.ctx, base) or publish(self.ctx, commit.version, commit.data, self.id)
            if winner is None:
                # From here on nothing may fail: the commit has happened.
                snapshot = created(self.ctx, commit) if base is None else extend(base, commit)
                return Committed(
                    commit.version, self.ctx.dialect.after_commit(snapshot, base), attempt_number, challenger.rows.plan
                )
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
        return replace(challenger, rows=challenger.rows.written(self.ctx, base.configuration))

    def _completed(self, challenger: Challenger, base: Snapshot | None) -> tuple[Draft, Attempt]:
        """The actions for the next version: what was asked for, completed by the rules of the table as it is now."""
        draft = challenger.draft
        configuration = draft.configuration(base)
        if configuration is None:
            raise InvalidCommitError(f"{self.ctx.uri}: the first commit of a table needs protocol and metaData.")
        version = 0 if base is None else base.version + 1
        attempt = Attempt(version, base, configuration, self.ctx.clock_ms())
        final = challenger.rows.added_to(draft, attempt.now_ms)
        for rule in self.ctx.commit_rules:
            final = rule(final, attempt)
        configuration = configuration.changed(final.protocol, final.metadata)
        attempt = replace(attempt, configuration=configuration)
        self.ctx.check_readable(configuration)
        self._check_writable(configuration)
        if final is not draft:
            check_actions(final)
        return final, attempt

    def _check_writable(self, configuration: TableConfiguration) -> None:
        try:
            self.ctx.check_writable(configuration)
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
        declared = None if self.snapshot is None else self.snapshot.configuration[ISOLATION_LEVEL]
        return "WriteSerializable" if declared == "writeserializable" else "Serializable"

    def _after_winners(
        self, challenger: Challenger, base: Snapshot | None, first: CommitActions
    ) -> tuple[Challenger, Snapshot]:
        """Return the newest table, if this transaction does not conflict with any commit that made it."""
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
    """Return the commit if readers can decode it: once it is in the log, it cannot be undone."""
    try:
        _ = commit.table_actions, commit.commit_info
        commit_files(commit)
    except CorruptLogError as error:
        raise InvalidCommitError(f"the commit would not be readable: {error}") from error
    return commit


_WAITS_S = (0.05, 0.1, 0.2, 0.4)
"""Between the tries. The store itself has repeated each of them already, where that makes sense."""
_REFUSALS = (StorageRefusedError, InvalidUriError, ObjectNotFoundError)
"""The store did not even try (no such bucket, say, or no space). After any other failure the object may be there."""


def publish(ctx: LogContext, version: int, data: bytes, transaction_id: str) -> CommitActions | None:
    """Write a commit.

    Returns:
        None when the commit is in the log; the commit of another writer when that one has this version.

    Raises:
        CommitStateUnknownError: the store failed so often that it is unknown whether the commit is there, or will be
            there after a power failure.
        StorageError: the store refuses; nothing was written.
    """
    key = ctx.dialect.commit_key(version)
    unsure: StorageError | None = None
    for wait_s in (*_WAITS_S, None):
        try:
            ctx.store.put_if_absent(key, data)
        except ObjectAlreadyExistsError as error:
            return _unless_ours(ctx, version, data, transaction_id, unsure or error)
        except WriteNotDurableError as error:
            # It is ours, and looking would only find it in memory: a disk that failed to flush has often forgotten
            # about it at the next try.
            raise CommitStateUnknownError(
                f"{ctx.uri}: version {version} (transaction {transaction_id}) is written, and readers see it, but the "
                f"disk did not confirm that it will stay: {error}. Look after the disk, and at the table's history "
                "before you run the operation again."
            ) from error
        except StorageError as error:
            if unsure is None and isinstance(error, _REFUSALS):
                raise
            unsure = error
        else:
            return None
        if wait_s is not None:
            ctx.sleep(wait_s)
    assert unsure is not None, "every try has failed"
    return _unless_ours(ctx, version, data, transaction_id, unsure)


def _unless_ours(
    ctx: LogContext, version: int, data: bytes, transaction_id: str, unsure: StorageError
) -> CommitActions | None:
    """Return the commit that is there; None if it is our own, whose answer was lost."""
    problem = unsure
    for wait_s in (*ctx.missing_object_waits_s, None):
        try:
            commit = CommitActions.of(version, ctx.store.get(ctx.dialect.commit_key(version)), ctx.dialect)
        except StorageError as error:
            problem = error
        else:
            # A first version that holds nothing but the table's own actions has no id: its whole text tells.
            return None if commit.data == data or _transaction_of(commit) == transaction_id else commit
        if wait_s is not None:
            ctx.sleep(wait_s)
    # That it is not there now does not say that a request that is still on its way will not put it there.
    raise CommitStateUnknownError(
        f"{ctx.uri}: the store did not say whether it wrote version {version} (transaction {transaction_id}): "
        f"{unsure}. Reading it gave no answer either: {problem}. "
        "Look at the table's history before you run the operation again."
    ) from unsure


def _transaction_of(commit: CommitActions) -> object:
    try:
        return (commit.commit_info or {}).get("txnId")
    except CorruptLogError:
        return None  # not what we wrote; replaying it will say what is wrong


_RECENT_MS = 3_600_000
"""So old may the newest known commit be, as clocks may differ by less, unless commits are kept for a shorter time."""


def check_log_not_truncated(ctx: LogContext, base: Snapshot | None) -> CommitActions | None:
    """Raise if the version after `base` has been there and was cleaned up; for None, if there is a table.

    Only needs a look at the log when the newest commit that is known is old. To be called right before the commit is
    put, which nothing should delay.

    Returns:
        The commit that has this version. None if there is none, or if put-if-absent is sure to tell.

    Raises:
        ConcurrentWriteException: it cannot be known any more whether a commit would conflict.
    """
    if base is not None and _is_recent(ctx, base):
        return None
    listing = list_log(ctx, 0 if base is None else base.version)
    latest = listing.latest
    if latest is None:
        return None
    if base is None:
        raise created_by_another(ctx)
    if latest <= base.version:
        return None
    version = base.version + 1
    try:
        if version in listing.commits:
            # It may be cleaned up any moment, and then its place would look free.
            return CommitActions.of(version, ctx.store.get(ctx.dialect.commit_key(version)), ctx.dialect)
    except ObjectNotFoundError:
        pass
    raise ConcurrentWriteException(
        f"{ctx.uri}: this transaction has read version {base.version}, the table is at version {latest}, and the "
        "log in between has been cleaned up, so it is unknown whether they conflict. "
        "Nothing was changed; run the operation again on the newest version."
    )


def created_by_another(ctx: LogContext) -> ConcurrentWriteException:
    """Return the error of a transaction that wanted to create a table which is there now."""
    return ConcurrentWriteException(
        f"{ctx.uri} cannot be created, because another writer just has. "
        "Run the operation again on the table that is there now.",
        winner=0,
    )


def _is_recent(ctx: LogContext, base: Snapshot) -> bool:
    """Tell whether the newest commit of a table is so young that nothing after it can have been cleaned up yet."""
    if base.commits:
        made_ms = (base.commits[-1].commit_info or {}).get("timestamp")
    else:
        assert base.segment.checkpoint is not None, "a version has a commit or a checkpoint"
        made_ms = base.segment.checkpoint.files[0].modified_ms
    try:
        kept_ms = ctx.dialect.log_retention_ms(base)
    except HeadwaterError:  # the property makes no sense: anything may have been cleaned up
        return False
    return isinstance(made_ms, int) and abs(ctx.clock_ms() - made_ms) < min(_RECENT_MS, kept_ms)
