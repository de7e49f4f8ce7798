"""The details of a search table as a DataFrame of one row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.log.file_uris import hadoop_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.search.opening import OpenTable

DETAIL_SCHEMA = (
    "format STRING, id STRING, name STRING, description STRING, location STRING, createdAt TIMESTAMP, "
    "lastModified TIMESTAMP, partitionColumns ARRAY<STRING>, version BIGINT, numSplits BIGINT, numRecords BIGINT, "
    "sizeInBytes BIGINT, numSkippedSplits BIGINT, "
    "fields ARRAY<STRUCT<name: STRING, column: STRING, kind: STRING, tokenizer: STRING, fast: BOOLEAN, "
    "indexed: BOOLEAN, stored: BOOLEAN>>, properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def detail_frame(table: OpenTable) -> DataFrame:
    """One row about a table; see `SearchTable.detail`."""
    snapshot = table.snapshot
    metadata, protocol = snapshot.metadata, snapshot.protocol
    counts = snapshot.files(columns=["numRecords"]).column("numRecords")
    row = (
        "indextables",
        metadata.id,
        metadata.name,
        metadata.description,
        hadoop_root(snapshot.uri),
        None if metadata.created_time is None else _time(metadata.created_time),
        _time(snapshot.timestamp),
        list(metadata.partition_columns),
        snapshot.version,
        snapshot.num_files,
        None if counts.null_count else int(pc.sum(counts).as_py() or 0),
        snapshot.size_bytes,
        len(snapshot.merge_skips),
        [(f.name, f.column, f.kind, f.tokenizer, f.fast, f.indexed, f.stored) for f in table.config.fields],
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
    )
    return table.spark.createDataFrame([row], DETAIL_SCHEMA)


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
