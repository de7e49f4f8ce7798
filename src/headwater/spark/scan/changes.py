"""The files of a change data feed, and which of their rows count (spec: "Add CDC File").

Version, time and, where it is the file's, the type of a change are known without reading a file, like the table's
partition values: every backend gives them to the rows of a file as it gives those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.commands.table_keys import keys_below
from headwater.errors import CorruptLogError, SchemaError
from headwater.features.basic_rules import check_change_type
from headwater.log.actions.deletion_vectors import to_bitmap
from headwater.log.actions.paths import absolute_paths, file_uris, hadoop_root
from headwater.log.files.arrow import int64s, string_maps, strings
from headwater.log.schema import LONG, STRING, TIMESTAMP, StructField
from headwater.log.schema.types import hidden
from headwater.parquet.read import MODIFIED, PATH, SIZE
from headwater.spark.functions import functions
from headwater.spark.scan.columns import ScanColumns, spark_fields
from headwater.spark.scan.deletion_vectors import VectorReader
from headwater.spark.scan.files import partition_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from headwater.log.files.changes import ChangeFeed, ChangeFile

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_FIELDS = (
    StructField(CHANGE_TYPE, STRING),
    StructField(COMMIT_VERSION, LONG),
    StructField(COMMIT_TIMESTAMP, TIMESTAMP),
)
"""The columns of a feed behind those of the table."""
_KNOWN = {field.name: hidden(field.name) for field in CHANGE_FIELDS}
"""What a scan calls them where they are not in files: a column of the table may be called so in its files."""


@dataclass(frozen=True)
class ChangeFiles:
    """The recorded or the derived changes of a feed. A file may be there several times: added, changed, removed."""

    feed: ChangeFeed
    columns: ScanColumns
    recorded: bool
    """`cdc` files, which have a column `_change_type`; otherwise added and removed files."""

    @cached_property
    def files(self) -> tuple[ChangeFile, ...]:
        return tuple(f for f in self.feed.files if (f.change_type is None) == self.recorded)

    @cached_property
    def root(self) -> str:
        return hadoop_root(self.feed.snapshot.uri)

    @cached_property
    def sources(self) -> dict[str, str]:
        """What a scan calls the columns of the feed: hidden names, but for the change type that files record."""
        return _KNOWN | ({CHANGE_TYPE: CHANGE_TYPE} if self.recorded else {})

    @cached_property
    def known(self) -> dict[str, str]:
        """Those of them that are known of a file without reading it."""
        return {name: source for name, source in self.sources.items() if name != source}

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The table's partition columns and the known ones, as fields of a Spark schema in JSON."""
        known = [replace(f, name=self.known[f.name]) for f in CHANGE_FIELDS if f.name in self.known]
        own = self.columns.partition_fields
        if not all(field.nullable for field in own):  # whatever the schema says: see `SnapshotFiles`
            own = [replace(f, nullable=f.nullable or self.rows.column(f.name).null_count > 0) for f in own]
        return spark_fields([*own, *known])

    def shown(self) -> list[Column]:
        """Return the columns of the feed, over a scan of the files."""
        sf = functions()
        return [sf.col(source).alias(name) for name, source in self.sources.items()]

    @property
    def version(self) -> int:
        return self.feed.snapshot.version

    @property
    def num_files(self) -> int:
        """The number of files; one that is read for several changes counts as many times."""
        return len(self.files)

    @cached_property
    def has_vectors(self) -> bool:
        """Whether of some file not all rows changed."""
        return any(f.without is not None or f.only is not None for f in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [self._size(file) if file.size is None else file.size for file in self.files]

    def _size(self, file: ChangeFile) -> int:
        """Return the size of a file whose tombstone does not say it."""
        snapshot = self.feed.snapshot
        path = strings([file.path]).cast(pa.string())
        [key] = keys_below(pa.chunked_array([path]), snapshot.uri).to_pylist()
        if key is not None:
            return snapshot.ctx.store.head(key.decode("utf-8", "surrogateescape")).size_bytes
        [absolute] = absolute_paths(path, snapshot.uri).to_pylist()
        store, name = snapshot.ctx.open_absolute(absolute.removeprefix("file:"))
        return store.head(name).size_bytes

    @cached_property
    def rows(self) -> pa.Table:
        """One row a file: the partition fields, then path (as URI), size and modification time."""
        files, uri = self.files, self.feed.snapshot.uri
        found: dict[str, Any] = {}
        maps = pa.chunked_array([string_maps([self._values(f) for f in files])])
        for name, scanned in zip(self.columns.partition_columns, self.columns.partition_fields, strict=True):
            key, field = self.columns.partition_key(name), self.columns.table.field(name)
            found[scanned.name] = partition_values(maps, field, key, self.feed.snapshot.ctx.time_zone)
        if not self.recorded:
            found[self.known[CHANGE_TYPE]] = strings([f.change_type for f in files])
        found[self.known[COMMIT_VERSION]] = int64s([f.version for f in files])
        microseconds = pa.timestamp("us", tz="UTC")
        found[self.known[COMMIT_TIMESTAMP]] = int64s([f.timestamp_ms * 1000 for f in files], microseconds)
        found[PATH] = file_uris(pa.chunked_array([strings([f.path for f in files])]), uri)
        found[SIZE] = int64s(self._sizes)
        found[MODIFIED] = int64s([f.timestamp_ms for f in files])
        return pa.table(found)

    def _values(self, file: ChangeFile) -> Mapping[str, str | None]:
        if file.partition_values is None and self.columns.partition_columns:
            raise CorruptLogError(
                f"version {file.version} of {self.feed.snapshot.uri} removes {file.path} without its partition "
                "values, so the rows that it removes are not known"
            )
        return file.partition_values or {}


def change_files(feed: ChangeFeed) -> list[ChangeFiles]:
    """Return the recorded and the derived changes of a feed, where there are any.

    Raises:
        SchemaError: the table has columns of its own with the names of a feed's.
    """
    schema, uri = feed.snapshot.schema, feed.snapshot.uri
    taken = {name.lower() for name in schema.names} & {field.name for field in CHANGE_FIELDS}
    if taken:
        raise SchemaError(f"{uri} has a column {min(taken)} of its own, so its changes cannot be shown")
    if any(file.change_type is None for file in feed.files):
        check_change_type(schema, uri)
    columns = ScanColumns.of(feed.snapshot)
    kinds = (ChangeFiles(feed, columns, recorded) for recorded in (True, False))
    return [kind for kind in kinds if kind.files]


@dataclass(frozen=True)
class RowSets:
    """Which rows of files count, as 64-bit bitmaps in the portable format; None for a file without such a set.

    Attributes:
        dropped: for each file the rows that do not count.
        kept: for each file the rows that alone count.
    """

    dropped: list[bytes | None]
    kept: list[bytes | None]


def row_sets(changes: ChangeFiles) -> RowSets:
    """Return the rows of files that changed, from their deletion vectors before and after."""
    files, reader = changes.files, VectorReader.of(changes.feed.snapshot)
    vectors = {v.unique_id: v for f in files for v in (f.without, f.only) if v is not None}
    read = dict(zip(vectors, reader.read(list(vectors.values())), strict=True))
    found = RowSets([None] * len(files), [None] * len(files))
    for i, file in enumerate(files):
        without = None if file.without is None else read[file.without.unique_id]
        if file.only is None:
            found.dropped[i] = without
        else:
            rows = to_bitmap(read[file.only.unique_id])
            found.kept[i] = bytes((rows if without is None else rows - to_bitmap(without)).serialize())
    return found
