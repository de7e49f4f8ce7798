"""The history of a table: its commits with their provenance (spec: "Commit Provenance Information").

`commitInfo` may hold anything; the fields that writers agree on are attributes here, the whole is in `commit_info`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.log.commit import CommitActions
from headwater.log.segment import list_log
from headwater.log.timeline import modification_times
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.context import LogContext

_BATCH = 256
"""Commits fetched together; a caller who stops early does not pay for all."""


@dataclass(frozen=True, slots=True, repr=False)
class CommitSummary:
    """One commit, as `DESCRIBE HISTORY` shows it."""

    version: int
    timestamp: int
    """Milliseconds since the epoch: the in-commit timestamp, else the adjusted time of the file."""
    operation: str | None
    operation_parameters: dict[str, Any] = field(default_factory=dict)
    operation_metrics: dict[str, Any] = field(default_factory=dict)
    user_id: str | None = None
    user_name: str | None = None
    engine_info: str | None = None
    user_metadata: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    txn_id: str | None = None
    commit_info: dict[str, Any] = field(default_factory=dict)
    """Everything that the commit says about itself."""

    def __repr__(self) -> str:
        operation = f"{shortened(str(self.operation))}, {shortened(str(self.operation_parameters))}"
        return f"CommitSummary(version={self.version}, timestamp={self.timestamp}, operation={operation})"


def read_history(ctx: LogContext, version: int, limit: int | None, in_commit_from: int | None) -> list[CommitSummary]:
    """The commits up to a version, newest first; those whose log was cleaned up are not there any more.

    From the version `in_commit_from` on, commits say their time themselves (None: no commit does).
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must not be negative: {limit}")
    listing = list_log(ctx)
    times = modification_times(listing)
    versions = [v for v in sorted(listing.commits, reverse=True) if v <= version][:limit]
    found = _read(ctx, versions, {v: listing.commits[v].key for v in versions})
    return [_summary(commit, _time_ms(commit, times[commit.version], in_commit_from)) for commit in found]


def _read(ctx: LogContext, versions: list[int], keys: dict[int, str]) -> Iterator[CommitActions]:
    for start in range(0, len(versions), _BATCH):
        batch = versions[start : start + _BATCH]
        for version, data in zip(batch, ctx.store.get_many([keys[v] for v in batch]), strict=True):
            yield CommitActions(version, version, keys[version], data, ctx.format)


def _time_ms(commit: CommitActions, modified_ms: int, in_commit_from: int | None) -> int:
    if in_commit_from is None or commit.version < in_commit_from or commit.in_commit_timestamp is None:
        return modified_ms
    return commit.in_commit_timestamp


def _summary(commit: CommitActions, time_ms: int) -> CommitSummary:
    info = commit.commit_info or {}
    read_version = info.get("readVersion")
    return CommitSummary(
        version=commit.version,
        timestamp=time_ms,
        operation=_text(info.get("operation")) or _inferred(commit),
        operation_parameters=_mapping(info.get("operationParameters")),
        operation_metrics=_mapping(info.get("operationMetrics")),
        user_id=_text(info.get("userId")),
        user_name=_text(info.get("userName")),
        engine_info=_text(info.get("engineInfo")) or _text(info.get("clientVersion")),
        user_metadata=_text(info.get("userMetadata")),
        read_version=read_version if type(read_version) is int else None,
        isolation_level=_text(info.get("isolationLevel")),
        is_blind_append=info.get("isBlindAppend") if isinstance(info.get("isBlindAppend"), bool) else None,
        txn_id=_text(info.get("txnId")),
        commit_info=info,
    )


def _inferred(commit: CommitActions) -> str | None:
    """What a commit without provenance has done, in dialects where commits need not say it."""
    if not commit.format.has_merge_skips:
        return None
    from headwater.log.split_operations import operation_of

    return operation_of(commit)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
