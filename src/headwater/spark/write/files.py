"""Write rows as data files: Spark jobs whose tasks write Parquet to final, uniquely named paths.

A file exists for readers only once the log names it; what a failed attempt or job leaves is garbage that no reader
sees. There are two ways. Spark's own writer serves unpartitioned tables on a disk: it writes to a private directory
inside the table (`incomplete-*`), from which the files of successful task attempts are renamed to their final names,
and their footers give the statistics. Python workers with Arrow serve all others: partitioned tables, where they
take half the time of Spark's writer; object stores without a Hadoop filesystem; Spark Connect. They get the rows of
a partitioned table sorted, so that one file is open at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import StorageError
from headwater.features.feature import all_types
from headwater.log.actions.model import Add
from headwater.log.files.arrow import same_value_runs
from headwater.log.schema import VOID, ArrayType, DataType, MapType, StructType
from headwater.log.schema.mapping import PARQUET_NESTED_IDS_KEY
from headwater.log.schema.types import quoted
from headwater.log.stats.values import partition_text
from headwater.parquet.plan import FilePlan, WriteTarget, log_path, plan_files, width
from headwater.parquet.stats import statistics_json
from headwater.parquet.write import ParquetFile, WrittenFile, open_places, to_file_batch
from headwater.spark.errors import explained_failures
from headwater.spark.functions import functions, functions_for, jvm_session
from headwater.spark.session import in_private_session
from headwater.spark.workers import in_workers
from headwater.storage.durable import sync_directory, sync_file
from headwater.storage.errors import from_os_error
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession


_CODEC_SETTING = "spark.sql.parquet.compression.codec"
_ADVISORY_SIZE_SETTING = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_DEFAULT_TARGET_BYTES = 128 * 2**20
_SHUFFLED_PER_FILE_BYTE = 2
"""About how many bytes in a shuffle become one byte in a Parquet file."""
_MAX_THREADS = 16


def write_files(df: DataFrame, target: WriteTarget) -> list[Add]:
    """Write the rows of a DataFrame as data files of a table; the log does not name them yet.

    When it returns, the files are complete and, on a local disk, flushed: a commit may name them.

    Args:
        df: it has exactly the columns and types of the target's schema.

    Returns:
        One `add` for each file, with partition values, size, modification time and statistics.

    Raises:
        WriteOptionError: an option or property has an invalid value.
        SchemaError: files cannot hold the columns.
        PartitionValueError: a row has a partition value that the log has no text for.
        StorageError: a file could not be written, or the driver does not see what the executors wrote.
    """
    spark = df.sparkSession
    plan = file_plan(spark, target)
    if parse_uri(plan.uri).kind == "memory":
        raise StorageError(f"{plan.uri} is in the memory of this Python process, where no executor can write")
    settings = {_ADVISORY_SIZE_SETTING: str(_advisory_bytes(plan))} if plan.optimize else {}
    frame = df.hint("rebalance", *(quoted(p.name) for p in plan.partitions)) if plan.optimize else df
    with explained_failures(f"write the files of {plan.uri}"):
        if can_write_natively(df, plan):
            files = write_natively(frame, plan, settings)
        else:
            files = _write_in_python(frame, plan, settings)
    return _flushed_adds(files, plan)


def file_plan(spark: SparkSession, target: WriteTarget) -> FilePlan:
    """Plan files of a table by the settings of a session."""
    return plan_files(target, default_codec=str(spark.conf.get(_CODEC_SETTING)), spark_version=spark.version)


def write_results(job: DataFrame, plan: FilePlan) -> list[Add]:
    """Run a job that gives rows of `RESULT_SCHEMA`; return the files, as `write_files` does."""
    return [add for add, _ in write_results_noted(job, plan) if add is not None]


def write_results_noted(job: DataFrame, plan: FilePlan) -> list[tuple[Add | None, Any]]:
    """Do what `write_results` does for jobs that return more: each row, and its file, if it has a key."""
    with explained_failures(f"write the files of {plan.uri}"):
        found: list[Any] = job.collect()
    adds = iter(_flushed_adds([_written(row) for row in found if row.key is not None], plan))
    return [(None if row.key is None else next(adds), row) for row in found]


def _write_in_python(df: DataFrame, plan: FilePlan, settings: dict[str, str]) -> list[WrittenFile]:
    """Let Python workers write the rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_rows(plan, batches)

    df = in_private_session(df, settings)
    with functions_for(df):
        sf = functions()
        partitions = [partition.name for partition in plan.partitions]
        names = dict.fromkeys([*(field.name for field in plan.schema.fields), *partitions])
        rows = df.select(*(sf.col(quoted(name)) for name in names))
        if partitions:
            # One open file at a time, however many partitions a task meets.
            rows = rows.sortWithinPartitions(*(sf.col(quoted(name)) for name in partitions))
        return [_written(row) for row in in_workers(rows, write, RESULT_SCHEMA).collect()]


