"""The change data feed in batch: every row that changed in a range of versions (spec: "Add CDC File").

Recorded changes (`cdc` files) and derived ones (added and removed files) are two scans of the same shape, united.
Version, time and, where it is the file's, the type of a change are partition values, so filters on them prune files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import CorruptLogError, SchemaError, VersionNotFoundError
from headwater.features.gate import check_readable
from headwater.log.changes import ChangeDataError, ChangeFeed, ChangeFile, read_change_feed
from headwater.log.columns import int32s, int64s, string_maps, strings
from headwater.log.context import LogContext
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.opening import open_snapshot
from headwater.log.paths import canonical
from headwater.log.schema import STRING, StructField
from headwater.log.timeline import to_ms, version_at
from headwater.spark.bitmaps import Bitmaps
from headwater.spark.columns import ScanColumns, spark_fields
from headwater.spark.deletion_vectors import VectorReader
from headwater.spark.failures import remember_scan
from headwater.spark.file_rows import file_uris, hadoop_root, partition_values
from headwater.spark.functions import is_connect
from headwater.spark.scan import relation
from headwater.spark.time_travel import TimeTravelError, in_zone
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.expressions import Column, Expression

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
_DROPPED = "__headwater_dropped_rows"
_KEPT = "__headwater_kept_rows"


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
        spark: a classic session.
        path: the table.
        starting_version: the first version.
        ending_version: the last version; the newest by default.
        starting_timestamp: or start with the first version at or after a time.
        ending_timestamp: or end with the last version at or before a time.
        storage_options: options of the object store, for the log.

    Returns:
        The table's columns (of the last version), and `_change_type` (`insert`, `delete`, `update_preimage` or
        `update_postimage`), `_commit_version` and `_commit_timestamp`.

    Raises:
        VersionNotFoundError: the range has versions that do not exist (any more).
        ChangeDataError: the feed was not enabled in all of the range, or the schema changed incompatibly.

    Example:
        >>> read_changes(spark, "/data/events", starting_version=3).where("_change_type = 'delete'")  # doctest: +SKIP
    """
    if is_connect(spark):
        raise ChangeDataError(
            f"the change data feed of {path} cannot be read on a Spark Connect session yet: use a classic session "
            "(hw.spark), or read two versions with hw.read and compare them."
        )
    ctx = LogContext(store=open_store(path, storage_options), check_readable=check_readable)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    first = _first_version(ctx, starting_version, starting_timestamp, zone)
    last = _last_version(ctx, ending_version, ending_timestamp, zone)
    return scan_changes(spark, read_change_feed(ctx, first, last), storage_options=storage_options)


