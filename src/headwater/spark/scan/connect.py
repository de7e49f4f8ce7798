"""Reading on Spark Connect: the same tables with DataFrame operations only, for there is no JVM to reach.

The files that the log names are given to Spark's own Parquet reader as paths. The reader takes paths for patterns,
leaves out names that it takes for hidden ones, and lists many paths in a job: here it is asked so that it reads the
very files that the log names, or the error says why it cannot.

Partition values, and what else the log says of a file, are looked up by the path of a row's file, in a literal map that
is a constant of the plan. Spark applies filters on such a column when it lists files, so a later filter on a partition
column still skips whole files; filters on other columns reach the Parquet reader, but not the log's statistics, which
is what `where` of a read is for. Deletion vectors are an anti-join.

A file may have changed several times, and a scan finds what is known of a file by its path. Files of which all rows
count (or all but the deleted ones) are therefore read once for each of their changes. Files under changing deletion
vectors are read once for all: a join with the chunks of their bitmaps gives each row the changes that it is in.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from headwater.errors import FileNameError
from headwater.log.files.arrow import int32s, int64s
from headwater.log.schema import INTEGER, LONG, STRING, StructField, StructType, drop_field_ids
from headwater.log.schema.types import CHAR_VARCHAR_KEY, quoted
from headwater.log.stats.value_text import day_text, timestamp_text
from headwater.parquet.read import PATH, DataFiles, by_names
from headwater.spark.errors import explained_connect_failures, remember_scan
from headwater.spark.functions import functions, functions_for_connect, no_rows
from headwater.spark.scan.changes import CHANGE_TYPE, ChangeFiles, RowSets, row_sets
from headwater.spark.scan.columns import (
    FILE_PATH,
    LOCATION_FIELDS,
    ROW_POSITION,
    ScanColumns,
    location_columns,
    materialized_columns,
    row_file,
    row_position,
    row_tracking_columns,
    spark_fields,
)
from headwater.spark.scan.deletion_vectors import (
    BITMAP_COLUMN,
    VECTOR_COLUMN,
    DeletedChunks,
    VectorReader,
    rows_by_bitmap,
    without_rows,
)
from headwater.spark.scan.explain import mark, summary_of
from headwater.spark.scan.file_index import SAFE_OPTIONS
from headwater.spark.scan.files import RequestedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.scan.request import ScanRequest


CONNECT_READER = "Spark's Parquet reader on Spark Connect"


@dataclass(frozen=True)
class ConnectBackend:
    """Reads by Spark's Parquet reader, in a session of Spark Connect."""

    spark: SparkSession

    def scan(self, request: ScanRequest) -> DataFrame:
        """Return the rows of a request; see `headwater.spark.scan.backends.ScanBackend`."""
        with functions_for_connect():
            return self._scan(request)

    def _scan(self, request: ScanRequest) -> DataFrame:
        spark, snapshot = self.spark, request.snapshot
        columns = ScanColumns.of(snapshot)
        deleted = DeletedChunks(VectorReader.of(snapshot)) if request.has_vectors else None
        materialized = materialized_columns(snapshot) if request.row_tracking else {}
        files = RequestedFiles(request, columns, deleted)
        rows = files.rows(request.pruning(spark))
        remember_scan(spark, files.root, snapshot.version)
        if rows.num_rows == 0:
            located = LOCATION_FIELDS if request.locate_rows else ()
            hidden = [*(StructField(name, LONG) for name in materialized), *located]
            nothing = no_rows(spark, StructType([*columns.visible.fields, *hidden]))
            mark(nothing, summary_of(files, rows, CONNECT_READER))
            return nothing
        schema = file_schema(columns, *(StructField(name, LONG) for name in materialized.values() if name))
        position = functions().col(ROW_POSITION)
        tracked = row_tracking_columns(materialized, position) if request.row_tracking else []
        shown = [*columns.projection, *tracked, *(location_columns(position) if request.locate_rows else [])]
        frames: list[DataFrame] = []
        options = {**SAFE_OPTIONS, **request.options}
        for frame, part in path_scans(spark, snapshot, rows, schema, options):
            mark(frame, summary_of(files, part, CONNECT_READER))
            valued = frame.withColumns(path_columns(part, files.partition_fields)) if files.partition_fields else frame
            kept = valued if deleted is None else deleted.without_deleted(spark, valued)
            frames.append(kept.select(*shown))
        return reduce(lambda one, other: one.union(other), frames)

    def scan_changes(self, kinds: Sequence[ChangeFiles]) -> DataFrame:
        """Return the rows that changed."""
        with functions_for_connect():
            frames: list[DataFrame] = []
            for changes in kinds:
                remember_scan(self.spark, changes.root, changes.version)
                frames += _ChangeScans(self.spark, changes).frames()
            return reduce(lambda one, other: one.union(other), frames)


