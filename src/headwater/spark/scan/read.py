"""Read a table, or what changed in it, as a DataFrame.

The options of a read have the names that Delta users know, in any case: time travel (`versionAsOf`, `timestampAsOf`),
the change data feed (`readChangeFeed` with its bounds), and the few options of Spark's Parquet reader that make sense
when the schema is the table's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import ReadOptionError, TimeTravelError, VersionNotFoundError
from headwater.features.context import TableRef
from headwater.log.commit.history import to_ms, version_at
from headwater.log.files.changes import read_change_feed
from headwater.log.opening import open_snapshot
from headwater.spark.scan.backends import scan, scan_changes
from headwater.spark.scan.columns import shown_names
from headwater.spark.scan.request import ScanRequest, in_zone, resolve_target, session_zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.context import LogContext
    from headwater.log.files.changes import ChangeFeed


def read(
    spark: SparkSession,
    path: str | PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    row_tracking: bool = False,
    storage_options: Mapping[str, str] | None = None,
    **options: object,
) -> DataFrame:
    """Read a Delta table.

    Args:
        spark: the session.
        path: a path or URI, perhaps with a version: `/data/events@v3`, `/data/events@20240131120000000`.
        version: a version to travel to; the newest by default.
        timestamp: or a point in time; without a zone it is in the session's.
        where: only the rows that match this condition in SQL, as `.where(...)` on the result gives them. In classic
            PySpark the two do the same, but for conditions like `partition = 1 OR value = 2`, which Spark hands to no
            scan. On Spark Connect, and where files are read in Python because Spark has no filesystem for the store,
            only this one skips files by the log's statistics.
        columns: only these columns of the table, in this order. Where files are read in Python, only this reads less
            than all columns; otherwise a later `.select(...)` does the same.
        row_tracking: add the columns `_row_id` and `_row_commit_version`.
        storage_options: options of the object store, for the log; and for data files that are read in Python.
        options: `versionAsOf`, `timestampAsOf` and `readChangeFeed` (with `startingVersion` and the like; see
            `read_changes`) as Delta users know them, and of Spark's Parquet reader `datetimeRebaseMode`,
            `int96RebaseMode`, `ignoreMissingFiles` and `ignoreCorruptFiles`.

    Returns:
        A DataFrame of that version, whatever is committed later.

    Raises:
        TableNotFoundError: there is no Delta table.
        VersionNotFoundError: the version or timestamp is outside what the log can reconstruct.
        UnsupportedProtocolError: the table needs a feature that is not supported; the message names it.

    Example:
        >>> read(spark, "/data/events", version=3).where("date = '2024-01-31'").count()  # doctest: +SKIP
        42
    """
    asked = parse_options(version, timestamp, options)
    if asked.changes is not None:
        return read_changes(spark, path, **asked.changes, storage_options=storage_options)
    zone = session_zone(spark)
    target = resolve_target(path, asked.version, asked.timestamp, zone)
    ctx = TableRef(target.path, storage_options).context(time_zone=zone)
    request = ScanRequest(
        open_snapshot(ctx, version=target.version, timestamp=target.timestamp),
        where=where,
        columns=None if columns is None else tuple(columns),
        row_tracking=row_tracking,
        options=asked.reader,
    )
    frame = scan(spark, request)
    if not row_tracking:
        return request.select(frame)
    names = shown_names(request.snapshot)
    return request.select(frame.withColumnsRenamed(names), tuple(names.values()))


def read_changes(
    spark: SparkSession,
    path: str | PathLike[str],
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | datetime | date | int | None = None,
    ending_timestamp: str | datetime | date | int | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the rows that changed in a range of versions, both ends included.

    Args:
        spark: the session.
        path: the table.
        starting_version: the first version.
        ending_version: the last version; the newest by default.
        starting_timestamp: or start with the first version at or after a time.
        ending_timestamp: or end with the last version at or before a time.
        storage_options: options of the object store, for the log; and for data files that are read in Python.

    Returns:
        The table's columns (of the last version), and `_change_type` (`insert`, `delete`, `update_preimage` or
        `update_postimage`), `_commit_version` and `_commit_timestamp`.

    Raises:
        VersionNotFoundError: the range has versions that do not exist (any more).
        ChangeDataError: the feed was not enabled in all of the range, or the schema changed incompatibly.

    Example:
        >>> read_changes(spark, "/data/events", starting_version=3).where("_change_type = 'delete'")  # doctest: +SKIP
    """
    zone = session_zone(spark)
    ctx = TableRef(path, storage_options).context(time_zone=zone)
    feed = change_feed(ctx, zone, starting_version, ending_version, starting_timestamp, ending_timestamp)
    return scan_changes(spark, feed)


