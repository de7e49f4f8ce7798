"""Reading in Spark's Python workers: a list of file ranges, and `mapInArrow` over it.

This serves stores for which Spark has no filesystem: PySpark's wheel has none for S3, Azure or Google; with their JARs
Spark reads by itself, several times faster. Neither filters nor projections of a later query reach the files here:
`where` and `columns` of the read do. Executors need Headwater installed.

A file range stands for the row groups that begin between two offsets, as in Spark. Executors read it with Arrow,
through `obstore`: deleted rows are left out by their position in the file, partition values are put in, and everything
is brought into the table's schema.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, HeadwaterError, ObjectNotFoundError, UnreadableInPythonError
from headwater.log.actions.deletion_vectors import to_bitmap
from headwater.log.files.arrow import int64s
from headwater.log.files.chunks import deletion_vectors
from headwater.log.schema import LONG, StructField, StructType
from headwater.parquet.read import (
    END,
    MODIFIED,
    PATH,
    SIZE,
    START,
    DataFiles,
    ReaderSettings,
    batch_rows,
    check_places,
    conform,
    find_columns,
    output_schema,
    refuse_old_dates,
)
from headwater.spark.errors import remember_scan
from headwater.spark.functions import functions_for, no_rows
from headwater.spark.scan.changes import CHANGE_FIELDS, CHANGE_TYPE, ChangeFiles
from headwater.spark.scan.columns import (
    FILE_COLUMN,
    HIDDEN_COLUMNS,
    LOCATION_FIELDS,
    ROW_COLUMN,
    ROW_COMMIT_VERSION,
    ROW_ID,
    ScanColumns,
    materialized_columns,
)
from headwater.spark.scan.deletion_vectors import VECTOR_COLUMN, VectorReader, descriptor
from headwater.spark.scan.explain import ScanSummary, mark, name_after, summary_of
from headwater.spark.scan.files import RequestedFiles
from headwater.spark.workers import ONLY_COLUMN, FileRange, RowMask, core_count, distribute, file_ranges, in_workers
from headwater.spark.write.values import padded_rows
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.files.parquet import ParquetObject
    from headwater.log.schema import MappingMode
    from headwater.log.snapshot import Snapshot
    from headwater.spark.scan.request import ScanRequest

    _Found = dict[str, pa.Field | None]
    """Columns of a file by the names that they have in the result."""


PYTHON_READER = "Python with obstore, for Spark has no filesystem for this store"
_RANGE_BYTES = 64 * 2**20
_OPEN_BYTES = 4 * 2**20
_LOCAL_OPEN_BYTES = 128 * 2**10
"""What opening a file costs, as if it were bytes to read: in a store, and on a disk."""

_REBASE_MODES = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
_NEW_CALENDAR = "CORRECTED"
_SHIFT_INT96 = "spark.sql.parquet.int96TimestampConversion"


@dataclass(frozen=True)
class PythonBackend:
    """Reads files in Spark's Python workers, in a session of either kind."""

    spark: SparkSession

    def scan(self, request: ScanRequest) -> DataFrame:
        """Return the rows of a request; see `headwater.spark.scan.backends.ScanBackend`."""
        return padded_rows(scan_in_python(self.spark, request), request.snapshot.schema)

    def scan_changes(self, kinds: Sequence[ChangeFiles]) -> DataFrame:
        """Return the rows that changed. A range names the deletion vectors before and after; executors compare them."""
        frames: list[DataFrame] = []
        for changes in kinds:
            remember_scan(self.spark, changes.root, changes.version)
            table = [replace(field, nullable=True) for field in changes.columns.visible.fields]
            shown = StructType([*table, *CHANGE_FIELDS])
            summary = summary_of(changes, changes.rows, PYTHON_READER)
            schema = StructType([*changes.columns.table.fields, *CHANGE_FIELDS])
            plan = _read_plan(self.spark, changes.feed.snapshot, changes.columns, schema)
            plan = replace(plan, partition_columns=plan.partition_columns | changes.known, unmapped=(CHANGE_TYPE,))
            frames.append(read_in_python(self.spark, plan, shown, _change_rows(changes), summary))
        return padded_rows(reduce(lambda one, other: one.union(other), frames), kinds[0].columns.table)