def file_schema(columns: ScanColumns, *also: StructField) -> StructType:
    """Return what is read from files: not the partition columns, which some writers put there too."""
    partitions = {field.name for field in columns.partition_fields}
    return StructType([*(field for field in columns.physical.fields if field.name not in partitions), *also])


_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MANY_FILES = 2**31 - 1
_GLOB_CHARACTERS = re.compile(r"([*?\[\]{}\\])")
_HIDDEN_NAME = re.compile(r"/(?:\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")
"""Names of files that Spark leaves out even if it is given their paths."""
_COLON = re.compile(r"/[^/]*:(?!//)")


def path_scans(
    spark: SparkSession,
    snapshot: Snapshot,
    rows: pa.Table,
    schema: StructType,
    options: Mapping[str, str],
) -> Iterator[tuple[DataFrame, pa.Table]]:
    """Yield scans that together have all the files, and the files of each; those with the same column names share one.

    The columns `FILE_PATH` and `ROW_POSITION` of the scans say where a row is.

    Args:
        spark: a session of Spark Connect.
        snapshot: says how columns are found in files.
        rows: the files: `PATH`, each one once; `SIZE`, and other columns.
        schema: the columns of the scans, by physical name.
        options: of Spark's Parquet reader.
    """
    if snapshot.mapping_mode != "id":
        frame = _parquet(spark, rows, schema, options)
        yield frame.select("*", *_places(frame)), rows
        return
    for names, group in by_names(rows, schema, DataFiles(snapshot.uri, snapshot.ctx.storage_options)):
        yield _renamed(_parquet(spark, group, names, options), names, schema), group


def _places(frame: DataFrame) -> list[Column]:
    """Return columns that say where rows are, under names that no table has; Spark reads them only if they are used."""
    return [row_file(frame).alias(FILE_PATH), row_position(frame).alias(ROW_POSITION)]


def _renamed(frame: DataFrame, names: StructType, schema: StructType) -> DataFrame:
    """Return the columns by the names of the schema instead of those in the files."""
    shown: Any = drop_field_ids(schema).to_spark()
    sf = functions()
    pairs = zip(names.names, shown.fields, strict=True)
    columns = (sf.col(quoted(old)).cast(new.dataType).alias(new.name) for old, new in pairs)
    return frame.select(*columns, *_places(frame))


def _check_names(paths: list[str]) -> None:
    """Refuse files that Spark would silently leave out, or cannot find."""
    for path in paths:
        if _HIDDEN_NAME.search(path):
            reason = "it takes the name for that of a hidden file"
        elif _GLOB_CHARACTERS.search(path) and _COLON.search(path):
            reason = "Hadoop finds no file with both a colon and one of *?[]{}\\ in its path"
        else:
            continue
        raise FileNameError(
            f"Spark cannot be asked for the data file {path}: {reason}. Read the table with a classic session "
            "(not Spark Connect), or let OPTIMIZE rewrite the file."
        )


