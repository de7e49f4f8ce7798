"""Reading where Spark has no filesystem for the store: a list of splits, and `mapInArrow` over it.

The wheel of PySpark has no filesystem for S3, Azure or Google; with their JARs Spark reads by itself, several times
faster than this. Neither filters nor projections of a later query reach the files here: `where` and `columns` of the
read do. Executors need Headwater installed.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import int64s
from headwater.log.numbered_part import NumberedPart
from headwater.log.schema import LONG, StructField, StructType
from headwater.spark.arrow_rows import ReaderSettings, UnreadableInPythonError
from headwater.spark.columns import ScanColumns
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.data_files import check_places
from headwater.spark.explain import ScanSummary, summary_of
from headwater.spark.failures import remember_scan
from headwater.spark.file_rows import END, MODIFIED, PATH, SIZE, START
from headwater.spark.functions import functions_for_connect, is_connect
from headwater.spark.marked_plans import mark, name_after
from headwater.spark.no_rows import no_rows
from headwater.spark.python_reader import ReadPlan, read_splits
from headwater.spark.row_locations import LOCATION_FIELDS
from headwater.spark.row_tracking import materialized_columns
from headwater.spark.snapshot_files import SnapshotFiles
from headwater.spark.workers import core_count, dealt, in_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.read_filter import Wanted

ROAD = "Python with obstore, for Spark has no filesystem for this store"
_SPLIT_BYTES = 64 * 2**20
_OPEN_BYTES = 4 * 2**20
_LOCAL_OPEN_BYTES = 128 * 2**10
"""What opening a file costs, as if it were bytes to read: in a store, and on a disk."""

_REBASE_MODES = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
_NEW_CALENDAR = "CORRECTED"
_SHIFT_INT96 = "spark.sql.parquet.int96TimestampConversion"


def scan_in_python(spark: SparkSession, snapshot: Snapshot, wanted: Wanted) -> DataFrame:
    """A snapshot as a DataFrame whose rows Python reads; see `headwater.spark.scan.read`.

    Raises:
        UnreadableInPythonError: options of Spark's Parquet reader are given.
    """
    for name, value in wanted.options.items():
        if value != "false":
            raise UnreadableInPythonError(
                f"{name} is an option of Spark's Parquet reader, and {snapshot.uri} is read in Python: Spark has no "
                "filesystem for its store"
            )
    table = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
    plan, files, rows = planned_read(spark, snapshot, wanted)
    summary = summary_of(files, rows, ROAD)
    connect = is_connect(spark)
    shown = _visible(table, StructType.from_json(plan.schema_json), plan.materialized)
    if plan.located:
        shown = StructType([*shown.fields, *LOCATION_FIELDS])
    if rows.num_rows:
        return read_in_python(spark, plan, shown, rows, summary)
    with functions_for_connect() if connect else nullcontext():
        frame = no_rows(spark, shown)
    if connect:
        mark(frame, summary)
    return frame


def planned_read(spark: SparkSession, snapshot: Snapshot, wanted: Wanted) -> tuple[ReadPlan, SnapshotFiles, pa.Table]:
    """How Python reads a snapshot: the plan, the files, and those of them that the selection needs."""
    table = ScanColumns(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)
    materialized = materialized_columns(snapshot) if wanted.row_tracking else {}
    files = SnapshotFiles(snapshot, table, _Descriptors() if wanted.has_vectors else None, wanted.row_tracking)
    rows = files.rows(wanted.selection.pruning(spark, snapshot.schema))
    check_places(snapshot.uri, wanted.storage_options, rows.column(PATH))
    (remember_connect_scan if is_connect(spark) else remember_scan)(files.root, snapshot.version)
    plan = replace(_plan(table, snapshot, wanted, materialized), settings=reader_settings(spark))
    return plan, files, rows


def reader_settings(spark: SparkSession) -> ReaderSettings:
    """What the session says of files of other writers."""
    return ReaderSettings(
        unmarked_is_old=any(spark.conf.get(name, _NEW_CALENDAR) != _NEW_CALENDAR for name in _REBASE_MODES),
        shifts_int96=str(spark.conf.get(_SHIFT_INT96, "false")).lower() == "true",
    )


def read_in_python(
    spark: SparkSession, plan: ReadPlan, shown: StructType, rows: pa.Table, summary: ScanSummary
) -> DataFrame:
    """A DataFrame of the rows of files.

    Args:
        spark: the session, of either kind.
        plan: what the files have in common.
        shown: the columns of the result.
        rows: the files, one or more: `PATH` (as URI), `SIZE`, and the columns that the plan speaks of.
        summary: for those who ask what is read.
    """
    check_places(plan.uri, plan.storage_options, rows.column(PATH))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_splits(plan, batches)

    name_after(read, summary)
    result: Any = shown.to_spark()
    frame = in_workers(dealt_splits(spark, rows), read, result)
    if is_connect(spark):
        mark(frame, summary)
    return frame


def dealt_splits(
    spark: SparkSession,
    rows: pa.Table,
    min_tasks: int | None = None,
    max_tasks: int | None = None,
    *,
    private: bool = False,
    in_runs: bool = False,
) -> DataFrame:
    """The splits of files, dealt out to tasks, for `read_splits`.

    Args:
        spark: the session, of either kind.
        rows: the files, as for `read_in_python`.
        min_tasks: how many tasks there shall be even for little work; by default one for each core.
        max_tasks: how many there may be for much.
        private: the DataFrame is for a job of ours, and no user ever sees it.
        in_runs: rather let each task have files that follow each other.
    """
    splits = _splits(rows)
    num_tasks = _task_count(splits, core_count(spark) if min_tasks is None else min_tasks)
    return dealt(spark, splits, min(num_tasks, max_tasks or splits.num_rows), private=private, in_runs=in_runs)


class _Descriptors:
    """Deletion vectors as the log describes them: executors fetch those of the files that they read."""

    def numbers(self, vectors: pa.ChunkedArray) -> pa.ChunkedArray:
        return vectors


def _plan(table: ScanColumns, snapshot: Snapshot, wanted: Wanted, materialized: dict[str, str | None]) -> ReadPlan:
    needed = wanted.selection.needed(snapshot.schema)
    schema = table.table if needed is None else StructType([table.table.field(name) for name in needed])
    partitions = dict(zip(table.partition_columns, (f.name for f in table.partition_fields), strict=True))
    return ReadPlan(
        uri=snapshot.uri,
        storage_options=None if wanted.storage_options is None else dict(wanted.storage_options),
        schema_json=schema.to_json(),
        mode=table.mode,
        partition_columns={name: column for name, column in partitions.items() if name in schema.names},
        materialized=materialized,
        located=isinstance(snapshot, NumberedPart),
    )


def _visible(table: ScanColumns, schema: StructType, materialized: Iterable[str]) -> StructType:
    """The columns as users see them."""
    shown = [replace(table.visible.field(field.name), nullable=True) for field in schema.fields]
    return StructType([*shown, *(StructField(name, LONG) for name in materialized)])


def _splits(rows: pa.Table) -> pa.Table:
    """The files, the larger ones in several ranges of bytes: columns `START` and `END` say which."""
    sizes = rows.column(SIZE)
    counts = pc.max_element_wise(pc.cast(pc.ceil(pc.divide(pc.cast(sizes, pa.float64()), _SPLIT_BYTES)), pa.int64()), 1)
    files: list[int] = []
    numbers: list[int] = []
    for position, count in enumerate(counts.to_pylist()):
        files += [position] * count
        numbers += range(count)
    splits = rows.take(int64s(files))
    starts = pc.multiply(int64s(numbers), _SPLIT_BYTES)
    splits = splits.append_column(START, starts).append_column(END, pc.add(starts, _SPLIT_BYTES))
    return splits.drop_columns([MODIFIED])


def _task_count(splits: pa.Table, min_tasks: int) -> int:
    """Tasks of about a split's size each; a few at least, for the machines have several cores."""
    read_bytes = pc.sum(pc.min_element_wise(splits.column(SIZE), _SPLIT_BYTES)).as_py() or 0
    is_local = splits.column(PATH)[0].as_py().startswith("file:")
    work = read_bytes + (_LOCAL_OPEN_BYTES if is_local else _OPEN_BYTES) * splits.num_rows
    return int(max(1, min(splits.num_rows, max(min_tasks, -(-work // _SPLIT_BYTES)))))
