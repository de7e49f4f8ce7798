"""The history and the details of a table as DataFrames, with the columns of DESCRIBE HISTORY and DESCRIBE DETAIL."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.features.activation import supported_features
from headwater.spark.file_rows import hadoop_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.history import CommitSummary
    from headwater.log.snapshot import Snapshot

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
    """The commits of a table, newest first."""
    return spark.createDataFrame([_commit(commit) for commit in snapshot.history(limit)], HISTORY_SCHEMA)


def detail_frame(spark: SparkSession, snapshot: Snapshot, clustering_columns: list[str]) -> DataFrame:
    """One row about a table."""
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
        clustering_columns,
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
    """Text as it is, anything else as its JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _struct(value: Any, names: tuple[str, ...]) -> tuple[str | None, ...] | None:
    return tuple(_text(value.get(name)) for name in names) if isinstance(value, dict) else None
