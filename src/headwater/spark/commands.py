"""CREATE, ALTER, VACUUM, RESTORE, CLONE and DESCRIBE as a session runs them: with its settings and its checks.

What the commands do needs no Spark (`headwater.commands`). Here are the settings and the columns of results that Delta
users know. The executors copy the files of a deep clone if their bytes pass from one store to another; within a bucket,
or from disk to disk, threads of this process do.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.commands.alter.properties import clustering_paths
from headwater.commands.clone import Copy, Sources, clone, copy_file, copy_here
from headwater.commands.create import create
from headwater.commands.progress import shown_progress
from headwater.commands.restore import restore
from headwater.commands.vacuum import vacuum
from headwater.features.feature import DEFAULT_KEY, GENERATION_KEY
from headwater.features.registry import supported_features
from headwater.log.actions.paths import hadoop_root
from headwater.log.files.arrow import strings
from headwater.log.schema.types import dotted
from headwater.spark.errors import explained_failures
from headwater.spark.scan.backends import scan
from headwater.spark.scan.request import ScanRequest, in_zone, session_zone
from headwater.spark.workers import distribute, in_workers
from headwater.spark.write.expression_checks import (
    check_condition,
    check_constraints,
    check_default,
    check_generated_columns,
    check_no_nulls,
    check_rows,
)
from headwater.spark.write.table_sql import check_texts, texts_of
from headwater.storage import open_store
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from headwater.commands.alter.commit import Alteration
    from headwater.commands.clone import Cloned, CloneRequest
    from headwater.commands.create import CreateRequest
    from headwater.commands.progress import Progress
    from headwater.commands.restore import RestoreRequest
    from headwater.commands.vacuum import VacuumRequest
    from headwater.features.context import TableRef
    from headwater.log.commit.history import CommitSummary
    from headwater.log.commit.transaction import Committed
    from headwater.log.schema import StructField, StructType
    from headwater.log.snapshot import Snapshot
    from headwater.spark.session import SparkTable


RESTORE_SCHEMA = (
    "table_size_after_restore BIGINT, num_of_files_after_restore BIGINT, num_removed_files BIGINT, "
    "num_restored_files BIGINT, removed_files_size BIGINT, restored_files_size BIGINT"
)
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_VACUUM_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """A change of a table's definition; see `headwater.commands.alter`."""

    table: SparkTable
    change: Alteration


def alter(request: AlterRequest) -> Committed | None:
    """Change the definition of a table; None if it already is as wanted."""
    return request.change.commit(request.table.ref.snapshot(), _SparkChecks(request.table.spark))


@dataclass(frozen=True, slots=True)
class _SparkChecks:
    """The checks of `headwater.commands.alter`, as Spark jobs."""

    spark: SparkSession

    def check_no_nulls(self, snapshot: Snapshot, schema: StructType, path: tuple[str, ...]) -> None:
        check_no_nulls(self._rows(snapshot), path, schema)

    def check_constraint(self, snapshot: Snapshot, name: str, expression: str) -> None:
        check_condition(self.spark, snapshot.schema, name, expression)
        what = f"{snapshot.uri}: the constraint {name} ({expression}) cannot be added"
        check_rows(self._rows(snapshot), expression, what, snapshot.schema)

    def check_default(self, field: StructField, expression: str) -> None:
        check_default(self.spark, field, expression)

    def _rows(self, snapshot: Snapshot) -> DataFrame:
        return scan(self.spark, ScanRequest(snapshot))


def create_table(spark: SparkSession, request: CreateRequest) -> None:
    """Create or replace a table, after Spark has checked the SQL texts in its definition."""
    schema = request.schema
    if any(GENERATION_KEY in field.metadata for field in schema.fields):
        check_generated_columns(spark, schema)
    for field in schema.fields:
        if DEFAULT_KEY in field.metadata:
            check_default(spark, field, str(field.metadata[DEFAULT_KEY]))
    check_constraints(spark, schema, request.properties)
    check_texts(spark, texts_of(schema, request.properties), schema)
    create(request)


def vacuum_table(spark: SparkSession, request: VacuumRequest) -> DataFrame:
    """VACUUM a table with the settings of a session.

    Returns:
        For a dry run the column `path` with what would be deleted, else a DataFrame without columns.
    """
    is_enforced, is_logged = _flag(spark, _RETENTION_CHECK), _flag(spark, _VACUUM_LOGGING)
    request = replace(request, enforce_retention=is_enforced is not False, in_history=is_logged)
    with shown_progress() as progress:
        found = vacuum(request, progress)
    if not request.dry_run:
        return spark.range(0).select()
    return spark.createDataFrame(found.paths_table(), "path STRING")


def restore_table(spark: SparkSession, request: RestoreRequest) -> DataFrame:
    """RESTORE a table; a timestamp without a zone is in the session's."""
    ignores = _flag(spark, _IGNORE_MISSING) is True
    done = restore(replace(request, timestamp=_point(spark, request.timestamp), ignore_missing_files=ignores))
    return spark.createDataFrame([astuple(done)[2:]], RESTORE_SCHEMA)


def clone_table(spark: SparkSession, request: CloneRequest) -> Cloned:
    """CLONE a version of a table; a timestamp without a zone is in the session's."""
    plan = CopyPlan(request.source.resolved(), request.target.resolved())
    request = replace(request, timestamp=_point(spark, request.timestamp))
    with shown_progress() as progress:
        return clone(request, lambda copies: copy_files(spark, plan, copies, progress))


