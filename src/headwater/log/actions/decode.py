"""Decode and reconcile commits (spec: "Delta Log Entries", "Action Reconciliation").

A commit is newline-delimited JSON, one action a line. It is decoded for what a caller needs: table actions when a table
is opened, file actions when its files are planned, provenance when its history is shown. msgspec skips the rest.

Of several commits the newest reference to a logical file wins, keyed on path and deletion vector id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater.errors import CorruptLogError
from headwater.log.actions.model import CommitInfoLine
from headwater.log.actions.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headwater.log.actions.model import (
        Add,
        DomainMetadata,
        FileActionLine,
        Metadata,
        Protocol,
        Remove,
        TableActionLine,
        Txn,
    )
    from headwater.log.dialect import LogDialect
    from headwater.log.indextables.actions import MergeSkip


_Line = TypeVar("_Line")

_INFO_LINE = msgspec.json.Decoder(CommitInfoLine)

FileKey = tuple[str, str | None]
"""The primary key of a logical file: canonical path and the deletion vector's unique id."""


def file_key(action: Add | Remove) -> FileKey:
    """Return the key under which file actions reconcile with each other."""
    vector = action.deletion_vector
    return canonical(action.path), None if vector is None else vector.unique_id


@dataclass(frozen=True)
class CommitActions:
    """The bytes of one commit (or compacted file) and what they say, decoded on demand."""

    version: int
    end_version: int
    key: str
    data: bytes = field(repr=False)
    dialect: LogDialect

    @classmethod
    def of(cls, version: int, data: bytes, dialect: LogDialect) -> CommitActions:
        return cls(version, version, dialect.commit_key(version), data, dialect)

    @cached_property
    def table_actions(self) -> TableActions:
        """`protocol`, `metaData`, `txn` and `domainMetadata`; `mergeskip` where there is such an action."""
        return _table_actions(self, self.table_lines())

    def table_lines(self) -> list[TableActionLine]:
        return decode_lines(self.dialect.table_line, self.data, self.key)

    def file_lines(self) -> list[FileActionLine]:
        """Return the lines with `add`, `remove` and `cdc`, not kept: they can be many."""
        return self.dialect.file_lines(self)

    @cached_property
    def commit_info(self) -> dict[str, Any] | None:
        """The `commitInfo`, wherever in the commit it stands; None when there is none."""
        first = self.data.partition(b"\n")[0]
        if first.startswith(b'{"commitInfo"'):  # where it usually stands, and must with in-commit timestamps
            _check_text(first, self.key)
            lines = [_decode(_INFO_LINE, first, self.key, 1)]
        else:
            lines = decode_lines(_INFO_LINE, self.data, self.key)
        return next((line.commit_info for line in lines if line.commit_info is not None), None)

    @property
    def in_commit_timestamp(self) -> int | None:
        value = (self.commit_info or {}).get("inCommitTimestamp")
        return value if type(value) is int and -(2**63) <= value < 2**63 else None


@dataclass(frozen=True)
class TableActions:
    """The reconciled non-file actions of one commit."""

    protocol: Protocol | None
    metadata: Metadata | None
    txns: dict[str, Txn]
    domains: dict[str, DomainMetadata]
    skips: dict[str, MergeSkip] = field(default_factory=dict)
    """By canonical path."""


def decode_lines(decoder: msgspec.json.Decoder[_Line], data: bytes, key: str) -> list[_Line]:
    """Decode newline-delimited JSON in one call; an error names the file and the line."""
    if not data.strip():
        raise CorruptLogError(
            f"{key} is empty: a commit holds at least one action. The file was damaged or half-written."
        )
    _check_text(data, key)
    try:
        return decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Slowly, to find the line for the message (and to accept blank lines with white space).
        return [_decode(decoder, line, key, number) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def _check_text(data: bytes, key: str) -> None:
    """Raise unless the bytes are UTF-8: the decoder looks at what it decodes only, and skips over unknown names."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise CorruptLogError(f"{key} is not valid UTF-8: {error}. The file was damaged.") from error


def _decode(decoder: msgspec.json.Decoder[_Line], line: bytes, key: str, number: int) -> _Line:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(f"{key}, line {number}: not a valid action: {error}") from error


def _table_actions(commit: CommitActions, lines: list[TableActionLine]) -> TableActions:
    protocol = metadata = None
    txns: dict[str, Txn] = {}
    domains: dict[str, DomainMetadata] = {}
    for line in lines:
        if line.protocol is not None:
            protocol = _single(commit, "protocol", protocol, line.protocol)
        if line.meta_data is not None:
            metadata = _single(commit, "metaData", metadata, line.meta_data)
        if line.txn is not None:
            name = f"txn of {line.txn.app_id!r}"
            txns[line.txn.app_id] = _single(commit, name, txns.get(line.txn.app_id), line.txn)
        if line.domain_metadata is not None:
            domain = line.domain_metadata.domain
            domains[domain] = _single(
                commit, f"domainMetadata of {domain!r}", domains.get(domain), line.domain_metadata
            )
    return TableActions(protocol, metadata, txns, domains, commit.dialect.merge_skips(lines))


_Value = TypeVar("_Value")


def _single(commit: CommitActions, name: str, seen: _Value | None, new: _Value) -> _Value:
    """Return the action of a commit; two different ones that reconcile with each other are an error."""
    if seen is not None and seen != new:
        raise CorruptLogError(
            f"{commit.key} is not a valid commit: it has two different actions for {name}, "
            "and the protocol does not say which one counts."
        )
    return new


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
        """Return the state after further commits, in ascending order."""
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
    """Return the newest file action for each logical file that the commits (ascending) mention."""
    newest: dict[FileKey, Add | Remove] = dict(before or {})
    for commit in commits:
        newest.update(commit_files(commit))
    return newest


def commit_files(commit: CommitActions) -> dict[FileKey, Add | Remove]:
    """Return the file actions of one commit by key.

    Raises:
        CorruptLogError: the commit both adds and removes one logical file, or adds it twice with different
            content. The actions of a Delta commit have no order, so the commit has no meaning then.
    """
    return commit.dialect.reconcile(commit)


def reconcile_unordered(commit: CommitActions) -> dict[FileKey, Add | Remove]:
    """Return the file actions of a commit whose actions have no order; raises as `commit_files`."""
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
    """Return the `add` and `remove` actions of a commit, as they stand there."""
    for line in commit.file_lines():
        if line.add is not None:
            yield line.add
        if line.remove is not None:
            yield line.remove
