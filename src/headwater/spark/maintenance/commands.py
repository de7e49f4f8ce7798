"""VACUUM, RESTORE and CLONE as a session runs them: its settings in, DataFrames out.

What the commands do needs no Spark (`headwater.maintenance`); here are the settings that Delta users know, and the
results with the columns that they know.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from headwater.features.context import table_context
from headwater.log.opening import open_snapshot
from headwater.maintenance.clone import clone
from headwater.maintenance.progress import shown_progress
from headwater.maintenance.restore import restore
from headwater.maintenance.vacuum import vacuum
from headwater.spark.maintenance.copies import CopyPlan, copy_files
from headwater.spark.time_travel import in_zone
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.maintenance.vacuum_plan import VacuumMode

RESTORE_SCHEMA = (
    "table_size_after_restore BIGINT, num_of_files_after_restore BIGINT, num_removed_files BIGINT, "
    "num_restored_files BIGINT, removed_files_size BIGINT, restored_files_size BIGINT"
)
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_VACUUM_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"


def vacuum_table(
    spark: SparkSession,
    path: str,
    retention_hours: float | None = None,
    *,
    mode: VacuumMode = "FULL",
    dry_run: bool = False,
    inventory: DataFrame | pa.Table | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """VACUUM a table; see `headwater.maintenance.vacuum.vacuum`.

    Returns:
        For a dry run the column `path` with what would be deleted, else a DataFrame without columns.
    """
    listed = inventory.toArrow() if inventory is not None and hasattr(inventory, "toArrow") else inventory
    logged = _flag(spark, _VACUUM_LOGGING)
    with shown_progress() as progress:
        found = vacuum(
            table_context(path, storage_options),
            retention_hours=retention_hours,
            mode=mode,
            dry_run=dry_run,
            enforce_retention=_flag(spark, _RETENTION_CHECK) is not False,
            inventory=listed,
            in_history=logged,
            progress=progress,
        )
    if not dry_run:
        return spark.range(0).select()
    return spark.createDataFrame(found.paths_table(), "path STRING")


def restore_table(
    spark: SparkSession,
    path: str,
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """RESTORE a table; a point in time without a zone is one in the session's."""
    point = None if timestamp is None else in_zone(timestamp, str(spark.conf.get("spark.sql.session.timeZone")))
    done = restore(
        table_context(path, storage_options),
        version,
        point,
        ignore_missing_files=_flag(spark, _IGNORE_MISSING) is True,
    )
    return spark.createDataFrame([astuple(done)[2:]], RESTORE_SCHEMA)


def clone_table(
    spark: SparkSession,
    path: str,
    target: str,
    *,
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    is_shallow: bool,
    replace: bool,
    properties: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
    target_options: Mapping[str, str] | None,
) -> None:
    """CLONE a version of a table; the newest by default."""
    point = None if timestamp is None else in_zone(timestamp, str(spark.conf.get("spark.sql.session.timeZone")))
    source = open_snapshot(table_context(path, storage_options), version=version, timestamp=point)
    if target_options is None and parse_uri(target).kind == parse_uri(source.uri).kind:
        target_options = storage_options
    ctx = table_context(target, target_options)
    plan = CopyPlan(source.uri, _plain(storage_options), ctx.uri, _plain(target_options))
    with shown_progress() as progress:
        clone(
            source,
            ctx,
            is_shallow=is_shallow,
            replace=replace,
            copy=lambda copies: copy_files(spark, plan, copies, progress),
            properties=properties,
        )


def _plain(options: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if options is None else dict(options)


def _flag(spark: SparkSession, name: str) -> bool | None:
    """A setting of the session; None if it is not set."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value).strip().lower() == "true"