def _written(row: Any) -> WrittenFile:
    return WrittenFile(row.key, json.loads(row.partition_values), row.size_bytes, row.modified_ms, row.stats)


def _advisory_bytes(plan: FilePlan) -> int:
    """Return how much of a shuffle makes a file of the target size."""
    return (plan.target_size_bytes or _DEFAULT_TARGET_BYTES) * _SHUFFLED_PER_FILE_BYTE


def _flushed_adds(files: list[WrittenFile], plan: FilePlan) -> list[Add]:
    _flush_all(files, plan)
    return [_add(file) for file in files]


def _flush_all(files: list[WrittenFile], plan: FilePlan) -> None:
    """See that the files on a local disk are there, and flush them: a commit that is durable must not name less."""
    location = parse_uri(plan.uri)
    if location.kind != "local" or not files:
        return
    root = location.path.rstrip("/")
    with ThreadPoolExecutor(_MAX_THREADS, "headwater-flush") as pool:
        list(pool.map(lambda file: _flush(f"{root}/{file.key}", file.size_bytes), files))
        list(pool.map(_flush_directory, _directories(root, [file.key for file in files])))


def _flush_directory(directory: str) -> None:
    try:
        sync_directory(directory)
    except OSError as error:
        raise from_os_error(error, "flush the directory", directory, writing=True) from error


def _flush(path: str, size_bytes: int) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == size_bytes:
                sync_file(descriptor)
                return
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_os_error(error, "flush", path, writing=True) from error
    raise StorageError(
        f"an executor wrote {path}, and it is not there for the driver: a table on a local path must be on a disk that "
        "the driver and all executors share"
    )


def _directories(root: str, keys: list[str]) -> list[str]:
    """Return all directories on the way to some files, the table's own included."""
    found = {""}
    for key in keys:
        parent = os.path.dirname(key)
        while parent not in found:
            found.add(parent)
            parent = os.path.dirname(parent)
    return sorted(f"{root}/{directory}" for directory in found)


def _add(file: WrittenFile) -> Add:
    return Add(
        path=log_path(file.key),
        size=file.size_bytes,
        partition_values=file.partition_values,
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )


SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.files.maxRecordsPerFile": "0",
    # Readers of other makes know variants as two plain binaries.
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
    "spark.sql.parquet.variant.annotateLogicalType.enabled": "false",
}
"""Settings that the user's session may have otherwise."""
_COMMITTER_OPTIONS = {
    # Files of a task appear all together or not at all; the other algorithm may leave those of a failed attempt.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_CODECS = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
"""Those that Spark's writer always has."""
_PART = re.compile(r"part-(\d+)-.*[-.]c(\d+)\b.*\.parquet")
_UTF8_BYTES = 4
_MAX_FOOTER_THREADS = 8


def can_write_natively(df: DataFrame, plan: FilePlan) -> bool:
    """Return whether Spark's own writer makes the files that the plan wants."""
    return (
        jvm_session(df.sparkSession) is not None
        and not plan.partitions
        and plan.target_size_bytes is None
        and plan.names.codec in _CODECS
        and parse_uri(plan.uri).kind == "local"
        and VOID not in all_types(plan.schema)
        and PARQUET_NESTED_IDS_KEY not in plan.file_schema.to_json()
    )


def write_natively(df: DataFrame, plan: FilePlan, settings: dict[str, str]) -> list[WrittenFile]:
    """Write the rows of a DataFrame with Spark's own writer, for a plan that `can_write_natively` accepts.

    Raises:
        StorageError: the driver does not see the files that the tasks wrote.
    """
    root = parse_uri(plan.uri).path.rstrip("/")
    work = f"{root}/{'/'.join(filter(None, (plan.names.directory, f'incomplete-{uuid.uuid4()}')))}"
    frame = in_private_session(df, {**SETTINGS, **settings}).select(*_columns(plan))
    options = {**_COMMITTER_OPTIONS, "compression": plan.names.codec}
    options["parquet.statistics.truncate.length"] = str((2 * plan.prefix_length + 2) * _UTF8_BYTES)
    if plan.max_records is not None:
        options["maxRecordsPerFile"] = str(plan.max_records)
    try:
        frame.write.mode("append").options(**options).parquet(f"file:{work}")
        return _adopt(work, root, plan)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _columns(plan: FilePlan) -> list[Column]:
    """Return the columns of the files, with the names and ids that they have there."""
    sf = functions()
    shown: Any = plan.file_schema.to_spark()
    found = []
    for source, target, spark in zip(plan.schema.fields, plan.file_schema.fields, shown.fields, strict=True):
        column = sf.col(quoted(source.name))
        if _is_renamed(source.type, target.type):
            column = column.cast(spark.dataType)
        found.append(column.alias(spark.name, metadata=spark.metadata))
    return found


def _is_renamed(source: DataType, target: DataType) -> bool:
    """Return whether fields inside a column have other names in files, or ids."""
    match source, target:
        case StructType(fields=ours), StructType(fields=theirs):
            pairs = zip(ours, theirs, strict=True)
            return any(a.name != b.name or b.metadata or _is_renamed(a.type, b.type) for a, b in pairs)
        case ArrayType(element_type=a), ArrayType(element_type=b):
            return _is_renamed(a, b)
        case MapType(key_type=ka, value_type=va), MapType(key_type=kb, value_type=vb):
            return _is_renamed(ka, kb) or _is_renamed(va, vb)
    return False


def _adopt(work: str, root: str, plan: FilePlan) -> list[WrittenFile]:
    """Give the files in a private directory their final names."""
    try:
        with os.scandir(work) as entries:
            found = sorted(entry.name for entry in entries if _PART.fullmatch(entry.name))
    except FileNotFoundError:
        raise StorageError(
            f"Spark wrote files to {work}, and they are not there for the driver: a table on a local path must be on a "
            "disk that the driver and all executors share"
        ) from None
    except OSError as error:
        raise from_os_error(error, "list", work) from error
    with ThreadPoolExecutor(_MAX_FOOTER_THREADS, "headwater-footers") as pool:
        written = list(pool.map(lambda name: _adopt_file(work, name, root, plan), found))
    return [file for file in written if file is not None]


def _adopt_file(work: str, name: str, root: str, plan: FilePlan) -> WrittenFile | None:
    """Rename one file; None if it has no rows, as the one file of a job without rows."""
    import pyarrow.parquet as pq

    part = _PART.fullmatch(name)
    assert part is not None
    footer = pq.read_metadata(f"{work}/{name}")
    if not footer.num_rows:
        return None
    assert footer.num_columns == width(plan.file_schema), "the file has the columns of the plan"
    stats = None if plan.leaves is None else statistics_json(footer, plan.leaves, plan.prefix_length)
    key = plan.names.new_key(int(part[1]), int(part[2]), {})
    path = f"{root}/{key}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.rename(f"{work}/{name}", path)  # a unique name: nothing is replaced
        status = os.stat(path)
    except OSError as error:
        raise from_os_error(error, "create", path, writing=True) from error
    return WrittenFile(key, {}, status.st_size, status.st_mtime_ns // 1_000_000, stats)


RESULT_SCHEMA = "key string, partition_values string, size_bytes long, modified_ms long, stats string"
"""One row for each file; the partition values are JSON, by their keys in the log."""
_RESULT_TYPES = pa.schema(
    [
        (name, pa.int64() if kind == "long" else pa.string())
        for name, kind in (column.split() for column in RESULT_SCHEMA.split(", "))
    ]
)
_GUESSED_RATIO = 1.0


def write_rows(plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and yield rows of `RESULT_SCHEMA`; made for `mapInArrow`."""
    writer = TaskWriter(plan, task_number())
    try:
        for batch in batches:
            writer.write(batch)
        files = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    yield result_batch(files)


def task_number() -> int:
    """Return the number of the task that this worker runs; 0 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def result_batch(files: list[WrittenFile]) -> pa.RecordBatch:
    columns: list[list[object]] = [
        [file.key for file in files],
        [json.dumps(file.partition_values) for file in files],
        [file.size_bytes for file in files],
        [file.modified_ms for file in files],
        [file.stats for file in files],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _RESULT_TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT_TYPES)


class TaskWriter:
    """Writes the rows of one task, file after file. Every attempt of a task writes its own files."""

    def __init__(self, plan: FilePlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._schema = plan.file_schema.to_arrow()
        self._places = open_places(plan.uri, plan.storage_options)
        self._finished: list[WrittenFile] = []
        self._open: tuple[str, ParquetFile] | None = None
        self._values: tuple[str | None, ...] = ()
        self._ratio = _GUESSED_RATIO

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, in the schema of the DataFrame."""
        if not batch.num_rows:
            return
        rows = to_file_batch(batch, self._plan, self._schema)
        if not self._plan.partitions:
            self._append(rows)
            return
        columns = [batch.column(partition.name) for partition in self._plan.partitions]
        runs = same_value_runs(columns)
        for start, end in pairwise(runs):
            values = tuple(
                partition_text(column[start], partition.type, partition.name)
                for column, partition in zip(columns, self._plan.partitions, strict=True)
            )
            if values != self._values:
                self._close()
                self._values = values
            self._append(rows.slice(start, end - start))

    def finish(self) -> list[WrittenFile]:
        """Close the last file, and return all files of the task."""
        self._close()
        return self._finished

    def abandon(self) -> None:
        """Remove the files of a failed attempt, if possible."""
        if self._open is not None:
            _, file = self._open
            with contextlib.suppress(Exception):  # the attempt has failed already, and that is what to report
                file.abandon()
            with contextlib.suppress(OSError):
                os.unlink(file.path)
        for written in self._finished:
            self._places.remove(written.key)

    def _append(self, rows: pa.RecordBatch) -> None:
        """Add rows with the same partition values, to as many files as limits demand."""
        limit = self._plan.max_records
        while rows.num_rows:
            file = self._current()
            fitting = rows if limit is None else rows.slice(0, limit - file.num_rows)
            file.add(fitting)
            rows = rows.slice(fitting.num_rows)
            if (limit is not None and file.num_rows >= limit) or self._is_large(file):
                self._close()

    def _is_large(self, file: ParquetFile) -> bool:
        """Return whether the file has reached its target size. The first time, rows are written to measure how they
        compress.
        """
        target = self._plan.target_size_bytes
        if target is None or file.size_bytes(self._ratio) < target:
            return False
        file.flush()
        self._ratio = file.measured_ratio
        return file.size_bytes(self._ratio) >= target

    def _current(self) -> ParquetFile:
        if self._open is None:
            named = {p.name: text for p, text in zip(self._plan.partitions, self._values, strict=True)}
            key = self._plan.names.new_key(self._task, len(self._finished), named)
            self._open = key, ParquetFile(self._places.path(key), self._plan, self._schema)
        return self._open[1]

    def _close(self) -> None:
        if self._open is None:
            return
        key, file = self._open
        stats = file.close()
        stored = self._places.finish(key, file.path)
        values = {p.key: text for p, text in zip(self._plan.partitions, self._values, strict=True)}
        self._finished.append(WrittenFile(key, values, stored.size_bytes, stored.modified_ms, stats))
        self._open = None