def scan_in_python(spark: SparkSession, request: ScanRequest) -> DataFrame:
    """Return the rows of a request as Python reads them: values of char(n) are not padded.

    Raises:
        UnreadableInPythonError: options of Spark's Parquet reader are given.
    """
    for name, value in request.options.items():
        if value != "false":
            raise UnreadableInPythonError(
                f"{name} is an option of Spark's Parquet reader, and {request.snapshot.uri} is read in Python: Spark "
                "has no filesystem for its store"
            )
    plan, files, rows = planned_read(spark, request)
    summary = summary_of(files, rows, PYTHON_READER)
    names = StructType.from_json(plan.schema_json).names
    table = [replace(files.columns.visible.field(name), nullable=True) for name in names]
    tracked = [StructField(name, LONG) for name in plan.materialized]
    shown = StructType([*table, *tracked, *(LOCATION_FIELDS if plan.located else ())])
    if rows.num_rows:
        return read_in_python(spark, plan, shown, rows, summary)
    with functions_for(spark):
        frame = no_rows(spark, shown)
    mark(frame, summary)
    return frame


def planned_read(spark: SparkSession, request: ScanRequest) -> tuple[ReadPlan, RequestedFiles, pa.Table]:
    """Return how Python reads a request: the plan, the files, and those of them that `where` leaves."""
    snapshot, table = request.snapshot, ScanColumns.of(request.snapshot)
    materialized = materialized_columns(snapshot) if request.row_tracking else {}
    files = RequestedFiles(request, table, _Descriptors() if request.has_vectors else None)
    rows = files.rows(request.pruning(spark))
    check_places(snapshot.uri, snapshot.ctx.storage_options, rows.column(PATH))
    remember_scan(spark, files.root, snapshot.version)
    needed = request.needed_columns()
    schema = table.table if needed is None else StructType([table.table.field(name) for name in needed])
    plan = _read_plan(spark, snapshot, table, schema)
    return replace(plan, materialized=materialized, located=request.locate_rows), files, rows


def reader_settings(spark: SparkSession) -> ReaderSettings:
    """Return what the session says of files of other writers."""
    return ReaderSettings(
        unmarked_is_old=any(spark.conf.get(name, _NEW_CALENDAR) != _NEW_CALENDAR for name in _REBASE_MODES),
        shifts_int96=str(spark.conf.get(_SHIFT_INT96, "false")).lower() == "true",
    )


def read_in_python(
    spark: SparkSession, plan: ReadPlan, shown: StructType, rows: pa.Table, summary: ScanSummary
) -> DataFrame:
    """Return a DataFrame of the rows of files.

    Args:
        spark: the session, of either kind.
        plan: what the files have in common.
        shown: the columns of the result.
        rows: the files, one or more: `PATH` (as URI), `SIZE`, and the columns that the plan names.
        summary: what `headwater.scans` shows.
    """
    check_places(plan.uri, plan.storage_options, rows.column(PATH))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_ranges(plan, batches)

    name_after(read, summary)
    result: Any = shown.to_spark()
    frame = in_workers(distributed_ranges(spark, rows), read, result)
    mark(frame, summary)
    return frame


def distributed_ranges(
    spark: SparkSession,
    rows: pa.Table,
    min_tasks: int | None = None,
    max_tasks: int | None = None,
    *,
    private: bool = False,
    in_runs: bool = False,
) -> DataFrame:
    """Distribute the ranges of files over tasks, for `read_ranges`.

    Args:
        spark: the session, of either kind.
        rows: the files, as for `read_in_python`.
        min_tasks: how many tasks there are even for little work; by default one for each core.
        max_tasks: how many there may be for much.
        private: the DataFrame is for a job of ours, and no user ever sees it.
        in_runs: let each task have files that follow each other.
    """
    ranges = _ranges(rows)
    num_tasks = _task_count(ranges, core_count(spark) if min_tasks is None else min_tasks)
    return distribute(spark, ranges, min(num_tasks, max_tasks or ranges.num_rows), private=private, in_runs=in_runs)


