"""Which version a reader means: `path@v3`, `path@20240131120000000`, and times in the session's zone.

A time without a zone is one in the session's time zone, as everywhere in Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from headwater.errors import HeadwaterError
from headwater.storage import open_store

if TYPE_CHECKING:
    from os import PathLike

_SUFFIX = re.compile(r"(?P<path>.+)@(?:v(?P<version>\d+)|(?P<timestamp>\d{17}))", re.DOTALL)
_SUFFIX_FORMAT = "%Y%m%d%H%M%S%f"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


class TimeTravelError(HeadwaterError, ValueError):
    """The wanted version is given twice, or cannot be understood."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and which version of it: a number, a point in time, or the newest."""

    path: str | PathLike[str]
    version: int | None
    timestamp: datetime | int | None


def resolve_target(
    path: str | PathLike[str],
    version: int | None,
    timestamp: str | datetime | date | int | None,
    zone: str,
) -> Target:
    """Find out which version is meant.

    Args:
        path: the table, perhaps with a suffix `@v<version>` or `@<yyyyMMddHHmmssSSS>`.
        version: a version.
        timestamp: a point in time.
        zone: the session's time zone.

    Raises:
        TimeTravelError: more than one is given, or one cannot be understood.

    >>> resolve_target("/data/events@v3", None, None, "UTC")
    Target(path='/data/events', version=3, timestamp=None)
    """
    match = _SUFFIX.fullmatch(path) if isinstance(path, str) else None
    if match is not None and not _is_table(str(path)):
        if version is not None or timestamp is not None:
            raise TimeTravelError(f"{path} already says which version is meant: do not give a version or timestamp too")
        if match["version"] is not None:
            return Target(match["path"], int(match["version"]), None)
        return Target(match["path"], None, _suffix_time(match["timestamp"], zone))
    if version is not None and timestamp is not None:
        raise TimeTravelError(f"give a version ({version}) or a timestamp ({timestamp}), not both")
    return Target(path, version, None if timestamp is None else in_zone(timestamp, zone))


def in_zone(timestamp: str | datetime | date | int, zone: str) -> datetime | int:
    """A point in time; one without a zone is in the session's.

    >>> in_zone("2024-01-31 12:00:00", "Europe/Berlin").isoformat()
    '2024-01-31T12:00:00+01:00'
    """
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.strip())
        except ValueError as error:
            raise TimeTravelError(f"{timestamp!r} is not a timestamp: write it as 2024-01-31 12:00:00") from error
    elif not isinstance(timestamp, datetime):
        timestamp = datetime.combine(timestamp, time())
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=_zone(zone))


def _suffix_time(digits: str, zone: str) -> datetime:
    try:
        # Python reads the last digits as microseconds, however many there are.
        return datetime.strptime(digits, _SUFFIX_FORMAT).replace(tzinfo=_zone(zone))
    except ValueError as error:
        raise TimeTravelError(f"@{digits} is not a time in the form yyyyMMddHHmmssSSS: {error}") from error


def _zone(name: str) -> tzinfo:
    """A zone as Spark names it: of the zone database, or an offset such as `+02:00`."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        span = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
        return timezone(-span if offset["sign"] == "-" else span)
    try:
        return ZoneInfo("UTC" if name == "Z" else name)
    except (KeyError, ValueError) as error:
        raise TimeTravelError(
            f"the session's time zone {name!r} is not known here: give the time with a zone"
        ) from error


def _is_table(path: str) -> bool:
    """Whether there is a table whose very name looks like time travel."""
    return bool(open_store(path).list_from("_delta_log/"))
