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
    from collections.abc import Iterable

    from headwater.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.commit import CommitActions


@dataclass(frozen=True)
class TableState:
    """The non-file state after some commits: latest protocol and metaData, transactions, domains."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    """Includes removed domains: they suppress older ones."""

    def then(self, commits: Iterable[CommitActions]) -> TableState:
        """The state after further commits, in ascending order."""
        protocol, metadata = self.protocol, self.metadata
        txns, domains = dict(self.txns), dict(self.domains)
        for commit in commits:
            actions = commit.table_actions
            protocol = actions.protocol or protocol
            metadata = actions.metadata or metadata
            txns.update(actions.txns)
            domains.update(actions.domains)
        return TableState(protocol, metadata, txns, domains)


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
            content. Actions of a commit have no order, so nobody can say what it means.
    """
    files: dict[FileKey, Add | Remove] = {}
    for line in commit.file_lines():
        action = line.add if line.add is not None else line.remove
        if action is None:
            continue
        key = file_key(action)
        earlier = files.setdefault(key, action)
        if earlier is not action and earlier != action:
            kinds = " and ".join(sorted({type(earlier).__name__.lower(), type(action).__name__.lower()}))
            raise CorruptLogError(
                f"{commit.key} is not a valid commit: it has two contradicting actions ({kinds}) for the logical file "
                f"{action.path!r}, and actions of one commit have no order."
            )
    return files


def illegal_actions(commit: CommitActions) -> list[str]:
    """What the commit does against the protocol without making its meaning unclear, one sentence each."""
    seen: dict[tuple[str, str], int] = {}
    for line in commit.file_lines():
        for action in (line.add, line.remove):
            if action is not None:
                key = (type(action).__name__.lower(), file_key(action)[0])
                seen[key] = seen.get(key, 0) + 1
    return [f"{count} {kind} actions for the path {path!r}" for (kind, path), count in seen.items() if count > 1]
