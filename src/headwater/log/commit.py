"""Decoding commits: newline-delimited JSON, one action a line (spec: "Delta Log Entries").

A commit is decoded for what a caller needs: table actions when a table is opened, file actions when its files
are planned, provenance when its history is shown. msgspec skips over the rest without building it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from headwater.errors import CorruptLogError
from headwater.log.actions import CommitInfoLine, FileActionLine, TableActionLine
from headwater.log.log_format import DELTA, LogFormat
from headwater.log.paths import canonical

if TYPE_CHECKING:
    from headwater.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove, Txn
    from headwater.log.split_actions import MergeSkip, SplitTableLine

_Line = TypeVar("_Line")

_INFO_LINE = msgspec.json.Decoder(CommitInfoLine)

FileKey = tuple[str, str | None]
"""The primary key of a logical file: canonical path and the deletion vector's unique id."""


def file_key(action: Add | Remove) -> FileKey:
    """The key under which file actions reconcile with each other."""
    vector = action.deletion_vector
    return canonical(action.path), None if vector is None else vector.unique_id


@dataclass(frozen=True)
class CommitActions:
    """The bytes of one commit (or compacted file) and what they say, decoded on demand."""

    version: int
    end_version: int
    key: str
    data: bytes = field(repr=False)
    format: LogFormat = DELTA

    @classmethod
    def of(cls, version: int, data: bytes, log_format: LogFormat = DELTA) -> CommitActions:
        """The commit of a version."""
        return cls(version, version, log_format.commit_key(version), data, log_format)

    @cached_property
    def table_actions(self) -> TableActions:
        """`protocol`, `metaData`, `txn` and `domainMetadata`; `mergeskip` where there is such an action."""
        return _table_actions(self, self.table_lines())

    def table_lines(self) -> list[TableActionLine]:
        """The lines with `protocol`, `metaData`, `txn` and `domainMetadata`."""
        return decode_lines(self.format.table_line, self.data, self.key)

    def file_lines(self) -> list[FileActionLine]:
        """The lines with `add`, `remove` and `cdc`, not kept: they can be many."""
        lines = decode_lines(self.format.file_line, self.data, self.key)
        complete = self.format.complete_file_lines
        return lines if complete is None else complete(lines, self.key)

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
        """The in-commit timestamp in milliseconds, if the commit has one."""
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
    skips: dict[str, MergeSkip] = {}
    if commit.format.has_merge_skips:
        found = (line.mergeskip for line in cast("list[SplitTableLine]", lines))
        skips = {canonical(skip.path): skip for skip in found if skip is not None}
    return TableActions(protocol, metadata, txns, domains, skips)


_Value = TypeVar("_Value")


def _single(commit: CommitActions, name: str, seen: _Value | None, new: _Value) -> _Value:
    """A commit may not hold two actions that reconcile with each other; the same one twice does no harm."""
    if seen is not None and seen != new:
        raise CorruptLogError(
            f"{commit.key} is not a valid commit: it has two different actions for {name}, "
            "and the protocol does not say which one counts."
        )
    return new
