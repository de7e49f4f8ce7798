"""UPDATE column by column: files that hold matching rows are written again, but only the columns that are set.

One Spark job. Its first half finds the rows and computes their new values, which are few columns of few rows; they are
sent to the task that has their file. The second half writes those columns again, and takes the bytes of all others
over. No row changes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import int32s, int64s
from headwater.log.file_uris import file_uris
from headwater.log.schema import mapping_mode
from headwater.spark.arrow_rows import UnreadableInPythonError
from headwater.spark.column_files import ColumnWriter, OldFile, is_plain, plan_of_columns
from headwater.spark.data_writer import file_plan, write_results_noted
from headwater.spark.functions import functions
from headwater.spark.task_writer import RESULT_SCHEMA, result_batch, task_number
from headwater.spark.violations import explained_violations
from headwater.spark.workers import core_count, in_workers, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import DataFrame

    from headwater.log.actions import Add
    from headwater.log.schema import MappingMode
    from headwater.spark.dml.target_files import TargetFiles
    from headwater.spark.dml.updated_rows import Update
    from headwater.spark.file_plan import FilePlan
    from headwater.spark.task_writer import WrittenFile

_PACKED_SCHEMA = "task int, file int, rows binary"
_RESULT_SCHEMA = f"file int, num_updated long, {RESULT_SCHEMA}"
_ABOUT_FILES = -1
"""Where the number of a file would be: what follows describes the files of a task."""
_TASKS_PER_CORE = 4
_BYTES_PER_TASK = 256 * 2**20


@dataclass(frozen=True)
class UpdatedFiles:
    """What was written."""

    files: TargetFiles
    """The files that were looked at."""
    numbers: list[int]
    """Those of them that have matching rows."""
    new: list[Add]
    """What takes their place, in the same order."""
    num_rows: int
    """How many rows match."""


def update_columns(change: Update) -> UpdatedFiles | None:
    """Write the files with matching rows again, with new values; None if this way is closed, and nothing was done.

    Raises:
        ConstraintViolationError: a new row breaks a rule of the table.
        ValueConversionError: a value cannot be kept in the type of its column.
        StorageError: a file could not be read or written.
    """
    if not _is_possible(change):
        return None
    target = change.target
    files = target.candidates(change.condition.pruning)
    if not len(files):
        return UpdatedFiles(files, [], [], 0)
    if files.table.column("deletionVector").null_count < len(files):
        return None
    plan = plan_of_columns(file_plan(target.spark, target.write_target()), change.changed)
    try:
        with explained_violations(target.uri):
            found = write_results_noted(_job(change, files, plan), plan)
    except UnreadableInPythonError:
        return None
    found.sort(key=lambda pair: int(pair[1].file))
    numbers = [row.file for _, row in found]
    names = frozenset(field.name for field in plan.file_schema.fields)
    old = files.take(numbers).column("stats").to_pylist()
    new = [
        msgspec.structs.replace(add, stats=_statistics(text, add.stats, names))
        for (add, _), text in zip(found, old, strict=True)
    ]
    return UpdatedFiles(files, numbers, new, sum(row.num_updated for _, row in found))


def _is_possible(change: Update) -> bool:
    """Whether rows may stay where they are, and all that changes are columns of the files."""
    target = change.target
    if not target.copies_fast or target.uses_vectors or target.tracks_rows or target.records_changes:
        return False
    if target.write_target().materialize_partition_columns:
        return False
    partitions = {name.lower() for name in target.snapshot.partition_columns}
    fields = [target.definition.schema.field(name) for name in change.changed]
    return all(is_plain(field.type) and field.name.lower() not in partitions for field in fields)


def _job(change: Update, files: TargetFiles, plan: FilePlan) -> DataFrame:
    """A job that gives rows of `_RESULT_SCHEMA`."""
    target = change.target
    mode = mapping_mode(target.definition.protocol, target.definition.metadata)
    size_bytes = pc.sum(files.table.column("size")).as_py() or 0
    num_tasks = min(len(files), max(_TASKS_PER_CORE * core_count(target.spark), size_bytes // _BYTES_PER_TASK))

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _packed_by_file(batches, num_tasks)

    def write(packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _written_columns(plan, mode, packs)

    values = change.located_values(change.condition.filtered(target.rows(files)))
    packs = in_workers(values, pack, _PACKED_SCHEMA).union(_descriptions(change, files, num_tasks))
    return in_workers(_by_task(packs, num_tasks), write, _RESULT_SCHEMA)


def _by_task(packs: DataFrame, num_tasks: int) -> DataFrame:
    """What belongs to a task together, file by file, with the descriptions first."""
    if hasattr(packs, "repartitionById"):
        dealt = packs.repartitionById(num_tasks, functions().col("task"))
    else:  # before Spark 4.1; some tasks may share a partition
        dealt = packs.repartition(num_tasks, "task")
    return dealt.sortWithinPartitions("file")


def _packed_by_file(batches: Iterator[pa.RecordBatch], num_tasks: int) -> Iterator[pa.RecordBatch]:
    """Rows with their places as rows of `_PACKED_SCHEMA`; made for `mapInArrow`."""
    for batch in batches:
        numbers = batch.column(0)
        for number in pc.unique(numbers).to_pylist():
            own = batch.filter(pc.equal(numbers, number)).remove_column(0)
            yield _pack(number % num_tasks, number, own)


def _pack(task: int, number: int, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    columns = [int32s([task]), int32s([number]), packed(rows).column(0)]
    return pa.RecordBatch.from_arrays(columns, names=["task", "file", "rows"])


def _descriptions(change: Update, files: TargetFiles, num_tasks: int) -> DataFrame:
    """What a task must know of its files, as rows of `_PACKED_SCHEMA`: one for each task."""
    table = files.table.select(["size", "partitionValues"])
    table = table.append_column("uri", file_uris(files.table.column("path"), files.snapshot.uri))
    table = table.append_column("file", int32s(list(range(len(files)))))
    packs = [
        _pack(task, _ABOUT_FILES, table.take(int64s(list(range(task, len(files), num_tasks)))))
        for task in range(num_tasks)
    ]
    return change.target.spark.createDataFrame(pa.Table.from_batches(packs))


def _written_columns(plan: FilePlan, mode: MappingMode, packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the columns of the files of a task; made for `mapInArrow`. One row of `_RESULT_SCHEMA` for each file."""
    writer = ColumnWriter(plan, mode, task_number())
    known: dict[int, OldFile] = {}
    written: dict[int, tuple[int, WrittenFile]] = {}
    rows = (
        (number, value.as_buffer())
        for pack in packs
        for number, value in zip(pack.column(1).to_pylist(), pack.column(2), strict=True)
    )
    try:
        for number, of_file in groupby(rows, itemgetter(0)):
            table = pa.concat_tables([unpacked(data) for _, data in of_file])
            if number == _ABOUT_FILES:
                known = {row["file"]: _old_file(row) for row in table.to_pylist(maps_as_pydicts="strict")}
                continue
            [values] = table.sort_by(table.schema.names[0]).combine_chunks().to_batches()
            file = writer.write(known[number], values.column(0), values.remove_column(0))
            written[number] = values.num_rows, file
    except BaseException:
        writer.abandon()
        raise
    yield _results(written)