def scan_changes(
    spark: SparkSession, feed: ChangeFeed, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """A change feed as a DataFrame; see `read_changes`."""
    from pyspark.sql import functions as sf

    snapshot = feed.snapshot
    taken = {n.lower() for n in snapshot.schema.names} & {CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP}
    if taken:
        raise SchemaError(f"{snapshot.uri} has a column {taken.pop()} of its own, so its changes cannot be shown")
    columns = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
    bitmaps = Bitmaps(spark)
    rows = _RowSets(bitmaps, VectorReader(snapshot.ctx.store, storage_options))
    remember_scan(hadoop_root(snapshot.uri), snapshot.version)
    shown = [*columns.projection(), sf.col(CHANGE_TYPE), sf.col(COMMIT_VERSION), sf.col(COMMIT_TIMESTAMP)]
    frames: list[DataFrame] = []
    for recorded in (True, False):
        files = [f for f in feed.files if (f.change_type is None) == recorded]
        if not files and (recorded or frames):
            continue
        source = _ChangeFiles(feed, columns, tuple(files), rows, recorded)
        data_fields = [*columns.physical.fields, *([StructField(CHANGE_TYPE, STRING)] if recorded else [])]
        frame = relation(spark, source, data_fields, columns.options)
        if not recorded and source.has_row_sets:
            dropped, kept = sf.col(_DROPPED), sf.col(_KEPT)
            frame = frame.where(dropped.isNull() | ~bitmaps.contains(dropped))
            frame = frame.where(kept.isNull() | bitmaps.contains(kept))
        frames.append(frame.select(*shown))
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


class _RowSets:
    """The rows of files that changed, where not all did, as numbers of bitmaps."""

    def __init__(self, bitmaps: Bitmaps, reader: VectorReader) -> None:
        self._bitmaps = bitmaps
        self._reader = reader

    def numbers(self, files: tuple[ChangeFile, ...]) -> tuple[list[int | None], list[int | None]]:
        """For each file the bitmap of rows that do not count, and of rows that alone count."""
        vectors = {v.unique_id: v for f in files for v in (f.without, f.only) if v is not None}
        read = dict(zip(vectors, self._reader.read(list(vectors.values())), strict=True))
        sets: list[bytes] = []
        dropped: list[int | None] = [None] * len(files)
        kept: list[int | None] = [None] * len(files)
        for i, file in enumerate(files):
            without = None if file.without is None else read[file.without.unique_id]
            if file.only is None and without is not None:
                dropped[i] = len(sets)
                sets.append(without)
            elif file.only is not None:
                rows = to_bitmap(read[file.only.unique_id])
                kept[i] = len(sets)
                sets.append(bytes((rows if without is None else rows - to_bitmap(without)).serialize()))
        first = self._bitmaps.add(sets).start if sets else 0
        return (
            [None if n is None else n + first for n in dropped],
            [None if n is None else n + first for n in kept],
        )


@dataclass(frozen=True)
class _ChangeFiles:
    """Change files as a `headwater.spark.file_index.FileSource`."""

    feed: ChangeFeed
    columns: ScanColumns
    files: tuple[ChangeFile, ...]
    row_sets: _RowSets
    recorded: bool
    """`cdc` files, which have a column `_change_type`."""

    @cached_property
    def name(self) -> str:
        """Each feed is its own: bitmaps have numbers of their own."""
        kind = "recorded" if self.recorded else "derived"
        versions = f"versions {self.feed.first_version} to {self.feed.snapshot.version}"
        return f"Headwater({self.root}, {kind} changes, {versions}, {id(self.row_sets):x})"

    @cached_property
    def root(self) -> str:
        """The table's location."""
        return hadoop_root(self.feed.snapshot.uri)

    @property
    def has_row_sets(self) -> bool:
        """Whether of some file not all rows changed."""
        return any(f.without is not None or f.only is not None for f in self.files)

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The table's partition columns, and what is known of a change without reading it."""
        types = {COMMIT_VERSION: "long", COMMIT_TIMESTAMP: "timestamp"}
        if not self.recorded:
            types |= {CHANGE_TYPE: "string", _DROPPED: "integer", _KEPT: "integer"}
        return [
            *spark_fields(self.columns.partition_fields),
            *({"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()),
        ]

    @cached_property
    def _sizes(self) -> list[int]:
        return [self._size(file) if file.size is None else file.size for file in self.files]

    def _size(self, file: ChangeFile) -> int:
        """A tombstone need not say how large its file is."""
        return self.feed.snapshot.ctx.store.head(canonical(file.path)).size_bytes

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(self._sizes)

    def resolve(self, path: tuple[str, ...]) -> Column | None:  # noqa: ARG002
        """None: nothing is pruned here, except exactly, by partition values."""
        return None

    @cached_property
    def _rows(self) -> pa.Table:
        import pyarrow as pa

        files, uri = self.files, self.feed.snapshot.uri
        found: dict[str, Any] = {}
        maps = pa.chunked_array([string_maps([_values(f, self.columns, uri) for f in files])])
        for name, scanned in zip(self.columns.partition_columns, self.columns.partition_fields, strict=True):
            key, field = self.columns.partition_key(name), self.columns.table.field(name)
            found[scanned.name] = partition_values(maps, field, key)
        found[COMMIT_VERSION] = int64s([f.version for f in files])
        microseconds = pa.timestamp("us", tz="UTC")
        found[COMMIT_TIMESTAMP] = int64s([f.timestamp_ms * 1000 for f in files], microseconds)
        if not self.recorded:
            dropped, kept = self.row_sets.numbers(files)
            found[CHANGE_TYPE] = strings([f.change_type for f in files])
            found |= {_DROPPED: int32s(dropped), _KEPT: int32s(kept)}
        found["path"] = file_uris(pa.chunked_array([strings([f.path for f in files])]), uri)
        found["size"] = int64s(self._sizes)
        found["modificationTime"] = int64s([f.timestamp_ms for f in files])
        return pa.table(found)

    def rows(self, where: Expression) -> pa.Table:  # noqa: ARG002
        """All files."""
        return self._rows


def _values(file: ChangeFile, columns: ScanColumns, uri: str) -> Mapping[str, str | None]:
    if file.partition_values is None and columns.partition_columns:
        raise CorruptLogError(
            f"version {file.version} of {uri} removes {file.path} without its partition values, so the rows that it "
            "removes are not known"
        )
    return file.partition_values or {}


def _first_version(
    ctx: LogContext, version: int | None, timestamp: str | datetime | date | int | None, zone: str
) -> int:
    if (version is None) == (timestamp is None):
        raise TimeTravelError("changes start at a version or at a timestamp: give one of them")
    if version is not None or timestamp is None:
        return int(version or 0)
    wanted_ms = to_ms(in_zone(timestamp, zone))
    newest = open_snapshot(ctx, version=None, timestamp=None)
    found = version_at(ctx, wanted_ms, newest.protocol, newest.metadata)
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
    return version_at(ctx, to_ms(in_zone(timestamp, zone)), newest.protocol, newest.metadata)