def _point(spark: SparkSession, timestamp: str | datetime | date | int | None) -> datetime | int | None:
    return None if timestamp is None else in_zone(timestamp, session_zone(spark))


def _flag(spark: SparkSession, name: str) -> bool | None:
    """Return a setting of the session; None if it is not set."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value).strip().lower() == "true"


_RESULT = "size_bytes long"
_RESULT_SCHEMA = pa.schema([("size_bytes", pa.int64())])
_FILES_PER_TASK = 4
_MOST_TASKS = 1_000


@dataclass(frozen=True)
class CopyPlan:
    """The source and the target of copies; it travels to the executors."""

    source: TableRef
    target: TableRef

    @property
    def stays_in_store(self) -> bool:
        """Whether the bytes stay within one bucket, on one machine's disks, or in its memory."""
        source, target = parse_uri(self.source.location), parse_uri(self.target.location)
        if "memory" in (source.kind, target.kind):
            return True
        return (source.kind, source.bucket, source.account_host) == (target.kind, target.bucket, target.account_host)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the files of a task, for `mapInArrow`."""
        sources, target = Sources(self.source), open_store(self.target.location, self.target.storage_options)
        for batch in batches:
            sizes = [
                copy_file(sources, target, Copy(row["source"], row["key"], row["size_bytes"]))
                for row in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_arrays([pa.array(sizes, pa.int64())], schema=_RESULT_SCHEMA)


def copy_files(spark: SparkSession, plan: CopyPlan, copies: Sequence[Copy], progress: Progress) -> None:
    """Copy files; all of them, or an error is raised.

    Raises:
        StorageError: a file could not be copied.
    """
    if not copies:
        return
    if plan.stays_in_store:
        target = open_store(plan.target.location, plan.target.storage_options)
        copy_here(Sources(plan.source), target, copies, progress)
        return
    progress.begin("Copying files", len(copies))
    table = pa.table(
        {
            "source": strings([copy.source for copy in copies]).cast(pa.string()),
            "key": strings([copy.key for copy in copies]).cast(pa.string()),
            "size_bytes": [copy.size_bytes for copy in copies],
        }
    )
    tasks = min(_MOST_TASKS, -(-len(copies) // _FILES_PER_TASK))
    with explained_failures():
        done = in_workers(distribute(spark, table, tasks, private=True), partial(CopyPlan.run, plan), _RESULT).count()
    assert done == len(copies), "every file was copied"
    progress.advance(len(copies))


HISTORY_SCHEMA = (
    "version BIGINT, timestamp TIMESTAMP, userId STRING, userName STRING, operation STRING, "
    "operationParameters MAP<STRING, STRING>, job STRUCT<jobId: STRING, jobName: STRING, jobRunId: STRING, "
    "runId: STRING, jobOwnerId: STRING, triggerType: STRING>, notebook STRUCT<notebookId: STRING>, clusterId STRING, "
    "readVersion BIGINT, isolationLevel STRING, isBlindAppend BOOLEAN, operationMetrics MAP<STRING, STRING>, "
    "userMetadata STRING, engineInfo STRING"
)
DETAIL_SCHEMA = (
    "format STRING, id STRING, name STRING, description STRING, location STRING, createdAt TIMESTAMP, "
    "lastModified TIMESTAMP, partitionColumns ARRAY<STRING>, clusteringColumns ARRAY<STRING>, numFiles BIGINT, "
    "sizeInBytes BIGINT, properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT, "
    "tableFeatures ARRAY<STRING>"
)
_JOB_FIELDS = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def history_frame(spark: SparkSession, snapshot: Snapshot, limit: int | None) -> DataFrame:
    return spark.createDataFrame([_commit(commit) for commit in snapshot.history(limit)], HISTORY_SCHEMA)


def detail_frame(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    row = (
        "delta",
        metadata.id,
        metadata.name,
        metadata.description,
        hadoop_root(snapshot.uri),
        None if metadata.created_time is None else _time(metadata.created_time),
        _time(snapshot.timestamp),
        list(metadata.partition_columns),
        [dotted(path) for path in clustering_paths(snapshot)],
        snapshot.num_files,
        snapshot.size_bytes,
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )
    return spark.createDataFrame([row], DETAIL_SCHEMA)


def _commit(commit: CommitSummary) -> tuple[Any, ...]:
    info = commit.commit_info
    return (
        commit.version,
        _time(commit.timestamp),
        commit.user_id,
        commit.user_name,
        commit.operation,
        _texts(info.get("operationParameters")),
        _struct(info.get("job"), _JOB_FIELDS),
        _struct(info.get("notebook"), ("notebookId",)),
        _text(info.get("clusterId")),
        commit.read_version,
        commit.isolation_level,
        commit.is_blind_append,
        _texts(info.get("operationMetrics")),
        commit.user_metadata,
        commit.engine_info,
    )


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _texts(values: Any) -> dict[str, str | None] | None:
    return {name: _text(value) for name, value in values.items()} if isinstance(values, dict) else None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _struct(value: Any, names: tuple[str, ...]) -> tuple[str | None, ...] | None:
    return tuple(_text(value.get(name)) for name in names) if isinstance(value, dict) else None