def _old_file(row: dict[str, Any]) -> OldFile:
    return OldFile(row["uri"], row["size"], row["partitionValues"] or {})


def _results(written: dict[int, tuple[int, WrittenFile]]) -> pa.RecordBatch:
    files = result_batch([file for _, file in written.values()])
    columns = [int32s(list(written)), int64s([count for count, _ in written.values()]), *files.columns]
    return pa.RecordBatch.from_arrays(columns, names=["file", "num_updated", *files.schema.names])


class _Statistics(msgspec.Struct, rename="camel"):
    """The statistics of a file; values as they are written in the log, for numbers may be longer than Python's."""

    num_records: int = 0
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}
    null_count: dict[str, msgspec.Raw] = {}
    tight_bounds: bool = True


def _statistics(old: str | None, new: str | None, names: Collection[str]) -> str | None:
    """The statistics of a file, by those that it had and those of the columns that were written.

    >>> old = '{"numRecords":2,"minValues":{"a":1,"b":1.50},"maxValues":{},"nullCount":{"a":0}}'
    >>> _statistics(old, '{"numRecords":2,"minValues":{"a":7},"maxValues":{"a":8},"nullCount":{"a":0}}', {"a"})
    '{"numRecords":2,"minValues":{"b":1.50,"a":7},"maxValues":{"a":8},"nullCount":{"a":0},"tightBounds":true}'
    """
    if new is None:
        return None
    written = msgspec.json.decode(new, type=_Statistics)
    try:
        known = msgspec.json.decode(old or "{}", type=_Statistics)
    except msgspec.DecodeError:
        known = _Statistics()
    for kind in ("min_values", "max_values", "null_count"):
        kept = {name: value for name, value in getattr(known, kind).items() if name not in names}
        setattr(written, kind, kept | getattr(written, kind))
    written.tight_bounds = known.tight_bounds
    return msgspec.json.encode(written).decode()