def change_feed(
    ctx: LogContext,
    zone: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | datetime | date | int | None = None,
    ending_timestamp: str | datetime | date | int | None = None,
) -> ChangeFeed:
    """Return the changes in a range of versions; times without a zone are in `zone`. See `read_changes`."""
    first = _first_version(ctx, starting_version, starting_timestamp, zone)
    return read_change_feed(ctx, first, _last_version(ctx, ending_version, ending_timestamp, zone))


def _first_version(
    ctx: LogContext, version: int | None, timestamp: str | datetime | date | int | None, zone: str
) -> int:
    if (version is None) == (timestamp is None):
        raise TimeTravelError("changes start at a version or at a timestamp: give one of them")
    if version is not None or timestamp is None:
        return int(version or 0)
    wanted_ms = to_ms(in_zone(timestamp, zone))
    newest = open_snapshot(ctx, version=None, timestamp=None)
    found = version_at(ctx, wanted_ms, newest)
    at_ms = open_snapshot(ctx, version=found).timestamp
    if at_ms >= wanted_ms:
        return found
    if found == newest.version:
        raise VersionNotFoundError(f"no version of {ctx.uri} was committed at or after {timestamp}")
    return found + 1


def _last_version(
    ctx: LogContext, version: int | None, timestamp: str | datetime | date | int | None, zone: str
) -> int | None:
    if version is not None and timestamp is not None:
        raise TimeTravelError(f"changes end at a version ({version}) or at a timestamp ({timestamp}), not both")
    if timestamp is None:
        return version
    newest = open_snapshot(ctx, version=None, timestamp=None)
    return version_at(ctx, to_ms(in_zone(timestamp, zone)), newest)


_TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
_CHANGE_FEED = ("readChangeFeed", "readChangeData")
_BOUNDS = {
    "startingVersion": "starting_version",
    "endingVersion": "ending_version",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
}
_READER = ("datetimeRebaseMode", "int96RebaseMode", "ignoreCorruptFiles", "ignoreMissingFiles")
_KNOWN = {name.lower(): name for name in (*_TIME_TRAVEL, *_CHANGE_FEED, *_BOUNDS, *_READER)}


@dataclass(frozen=True)
class ReadOptions:
    """What the options of a read ask for.

    `changes` are bounds for `read_changes`, if the change data feed is wanted; `reader` is for Spark's Parquet reader.
    """

    version: int | None
    timestamp: str | datetime | date | int | None
    changes: dict[str, Any] | None
    reader: dict[str, str]


def parse_options(
    version: int | None, timestamp: str | datetime | date | int | None, options: Mapping[str, object]
) -> ReadOptions:
    """Sort the options out.

    Raises:
        ReadOptionError: an option is unknown, or bounds are given without `readChangeFeed`.
        TimeTravelError: a version or timestamp is given twice.
    """
    named = {_name(key): value for key, value in options.items()}
    for name, given in (("versionAsOf", version), ("timestampAsOf", timestamp)):
        if name in named and given is not None:
            raise TimeTravelError(f"the option {name} is given twice")
    if "versionAsOf" in named:
        version = _number("versionAsOf", named["versionAsOf"])
    if "timestampAsOf" in named:
        timestamp = str(named["timestampAsOf"])
    wants_changes = any(_is_true(named.get(name, False)) for name in _CHANGE_FEED)
    bounds = {argument: named[name] for name, argument in _BOUNDS.items() if name in named}
    if bounds and not wants_changes:
        raise ReadOptionError(
            f"{sorted(set(_BOUNDS) & set(named))} bound a change data feed: give readChangeFeed=True too"
        )
    if wants_changes and (version is not None or timestamp is not None):
        raise ReadOptionError("a change data feed has a starting and an ending version, not one version to travel to")
    for name, argument in _BOUNDS.items():
        if argument in bounds and argument.endswith("version"):
            bounds[argument] = _number(name, bounds[argument])
    reader = {name: str(named[name]).lower() for name in _READER if name in named}
    return ReadOptions(version, timestamp, bounds if wants_changes else None, reader)


def _name(key: str) -> str:
    name = _KNOWN.get(key.lower())
    if name is None:
        raise ReadOptionError(f"a read has no option {key!r}: known are {', '.join(_KNOWN.values())}")
    return name


def _number(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ReadOptionError(f"the option {name} is a version number, not {value!r}") from None


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"
