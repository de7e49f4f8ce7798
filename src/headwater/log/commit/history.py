"""The commits of a table with their provenance and times (spec: "Commit Provenance Information").

`commitInfo` may hold anything; the fields that writers agree on are attributes here, the whole is in `commit_info`.

A commit's time is its in-commit timestamp where the table has them, else the modification time of its file, made
strictly increasing: each at least a millisecond after the one before. All times are milliseconds since the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.errors import CorruptLogError, VersionNotFoundError
from headwater.log.actions.decode import CommitActions
from headwater.log.configuration.properties import IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP
from headwater.log.segment import list_log, loadable_commits
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.configuration import TableConfiguration
    from headwater.log.context import LogContext
    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot


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
    """Return the commits up to a version, newest first; those whose log was cleaned up are not there any more.

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
            yield CommitActions(version, version, keys[version], data, ctx.dialect)


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
        operation=_text(info.get("operation")) or commit.dialect.operation_of(commit),
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


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(timestamp: str | datetime | date | int) -> int:
    """Return a point in time as milliseconds; text and wall clocks without a zone are UTC.

    >>> to_ms("1970-01-01 00:00:01.5")
    1500
    >>> to_ms("1970-01-01T01:00:00+01:00")
    0
    """
    if isinstance(timestamp, bool) or not isinstance(timestamp, str | date | int):
        raise TypeError(f"a timestamp is a text, a datetime, a date or milliseconds since the epoch, not {timestamp!r}")
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.strip())
        except ValueError:
            raise VersionNotFoundError(
                f"{timestamp!r} is not a timestamp. Write it like '2024-01-31', '2024-01-31 12:30:00' or with a zone, "
                "'2024-01-31T12:30:00+01:00'."
            ) from None
    elif not isinstance(timestamp, datetime):
        timestamp = datetime(timestamp.year, timestamp.month, timestamp.day)
    aware = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def format_ms(timestamp_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:  # no calendar goes that far
        return f"{timestamp_ms} ms"


def modification_times(listing: LogListing) -> dict[int, int]:
    """Return the modification time of each commit, strictly increasing with the version."""
    times: dict[int, int] = {}
    previous: int | None = None
    for version in sorted(listing.commits):
        modified = listing.commits[version].modified_ms
        times[version] = modified if previous is None else max(modified, previous + 1)
        previous = times[version]
    return times


def version_at(ctx: LogContext, timestamp_ms: int, latest: Snapshot) -> int:
    """Return the version that was the newest at a point in time. `latest` is the newest of all.

    Raises:
        VersionNotFoundError: the time is before the first version that can be loaded, or after the last commit.
    """
    listing = list_log(ctx)
    for unreachable in latest.segment.unreachable:
        listing.commits.pop(unreachable, None)
    versions = loadable_commits(listing)
    if not versions:
        raise VersionNotFoundError(
            f"{ctx.uri} has no commits that could tell their time, only checkpoints. Open it by version."
        )
    times = _CommitTimes(ctx, modification_times(listing), latest.configuration.first_in_commit_version)
    first, last = versions[0], versions[-1]
    if timestamp_ms < times.of(first) or timestamp_ms > times.of(last):
        raise _outside(ctx, (first, times.of(first)), (last, times.of(last)), timestamp_ms)
    return _newest_at(timestamp_ms, versions, times, latest.configuration)


def newest_commit_at(
    ctx: LogContext, listing: LogListing, timestamp_ms: int, configuration: TableConfiguration
) -> int | None:
    """The newest version in a listing that can be loaded and was committed at a point in time or before, if any."""
    versions = loadable_commits(listing)
    times = _CommitTimes(ctx, modification_times(listing), configuration.first_in_commit_version)
    if not versions or timestamp_ms < times.of(versions[0]):
        return None
    return _newest_at(timestamp_ms, versions, times, configuration)


def _newest_at(timestamp_ms: int, versions: list[int], times: _CommitTimes, configuration: TableConfiguration) -> int:
    enabled = times.in_commit_from
    if enabled is not None and versions[0] < enabled <= versions[-1]:
        # Only one side of the change counts, whatever the times of the other say.
        enabled_ms = configuration[IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP]
        after = timestamp_ms >= (times.of(enabled) if enabled_ms is None else enabled_ms)
        versions = [version for version in versions if (version >= enabled) == after]
    return versions[max(bisect_right(versions, timestamp_ms, key=times.of) - 1, 0)]


class _CommitTimes:
    """When commits were made; in-commit timestamps are read when they are asked for, and each only once."""

    def __init__(self, ctx: LogContext, modified_ms: dict[int, int], in_commit_from: int | None) -> None:
        self._ctx = ctx
        self._known = modified_ms
        self._read: dict[int, int] = {}
        self.in_commit_from = in_commit_from

    def of(self, version: int) -> int:
        if self.in_commit_from is None or version < self.in_commit_from:
            return self._known[version]
        if version not in self._read:
            self._read[version] = in_commit_timestamp(self._ctx, version)
        return self._read[version]


def in_commit_timestamp(ctx: LogContext, version: int) -> int:
    """Return the in-commit timestamp of a commit that must have one."""
    key = ctx.dialect.commit_key(version)
    found = CommitActions.of(version, ctx.store.get(key), ctx.dialect).in_commit_timestamp
    if found is None:
        raise CorruptLogError(f"{key} has no inCommitTimestamp, although the table has in-commit timestamps enabled.")
    return found


def _outside(ctx: LogContext, first: tuple[int, int], last: tuple[int, int], timestamp_ms: int) -> VersionNotFoundError:
    side = "before the first" if timestamp_ms < first[1] else "after the last"
    return VersionNotFoundError(
        f"{ctx.uri}: {format_ms(timestamp_ms)} is {side} commit that can be loaded. Available are version {first[0]} "
        f"({format_ms(first[1])}) to version {last[0]} ({format_ms(last[1])})."
    )
