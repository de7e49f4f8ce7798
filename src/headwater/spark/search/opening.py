"""A search table, opened by a session: one version of its log, and how its fields are indexed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.search.fields import IndexConfig, index_config
from headwater.search.table_log import open_search_log, write_checkpoint
from headwater.spark.functions import is_connect
from headwater.spark.jvm import jvm_of
from headwater.spark.time_travel import in_zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from pyspark.sql import SparkSession

    from headwater.log.snapshot import Snapshot

OPTION_PREFIX = "spark.indextables."
DOC_MAPPING_PROPERTY = "headwater.search.docMapping"
"""The table property that holds the configuration of the index, in the form of `docMappingJson`."""


@dataclass(frozen=True)
class OpenTable:
    """One version of a search table."""

    spark: SparkSession
    snapshot: Snapshot
    storage_options: Mapping[str, str] | None = field(repr=False)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.snapshot.uri

    @cached_property
    def config(self) -> IndexConfig:
        """How its columns are indexed."""
        declared = self.snapshot.properties.get(DOC_MAPPING_PROPERTY)
        if declared is not None:
            return IndexConfig.from_json(declared)
        return index_config(self.snapshot.schema, partition_columns=self.snapshot.partition_columns)


def open_table(
    spark: SparkSession,
    path: str,
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> OpenTable:
    """Open a search table.

    Args:
        spark: the session.
        path: where it is.
        version: a version to travel to; the newest by default.
        timestamp: or a point in time; without a zone it is in the session's.
        storage_options: options of the object store.
        options: of the log: `spark.indextables.*`; the session's if not given.

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
    return OpenTable(spark, snapshot, storage_options)


def session_options(spark: SparkSession) -> dict[str, str]:
    """The settings of a session whose names users of IndexTables know."""
    if is_connect(spark):
        settings = spark.conf.getAll
        found = settings() if callable(settings) else settings
    else:
        # As one text: a Java map crosses py4j entry by entry, and a session has hundreds of settings.
        mapper = jvm_of(spark).static("com.fasterxml.jackson.databind.ObjectMapper")()
        found = json.loads(mapper.writeValueAsString(spark._jsparkSession.conf().getAllAsJava()))
    return {name: value for name, value in found.items() if name.startswith(OPTION_PREFIX)}


def checkpoint(table: OpenTable) -> int:
    """Write a checkpoint of the newest version; see `SearchTable.checkpoint`."""
    return write_checkpoint(table.snapshot.refresh()).version