class _Descriptors:
    """Deletion vectors as the log describes them: executors fetch those of the files that they read."""

    def numbers(self, vectors: pa.ChunkedArray) -> pa.ChunkedArray:
        return vectors


def _read_plan(spark: SparkSession, snapshot: Snapshot, columns: ScanColumns, schema: StructType) -> ReadPlan:
    """Return a plan for some columns of the table: `schema` has them in their order."""
    partitions = zip(columns.partition_columns, (field.name for field in columns.partition_fields), strict=True)
    return ReadPlan(
        uri=snapshot.uri,
        storage_options=snapshot.ctx.storage_options,
        schema_json=schema.to_json(),
        mode=columns.mode,
        partition_columns={name: column for name, column in partitions if name in schema.names},
        settings=reader_settings(spark),
    )


def _change_rows(changes: ChangeFiles) -> pa.Table:
    rows = changes.rows
    if changes.has_vectors:
        rows = rows.append_column(VECTOR_COLUMN, deletion_vectors([f.without for f in changes.files]))
        rows = rows.append_column(ONLY_COLUMN, deletion_vectors([f.only for f in changes.files]))
    return rows


def _ranges(rows: pa.Table) -> pa.Table:
    """Return the files, the larger ones in several ranges of bytes: columns `START` and `END` say which."""
    sizes = rows.column(SIZE)
    counts = pc.max_element_wise(pc.cast(pc.ceil(pc.divide(pc.cast(sizes, pa.float64()), _RANGE_BYTES)), pa.int64()), 1)
    files: list[int] = []
    numbers: list[int] = []
    for position, count in enumerate(counts.to_pylist()):
        files += [position] * count
        numbers += range(count)
    starts = pc.multiply(int64s(numbers), _RANGE_BYTES)
    ranges = rows.take(int64s(files)).append_column(START, starts).append_column(END, pc.add(starts, _RANGE_BYTES))
    return ranges.drop_columns([MODIFIED])


