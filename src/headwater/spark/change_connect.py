"""Changes on Spark Connect, with DataFrame operations only; see `headwater.spark.connect`.

A file may have changed several times, and a scan finds what is known of a file by its path. Files of which all rows
count (or all but the deleted ones) are therefore read once for each of their changes. Files under changing deletion
vectors are read once for all: a join with the chunks of their bitmaps gives each row the changes that it is in.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

from headwater.log.columns import int32s, int64s
from headwater.log.schema import INTEGER, STRING, StructField
from headwater.spark.change_files import CHANGE_TYPE, ChangeFiles, RowSets, row_sets
from headwater.spark.columns import spark_fields
from headwater.spark.connect import ROAD, file_schema
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.deleted_chunks import BITMAP_COLUMN, rows_by_bitmap, without_rows
from headwater.spark.deletion_vectors import VECTOR_COLUMN, VectorReader
from headwater.spark.explain import summary_of
from headwater.spark.file_rows import PATH
from headwater.spark.functions import functions, functions_for_connect
from headwater.spark.marked_plans import mark
from headwater.spark.path_scan import path_scans
from headwater.spark.path_values import path_columns, path_position, values_at
from headwater.spark.scan import SAFE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def changes_on_connect(
    spark: SparkSession, kinds: list[ChangeFiles], storage_options: Mapping[str, str] | None
) -> DataFrame:
    """The changes as a DataFrame of a Connect session; see `headwater.spark.changes`."""
    with functions_for_connect():
        snapshot = kinds[0].feed.snapshot
        remember_connect_scan(kinds[0].root, snapshot.version)
        frames = [frame for changes in kinds for frame in _Scans(spark, changes, storage_options).frames()]
        return reduce(lambda one, other: one.union(other), frames)


class _Scans:
    """The scans of recorded or of derived changes."""

    def __init__(self, spark: SparkSession, changes: ChangeFiles, storage_options: Mapping[str, str] | None) -> None:
        self._spark = spark
        self._changes = changes
        self._storage_options = storage_options

    def frames(self) -> Iterator[DataFrame]:
        """DataFrames that have all the changes together, with the columns of the feed."""
        changes = self._changes
        sets = row_sets(changes.files, VectorReader(changes.feed.snapshot.ctx.store, self._storage_options))
        whole = [i for i, kept in enumerate(sets.kept) if kept is None]
        partial = [i for i, kept in enumerate(sets.kept) if kept is not None]
        shown = [*changes.columns.projection(), *changes.shown()]
        for distinct in _rounds(changes.rows.column(PATH).take(int64s(whole)).to_pylist()):
            for frame in self._whole_files([whole[i] for i in distinct], sets):
                yield frame.select(*shown)
        if partial:
            for frame in self._parts_of_files(partial, sets):
                yield frame.select(*shown)

    def _whole_files(self, positions: list[int], sets: RowSets) -> Iterator[DataFrame]:
        """Changes of files, each one there once: all rows of a file, but for those that are deleted in it."""
        rows, fields = self._changes.rows.take(int64s(positions)), self._changes.partition_fields
        dropped = [sets.dropped[i] for i in positions]
        present = [data for data in dropped if data is not None]
        if present:
            numbers = iter(range(len(present)))
            rows = rows.append_column(VECTOR_COLUMN, int32s([None if d is None else next(numbers) for d in dropped]))
            fields = [*fields, *spark_fields([StructField(VECTOR_COLUMN, INTEGER)])]
        for frame, part in self._path_scans(rows):
            yield without_rows(self._spark, frame.withColumns(path_columns(part, fields)), present)

    def _parts_of_files(self, positions: list[int], sets: RowSets) -> Iterator[DataFrame]:
        """Changes of some rows of files; a file may have several."""
        rows = self._changes.rows.take(int64s(positions))
        paths = rows.column(PATH).to_pylist()
        first = {path: i for i, path in reversed(list(enumerate(paths)))}
        for frame, part in self._path_scans(rows.take(int64s(list(first.values())))):
            numbers = {path: number for number, path in enumerate(part.column(PATH).to_pylist())}
            changed = [i for i, path in enumerate(paths) if path in numbers]
            kept = [data for i in changed if (data := sets.kept[positions[i]]) is not None]
            numbered = frame.withColumn(VECTOR_COLUMN, path_position(part.column(PATH)))
            found = rows_by_bitmap(self._spark, numbered, kept, [numbers[paths[i]] for i in changed])
            known = values_at(
                functions().col(BITMAP_COLUMN), rows.take(int64s(changed)), self._changes.partition_fields
            )
            yield found.withColumns(known)

    def _path_scans(self, rows: pa.Table) -> Iterator[tuple[DataFrame, pa.Table]]:
        changes = self._changes
        recorded = [StructField(CHANGE_TYPE, STRING)] if changes.recorded else []
        schema = file_schema(changes.columns, *recorded)
        snapshot, options = changes.feed.snapshot, self._storage_options
        for frame, part in path_scans(self._spark, snapshot, rows, schema, SAFE_OPTIONS, options):
            mark(frame, summary_of(changes, part, ROAD))
            yield frame, part


def _rounds(paths: list[str]) -> list[list[int]]:
    """Positions in rounds, so that no path is twice in one: all first occurrences, all second ones, and so on.

    >>> _rounds(["a", "b", "a"])
    [[0, 1], [2]]
    """
    seen: Counter[str] = Counter()
    rounds: list[list[int]] = []
    for position, path in enumerate(paths):
        if seen[path] == len(rounds):
            rounds.append([])
        rounds[seen[path]].append(position)
        seen[path] += 1
    return rounds
