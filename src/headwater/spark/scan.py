"""Reading a table as a DataFrame: Spark's own Parquet scan over the files that the log names.

The relation is Spark's `HadoopFsRelation` with our `FileIndex` in it, so a scan is as fast as plain Parquet
and prunes by partition values and statistics whatever query is built on it. On top come, only where a table
needs them, a filter for deletion vectors and a projection to the table's names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import StorageError
from headwater.features.context import table_context
from headwater.log.numbered_part import NumberedPart
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, StructField
from headwater.spark.char_types import padded_rows
from headwater.spark.columns import ScanColumns, spark_fields
from headwater.spark.connect import scan_on_connect
from headwater.spark.deletion_vectors import DeletedRows, VectorReader
from headwater.spark.explain import register
from headwater.spark.failures import remember_scan
from headwater.spark.file_index import PythonFileIndex
from headwater.spark.jvm import DATASOURCES, jvm_of
from headwater.spark.jvm_file_index import jvm_file_index
from headwater.spark.python_scan import scan_in_python
from headwater.spark.read_filter import Selection, Wanted
from headwater.spark.read_options import parse_options
from headwater.spark.roads import choose_road
from headwater.spark.row_locations import location_columns, row_position
from headwater.spark.row_tracking import materialized_columns, row_tracking_columns, shown_names
from headwater.spark.snapshot_files import SnapshotFiles
from headwater.spark.time_travel import in_session_zone, resolve_target, session_zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.file_index import FileSource

SAFE_OPTIONS = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Rows must not vanish because of a setting of the session: only the reader itself may say so."""


class FilesystemNotConfiguredError(StorageError):
    """Spark has no filesystem for the store that holds the table."""


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
        from headwater.spark.changes import read_changes

        return read_changes(spark, path, **asked.changes, storage_options=storage_options)
    zone = session_zone(spark)
    target = resolve_target(path, asked.version, asked.timestamp, zone)
    ctx = table_context(target.path, storage_options, time_zone=zone)
    snapshot = open_snapshot(ctx, version=target.version, timestamp=target.timestamp)
    selection = Selection(where, None if columns is None else tuple(columns))
    frame = scan(
        spark,
        snapshot,
        selection=selection,
        row_tracking=row_tracking,
        options=asked.reader,
        storage_options=storage_options,
    )
    if not row_tracking:
        return selection.apply(frame, snapshot.schema)
    names = shown_names(snapshot)
    return selection.apply(frame.withColumnsRenamed(names), snapshot.schema, tuple(names.values()))


def scan(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    selection: Selection | None = None,
    row_tracking: bool = False,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A snapshot as a DataFrame; see `read`. What the selection leaves out may still be in it.

    A numbered part shows where each row is as well (`headwater.log.numbered_part`).
    """
    snapshot = in_session_zone(spark, snapshot)
    road = choose_road(spark, snapshot)
    if road != "spark":
        safe_options = {**SAFE_OPTIONS, **(options or {})}
        wanted = Wanted(selection or Selection(), _has_vectors(snapshot), row_tracking, safe_options, storage_options)
        if road == "connect":
            return scan_on_connect(spark, snapshot, wanted)
        return padded_rows(scan_in_python(spark, snapshot, wanted), snapshot.schema)
    columns = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
    reader = VectorReader(snapshot.ctx.store, storage_options)
    deleted = DeletedRows(spark, reader) if _has_vectors(snapshot) else None
    materialized = materialized_columns(snapshot) if row_tracking else {}
    selected = None if selection is None or selection.where is None else selection.pruning(spark, snapshot.schema)
    files = SnapshotFiles(snapshot, columns, deleted, row_tracking, selected)
    register(files.name, files)
    remember_scan(files.root, snapshot.version)
    data_fields = [
        *columns.physical.fields,
        *(StructField(name, LONG) for name in materialized.values() if name),
    ]
    frame = relation(spark, files, data_fields, {**(options or {}), **columns.options})
    located = isinstance(snapshot, NumberedPart)
    if deleted is None and not row_tracking and not located:
        return frame.select(*columns.projection()) if columns.needs_projection else frame
    position = row_position(frame)
    if deleted is not None:
        frame = frame.where(deleted.kept(position))
    shown = [*columns.projection(), *(row_tracking_columns(materialized, position) if row_tracking else ())]
    return frame.select(*shown, *(location_columns(position) if located else ()))


def relation(
    spark: SparkSession, files: FileSource, data_fields: list[StructField], options: Mapping[str, str]
) -> DataFrame:
    """Spark's relation over the files of a source, with all its columns.

    Args:
        spark: a classic session.
        files: the files, with their partition columns.
        data_fields: the columns in the files. A partition column among them says where it stands in the
            result. options: of the Parquet reader.
    """
    from pyspark.sql import DataFrame

    jvm = jvm_of(spark)
    jvm.start_callbacks()
    session = spark._jsparkSession
    _check_filesystem(spark, files.root)
    index = PythonFileIndex(spark, files)
    if files.lists_at_once:
        index.list_all()
    java_relation = jvm.static(f"{DATASOURCES}.HadoopFsRelation")(
        jvm_file_index(spark, index),
        jvm.data_type({"type": "struct", "fields": files.partition_fields}),
        jvm.data_type({"type": "struct", "fields": spark_fields(data_fields)}),
        jvm.none,
        jvm.static(f"{DATASOURCES}.parquet.ParquetFileFormat")(),
        jvm.map({**SAFE_OPTIONS, **options}),
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(java_relation), spark)


def _check_filesystem(spark: SparkSession, root: str) -> None:
    """Say at once, and in plain words, when Spark cannot read where the table is."""
    from py4j.protocol import Py4JJavaError

    scheme = root.partition(":")[0]
    if scheme == "file":
        return
    filesystems = jvm_of(spark).static("org.apache.hadoop.fs.FileSystem")
    try:
        filesystems.getFileSystemClass(scheme, spark._jsparkSession.sessionState().newHadoopConf())
    except Py4JJavaError as error:
        raise FilesystemNotConfiguredError(
            f"Spark has no filesystem for {scheme}://, so it cannot read the data of {root}: start the session with "
            "the Hadoop connector of this store (spark.jars.packages) and its settings (spark.hadoop.fs.*)"
        ) from error


def _has_vectors(snapshot: Snapshot) -> bool:
    """Whether any live file has a deletion vector; a protocol without the feature cannot have one."""
    if isinstance(snapshot, NumberedPart) and snapshot.vectors:
        return True
    if not snapshot.protocol.supports("deletionVectors"):
        return False
    vectors = snapshot.files(columns=["deletionVector"]).column("deletionVector")
    return bool(vectors.null_count < len(vectors))
