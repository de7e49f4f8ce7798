"""Auto-compaction: a write that leaves many small files joins them right away, if the table or the session wants that.

By the property `delta.autoOptimize.autoCompact`, or the setting `spark.databricks.delta.autoCompact.enabled`. The write
has happened by then, and stays whatever becomes of the compaction.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.spark.maintenance.optimize_settings import optimize_settings, size_setting, text_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from headwater.log.snapshot import Snapshot

_PREFIX = "spark.databricks.delta.autoCompact."
_PROPERTIES = ("delta.autoOptimize.autoCompact", "delta.autoOptimize")
_DEFAULT_MIN_FILES = 50
_DEFAULT_MAX_BYTES = 128 * 2**20
_ON = ("true", "auto", "legacy")
_log = logging.getLogger(__name__)


def wants_compaction(spark: SparkSession, properties: Mapping[str, str]) -> bool:
    """Whether small files shall be joined after a write: what the session says comes first."""
    setting = text_setting(spark, f"{_PREFIX}enabled")
    if setting is not None:
        return setting.lower() in _ON
    return any(properties.get(name, "false").lower() in _ON for name in _PROPERTIES)


def compact_after_write(
    spark: SparkSession, snapshot: Snapshot, storage_options: Mapping[str, str] | None
) -> tuple[int, ...]:
    """Join small files if there are many of them; never fails.

    Args:
        spark: the session.
        snapshot: the table right after the write.
        storage_options: options of the object store.

    Returns:
        The versions that were made; none if there was nothing to do, or if it failed, which is logged.
    """
    from headwater.spark.maintenance.optimize import OptimizeRequest, optimize

    try:
        if not wants_compaction(spark, snapshot.metadata.configuration):
            return ()
        largest = size_setting(spark, f"{_PREFIX}maxFileSize") or _DEFAULT_MAX_BYTES
        settings = replace(
            optimize_settings(spark, snapshot.metadata.configuration),
            max_size_bytes=largest,
            min_size_bytes=size_setting(spark, f"{_PREFIX}minFileSize") or largest // 2,
            min_files=size_setting(spark, f"{_PREFIX}minNumFiles") or _DEFAULT_MIN_FILES,
        )
        return optimize(spark, snapshot.uri, OptimizeRequest(auto=True, settings=settings), storage_options).versions
    except Exception as error:  # whatever it is: the write has happened, and must not seem to have failed
        _log.warning("auto-compaction of %s failed, the write before it has not: %s", snapshot.uri, error)
        return ()
