"""When versions were committed, and which version a timestamp means (spec: "In-Commit Timestamps").

A commit's time is its in-commit timestamp where the table has them, else the modification time of its file, made
strictly increasing: each at least a millisecond after the one before. All times are milliseconds since the epoch.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, TableNotFoundError, VersionNotFoundError
from headwater.log import names
from headwater.log.commit import CommitActions
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from headwater.log.actions import Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.segment import LogListing

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_commit_timestamps_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether the feature is supported and the property set."""
    listed = protocol.supports("inCommitTimestamp") or protocol.supports("inCommitTimestamps")
    return listed and metadata.configuration.get("delta.enableInCommitTimestamps", "false").lower() == "true"


def to_ms(timestamp: str | datetime | date | int) -> int:
    """A point in time as milliseconds; text and wall clocks without a zone are UTC.

    >>> to_ms("1970-01-01 00:00:01.5")
    1500
    >>> to_ms("1970-01-01T01:00:00+01:00")
    0
    """
    if isinstance(timestamp, bool):
        raise TypeError("a timestamp is a text, a datetime, a date or milliseconds since the epoch")
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
    """A point in time for messages."""
    return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(sep=" ", timespec="milliseconds")


def modification_times(listing: LogListing) -> dict[int, int]:
    """The modification time of each commit, strictly increasing with the version."""
    times: dict[int, int] = {}
    previous: int | None = None
    for version in sorted(listing.commits):
        modified = listing.commits[version].modified_ms
        times[version] = modified if previous is None else max(modified, previous + 1)
        previous = times[version]
    return times


def version_at(ctx: LogContext, timestamp_ms: int, protocol: Protocol, metadata: Metadata) -> int:
    """The version that was the newest at a point in time. `protocol` and `metadata` are the latest ones.

    Raises:
        VersionNotFoundError: the time is before the first version that can be loaded, or after the last commit.
    """
    listing = list_log(ctx)
    available = listing.reconstructable()
    if available is None:
        raise TableNotFoundError(f"{ctx.uri} is not a Delta table: its log is empty.")
    versions = [v for v in sorted(listing.commits) if v >= available[0]]
    if not versions:
        raise VersionNotFoundError(f"{ctx.uri} has no commits left to tell their time; only checkpoints are there.")
    if in_commit_timestamps_enabled(protocol, metadata):
        enabled = int(metadata.configuration.get("delta.inCommitTimestampEnablementVersion", "0"))
        enabled_ms = int(metadata.configuration.get("delta.inCommitTimestampEnablementTimestamp", "-1"))
        recent = [v for v in versions if v >= enabled]
        if recent and timestamp_ms >= enabled_ms:
            return _search_in_commit(ctx, recent, timestamp_ms)
        versions = [v for v in versions if v < enabled]
    times = modification_times(listing)
    return _choose(ctx, [(v, times[v]) for v in versions], timestamp_ms)


def _choose(ctx: LogContext, times: list[tuple[int, int]], timestamp_ms: int) -> int:
    before = [version for version, time_ms in times if time_ms <= timestamp_ms]
    if not before or timestamp_ms > times[-1][1]:
        raise _outside(ctx, times[0], times[-1], timestamp_ms)
    return before[-1]


def _search_in_commit(ctx: LogContext, versions: list[int], timestamp_ms: int) -> int:
    """Binary search: in-commit timestamps increase, and each costs a read."""

    def time_of(index: int) -> int:
        return in_commit_timestamp(ctx, versions[index])

    low, high = 0, len(versions) - 1
    if timestamp_ms < time_of(low) or timestamp_ms > time_of(high):
        raise _outside(ctx, (versions[low], time_of(low)), (versions[high], time_of(high)), timestamp_ms)
    while low < high:
        middle = (low + high + 1) // 2
        if time_of(middle) <= timestamp_ms:
            low = middle
        else:
            high = middle - 1
    return versions[low]


def in_commit_timestamp(ctx: LogContext, version: int) -> int:
    """The in-commit timestamp of a commit that must have one."""
    key = names.commit_key(version)
    found = CommitActions(version, version, key, ctx.store.get(key)).in_commit_timestamp
    if found is None:
        raise CorruptLogError(f"{key} has no inCommitTimestamp, although the table has in-commit timestamps enabled.")
    return found


def _outside(ctx: LogContext, first: tuple[int, int], last: tuple[int, int], timestamp_ms: int) -> VersionNotFoundError:
    side = "before the first" if timestamp_ms < first[1] else "after the last"
    return VersionNotFoundError(
        f"{ctx.uri}: {format_ms(timestamp_ms)} is {side} commit that can be loaded. Available are version {first[0]} "
        f"({format_ms(first[1])}) to version {last[0]} ({format_ms(last[1])})."
    )
