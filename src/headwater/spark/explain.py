"""What a query reads: version, files kept of all files, and the road that is taken, scan by scan.

Spark's own `explain` shows a plan before files are listed. Here the planner is asked to list them, which runs nothing.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.functions import is_connect
from headwater.spark.marked_plans import connect_scans, python_scans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.jvm import JavaObject
    from headwater.spark.snapshot_files import SnapshotFiles

_SOURCES: weakref.WeakValueDictionary[str, SnapshotFiles] = weakref.WeakValueDictionary()
"""The sources of living scans, by name: the JVM knows an index only by its text."""


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """One scan of a Delta table in a query."""

    table: str
    version: int
    files_kept: int
    """After pruning by partition values and statistics; dynamic pruning may drop more while the query runs."""
    files_total: int
    size_bytes_kept: int
    size_bytes_total: int
    deletion_vectors: bool
    road: str = "Spark's Parquet reader"
    """What reads the files."""

    def __str__(self) -> str:
        share = f"{self.size_bytes_kept:,} of {self.size_bytes_total:,} bytes"
        vectors = ", with deletion vectors" if self.deletion_vectors else ""
        return (
            f"{self.table} version {self.version}: {self.files_kept} of {self.files_total} files ({share})"
            f"{vectors}, by {self.road}"
        )


def register(source: SnapshotFiles) -> None:
    """Let scans of this source be explained for as long as it lives."""
    _SOURCES[source.name] = source


def scans(frame: DataFrame) -> list[ScanSummary]:
    """The scans of Delta tables in a query, in the order of the plan. Plans the query, but runs nothing.

    Example:
        >>> for scan in scans(read(spark, "/data/events").where("date = '2024-01-31'")):  # doctest: +SKIP
        ...     print(scan)
        file:/data/events version 3: 2 of 120 files (1,024 of 98,304 bytes), by Spark's Parquet reader
    """
    if is_connect(frame):
        return connect_scans(frame)
    plan = frame._jdf.queryExecution().executedPlan()
    return [summary for leaf in _leaves(plan) if (summary := _summary(leaf)) is not None] or python_scans(plan)


def _leaves(plan: JavaObject) -> list[Any]:
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.inputPlan()
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def _summary(leaf: JavaObject) -> ScanSummary | None:
    if leaf.getClass().getSimpleName() != "FileSourceScanExec":
        return None
    source = _SOURCES.get(leaf.relation().location().toString())
    if source is None:
        return None
    listing = leaf.selectedPartitions()
    return ScanSummary(
        table=source.root,
        version=source.snapshot.version,
        files_kept=listing.totalNumberOfFiles(),
        files_total=source.num_files,
        size_bytes_kept=listing.totalFileSize(),
        size_bytes_total=source.size_bytes,
        deletion_vectors=source.deleted is not None,
    )
