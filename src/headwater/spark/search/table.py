"""A search table that a session has opened: one version of its log with the configuration of its index.

Creating one writes version 0 of its log, with the configuration of the index among its properties.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headwater.errors import SearchConfigError, TableAlreadyExistsError, WriteOptionError
from headwater.log.actions.paths import hadoop_root
from headwater.log.filters.sql import parse_filter
from headwater.log.schema import BINARY, VARIANT, VOID, DecimalType, PrimitiveType, StructType
from headwater.search.choices import build_config, index_config
from headwater.search.config import IndexConfig
from headwater.search.engine.rank import term_statistics
from headwater.search.engine.scoring import merge_statistics
from headwater.search.query.tree import All
from headwater.search.table_log import create_search_log, open_search_log, write_checkpoint
from headwater.spark.functions import jvm_session
from headwater.spark.jvm import jvm_of
from headwater.spark.scan.request import in_zone, prunable
from headwater.spark.search.source import ScanSource
from headwater.spark.search.splits import ask_splits, check_reachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.filters.expressions import Expression
    from headwater.log.schema import StructField
    from headwater.log.snapshot import Snapshot
    from headwater.search.choices import FieldChoices
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Query
    from headwater.spark.search.source import Search


OPTION_PREFIX = "spark.indextables."
DOC_MAPPING_PROPERTY = "headwater.search.docMapping"
"""The table property that holds the configuration of the index, in the form of `docMappingJson`."""


@dataclass(frozen=True)
class OpenTable:
    """One version of a search table."""

    spark: SparkSession
    snapshot: Snapshot

    @property
    def uri(self) -> str:
        return self.snapshot.uri

    @cached_property
    def config(self) -> IndexConfig:
        """How its columns are indexed."""
        declared = self.snapshot.properties.get(DOC_MAPPING_PROPERTY)
        if declared is not None:
            return IndexConfig.from_json(declared)
        return index_config(self.snapshot.schema, partition_columns=self.snapshot.partition_columns)

    def source(self, search: Search | None = None) -> ScanSource:
        if search is not None and isinstance(search.query, All) and not search.adds:
            search = None
        return ScanSource(self.snapshot, self.config, search)

    def pruning(self, condition: str) -> Expression:
        return prunable(self.spark, parse_filter(condition), self.snapshot.schema)

    def snippet_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        schema = self.source().schema
        return tuple(schema.field(name).name for name in names)

    def statistics(self, query: Query) -> Statistics:
        check_reachable(self.uri)
        splits = self.source().splits()
        return merge_statistics(
            ask_splits(self.spark, self.snapshot, splits, lambda split: term_statistics(split, query), merge_statistics)
        )


def open_table(
    spark: SparkSession,
    path: str | PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> OpenTable:
    """Open a search table at a version or timestamp, with options of the log (`spark.indextables.*`).

    The newest version, and the options of the session, are the defaults.

    Raises:
        TableNotFoundError: there is no search table.
        VersionNotFoundError: the version or timestamp is outside what the log can reconstruct.
    """
    if timestamp is not None:
        timestamp = in_zone(timestamp, str(spark.conf.get("spark.sql.session.timeZone")))
    snapshot = open_search_log(
        path,
        version=version,
        timestamp=timestamp,
        storage_options=storage_options,
        options=session_options(spark) if options is None else options,
    )
    return OpenTable(spark, snapshot)


def session_options(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session whose names users of IndexTables know."""
    session = jvm_session(spark)
    if session is None:
        settings = spark.conf.getAll
        found = settings() if callable(settings) else settings
    else:
        # As one text: a Java map crosses py4j entry by entry, and a session has hundreds of settings.
        mapper = jvm_of(spark).static("com.fasterxml.jackson.databind.ObjectMapper")()
        found = json.loads(mapper.writeValueAsString(session.conf().getAllAsJava()))
    return {name: value for name, value in found.items() if name.startswith(OPTION_PREFIX)}


def checkpoint(table: OpenTable) -> int:
    """Write a checkpoint of the newest version; see `SearchTable.checkpoint`."""
    return write_checkpoint(table.snapshot.refresh()).version


_NO_TEXT = frozenset({BINARY, VARIANT, VOID})


def create_table(
    spark: SparkSession,
    path: str | PathLike[str],
    schema: Any,
    fields: FieldChoices,
    *,
    partition_by: tuple[str, ...] = (),
    name: str | None = None,
    description: str | None = None,
    options: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Create a table; see `SearchTable.create`."""
    table_schema = schema_of(spark, schema)
    partition_columns = tuple(table_schema.field(column).name for column in partition_by)
    for column in partition_columns:
        _check_partition_column(table_schema.field(column))
    config = build_config(table_schema, fields, partition_columns=partition_columns, options=options)
    kept = {**(options or {}), DOC_MAPPING_PROPERTY: config.to_json()}
    created = create_search_log(
        path,
        table_schema,
        partition_columns=partition_columns,
        configuration=kept,
        name=name,
        description=description,
        storage_options=storage_options,
        options={**session_options(spark), **(options or {})},
    )
    if not created and not if_not_exists:
        raise TableAlreadyExistsError(f"there is a search table at {path} already: get it with SearchTable.forPath")


def _check_partition_column(field: StructField) -> None:
    """Raise unless the log has a text for values of the column (spec 002: "Partition Support")."""
    type_ = field.type
    has_text = isinstance(type_, DecimalType) or (isinstance(type_, PrimitiveType) and type_.is_known)
    if not has_text or type_ in _NO_TEXT:
        raise SearchConfigError(
            f"column {field.name} is of type {type_}, and no table can be partitioned by that: the log keeps partition "
            "values as text"
        )


def schema_of(spark: SparkSession, schema: Any) -> StructType:
    """Return the columns of a table, from any of the forms in which users give them."""
    from pyspark.sql.types import StructType as SparkStructType

    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return StructType.from_spark(spark.createDataFrame([], schema).schema)
    given = getattr(schema, "schema", schema)
    if not isinstance(given, SparkStructType):
        raise WriteOptionError(
            "the schema of a search table is a DataFrame, a StructType of Spark's or DDL text, not "
            f"{type(schema).__name__}"
        )
    return StructType.from_spark(given)


DETAIL_SCHEMA = (
    "format STRING, id STRING, name STRING, description STRING, location STRING, createdAt TIMESTAMP, "
    "lastModified TIMESTAMP, partitionColumns ARRAY<STRING>, version BIGINT, numSplits BIGINT, numRecords BIGINT, "
    "sizeInBytes BIGINT, numSkippedSplits BIGINT, "
    "fields ARRAY<STRUCT<name: STRING, column: STRING, kind: STRING, tokenizer: STRING, fast: BOOLEAN, "
    "indexed: BOOLEAN, stored: BOOLEAN>>, properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def detail_frame(table: OpenTable) -> DataFrame:
    """Describe a table in one row; see `SearchTable.detail`."""
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
