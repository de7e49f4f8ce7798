"""Reading in classic PySpark: Spark's own Parquet scan over the files that the log names.

The relation is Spark's `HadoopFsRelation` with our `FileIndex` in it, so a scan is as fast as plain Parquet and prunes
by partition values and statistics whatever query is built on it. On top come, only where a table needs them, a filter
for deletion vectors and a projection to the table's names. The result has the table's columns in their order; Spark's
hidden column `_metadata` can be selected from it.

To scan a snapshot again costs a few calls to the JVM: the file index of an earlier scan, with the files that it has
listed, is used again for as long as some plan holds it.

Changes are read in the same way. What is known of a change without reading it is a partition value, so filters on it
skip files; rows that did not change are filtered out by bitmaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from headwater.log.files.arrow import int32s
from headwater.log.filters.expressions import Column as TableColumn
from headwater.log.schema import INTEGER, LONG, STRING, StructField
from headwater.log.schema.types import hidden
from headwater.spark.errors import remember_scan
from headwater.spark.jvm import exact_key
from headwater.spark.scan.changes import CHANGE_TYPE, ChangeFiles, row_sets
from headwater.spark.scan.columns import (
    ScanColumns,
    location_columns,
    materialized_columns,
    row_position,
    row_tracking_columns,
    spark_fields,
)
from headwater.spark.scan.deletion_vectors import Bitmaps, DeletedRows, VectorReader
from headwater.spark.scan.file_index import PythonFileIndex, relation
from headwater.spark.scan.files import RequestedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.filters.expressions import Expression
    from headwater.spark.scan.request import ScanRequest


_INDEXES: WeakValueDictionary[tuple[object, ...], PythonFileIndex[RequestedFiles]] = WeakValueDictionary()
"""The file indexes of living plans, by what they were made from. An index keeps the objects whose ids are in a key."""


@dataclass(frozen=True)
class ClassicBackend:
    """Reads by Spark's Parquet reader, in a session of classic PySpark."""

    spark: SparkSession

    def scan(self, request: ScanRequest) -> DataFrame:
        """Return the rows of a request; see `headwater.spark.scan.backends.ScanBackend`."""
        materialized = materialized_columns(request.snapshot) if request.row_tracking else {}
        index = self._index(request)
        files = index.source
        remember_scan(self.spark, files.root, files.version)
        columns = files.columns
        data_fields = [*columns.physical.fields, *(StructField(name, LONG) for name in materialized.values() if name)]
        frame = relation(self.spark, index, data_fields, {**request.options, **columns.options})
        if files.deleted is None and not request.row_tracking and not request.locate_rows:
            return frame.select(*columns.projection) if columns.needs_projection else frame
        position = row_position(frame)
        if isinstance(files.deleted, DeletedRows):
            frame = frame.where(files.deleted.kept(position))
        tracked = row_tracking_columns(materialized, position) if request.row_tracking else []
        located = location_columns(position) if request.locate_rows else []
        return frame.select(*columns.projection, *tracked, *located)

    def _index(self, request: ScanRequest) -> PythonFileIndex[RequestedFiles]:
        """Return a file index for a request: that of an earlier scan of the same snapshot, if a plan still holds it."""
        spark, snapshot = self.spark, request.snapshot
        where = None if request.where is None else request.pruning(spark)
        key = (id(spark), id(snapshot), id(request.files), request.row_tracking, request.locate_rows, exact_key(where))
        index = _INDEXES.get(key)
        if index is None:
            deleted = DeletedRows(spark, VectorReader.of(snapshot)) if request.has_vectors else None
            files = RequestedFiles(request, ScanColumns.of(snapshot), deleted, where)
            index = _INDEXES[key] = PythonFileIndex(spark, files)
        return index

    def scan_changes(self, kinds: Sequence[ChangeFiles]) -> DataFrame:
        """Return the rows that changed; recorded changes and derived ones are two scans of the same shape."""
        from pyspark.sql import functions as sf

        spark, bitmaps = self.spark, Bitmaps(self.spark)
        frames: list[DataFrame] = []
        for changes in kinds:
            remember_scan(spark, changes.root, changes.version)
            source = _IndexedChanges(changes, bitmaps)
            recorded = [StructField(CHANGE_TYPE, STRING)] if changes.recorded else []
            data_fields = [*changes.columns.physical.fields, *recorded]
            frame = relation(spark, PythonFileIndex(spark, source), data_fields, changes.columns.options)
            if changes.has_vectors:
                dropped, kept, position = sf.col(_DROPPED), sf.col(_KEPT), row_position(frame)
                frame = frame.where(dropped.isNull() | ~bitmaps.contains(dropped, position))
                frame = frame.where(kept.isNull() | bitmaps.contains(kept, position))
            frames.append(frame.select(*changes.columns.projection, *changes.shown()))
        return reduce(lambda one, other: one.unionAll(other), frames)


_DROPPED = hidden("dropped_rows")
_KEPT = hidden("kept_rows")


@dataclass(frozen=True)
class _IndexedChanges:
    """Change files as a `headwater.spark.scan.file_index.FileSource`."""

    changes: ChangeFiles
    bitmaps: Bitmaps

    @cached_property
    def name(self) -> str:
        kind = "recorded" if self.changes.recorded else "derived"
        versions = f"versions {self.changes.feed.first_version} to {self.changes.version}"
        return f"Headwater({self.root}, {kind} changes, {versions}, {id(self.bitmaps):x})"

    @property
    def key(self) -> str:
        """Return a text that no other feed has: the numbers of its bitmaps are its own."""
        return exact_key(self.changes.recorded, id(self.bitmaps))

    @property
    def root(self) -> str:
        return self.changes.root

    @property
    def size_bytes(self) -> int:
        return self.changes.size_bytes

    @property
    def version(self) -> int:
        return self.changes.version

    @property
    def num_files(self) -> int:
        return self.changes.num_files

    @property
    def has_vectors(self) -> bool:
        return self.changes.has_vectors

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """What is known of a change without reading it, then the hidden columns."""
        hidden = [StructField(_DROPPED, INTEGER), StructField(_KEPT, INTEGER)] if self.changes.has_vectors else []
        return [*self.changes.partition_fields, *spark_fields(hidden)]

    @property
    def lists_at_once(self) -> bool:
        return False

    @property
    def may_list_all(self) -> bool:
        """Not: a file may be there several times."""
        return False

    def resolve(self, path: tuple[str, ...]) -> TableColumn | None:
        """Return what is known of a change, which partition filters are about; nothing else prunes."""
        return TableColumn(path) if any(path == (field["name"],) for field in self.changes.partition_fields) else None

    @cached_property
    def _rows(self) -> pa.Table:
        rows = self.changes.rows
        if not self.changes.has_vectors:
            return rows
        sets = row_sets(self.changes)
        place = len(self.changes.partition_fields)
        for name, bitmaps in ((_KEPT, sets.kept), (_DROPPED, sets.dropped)):
            rows = rows.add_column(place, name, self._numbers(bitmaps))
        return rows

    def _numbers(self, sets: list[bytes | None]) -> pa.Array:
        present = [data for data in sets if data is not None]
        numbers = iter(self.bitmaps.add(present) if present else ())
        return int32s([None if data is None else next(numbers) for data in sets])

    def rows(self, where: Expression) -> pa.Table:  # noqa: ARG002
        return self._rows
