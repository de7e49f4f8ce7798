"""Reading on Spark Connect: the same tables with DataFrame operations only, for there is no JVM to reach.

The files that the log names are given to Spark's own Parquet reader as paths. Partition values come from a literal map
on the file path, deletion vectors by an anti-join. Later filters on partition columns skip files; filters on other
columns reach the Parquet reader, but not the log's statistics: that is what `where` of a read is for.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from headwater.log.numbered_part import NumberedPart
from headwater.log.schema import LONG, StructField, StructType
from headwater.spark.columns import ScanColumns
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.deleted_chunks import DeletedChunks
from headwater.spark.deletion_vectors import VectorReader
from headwater.spark.explain import summary_of
from headwater.spark.functions import functions, functions_for_connect
from headwater.spark.marked_plans import mark
from headwater.spark.no_rows import no_rows
from headwater.spark.path_scan import path_scans
from headwater.spark.path_values import ROW_POSITION, path_columns
from headwater.spark.row_locations import LOCATION_FIELDS, location_columns
from headwater.spark.row_tracking import materialized_columns, row_tracking_columns
from headwater.spark.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.read_filter import Wanted

ROAD = "Spark's Parquet reader on Spark Connect"


def scan_on_connect(spark: SparkSession, snapshot: Snapshot, wanted: Wanted) -> DataFrame:
    """A snapshot as a DataFrame of a Connect session; see `headwater.spark.scan.read`."""
    with functions_for_connect():
        columns = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
        reader = VectorReader(snapshot.ctx.store, wanted.storage_options)
        deleted = DeletedChunks(reader) if wanted.has_vectors else None
        materialized = materialized_columns(snapshot) if wanted.row_tracking else {}
        located = isinstance(snapshot, NumberedPart)
        files = SnapshotFiles(snapshot, columns, deleted, wanted.row_tracking)
        rows = files.rows(wanted.selection.pruning(spark, snapshot.schema))
        remember_connect_scan(files.root, snapshot.version)
        if rows.num_rows == 0:
            hidden = [*(StructField(name, LONG) for name in materialized), *(LOCATION_FIELDS if located else ())]
            nothing = no_rows(spark, StructType([*columns.visible.fields, *hidden]))
            mark(nothing, summary_of(files, rows, ROAD))
            return nothing
        schema = file_schema(columns, *(StructField(name, LONG) for name in materialized.values() if name))
        position = functions().col(ROW_POSITION)
        tracked = row_tracking_columns(dict(materialized), position) if wanted.row_tracking else []
        shown = [*columns.projection(), *tracked, *(location_columns(position) if located else [])]
        frames: list[DataFrame] = []
        for frame, part in path_scans(spark, snapshot, rows, schema, wanted.options, wanted.storage_options):
            mark(frame, summary_of(files, part, ROAD))
            valued = frame.withColumns(path_columns(part, files.partition_fields)) if files.partition_fields else frame
            kept = valued if deleted is None else deleted.without_deleted(spark, valued)
            frames.append(kept.select(*shown))
        return reduce(lambda one, other: one.union(other), frames)


def file_schema(columns: ScanColumns, *also: StructField) -> StructType:
    """What is read from files: not the partition columns, which some writers put there too."""
    partitions = {field.name for field in columns.partition_fields}
    return StructType([*(field for field in columns.physical.fields if field.name not in partitions), *also])
