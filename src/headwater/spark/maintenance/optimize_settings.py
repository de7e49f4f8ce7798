"""How OPTIMIZE is told what to do: file sizes and limits, from the table's properties and the session's settings.

The settings have the names that Delta users know (`spark.databricks.delta.optimize.*`). What the table says about its
files comes first, then what the session says, then the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import WriteOptionError
from headwater.spark.file_plan import TARGET_SIZE_PROPERTY, size_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

PREFIX = "spark.databricks.delta.optimize."
DEFAULT_SIZE_BYTES = 2**30
_DEFAULT_DELETED_RATIO = 0.05
_DEFAULT_THREADS = 15
_DEFAULT_BATCH_BYTES = 100 * 2**30
CUBE_BYTES = 150 * 2**30
"""So much of a clustered table is ordered at once: a larger shuffle gains nothing, and loses more when it fails."""
ROW_GROUP_BYTES = 128 * 2**20
"""Spark's writer starts a new row group after so many bytes."""


@dataclass(frozen=True, slots=True)
class OptimizeSettings:
    """What a run of OPTIMIZE aims at.

    Attributes:
        max_size_bytes: about how large files become.
        min_size_bytes: files of at least this size stay as they are.
        max_deleted_ratio: files of which more rows are deleted are written again, whatever their size.
        max_threads: so many groups of files are rewritten at the same time.
        batch_bytes: what is done is committed after so many bytes.
        min_files: a partition with fewer files to rewrite is left as it is.
    """

    max_size_bytes: int = DEFAULT_SIZE_BYTES
    min_size_bytes: int = DEFAULT_SIZE_BYTES
    max_deleted_ratio: float = _DEFAULT_DELETED_RATIO
    max_threads: int = _DEFAULT_THREADS
    batch_bytes: int = _DEFAULT_BATCH_BYTES
    min_files: int = 1

    @property
    def small_cluster_bytes(self) -> int:
        """Clustered files below this size are clustered again: files of one run are at least so large."""
        return min(self.min_size_bytes, self.max_size_bytes // 2)


def optimize_settings(spark: SparkSession, properties: Mapping[str, str]) -> OptimizeSettings:
    """The settings for a table.

    Raises:
        WriteOptionError: a setting is not a number, or not a positive one.
    """
    declared = properties.get(TARGET_SIZE_PROPERTY)
    largest = _size(TARGET_SIZE_PROPERTY, declared) if declared is not None else None
    if largest is None:
        largest = _size_setting(spark, "maxFileSize") or DEFAULT_SIZE_BYTES
    smallest = _size_setting(spark, "minFileSize")
    return OptimizeSettings(
        max_size_bytes=largest,
        min_size_bytes=largest if smallest is None else smallest,
        max_deleted_ratio=_ratio(spark),
        max_threads=_size_setting(spark, "maxThreads") or _DEFAULT_THREADS,
        batch_bytes=_size_setting(spark, "batchSize") or _DEFAULT_BATCH_BYTES,
    )


def text_setting(spark: SparkSession, name: str) -> str | None:
    """A setting of the session; None if it is not set."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value).strip()


def size_setting(spark: SparkSession, name: str) -> int | None:
    """A setting of the session that is a positive number, perhaps with a unit of bytes.

    Raises:
        WriteOptionError: it is not.
    """
    text = text_setting(spark, name)
    return None if text is None else _size(name, text)


def _size_setting(spark: SparkSession, name: str) -> int | None:
    return size_setting(spark, PREFIX + name)


def _size(name: str, text: str) -> int:
    found = size_bytes(text)
    if found <= 0:
        raise WriteOptionError(f"{name} is a positive number, perhaps with a unit (128mb), and not {text!r}")
    return found


def _ratio(spark: SparkSession) -> float:
    name = PREFIX + "maxDeletedRowsRatio"
    text = text_setting(spark, name)
    if text is None:
        return _DEFAULT_DELETED_RATIO
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise WriteOptionError(f"{name} is a number between 0 and 1, not {text!r}")
    return found
