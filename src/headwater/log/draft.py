"""What a transaction wants to change: the actions of a commit before they have a version.

A draft is a value. On every attempt to commit, the rules of the table's features (row ids, in-commit timestamps, ...)
turn the same draft into the actions for one version, so losing a race costs no more than doing that again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headwater.log.actions import Add, AddCdcFile, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.row_changes import RowPlan
    from headwater.log.snapshot import Snapshot
    from headwater.log.split_actions import MergeSkip


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
    protocol: Protocol
    """In force with this commit."""
    metadata: Metadata
    """In force with this commit."""
    now_ms: int


class CommitRule(Interface):
    """What a table feature demands of every commit: it checks the draft, or completes it.

    Rules run anew on every attempt, in order, each on the result of the one before.
    """

    def __call__(self, draft: Draft, attempt: Attempt) -> Draft:
        """The draft, completed for this attempt.

        Raises:
            InvalidCommitError: the feature forbids the commit.
        """