def _parquet(spark: SparkSession, rows: pa.Table, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    decoded = [unquote(uri) for uri in rows.column(PATH).to_pylist()]
    _check_names(decoded)
    # The reader decodes no URIs, and takes every path as a pattern.
    paths = [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in decoded]
    frame = spark.read.schema(schema.to_spark()).options(**options).parquet(*paths)
    with _quick_listing(spark, len(paths)), explained_connect_failures():
        # The server lists the files now, and keeps the plan for the queries that are built on it.
        assert frame.schema is not None
    return frame


@contextmanager
def _quick_listing(spark: SparkSession, file_count: int) -> Iterator[None]:
    """Let the server itself look at the files: for more than a few it starts a job, which is 10 times slower."""
    before = str(spark.conf.get(_LISTING_THRESHOLD))
    if file_count <= int(before):
        yield
        return
    spark.conf.set(_LISTING_THRESHOLD, str(_MANY_FILES))
    try:
        yield
    finally:
        spark.conf.unset(_LISTING_THRESHOLD)
        if spark.conf.get(_LISTING_THRESHOLD) != before:
            spark.conf.set(_LISTING_THRESHOLD, before)


_CHAR = re.compile(r"char\((\d+)\)")


def path_columns(rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """Return one column for each field (in Spark's schema JSON), over a scan of the files.

    `rows` are the files: a column `PATH`, as Spark's file source spells it, each one once, and one for each field.
    """
    return values_at(path_position(rows.column(PATH)), rows, fields)


def values_at(position: Column, rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """Return one column for each field: its value at a position of the table."""
    return {field["name"]: _array(rows.column(field["name"]), field)[position] for field in fields}


def path_position(paths: pa.ChunkedArray) -> Column:
    """Return the position of the row's file in the list. A file that is not in it fails the query."""
    sf = functions()
    path = sf.col(FILE_PATH)
    positions = dict(zip(paths.to_pylist(), range(len(paths)), strict=True))
    found = sf.from_json(sf.lit(json.dumps(positions, ensure_ascii=False)), "map<string,int>")[path]
    unknown = sf.concat(sf.lit("Headwater did not ask for the file "), path)
    return sf.coalesce(found, sf.raise_error(unknown).cast("int"))


def _array(values: pa.ChunkedArray, field: dict[str, Any]) -> Column:
    """Return values as a constant array. They travel as text: there may be many, and a literal each would be slow."""
    from pyspark.sql.types import ArrayType, StructField

    sf = functions()
    kind = StructField.fromJson(field).dataType
    if pa.types.is_binary(values.type):
        encoded = [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
        return sf.from_json(sf.lit(json.dumps(encoded)), ArrayType(kind))
    texts = _texts(values)
    char = _CHAR.fullmatch(str(field["metadata"].get(CHAR_VARCHAR_KEY)))
    if char is not None:  # Spark pads what it reads of such columns, but these values do not come from a file
        texts = [None if text is None else text.ljust(int(char[1])) for text in texts]
    text = sf.from_json(sf.lit(json.dumps(texts, ensure_ascii=False)), "array<string>")
    return text if kind.simpleString() == "string" else text.cast(ArrayType(kind))


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Return values as text that Spark casts back exactly."""
    texts: list[str | None]
    if pa.types.is_date32(values.type):
        texts = [None if day is None else day_text(day) for day in values.cast(pa.int32()).to_pylist()]
    elif pa.types.is_timestamp(values.type):
        micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_pylist()
        texts = [None if us is None else timestamp_text(us, zoned=values.type.tz is not None) for us in micros]
    else:
        texts = values.cast(pa.string()).to_pylist()
    return texts


@dataclass(frozen=True)
class _ChangeScans:
    """The scans of recorded or of derived changes."""

    _spark: SparkSession
    _changes: ChangeFiles

    def frames(self) -> Iterator[DataFrame]:
        """DataFrames that have all the changes together, with the columns of the feed."""
        changes = self._changes
        sets = row_sets(changes)
        whole = [i for i, kept in enumerate(sets.kept) if kept is None]
        partial = [i for i, kept in enumerate(sets.kept) if kept is not None]
        shown = [*changes.columns.projection, *changes.shown()]
        for distinct in _rounds(changes.rows.column(PATH).take(int64s(whole)).to_pylist()):
            for frame in self._whole_files([whole[i] for i in distinct], sets):
                yield frame.select(*shown)
        if partial:
            for frame in self._parts_of_files(partial, sets):
                yield frame.select(*shown)

    def _whole_files(self, positions: list[int], sets: RowSets) -> Iterator[DataFrame]:
        """Yield changes of files, each one there once: all rows of a file, except those that are deleted in it."""
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
        """Yield changes of some rows of files; a file may have several."""
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
        for frame, part in path_scans(self._spark, changes.feed.snapshot, rows, schema, SAFE_OPTIONS):
            mark(frame, summary_of(changes, part, CONNECT_READER))
            yield frame, part


def _rounds(paths: list[str]) -> list[list[int]]:
    """Return positions in rounds, so that no path is twice in one: all first occurrences, all second ones, and so on.

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