def _task_count(ranges: pa.Table, min_tasks: int) -> int:
    """Return how many tasks have about a range's size each; at least some, for the machines have several cores."""
    read_bytes = pc.sum(pc.min_element_wise(ranges.column(SIZE), _RANGE_BYTES)).as_py() or 0
    is_local = ranges.column(PATH)[0].as_py().startswith("file:")
    work = read_bytes + (_LOCAL_OPEN_BYTES if is_local else _OPEN_BYTES) * ranges.num_rows
    return int(max(1, min(ranges.num_rows, max(min_tasks, -(-work // _RANGE_BYTES)))))


@dataclass(frozen=True)
class ReadPlan:
    """What all ranges of one scan have in common. It travels to the executors.

    Attributes:
        uri: the table.
        storage_options: of its store.
        schema_json: the columns of the table that are wanted.
        mode: how columns are found in files.
        partition_columns: the columns of the ranges that hold partition values, by the name of the table's column.
        materialized: for row tracking, the columns of files that hold row ids and commit versions.
        unmapped: columns that have the same name in files, whatever the mode: those that are not the table's own.
        located: whether rows show the number of their file (a column of the ranges) and their position in it.
        settings: of the session that reads (`reader_settings`).
    """

    uri: str
    storage_options: dict[str, str] | None = dataclasses.field(repr=False)
    schema_json: str
    mode: MappingMode
    partition_columns: dict[str, str]
    materialized: dict[str, str | None] = dataclasses.field(default_factory=dict)
    unmapped: tuple[str, ...] = ()
    located: bool = False
    settings: ReaderSettings = dataclasses.field(default_factory=ReaderSettings)


_MERGED_ROWS = 16_384
_MERGED_BYTES = 2**20
_TINY_ROWS, _MEASURED_EVERY = 1_000, 8


def read_ranges(plan: ReadPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of file ranges, those of tiny files in common batches; made for `mapInArrow`."""
    reader = _Reader(plan)
    return _merged(rows for batch in batches for part in file_ranges(batch) for rows in reader.rows(part))


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge batches that are so small that Spark takes longer for the batch than for its rows."""
    held: list[pa.RecordBatch] = []
    held_rows, held_bytes, row_bytes = 0, 0.0, 0.0
    for number, batch in enumerate(batches):
        held.append(batch)
        held_rows += batch.num_rows
        # Measuring a tiny batch takes as long as making it: rows of its neighbours have the same size.
        if batch.num_rows >= _TINY_ROWS or number % _MEASURED_EVERY == 0:
            row_bytes = batch.nbytes / max(1, batch.num_rows)
        held_bytes += row_bytes * batch.num_rows
        if held_rows >= _MERGED_ROWS or held_bytes >= _MERGED_BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, held_rows, held_bytes = [], 0, 0.0
    if held:
        yield pa.concat_batches(held)


class _Sources(NamedTuple):
    """Where the columns of the result are in files."""

    found: _Found
    names: list[str]
    """The columns that must be read."""
    is_same: bool
    """Whether what is read is the result as it is."""


class _Reader:
    """Reads the file ranges that one task gets."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._schema = StructType.from_json(plan.schema_json)
        self._files = DataFiles(plan.uri, plan.storage_options)
        self._vectors = VectorReader(open_store(plan.uri, plan.storage_options), plan.storage_options)
        self._last_sources: tuple[pa.Schema, _Sources] | None = None
        self._counts_rows = plan.located or bool(plan.materialized)
        self._data_fields = [f for f in self._schema.fields if f.name not in plan.partition_columns]
        self._output = output_schema(self._schema)
        for name in plan.materialized:
            self._output = self._output.append(pa.field(name, pa.int64()))
        if plan.located:
            self._output = self._output.append(pa.field(FILE_COLUMN, pa.int32())).append(
                pa.field(ROW_COLUMN, pa.int64())
            )

    def rows(self, part: FileRange) -> Iterator[pa.RecordBatch]:
        uri = part.uri
        try:
            counted = RowMask(self._bitmap(part, VECTOR_COLUMN), self._bitmap(part, ONLY_COLUMN))
            yield from self._decoded(part, counted)
        except HeadwaterError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                # Spark's own words, which the driver turns into our error with version and cause.
                raise type(error)(
                    f"Encountered error while reading file {uri}. File does not exist: {error}"
                ) from error
            raise type(error)(f"while reading file {uri}: {error}") from error

    def _decoded(self, part: FileRange, counted: RowMask) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(part, self._files.open(part.uri, part.size_bytes), counted)
        except CorruptLogError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                raise
            # What Arrow cannot decode, Spark may.
            raise UnreadableInPythonError(str(error)) from error

    def _bitmap(self, part: FileRange, column: str) -> BitMap64 | None:
        vector = descriptor(part.values[column].as_py()) if column in part.values else None
        return None if vector is None else to_bitmap(self._vectors.read([vector])[0])

    def _rows(self, part: FileRange, file: ParquetObject, counted: RowMask) -> Iterator[pa.RecordBatch]:
        self._plan.settings.check(file.metadata)
        sources = self._sources(file.schema)
        first_row = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            is_inside = part.is_whole or part.start <= _offset(file, group) < part.end
            if is_inside and counted.has_rows(first_row, first_row + size):
                yield from self._group(file, group, first_row, sources, part.values, counted)
            first_row += size

    def _sources(self, schema: pa.Schema) -> _Sources:
        """Return where the columns of the result are in a file; most files of a table are alike."""
        known = self._last_sources
        if known is not None and schema.equals(known[0], check_metadata=True):
            return known[1]
        held = list(schema)
        found = find_columns(self._data_fields, schema, self._plan.mode, self._plan.unmapped)
        tracked = {shown: StructField(name, LONG) for shown, name in self._plan.materialized.items() if name}
        stored = find_columns(tracked.values(), schema, "none")
        found |= {n: stored[tracked[n].name] if n in tracked else None for n in self._plan.materialized}
        names = list(dict.fromkeys(source.name for source in found.values() if source is not None))
        # A batch has the columns in the order of the file.
        same = pa.schema([pa.field(f.name, f.type) for f in held if f.name in names])
        is_plain = not any(pa.types.is_nested(field.type) or "." in field.name for field in same)
        is_same = is_plain and bool(names) and same.equals(self._output)
        sources = _Sources(found, names, is_same)
        self._last_sources = schema, sources
        return sources

    def _group(
        self,
        file: ParquetObject,
        group: int,
        first_row: int,
        sources: _Sources,
        known: dict[str, pa.Scalar],
        counted: RowMask,
    ) -> Iterator[pa.RecordBatch]:
        end = first_row + file.metadata.row_group(group).num_rows
        is_old = self._plan.settings.may_be_old(file.metadata)
        for batch in _batches(file, group, sources.names):
            count = batch.num_rows
            batch, positions = counted.of(batch, first_row, located=self._counts_rows)
            first_row += count
            if batch.num_rows:
                if sources.is_same:
                    is_right = batch.schema.equals(self._output)
                    result = batch if is_right else pa.RecordBatch.from_arrays(batch.columns, schema=self._output)
                else:
                    result = self._in_table_schema(batch, positions, sources.found, known)
                if is_old:
                    for name in sources.found:
                        refuse_old_dates(result.column(name), name)
                yield result
            if not counted.has_rows(first_row, end):
                return

    def _in_table_schema(
        self, batch: pa.RecordBatch, positions: pa.Array | None, sources: _Found, known: dict[str, pa.Scalar]
    ) -> pa.RecordBatch:
        columns = []
        for field, target in zip(self._schema.fields, self._output, strict=False):
            source = sources.get(field.name)
            if field.name in self._plan.partition_columns:
                value = known[self._plan.partition_columns[field.name]].cast(target.type)
                columns.append(pa.repeat(value, batch.num_rows))
            elif source is None:
                columns.append(pa.nulls(batch.num_rows, target.type))
            else:
                column = batch.column(source.name)
                is_right = column.type == target.type and not pa.types.is_nested(target.type)
                columns.append(column if is_right else conform(column, field.type, self._plan.mode))
        if positions is not None:
            tracked = self._plan.materialized
            columns += [_tracked(name, batch, positions, sources[name], known) for name in tracked]
            columns += [pa.repeat(known[FILE_COLUMN], batch.num_rows), positions] if self._plan.located else []
        if not columns:
            return no_columns(batch.num_rows)
        return pa.RecordBatch.from_arrays(columns, schema=self._output)


def no_columns(count: int) -> pa.RecordBatch:
    """Return rows without a column, for those who only count them; a batch made of no arrays would have no rows."""
    structs: Any = pa.StructArray.from_buffers(pa.struct([]), count, [None])
    return pa.RecordBatch.from_struct_array(structs)


def _tracked(
    name: str, batch: pa.RecordBatch, positions: pa.Array, stored: pa.Field | None, known: dict[str, pa.Scalar]
) -> pa.Array:
    """Return a column of row tracking: what the file stores, else what follows from the log."""
    hidden = {source: column for column, source in HIDDEN_COLUMNS.items()}
    if name == ROW_ID:
        fresh = pa.compute.add(positions, known[hidden["baseRowId"]])
    else:
        assert name == ROW_COMMIT_VERSION, name
        fresh = pa.repeat(known[hidden["defaultRowCommitVersion"]], batch.num_rows)
    return fresh if stored is None else pa.compute.coalesce(batch.column(stored.name).cast(pa.int64()), fresh)


def _batches(file: ParquetObject, group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    if names:
        for batch in file.batches(names, [group], batch_rows(file, group)):
            # To Arrow a dotted name is a path too, so that more may come than was asked for.
            is_right = batch.num_columns == len(names)
            yield batch if is_right else batch.select([name for name in batch.schema.names if name in names])
    else:
        count = file.metadata.row_group(group).num_rows
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=["nothing"])


def _offset(file: ParquetObject, group: int) -> int:
    column = file.metadata.row_group(group).column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)
