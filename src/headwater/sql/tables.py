"""Describe tables to Spark, plan their scans, and answer table functions.

Spark asks for a description when it resolves a name or a path. The description holds a token, which says exactly what
was resolved: version, range of changes, partition, options. The optimizer hands the token back and gets the plan that
reads it, so one query sees one version of a table.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.commands.alter.properties import clustering_paths
from headwater.errors import ReadOptionError, TableNotFoundError
from headwater.features.registry import supported_features
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.log.schema.types import dotted, quoted
from headwater.spark.jvm import jvm_of
from headwater.spark.scan.backends import scan, scan_changes
from headwater.spark.scan.changes import CHANGE_FIELDS
from headwater.spark.scan.read import change_feed, parse_options, read_changes
from headwater.spark.scan.request import ScanRequest, resolve_target
from headwater.spark.session.hadoop import hadoop_options, session_table
from headwater.sql.gateway import active_session, handles, session_of
from headwater.sql.names import location as location_of
from headwater.sql.names import table_of
from headwater.sql.statements import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from headwater.features.context import TableRef
    from headwater.log.snapshot import Snapshot
    from headwater.spark.jvm import JavaObject

_MAX_SNAPSHOTS = 16
_OWN_OPTIONS = frozenset({"path", "paths", "timestampmicros", "isdataframewriterv1"})
_ROW_COLUMNS = ("row_id", "row_commit_version")


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a relation reads.

    Attributes:
        location: the root of the table.
        version: the version; of a change feed the last one.
        first_version: the first version of a change feed; None for a table.
        partition: values of partition columns, from a path such as `/table/day=2024-01-31`.
        reader: options of Spark's Parquet reader.
        hadoop: settings of Hadoop for this relation alone.
    """

    location: str
    version: int
    first_version: int | None = None
    partition: dict[str, str] = {}
    reader: dict[str, str] = {}
    hadoop: dict[str, str] = {}


class _Snapshots:
    """The newest snapshots: a query asks for a table several times."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int, str], Snapshot] = OrderedDict()

    def keep(self, location: str, zone: str, snapshot: Snapshot) -> Snapshot:
        """Return the kept snapshot of the same version of the same table, or keep this one."""
        key = (location, snapshot.version, zone)
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.metadata.id != snapshot.metadata.id:
                found = self._kept[key] = snapshot
            self._kept.move_to_end(key)
            if len(self._kept) > _MAX_SNAPSHOTS:
                self._kept.popitem(last=False)
            return found

    def get(self, location: str, version: int, zone: str) -> Snapshot | None:
        with self._lock:
            return self._kept.get((location, version, zone))


_SNAPSHOTS = _Snapshots()


@handles("exists")
def exists(location: str) -> bool:
    """Say whether there is a table at a location."""
    try:
        session_table(active_session(), location).snapshot()
    except TableNotFoundError:
        return False
    return True


@handles("noPath")
def no_path() -> None:
    raise ReadOptionError("say what to read: load(path), or option('path', ...)")


@handles("onePath")
def one_path(paths_json: str) -> str:
    """Return the only path of a read; Delta reads one table at a time."""
    paths = json.loads(paths_json)
    if len(paths) != 1:
        raise ReadOptionError(f"a read of Delta has one path, not {len(paths)}: read each, and union the results")
    return str(paths[0])


@handles("table")
def describe(location: str, options_json: str) -> str:
    """Return what Spark needs to know of a table, as JSON."""
    spark = active_session()
    token, snapshot, pinned = _resolve(spark, location, json.loads(options_json))
    schema = snapshot.schema
    if token.first_version is not None:
        schema = StructType([*schema.fields, *CHANGE_FIELDS])
    return json.dumps(
        {
            "schema": schema.to_json(),
            "partitionColumns": list(snapshot.metadata.partition_columns),
            "clusteringColumns": [dotted(path) for path in clustering_paths(snapshot)],
            "properties": table_properties(snapshot),
            "version": token.version,
            "id": snapshot.metadata.id,
            "sizeInBytes": snapshot.size_bytes,
            "numRows": None,
            "pinned": pinned,
            "token": msgspec.json.encode(token).decode(),
        }
    )


def table_properties(snapshot: Snapshot) -> dict[str, str]:
    """Return the properties that SHOW TBLPROPERTIES shows, and the few that Spark keeps to itself."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    properties = {
        **metadata.configuration,
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        "provider": "delta",
        "location": snapshot.uri,
    }
    if protocol.min_writer_version >= _FEATURES_VERSION:
        properties |= {f"delta.feature.{name}": "supported" for name in supported_features(protocol)}
    if metadata.description is not None:
        properties["comment"] = metadata.description
    return properties


