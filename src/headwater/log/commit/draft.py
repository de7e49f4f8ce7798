"""The actions that a transaction asks for, what it has read, and the checks before they become a commit.

A draft is a value. On every attempt to commit, the rules of the table's features turn the same draft into the actions
for one version, so losing a race costs no more than doing that again. A draft has one action per key, no action that
contradicts another, and a truthful `dataChange`: a commit that claims to move rows neither adds nor loses any
(spec: "Delta Log Entries", "Add File and Remove File").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

import msgspec

from headwater.errors import InvalidCommitError
from headwater.log.actions.decode import file_key
from headwater.log.actions.paths import canonical
from headwater.log.configuration import TableConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headwater.log.actions.model import Add, AddCdcFile, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.commit.row_changes import RowPlan
    from headwater.log.filters.expressions import Expression
    from headwater.log.indextables.actions import MergeSkip
    from headwater.log.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit says about itself in `commitInfo`."""

    name: str
    """As users know it from the history: `WRITE`, `DELETE`, `SET TBLPROPERTIES`, ..."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Text stands as it is, everything else as JSON."""
    metrics: Mapping[str, int | str] = field(default_factory=dict)
    user_metadata: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    """Such as `delta.rowTracking.preserved`."""
    row_metrics: Callable[[RowPlan], Mapping[str, int | str]] | None = None
    """Further metrics, of what the deleted rows (`Transaction.delete_rows`) come to on the table as it is then."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The actions that a transaction asks for."""

    operation: Operation
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    cdc: tuple[AddCdcFile, ...] = ()
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `commitInfo`; those of the features stand first (`inCommitTimestamp` must)."""
    skips: tuple[MergeSkip, ...] = ()
    """Files that a merge could not take; only in a dialect that records them."""

    def configuration(self, base: Snapshot | None) -> TableConfiguration | None:
        """Return the configuration of the table after this draft; None if a new table lacks protocol or metaData."""
        before = None if base is None else base.configuration
        return TableConfiguration.after(before, self.protocol, self.metadata)

    @property
    def changes_data(self) -> bool:
        """Whether rows change; a commit that only rearranges them says so on every file."""
        return any(a.data_change for a in self.adds) or any(r.data_change for r in self.removes)

    @property
    def only_adds(self) -> bool:
        """Whether all file actions, if there are any, are `add` actions of new rows."""
        return not self.removes and all(add.data_change for add in self.adds)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to commit a draft: the version it would get, and the table it would build on."""

    version: int
    snapshot: Snapshot | None
    """The newest version of the table; None when this commit creates it."""
    configuration: TableConfiguration
    """In force with this commit."""
    now_ms: int

    @property
    def protocol(self) -> Protocol:
        return self.configuration.protocol

    @property
    def metadata(self) -> Metadata:
        return self.configuration.metadata


class CommitRule(Interface):
    """What a table feature demands of every commit: it checks the draft, or completes it.

    Rules run again on every attempt, in order, each on the result of the one before.
    """

    def __call__(self, draft: Draft, attempt: Attempt) -> Draft:
        """Return the draft, completed for this attempt.

        Raises:
            InvalidCommitError: the feature forbids the commit.
        """


def check_actions(draft: Draft) -> None:
    """One action per key, and all required fields.

    Raises:
        InvalidCommitError: the protocol does not allow these actions in one commit.
    """
    _check_unique("add", (canonical(add.path) for add in draft.adds))
    _check_unique("remove", (canonical(remove.path) for remove in draft.removes))
    _check_unique("txn", (txn.app_id for txn in draft.txns))
    _check_unique("domainMetadata", (domain.domain for domain in draft.domains))
    added = {file_key(add) for add in draft.adds} if draft.removes else set()
    for remove in draft.removes:
        if file_key(remove) in added:
            raise InvalidCommitError(f"a commit may not both add and remove the logical file {remove.path!r}.")
    for add in draft.adds:
        if add.modification_time is None:
            raise InvalidCommitError(f"the add action of {add.path!r} has no modificationTime, which is required.")
    if draft.metadata is not None and not draft.metadata.schema_string:
        raise InvalidCommitError("the metaData action has no schemaString: the table would have no columns.")
    if any(cdc.data_change for cdc in draft.cdc):
        raise InvalidCommitError("cdc actions do not change data: their dataChange must be false.")


