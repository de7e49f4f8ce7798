"""Conflict detection: can this transaction still commit after another one has?

One function per rule, in the order in which the reference implementation checks them. There are fewer false conflicts:
read predicates are tested against the statistics of added files too, and commits that only rearrange rows disturb
nobody who has merely read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from headwater.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from headwater.log.actions import Add, Remove
from headwater.log.metadata_changes import is_harmless
from headwater.log.paths import canonical
from headwater.log.replay import file_actions

if TYPE_CHECKING:
    from headwater.log.actions import Protocol
    from headwater.log.commit import CommitActions
    from headwater.log.draft import Draft
    from headwater.log.operands import TableShape
    from headwater.log.read_set import ReadSet
    from headwater.log.snapshot import Snapshot

IsolationLevel: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

ROW_TRACKING_DOMAIN = "delta.rowTracking"
_SHOWN = 3
"""How many files a message names."""


@dataclass(frozen=True)
class Winner:
    """A commit that came first."""

    commit: CommitActions
    before: Snapshot
    """The table that the winner built on."""

    @cached_property
    def adds(self) -> list[Add]:
        """Its `add` actions."""
        return [action for action in file_actions(self.commit) if isinstance(action, Add)]

    @cached_property
    def removes(self) -> list[Remove]:
        """Its `remove` actions."""
        return [action for action in file_actions(self.commit) if isinstance(action, Remove)]

    @property
    def is_blind_append(self) -> bool:
        """Whether the winner only added files without having read any; it says so itself."""
        recorded = (self.commit.commit_info or {}).get("isBlindAppend")
        if isinstance(recorded, bool):
            return recorded
        return False

    def described(self) -> str:
        """For messages: the version and what it did."""
        operation = (self.commit.commit_info or {}).get("operation", "an unnamed operation")
        return f"version {self.commit.version} ({operation})"


@dataclass(frozen=True)
class Challenger:
    """The transaction that lost the race and wants to commit after the winner."""

    draft: Draft
    reads: ReadSet
    isolation: IsolationLevel
    uri: str

    @property
    def is_blind_append(self) -> bool:
        """Only adds, and nothing was read."""
        return self.draft.only_adds and not self.reads.reads_data


def check(challenger: Challenger, winner: Winner, shape: TableShape) -> None:
    """Raise unless the challenger's actions are still right after the winner's.

    Raises:
        DeltaConcurrentModificationException: they are not; the kind says why.
    """
    _check_protocol(challenger, winner)
    _check_metadata(challenger, winner)
    _check_domains(challenger, winner)
    _check_transactions(challenger, winner)
    _check_added(challenger, winner, shape)
    _check_removed(challenger, winner)


def _check_protocol(challenger: Challenger, winner: Winner) -> None:
    protocol = winner.commit.table_actions.protocol
    if protocol is None:
        return
    dropped = _features(winner.before.protocol) - _features(protocol)
    if challenger.draft.protocol is not None:
        raise _lost(ProtocolChangedException, challenger, winner, "changed the protocol, as this transaction does")
    if dropped:
        raise _lost(
            ProtocolChangedException, challenger, winner, f"dropped table features: {', '.join(sorted(dropped))}"
        )


def _features(protocol: Protocol) -> set[str]:
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def _check_metadata(challenger: Challenger, winner: Winner) -> None:
    metadata = winner.commit.table_actions.metadata
    if metadata is None:
        return
    if challenger.draft.metadata is not None:
        raise _lost(MetadataChangedException, challenger, winner, "changed the metadata, as this transaction does")
    if not is_harmless(winner.before.metadata, metadata):
        raise _lost(
            MetadataChangedException, challenger, winner, "changed the table's schema, partitioning or properties"
        )


def _check_domains(challenger: Challenger, winner: Winner) -> None:
    ours = {domain.domain for domain in challenger.draft.domains}
    both = sorted((ours & set(winner.commit.table_actions.domains)) - {ROW_TRACKING_DOMAIN})
    if both:
        raise _lost(
            ConcurrentTransactionException, challenger, winner, f"changed the same metadata domain: {', '.join(both)}"
        )


def _check_transactions(challenger: Challenger, winner: Winner) -> None:
    ours = challenger.reads.app_ids | {txn.app_id for txn in challenger.draft.txns}
    both = sorted(ours & set(winner.commit.table_actions.txns))
    if both:
        raise _lost(
            ConcurrentTransactionException,
            challenger,
            winner,
            f"recorded the progress of the same application: {', '.join(both)}",
        )


def _check_added(challenger: Challenger, winner: Winner, shape: TableShape) -> None:
    reads = challenger.reads
    if challenger.isolation == "SnapshotIsolation" or challenger.is_blind_append or not reads.reads_data:
        return
    if challenger.isolation == "WriteSerializable" and winner.is_blind_append:
        return
    # Rows that were only moved were there when we read.
    added = [add for add in winner.adds if add.data_change]
    if not added:
        return
    matching = added if reads.whole_table else _matching(reads, added, shape)
    if matching:
        what = f"added files that may hold rows this transaction has looked for: {_some([a.path for a in matching])}"
        raise _lost(ConcurrentAppendException, challenger, winner, what)


def _matching(reads: ReadSet, added: list[Add], shape: TableShape) -> list[Add]:
    """The added files that may hold a row matching what was read, by partition values and statistics."""
    from headwater.log.file_chunks import ADD_COLUMNS, MemoryChunk
    from headwater.log.pruning import ChunkPruner

    pruner = ChunkPruner(MemoryChunk(added, ADD_COLUMNS), shape)
    found: dict[int, None] = {}
    for predicate in reads.predicates:
        mask = pruner.may_match(predicate).to_pylist()
        found.update(dict.fromkeys(i for i, may_match in enumerate(mask) if may_match))
    return [added[i] for i in sorted(found)]


def _check_removed(challenger: Challenger, winner: Winner) -> None:
    if not winner.removes:
        return
    reads = challenger.reads
    ours = {canonical(remove.path) for remove in challenger.draft.removes}
    twice = [r.path for r in winner.removes if canonical(r.path) in ours]
    changed = [r.path for r in winner.removes if r.data_change]
    read = changed if reads.whole_table else [path for path in changed if canonical(path) in reads.paths]
    if read and challenger.isolation != "SnapshotIsolation":
        raise _lost(
            ConcurrentDeleteReadException,
            challenger,
            winner,
            f"removed files that this transaction read: {_some(read)}",
        )
    if twice:
        raise _lost(
            ConcurrentDeleteDeleteException,
            challenger,
            winner,
            f"removed files that this transaction removes: {_some(twice)}",
        )


def _lost(
    kind: type[DeltaConcurrentModificationException], challenger: Challenger, winner: Winner, what: str
) -> DeltaConcurrentModificationException:
    return kind(
        f"{challenger.uri}: {challenger.draft.operation.name} cannot be committed, because {winner.described()} "
        f"{what}. "
        "Nothing was changed; run the operation again on the newest version.",
        winner=winner.commit.version,
    )


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