_FEATURES_VERSION = 7


def _resolve(spark: SparkSession, location: str, options: Mapping[str, str]) -> tuple[Token, Snapshot, bool]:
    """Find the version that options ask for; the last value says whether they name one."""
    hadoop = hadoop_options(options)
    read_options = {k: v for k, v in options.items() if k.lower() not in _OWN_OPTIONS and k not in hadoop}
    asked = parse_options(None, None, {k: v for k, v in read_options.items() if is_read_option(k)})
    micros = next((v for k, v in options.items() if k.lower() == "timestampmicros"), None)
    timestamp = asked.timestamp if micros is None else int(micros) // 1_000
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    target = resolve_target(location, asked.version, timestamp, zone)
    root, partition = _root(spark, str(target.path), hadoop)
    context = root.context(time_zone=zone)
    place = str(root.location)
    if asked.changes is not None:
        feed = change_feed(context, zone, **asked.changes)
        last = _SNAPSHOTS.keep(place, zone, feed.snapshot)
        return Token(place, last.version, feed.first_version, partition, asked.reader, hadoop), last, True
    found = open_snapshot(context, version=target.version, timestamp=target.timestamp)
    snapshot = _SNAPSHOTS.keep(place, zone, found)
    pinned = target.version is not None or target.timestamp is not None
    return Token(place, snapshot.version, None, partition, asked.reader, hadoop), snapshot, pinned


def _root(spark: SparkSession, location: str, hadoop: Mapping[str, str]) -> tuple[TableRef, dict[str, str]]:
    """Return the table of a location, which may be that of a partition of it (`/table/day=2024-01-31`)."""
    from urllib.parse import unquote

    partition: dict[str, str] = {}
    parent, _, last = location.rstrip("/").rpartition("/")
    while "=" in last:
        name, _, value = last.partition("=")
        partition[unquote(name)] = unquote(unquote(value))
        location = parent
        parent, _, last = parent.rpartition("/")
    return session_table(spark, location, None, hadoop), partition


def is_read_option(name: str) -> bool:
    """Say whether an option of a read is one of Delta's; Spark ignores options that it does not know."""
    return name.lower() in _READ_OPTIONS


_READ_OPTIONS = frozenset(
    name.lower()
    for name in (
        "versionAsOf",
        "timestampAsOf",
        "readChangeFeed",
        "readChangeData",
        "startingVersion",
        "endingVersion",
        "startingTimestamp",
        "endingTimestamp",
        "datetimeRebaseMode",
        "int96RebaseMode",
        "ignoreCorruptFiles",
        "ignoreMissingFiles",
    )
)


@handles("scan")
def plan_scan(java_session: JavaObject, token_json: str, with_metadata: bool) -> JavaObject:
    """Return the logical plan that reads what a token says."""
    token = msgspec.json.decode(token_json, type=Token)
    spark = session_of(java_session)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    table = session_table(spark, token.location, None, token.hadoop)
    if token.first_version is not None:
        context = table.context(time_zone=zone)
        feed = change_feed(context, zone, starting_version=token.first_version, ending_version=token.version)
        frame = scan_changes(spark, feed)
    else:
        snapshot = _SNAPSHOTS.get(token.location, token.version, zone)
        if snapshot is None:
            snapshot = open_snapshot(table.context(time_zone=zone), version=token.version)
        request = ScanRequest(snapshot, options=token.reader)
        frame = scan(spark, request)
    for name, value in token.partition.items():
        frame = frame.where(f"{quoted(name)} = '{value}'")
    if with_metadata:
        frame = frame.select("*", "_metadata")
    return frame._jdf.queryExecution().analyzed()


@handles("function")
def table_function(java_session: JavaObject, name: str, arguments: JavaObject) -> JavaObject:
    spark = session_of(java_session)
    jvm = jvm_of(spark)
    empty = jvm.call("org.apache.spark.sql.catalyst.InternalRow", "empty")
    values: list[Any] = []
    for i in range(arguments.size()):
        value = arguments.apply(i).eval(empty)
        values.append(str(value.toString()) if hasattr(value, "toString") else value)
    if name == "table_changes":
        parts = java_session.sessionState().sqlParser().parseMultipartIdentifier(values[0])
        names = tuple(parts.apply(i) for i in range(parts.size()))
        place = table_of(spark, Target(names)).ref.location
    else:
        place = location_of(spark, values[0])
    last = int(values[2]) if len(values) > 2 else None
    return read_changes(spark, place, int(values[1]), last)._jdf.queryExecution().analyzed()
