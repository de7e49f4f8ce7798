"""When versions were committed, and which version a timestamp means (spec: "In-Commit Timestamps").

A commit's time is its in-commit timestamp where the table has them, else the modification time of its file, made
strictly increasing: each at least a millisecond after the one before. All times are milliseconds since the epoch.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, VersionNotFoundError
from headwater.log import names
from headwater.log.commit import CommitActions
from headwater.log.segment import list_log, loadable_commits

if TYPE_CHECKING:
    from headwater.log.actions import Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_commit_timestamps_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether the feature is supported and the property set."""
    listed = protocol.supports("inCommitTimestamp") or protocol.supports("inCommitTimestamps")
    return listed and metadata.configuration.get("delta.enableInCommitTimestamps", "false").lower() == "true"


def first_in_commit_version(protocol: Protocol, metadata: Metadata) -> int | None:
    """The version from which on commits have in-commit timestamps; None when the table has none.

    Raises:
        CorruptLogError: the property that says so is not a number.
    """
    if not in_commit_timestamps_enabled(protocol, metadata):
        return None
    return _number(metadata, "delta.inCommitTimestampEnablementVersion") or 0


def _number(metadata: Metadata, name: str) -> int | None:
    """A table property that is a whole number, if it is set."""
    text = metadata.configuration.get(name)
    if text is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
        raise CorruptLogError(f"the table property {name} must be a whole number, but it is {text!r}.")
    return int(text)


def to_ms(timestamp: str | datetime | date | int) -> int:
    """A point in time as milliseconds; text and wall clocks without a zone are UTC.

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
    """A point in time for messages."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:  # no calendar goes that far
        return f"{timestamp_ms} ms"


def modification_times(listing: LogListing) -> dict[int, int]:
    """The modification time of each commit, strictly increasing with the version."""
    times: dict[int, int] = {}
    previous: int | None = None
    for version in sorted(listing.commits):
        modified = listing.commits[version].modified_ms
        times[version] = modified if previous is None else max(modified, previous + 1)
        previous = times[version]
    return times


def version_at(ctx: LogContext, timestamp_ms: int, latest: Snapshot) -> int:
    """The version that was the newest at a point in time. `latest` is the newest of all.

    Raises:
        VersionNotFoundError: the time is before the first version that can be loaded, or after the last commit.
    """
    listing = list_log(ctx)
    for unreachable in latest.segment.unreachable:
        listing.commits.pop(unreachable, None)
    protocol, metadata = latest.protocol, latest.metadata
    versions = loadable_commits(listing)
    if not versions:
        raise VersionNotFoundError(
            f"{ctx.uri} has no commits that could tell their time, only checkpoints. Open it by version."
        )
    times = _CommitTimes(ctx, modification_times(listing), first_in_commit_version(protocol, metadata))
    first, last = versions[0], versions[-1]
    if timestamp_ms < times.of(first) or timestamp_ms > times.of(last):
        raise _outside(ctx, (first, times.of(first)), (last, times.of(last)), timestamp_ms)
    return _newest_at(timestamp_ms, versions, times, metadata)


def newest_commit_at(
    ctx: LogContext, listing: LogListing, timestamp_ms: int, protocol: Protocol, metadata: Metadata
) -> int | None:
    """The newest version in a listing that can be loaded and was committed at a point in time or before, if any."""
    versions = loadable_commits(listing)
    times = _CommitTimes(ctx, modification_times(listing), first_in_commit_version(protocol, metadata))
    if not versions or timestamp_ms < times.of(versions[0]):
        return None
    return _newest_at(timestamp_ms, versions, times, metadata)


def _newest_at(timestamp_ms: int, versions: list[int], times: _CommitTimes, metadata: Metadata) -> int:
    enabled = times.in_commit_from
    if enabled is not None and versions[0] < enabled <= versions[-1]:
        # Only one side of the change counts, whatever the times of the other say.
        enabled_ms = _number(metadata, "delta.inCommitTimestampEnablementTimestamp")
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
