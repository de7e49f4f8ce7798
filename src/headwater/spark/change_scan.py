"""Changes on the main road: Spark's own scan with our file index, over change files instead of live ones.

Recorded changes and derived ones are two scans of the same shape, united. What is known of a change without reading it
is a partition value, so filters on it skip files; rows that did not change are filtered out by bitmaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from headwater.log.columns import int32s
from headwater.log.expressions import Column as TableColumn
from headwater.log.schema import INTEGER, STRING, StructField
from headwater.log.schema.lookup import hidden
from headwater.spark.bitmaps import Bitmaps
from headwater.spark.change_files import CHANGE_TYPE, ChangeFiles, row_sets
from headwater.spark.columns import spark_fields
from headwater.spark.deletion_vectors import VectorReader
from headwater.spark.explain import register
from headwater.spark.failures import remember_scan
from headwater.spark.jvm import exact_key
from headwater.spark.row_locations import row_position
from headwater.spark.scan import relation

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.expressions import Expression

_DROPPED = hidden("dropped_rows")
_KEPT = hidden("kept_rows")


def changes_in_spark(
    spark: SparkSession, kinds: list[ChangeFiles], storage_options: Mapping[str, str] | None
) -> DataFrame:
    """The changes as a DataFrame; see `headwater.spark.changes`."""
    from pyspark.sql import functions as sf

    snapshot = kinds[0].feed.snapshot
    bitmaps = Bitmaps(spark)
    reader = VectorReader(snapshot.ctx.store, storage_options)
    remember_scan(kinds[0].root, snapshot.version)
    frames: list[DataFrame] = []
    for changes in kinds:
        source = _IndexedChanges(changes, bitmaps, reader)
        register(source.name, changes)
        data_fields = [*changes.columns.physical.fields]
        if changes.recorded:
            data_fields.append(StructField(CHANGE_TYPE, STRING))
        frame = relation(spark, source, data_fields, changes.columns.options)
        if changes.has_vectors:
            dropped, kept, position = sf.col(_DROPPED), sf.col(_KEPT), row_position(frame)
            frame = frame.where(dropped.isNull() | ~bitmaps.contains(dropped, position))
            frame = frame.where(kept.isNull() | bitmaps.contains(kept, position))
        frames.append(frame.select(*changes.columns.projection(), *changes.shown()))
    return reduce(lambda one, other: one.unionAll(other), frames)


@dataclass(frozen=True)
class _IndexedChanges:
    """Change files as a `headwater.spark.file_index.FileSource`."""

    changes: ChangeFiles
    bitmaps: Bitmaps
    reader: VectorReader

    @cached_property
    def name(self) -> str:
        """Table and versions."""
        kind = "recorded" if self.changes.recorded else "derived"
        versions = f"versions {self.changes.feed.first_version} to {self.changes.version}"
        return f"Headwater({self.root}, {kind} changes, {versions}, {id(self.bitmaps):x})"

    @property
    def key(self) -> str:
        """Each feed is its own: bitmaps have numbers of their own."""
        return exact_key(self.changes.recorded, id(self.bitmaps))

    @property
    def root(self) -> str:
        """The table's location."""
        return self.changes.root

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return self.changes.size_bytes

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """What is known of a change without reading it, then the hidden columns."""
        hidden = [StructField(_DROPPED, INTEGER), StructField(_KEPT, INTEGER)] if self.changes.has_vectors else []
        return [*self.changes.partition_fields, *spark_fields(hidden)]

    @property
    def lists_at_once(self) -> bool:
        """No."""
        return False

    @property
    def may_list_all(self) -> bool:
        """No: a file may be there several times."""
        return False

    def resolve(self, path: tuple[str, ...]) -> TableColumn | None:
        """What is known of a change, which exact filters are about; nothing else prunes."""
        return TableColumn(path) if any(path == (field["name"],) for field in self.changes.partition_fields) else None

    @cached_property
    def _rows(self) -> pa.Table:
        rows = self.changes.rows
        if not self.changes.has_vectors:
            return rows
        sets = row_sets(self.changes.files, self.reader)
        place = len(self.changes.partition_fields)
        for name, bitmaps in ((_KEPT, sets.kept), (_DROPPED, sets.dropped)):
            rows = rows.add_column(place, name, self._numbers(bitmaps))
        return rows

    def _numbers(self, sets: list[bytes | None]) -> pa.Array:
        present = [data for data in sets if data is not None]
        numbers = iter(self.bitmaps.add(present) if present else ())
        return int32s([None if data is None else next(numbers) for data in sets])

    def rows(self, where: Expression) -> pa.Table:  # noqa: ARG002
        """All files."""
        return self._rows
