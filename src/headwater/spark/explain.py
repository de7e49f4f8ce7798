"""What a query reads: version, files kept of all files, and the road that is taken, scan by scan.

Spark's own `explain` shows a plan before files are listed. Here the planner is asked to list them, which runs nothing.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.spark.file_rows import SIZE
from headwater.spark.functions import is_connect
from headwater.spark.marked_plans import connect_scans, python_scans

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headwater.spark.jvm import JavaObject

SPARK_ROAD = "Spark's Parquet reader"


class Explained(Protocol):
    """The files of a scan, as far as a summary tells of them."""

    @property
    def root(self) -> str:
        """The table's location, in the spelling of Hadoop's `Path`."""

    @property
    def version(self) -> int:
        """The version that is read."""

    @property
    def num_files(self) -> int:
        """The number of all files."""

    @property
    def size_bytes(self) -> int:
        """The size of all files."""

    @property
    def has_vectors(self) -> bool:
        """Whether rows of some file are left out by a deletion vector."""


_SOURCES: weakref.WeakValueDictionary[str, Explained] = weakref.WeakValueDictionary()
"""The sources of living scans, by name: the JVM knows an index only by its text."""


_MAX_SHOWN_CHARACTERS = 1_000


def shortened(tree: object) -> str:
    """The text of a filter or query as plans show it; those of long lists are cut, and deep ones only named."""
    try:
        text = str(tree)
    except RecursionError:
        return f"{type(tree).__name__} nested too deeply to show"
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]}... ({len(text):,} characters)"


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
    road: str
    """What reads the files."""

    def __str__(self) -> str:
        share = f"{self.size_bytes_kept:,} of {self.size_bytes_total:,} bytes"
        vectors = ", with deletion vectors" if self.deletion_vectors else ""
        return (
            f"{self.table} version {self.version}: {self.files_kept} of {self.files_total} files ({share})"
            f"{vectors}, by {self.road}"
        )


def summary_of(source: Explained, rows: pa.Table, road: str) -> ScanSummary:
    """The summary of a scan that reads these of the source's files: `rows` has a column `SIZE`."""
    import pyarrow.compute as pc

    return _summary(source, rows.num_rows, pc.sum(rows.column(SIZE)).as_py() or 0, road)


def _summary(source: Explained, num_files: int, size_bytes: int, road: str) -> ScanSummary:
    return ScanSummary(
        table=source.root,
        version=source.version,
        files_kept=num_files,
        files_total=source.num_files,
        size_bytes_kept=size_bytes,
        size_bytes_total=source.size_bytes,
        deletion_vectors=source.has_vectors,
        road=road,
    )


def register(name: str, source: Explained) -> None:
    """Let scans of a source be explained for as long as it lives.

    Args:
        name: the text of the file index that lists it.
        source: the files.
    """
    _SOURCES[name] = source


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
    found = [summary for leaf in _leaves(plan) if (summary := _summary_of_leaf(leaf)) is not None]
    return found or python_scans(plan)


def _leaves(plan: JavaObject) -> list[Any]:
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.inputPlan()
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def _summary_of_leaf(leaf: JavaObject) -> ScanSummary | None:
    if leaf.getClass().getSimpleName() != "FileSourceScanExec":
        return None
    source = _SOURCES.get(leaf.relation().location().toString())
    if source is None:
        return None
    listing = leaf.selectedPartitions()
    return _summary(source, listing.totalNumberOfFiles(), listing.totalFileSize(), SPARK_ROAD)
