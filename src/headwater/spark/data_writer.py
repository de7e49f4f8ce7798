"""Writing rows as data files: Spark jobs whose tasks write Parquet to final, uniquely named paths.

A file exists for readers only once the log names it; what a failed attempt or a failed job leaves is garbage that
nobody sees. There are two ways, by measurement: Spark's own writer for unpartitioned tables on a disk, and Python
workers with Arrow for all others (partitioned tables, where they take half the time of Spark's writer; object stores
without a Hadoop filesystem; Spark Connect).
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from headwater.errors import StorageError
from headwater.log.actions import Add
from headwater.spark.columns import quoted
from headwater.spark.failures import explained_failures
from headwater.spark.file_names import log_path
from headwater.spark.file_plan import plan_files
from headwater.spark.functions import functions, functions_for_connect, is_connect
from headwater.spark.native_writer import can_write_natively, write_natively
from headwater.spark.private_session import in_private_session
from headwater.spark.task_writer import RESULT_SCHEMA, WrittenFile, write_rows
from headwater.spark.workers import in_workers
from headwater.spark.write_target import WriteTarget
from headwater.storage.durable import sync_directory, sync_file
from headwater.storage.failures import from_os_error
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.file_plan import FilePlan

__all__ = ["WriteTarget", "file_plan", "write_files", "write_results", "write_results_noted"]

_CODEC_SETTING = "spark.sql.parquet.compression.codec"
_ADVISORY_SIZE_SETTING = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_DEFAULT_TARGET_BYTES = 128 * 2**20
_SHUFFLED_PER_FILE_BYTE = 2
"""Rows in a shuffle take about this many times the bytes that they take in a Parquet file."""
_MAX_THREADS = 16


def write_files(df: DataFrame, target: WriteTarget) -> list[Add]:
    """Write the rows of a DataFrame as data files of a table; the log does not name them yet.

    When it returns, the files are complete and, on a local disk, flushed: a commit may name them.

    Args:
        df: it has exactly the columns and types of the target's schema.
        target: the table.

    Returns:
        One `add` for each file, with partition values, size, modification time and statistics. None for no rows.

    Raises:
        WriteOptionError: an option or property has a value that cannot be.
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
    return _settled(files, plan)


def file_plan(spark: SparkSession, target: WriteTarget) -> FilePlan:
    """How files of a table are written in a session."""
    return plan_files(target, default_codec=str(spark.conf.get(_CODEC_SETTING)), spark_version=spark.version)


def write_results(job: DataFrame, plan: FilePlan) -> list[Add]:
    """Run a job whose tasks write files by `headwater.spark.task_writer`; the files, as `write_files` gives them.

    Args:
        job: it gives rows of `RESULT_SCHEMA`.
        plan: of the files.
    """
    return [add for add, _ in write_results_noted(job, plan) if add is not None]


def write_results_noted(job: DataFrame, plan: FilePlan) -> list[tuple[Add | None, Any]]:
    """`write_results` for jobs that have more to say: each row with the file that it speaks of, if it has a key."""
    with explained_failures(f"write the files of {plan.uri}"):
        found: list[Any] = job.collect()
    adds = iter(_settled([_written(row) for row in found if row.key is not None], plan))
    return [(None if row.key is None else next(adds), row) for row in found]


def _write_in_python(df: DataFrame, plan: FilePlan, settings: dict[str, str]) -> list[WrittenFile]:
    """Let Python workers write what Spark hands them as Arrow."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_rows(plan, batches)

    if settings and not is_connect(df):
        df = in_private_session(df, settings)
    with functions_for_connect() if is_connect(df) else nullcontext():
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
    """How much a task shall get of a shuffle so that its file is near the target."""
    return (plan.target_size_bytes or _DEFAULT_TARGET_BYTES) * _SHUFFLED_PER_FILE_BYTE


def _settled(files: list[WrittenFile], plan: FilePlan) -> list[Add]:
    _settle(files, plan)
    return [_add(file) for file in files]


def _settle(files: list[WrittenFile], plan: FilePlan) -> None:
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
    """All directories on the way to some files, the table's own included."""
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
