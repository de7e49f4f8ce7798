"""Action reconciliation of the commits after a checkpoint (spec: "Action Reconciliation").

The newest reference to a logical file wins, keyed on (path, deletion vector id). What results is small: the adds
and tombstones of the tail, and the keys under which rows of the checkpoint no longer count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError
from headwater.log.commit import FileKey, file_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headwater.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.commit import CommitActions
    from headwater.log.split_actions import MergeSkip


@dataclass(frozen=True)
class TableState:
    """The non-file state after some commits: latest protocol and metaData, transactions, domains."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    """Includes removed domains: they suppress older ones."""
    skips: dict[str, MergeSkip] = field(default_factory=dict)
    """The newest `mergeskip` of each file, by canonical path."""

    def then(self, commits: Iterable[CommitActions]) -> TableState:
        """The state after further commits, in ascending order."""
        protocol, metadata = self.protocol, self.metadata
        txns, domains, skips = dict(self.txns), dict(self.domains), dict(self.skips)
        for commit in commits:
            actions = commit.table_actions
            protocol = actions.protocol or protocol
            metadata = actions.metadata or metadata
            txns.update(actions.txns)
            domains.update(actions.domains)
            skips.update(actions.skips)
        return TableState(protocol, metadata, txns, domains, skips)


def replay_files(
    commits: Iterable[CommitActions], before: dict[FileKey, Add | Remove] | None = None
) -> dict[FileKey, Add | Remove]:
    """The newest file action for each logical file that the commits (ascending) mention."""
    newest: dict[FileKey, Add | Remove] = dict(before or {})
    for commit in commits:
        newest.update(commit_files(commit))
    return newest


def commit_files(commit: CommitActions) -> dict[FileKey, Add | Remove]:
    """The file actions of one commit by key.

    Raises:
        CorruptLogError: the commit both adds and removes one logical file, or adds it twice with different
            content. Actions of a commit have no order, so nobody can say what it means (where they have one, the
            last action counts).
    """
    if commit.format.actions_are_ordered:
        return {file_key(action): action for action in file_actions(commit)}
    files: dict[FileKey, Add | Remove] = {}
    for action in file_actions(commit):
        earlier = files.setdefault(file_key(action), action)
        if earlier is not action and earlier != action:
            kinds = " and ".join(sorted({type(earlier).__name__.lower(), type(action).__name__.lower()}))
            raise CorruptLogError(
                f"{commit.key} is not valid: it has two contradicting actions ({kinds}) for the logical file "
                f"{action.path!r}, and actions of one commit have no order."
            )
    return files


def file_actions(commit: CommitActions) -> Iterator[Add | Remove]:
    """The `add` and `remove` actions of a commit, as they stand there."""
    for line in commit.file_lines():
        if line.add is not None:
            yield line.add
        if line.remove is not None:
            yield line.remove
