"""Data files by Spark's own Parquet writer: the fast way for unpartitioned tables on a disk.

Spark writes to a private directory inside the table. Its commit protocol sees to it that just the files of successful
task attempts end there; they then get their final names by a rename on the same disk, and their statistics from their
footers. A write that is killed leaves its directory (`incomplete-*`) behind, which no log names.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headwater.errors import StorageError
from headwater.log.schema import ArrayType, MapType, StructType
from headwater.log.schema.mapping import PARQUET_NESTED_IDS_KEY
from headwater.spark.columns import quoted
from headwater.spark.file_statistics import statistics_json
from headwater.spark.functions import functions, is_connect
from headwater.spark.indexed_columns import width
from headwater.spark.private_session import in_private_session
from headwater.spark.task_writer import WrittenFile
from headwater.storage.failures import from_os_error
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.log.schema import DataType
    from headwater.spark.file_plan import FilePlan

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
"""What the session of the user may have set otherwise."""
_COMMITTER_OPTIONS = {
    # Files of a task appear all together or not at all; the other algorithm may leave those of a failed attempt.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_CODECS = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
"""Those that Spark's writer has everywhere."""
_PART = re.compile(r"part-(\d+)-.*[-.]c(\d+)\b.*\.parquet")
_UTF8_BYTES = 4
_MAX_THREADS = 8


def can_write_natively(df: DataFrame, plan: FilePlan) -> bool:
    """Whether Spark's own writer makes the files that the plan wants."""
    return (
        not is_connect(df)
        and not plan.partitions
        and plan.target_size_bytes is None
        and plan.names.codec in _CODECS
        and parse_uri(plan.uri).kind == "local"
        and _has_same_shape(plan.schema, plan.file_schema)
        and PARQUET_NESTED_IDS_KEY not in plan.file_schema.to_json()
    )


def write_natively(df: DataFrame, plan: FilePlan, settings: dict[str, str]) -> list[WrittenFile]:
    """Write the rows of a DataFrame.

    Args:
        df: with the columns of the plan.
        plan: of the write, one for which `can_write_natively` is true.
        settings: further ones of Spark's for the job.

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
    """The columns of the files, with the names and ids that they have there."""
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
    """Whether fields inside a column have other names in files, or ids."""
    match source, target:
        case StructType(fields=ours), StructType(fields=theirs):
            pairs = zip(ours, theirs, strict=True)
            return any(a.name != b.name or b.metadata or _is_renamed(a.type, b.type) for a, b in pairs)
        case ArrayType(element_type=a), ArrayType(element_type=b):
            return _is_renamed(a, b)
        case MapType(key_type=ka, value_type=va), MapType(key_type=kb, value_type=vb):
            return _is_renamed(ka, kb) or _is_renamed(va, vb)
    return False


def _has_same_shape(source: DataType, target: DataType) -> bool:
    """Whether files hold all fields: those of type void they do not."""
    match source, target:
        case StructType(fields=ours), StructType(fields=theirs):
            return len(ours) == len(theirs) and all(
                _has_same_shape(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
            )
        case ArrayType(element_type=a), ArrayType(element_type=b):
            return _has_same_shape(a, b)
        case MapType(key_type=ka, value_type=va), MapType(key_type=kb, value_type=vb):
            return _has_same_shape(ka, kb) and _has_same_shape(va, vb)
    return True


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
    with ThreadPoolExecutor(_MAX_THREADS, "headwater-footers") as pool:
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
        os.rename(f"{work}/{name}", path)  # a name that nobody else has: nothing is replaced
        status = os.stat(path)
    except OSError as error:
        raise from_os_error(error, "create", path, writing=True) from error
    return WrittenFile(key, {}, status.st_size, status.st_mtime_ns // 1_000_000, stats)
