"""The change data feed in batch: every row that changed in a range of versions (spec: "Add CDC File").

The range is found in the log; the files of its changes are then read on the road that session and store allow, as the
files of a snapshot are (`headwater.spark.roads`).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import VersionNotFoundError
from headwater.features.context import table_context
from headwater.log.changes import ChangeFeed, read_change_feed
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.log.timeline import to_ms, version_at
from headwater.spark.change_connect import changes_on_connect
from headwater.spark.change_files import CHANGE_FIELDS, change_files
from headwater.spark.change_python import changes_in_python
from headwater.spark.change_scan import changes_in_spark
from headwater.spark.char_types import padded_rows
from headwater.spark.columns import ScanColumns
from headwater.spark.functions import functions_for_connect, is_connect
from headwater.spark.no_rows import no_rows
from headwater.spark.roads import choose_road
from headwater.spark.time_travel import TimeTravelError, in_session_zone, in_zone, session_zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.context import LogContext


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
    ctx = table_context(path, storage_options, time_zone=zone)
    first = _first_version(ctx, starting_version, starting_timestamp, zone)
    last = _last_version(ctx, ending_version, ending_timestamp, zone)
    return scan_changes(spark, read_change_feed(ctx, first, last), storage_options=storage_options)


def scan_changes(
    spark: SparkSession, feed: ChangeFeed, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """A change feed as a DataFrame; see `read_changes`.

    Raises:
        SchemaError: the table has columns of its own with the names of a feed's.
    """
    feed = replace(feed, snapshot=in_session_zone(spark, feed.snapshot))
    kinds = change_files(feed)
    if not kinds:
        columns = ScanColumns(feed.snapshot.schema, "none", ())
        with functions_for_connect() if is_connect(spark) else nullcontext():
            return no_rows(spark, StructType([*columns.visible.fields, *CHANGE_FIELDS]))
    match choose_road(spark, feed.snapshot):
        case "connect":
            return changes_on_connect(spark, kinds, storage_options)
        case "python":
            return padded_rows(changes_in_python(spark, kinds, storage_options), feed.snapshot.schema)
    return changes_in_spark(spark, kinds, storage_options)


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
