"""Reading on Spark Connect: the same tables with DataFrame operations only, for there is no JVM to reach.

The files that the log names are given to Spark's own Parquet reader as paths. Partition values come from a literal map
on the file path, deletion vectors by an anti-join. Later filters on partition columns skip files; filters on other
columns reach the Parquet reader, but not the log's statistics: that is what `where` of a read is for.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headwater.errors import HeadwaterError
from headwater.log.schema import LONG, StructField, StructType, drop_field_ids
from headwater.spark.columns import ScanColumns, quoted
from headwater.spark.connect_failures import explained, remember_connect_scan
from headwater.spark.data_files import DataFiles
from headwater.spark.deleted_chunks import DeletedChunks
from headwater.spark.deletion_vectors import VectorReader
from headwater.spark.explain import ScanSummary
from headwater.spark.footer_names import by_names
from headwater.spark.functions import functions, functions_for_connect
from headwater.spark.marked_plans import mark
from headwater.spark.no_rows import no_rows
from headwater.spark.path_values import path_columns
from headwater.spark.row_tracking import materialized_columns, row_tracking_columns
from headwater.spark.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.read_filter import Wanted

ROAD = "Spark's Parquet reader on Spark Connect"
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MANY_FILES = 2**31 - 1
_GLOB_CHARACTERS = re.compile(r"([*?\[\]{}\\])")
_HIDDEN_NAME = re.compile(r"/(?:\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")
"""Names of files that Spark leaves out, whoever asks for them."""
_COLON = re.compile(r"/[^/]*:(?!//)")


def scan_on_connect(spark: SparkSession, snapshot: Snapshot, wanted: Wanted) -> DataFrame:
    """A snapshot as a DataFrame of a Connect session; see `headwater.spark.scan.read`."""
    with functions_for_connect():
        columns = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
        reader = VectorReader(snapshot.ctx.store, wanted.storage_options)
        deleted = DeletedChunks(reader) if wanted.has_vectors else None
        materialized = materialized_columns(snapshot) if wanted.row_tracking else {}
        files = SnapshotFiles(snapshot, columns, deleted, wanted.row_tracking)
        rows = files.rows(wanted.selection.pruning(spark, snapshot.schema))
        remember_connect_scan(files.root, snapshot.version)
        if rows.num_rows == 0:
            tracked = (StructField(name, LONG) for name in materialized)
            nothing = no_rows(spark, StructType([*columns.visible.fields, *tracked]))
            mark(nothing, _summary(files, rows))
            return nothing
        parts = _parts(rows, _file_schema(columns, materialized), snapshot, wanted)
        frames = [_part(spark, wanted, files, deleted, materialized, part) for part in parts]
        return reduce(lambda one, other: one.union(other), frames)


def _parts(
    rows: pa.Table, schema: StructType, snapshot: Snapshot, wanted: Wanted
) -> list[tuple[StructType, StructType, pa.Table]]:
    """Files that can be read together: the schema of the scan, the same with the names in these files, the files."""
    if snapshot.mapping_mode != "id":
        return [(schema, schema, rows)]
    files = DataFiles(snapshot.uri, wanted.storage_options)
    return [(schema, names, group) for names, group in by_names(rows, schema, files)]


def _part(
    spark: SparkSession,
    wanted: Wanted,
    files: SnapshotFiles,
    deleted: DeletedChunks | None,
    materialized: Mapping[str, str | None],
    part: tuple[StructType, StructType, pa.Table],
) -> DataFrame:
    """The rows of some files, with the table's columns."""
    schema, names, rows = part
    frame = _parquet(spark, rows, names, wanted.options)
    mark(frame, _summary(files, rows))
    if names is not schema:
        shown: Any = drop_field_ids(schema).to_spark()
        frame = frame.select(
            *(
                _column(old).cast(new.dataType).alias(new.name)
                for old, new in zip(names.names, shown.fields, strict=True)
            )
        )
    if files.partition_fields:
        frame = frame.withColumns(path_columns(rows, files.partition_fields))
    if deleted is not None:
        frame = deleted.without_deleted(spark, frame)
    tracked = row_tracking_columns(dict(materialized)) if wanted.row_tracking else []
    return frame.select(*files.columns.projection(), *tracked)


def _column(name: str) -> Any:
    return functions().col(quoted(name))


class FileNameError(HeadwaterError):
    """The table has a data file with a name that Spark Connect cannot be asked for."""


def _summary(files: SnapshotFiles, rows: pa.Table) -> ScanSummary:
    import pyarrow.compute as pc

    return ScanSummary(
        table=files.root,
        version=files.snapshot.version,
        files_kept=rows.num_rows,
        files_total=files.num_files,
        size_bytes_kept=pc.sum(rows.column("size")).as_py() or 0,
        size_bytes_total=files.size_bytes,
        deletion_vectors=files.deleted is not None,
        road=ROAD,
    )


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


def _file_schema(columns: ScanColumns, materialized: Mapping[str, str | None]) -> StructType:
    """What is read from files: not the partition columns, which some writers put there too."""
    partitions = {field.name for field in columns.partition_fields}
    data = [field for field in columns.physical.fields if field.name not in partitions]
    return StructType([*data, *(StructField(name, LONG) for name in materialized.values() if name)])


def _parquet(spark: SparkSession, rows: pa.Table, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Spark's Parquet scan of the files."""
    decoded = [unquote(uri) for uri in rows.column("path").to_pylist()]
    _check_names(decoded)
    # The reader decodes no URIs, and takes every path as a pattern.
    paths = [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in decoded]
    frame = spark.read.schema(schema.to_spark()).options(**options).parquet(*paths)
    with _quick_listing(spark, len(paths)), explained():
        # The server lists the files now, and keeps the plan for the queries that are built on it.
        assert frame.schema is not None
    return frame


@contextmanager
def _quick_listing(spark: SparkSession, file_count: int) -> Iterator[None]:
    """Let the server look at the files by itself: by default it starts a job for more than a few, 10 times slower."""
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
