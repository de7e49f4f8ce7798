"""What a session's time zone decides: which version a reader means, and which instant a zoneless partition value is.

A time without a zone is one in the session's time zone, as everywhere in Spark: in `timestamp`, in a path such as
`path@20240131120000000`, and in the log's partition values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import HeadwaterError
from headwater.log.filter_literals import zone_of
from headwater.log.schema import TIMESTAMP
from headwater.log.snapshot import Snapshot
from headwater.storage import open_store

if TYPE_CHECKING:
    from datetime import tzinfo
    from os import PathLike

    from pyspark.sql import SparkSession

_AnySnapshot = TypeVar("_AnySnapshot", bound=Snapshot)

_SUFFIX = re.compile(r"(?P<path>.+)@(?:v(?P<version>\d+)|(?P<timestamp>\d{17}))", re.DOTALL)
_SUFFIX_FORMAT = "%Y%m%d%H%M%S%f"


class TimeTravelError(HeadwaterError, ValueError):
    """The wanted version is given twice, or cannot be understood."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and which version of it: a number, a point in time, or the newest."""

    path: str | PathLike[str]
    version: int | None
    timestamp: datetime | int | None


def session_zone(spark: SparkSession) -> str:
    """The session's time zone, as Spark spells it."""
    return str(spark.conf.get("spark.sql.session.timeZone"))


def in_session_zone(spark: SparkSession, snapshot: _AnySnapshot) -> _AnySnapshot:
    """The same snapshot, whose partition values without a zone are in the session's."""
    is_zoned = any(snapshot.schema.field(name).type == TIMESTAMP for name in snapshot.partition_columns)
    if not is_zoned or snapshot.ctx.time_zone == session_zone(spark):
        return snapshot
    return replace(snapshot, ctx=replace(snapshot.ctx, time_zone=session_zone(spark)))


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
    try:
        zone = zone_of(name)
    except ValueError:
        zone = None
    if zone is None:
        raise TimeTravelError(f"the session's time zone {name!r} is not known here: give the time with a zone")
    return zone


def _is_table(path: str) -> bool:
    """Whether there is a table whose very name looks like time travel."""
    return bool(open_store(path).list_from("_delta_log/"))