def check_rearrangement(draft: Draft, base: Snapshot | None) -> None:
    """Files with `dataChange=false` must hold rows that were in the table, all of them and no others.

    An `add` that stands for itself has to be of a file that is in the table already (new statistics, row ids). Files
    are counted only by what the actions say; the table's paths are looked through only for such an `add`.

    Raises:
        InvalidCommitError: rows would appear or vanish without anybody being told.
    """
    adds = [add for add in draft.adds if not add.data_change]
    removes = [remove for remove in draft.removes if not remove.data_change]
    if not adds and not removes:
        return
    if removes and adds and _may_be_same_rows(adds, removes):
        return
    again = _still_there(adds, draft.removes, base)
    moved = [add for add in adds if canonical(add.path) not in again]
    if moved and not removes:
        raise InvalidCommitError(
            f"the file {moved[0].path!r} is added with dataChange=false, so its rows must be in the table already: "
            "but the file is not in the table, and no file is removed with dataChange=false. "
            "Say dataChange=true for new rows."
        )
    if removes and (_rows(removes) != 0 if not moved else not _may_be_same_rows(moved, removes)):
        raise InvalidCommitError(
            f"files with {_counted(removes)} are removed with dataChange=false, and files with {_counted(moved)} are "
            "added with dataChange=false: these must be the same rows. Nothing was committed."
        )


def _check_unique(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidCommitError(f"a commit may have only one {kind} action for {name!r}.")
        seen.add(name)


class _Stats(msgspec.Struct, rename={"num_records": "numRecords"}):
    num_records: int | None = None


_STATS = msgspec.json.Decoder(_Stats)


def _may_be_same_rows(adds: list[Add], removes: list[Remove]) -> bool:
    """Tell whether as many rows come as go, as far as that is known."""
    come, go = _rows(adds), _rows(removes)
    return come is None or go is None or come == go


def _rows(files: list[Add] | list[Remove]) -> int | None:
    """How many rows files hold, those that a deletion vector removes not counted; None if one does not say."""
    total = 0
    for file in files:
        try:
            records = None if file.stats is None else _STATS.decode(file.stats).num_records
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            records = None
        if records is None:
            return None
        total += records - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return total


def _counted(files: list[Add] | list[Remove]) -> str:
    rows = _rows(files)
    return "an unknown number of rows" if rows is None else f"{rows} rows"


def _still_there(adds: list[Add], removes: Iterable[Remove], base: Snapshot | None) -> set[str]:
    """Return those of some files to add that are in the table and stay there (canonical paths)."""
    if base is None or not adds:
        return set()
    removed = {canonical(remove.path) for remove in removes}
    wanted = {canonical(add.path) for add in adds} - removed
    return live_paths(base, wanted) if wanted else set()


def live_paths(snapshot: Snapshot, paths: set[str]) -> set[str]:
    """Return those of some data files that are in the table (canonical paths)."""
    return set(map(canonical, snapshot.files_named(paths, ["path"]).column("path").to_pylist()))


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The reads that a commit must be consistent with."""

    whole_table: bool = False
    predicates: tuple[Expression, ...] = ()
    """Rows matching any of these were looked for."""
    unlisted: tuple[Expression, ...] = ()
    """Those of the predicates whose files are not among `paths`."""
    paths: frozenset[str] = field(default_factory=frozenset)
    """Canonical paths of the data files that were read."""
    app_ids: frozenset[str] = field(default_factory=frozenset)
    domains: frozenset[str] = field(default_factory=frozenset)

    @property
    def reads_data(self) -> bool:
        return self.whole_table or bool(self.predicates) or bool(self.paths)

    def and_all(self) -> ReadSet:
        return replace(self, whole_table=True)

    def and_listed(self, predicate: Expression, paths: Iterable[str]) -> ReadSet:
        """All rows matching a filter were looked for, in these data files (by canonical path)."""
        return replace(self.and_files(paths), predicates=_with(self.predicates, predicate))

    def and_matching(self, predicate: Expression) -> ReadSet:
        """All rows matching a filter were looked for, in whatever data files have them."""
        return replace(self, predicates=_with(self.predicates, predicate), unlisted=_with(self.unlisted, predicate))

    def and_files(self, paths: Iterable[str]) -> ReadSet:
        """Some data files were read, by canonical path."""
        return replace(self, paths=self.paths | frozenset(paths))

    def and_app(self, app_id: str) -> ReadSet:
        return replace(self, app_ids=self.app_ids | {app_id})

    def and_domain(self, domain: str) -> ReadSet:
        return replace(self, domains=self.domains | {domain})


def _with(predicates: tuple[Expression, ...], predicate: Expression) -> tuple[Expression, ...]:
    return predicates if predicate in predicates else (*predicates, predicate)
