"""What a query reads, scan by scan: table, version, files kept of all files, and what reads them.

Spark's own `explain` shows a plan before files are listed. Here the planner is asked to list them, which runs nothing.

Scans that have no file index of ours are found otherwise. A plan of Spark Connect is a tree of Python objects, so the
summary of a scan hangs on its node. In a plan of classic PySpark that reads in Python, the name of the function that
reads the files says which scan it is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.parquet.read import SIZE
from headwater.spark.functions import connect_plan
from headwater.spark.scan.file_index import INDEXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headwater.spark.jvm import JavaObject


SPARK_READER = "Spark's Parquet reader"


class Explained(Protocol):
    """All files of a scan; `root` is the table's location in Hadoop's spelling."""

    @property
    def root(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def num_files(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def has_vectors(self) -> bool: ...


_MAX_SHOWN_CHARACTERS = 1_000


def shortened(tree: object) -> str:
    """Return the text of a filter or query for plans: a long one is cut, and a deep one only named."""
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
    reader: str
    """What reads the files."""

    def __str__(self) -> str:
        share = f"{self.size_bytes_kept:,} of {self.size_bytes_total:,} bytes"
        vectors = ", with deletion vectors" if self.deletion_vectors else ""
        return (
            f"{self.table} version {self.version}: {self.files_kept} of {self.files_total} files ({share})"
            f"{vectors}, by {self.reader}"
        )


def summary_of(source: Explained, rows: pa.Table, reader: str) -> ScanSummary:
    """Return the summary of a scan that reads these of the source's files: `rows` has a column `SIZE`."""
    import pyarrow.compute as pc

    return _summary(source, rows.num_rows, pc.sum(rows.column(SIZE)).as_py() or 0, reader)


def _summary(source: Explained, num_files: int, size_bytes: int, reader: str) -> ScanSummary:
    return ScanSummary(
        table=source.root,
        version=source.version,
        files_kept=num_files,
        files_total=source.num_files,
        size_bytes_kept=size_bytes,
        size_bytes_total=source.size_bytes,
        deletion_vectors=source.has_vectors,
        reader=reader,
    )


def scans(frame: DataFrame) -> list[ScanSummary]:
    """Return the scans of Delta tables in a query, in the order of the plan. This plans the query, but runs nothing.

    Example:
        >>> for scan in scans(read(spark, "/data/events").where("date = '2024-01-31'")):  # doctest: +SKIP
        ...     print(scan)
        file:/data/events version 3: 2 of 120 files (1,024 of 98,304 bytes), by Spark's Parquet reader
    """
    tree = connect_plan(frame)
    if tree is not None:
        return [getattr(node, _MARK) for node in _nodes(tree, set()) if hasattr(node, _MARK)]
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
    index = INDEXES.get(leaf.relation().location().toString())
    if index is None:
        return None
    listing = leaf.selectedPartitions()
    return _summary(index.source, listing.totalNumberOfFiles(), listing.totalFileSize(), SPARK_READER)


_MARK = "_headwater_scan"
_NUMBERS = itertools.count(1)
_MAX_NAMES = 1_000
_BY_NAME: dict[str, ScanSummary] = {}
"""The newest scans in Python, by the name of the function that reads the files: the JVM keeps only that."""


def mark(frame: DataFrame, summary: ScanSummary) -> None:
    """Let a scan be found in every query that is built on this DataFrame, if it is one of Spark Connect."""
    tree = connect_plan(frame)
    if tree is not None:
        setattr(tree, _MARK, summary)


def name_after(function: Callable[..., Any], summary: ScanSummary) -> None:
    """Name the function that reads the files, so that Spark's own plans show the scan too."""
    function.__name__ = f"Headwater#{next(_NUMBERS)}({summary})"
    remember(function.__name__, summary)


def remember(name: str, summary: ScanSummary) -> None:
    """Let a scan be found in plans of classic PySpark, which show it under this name."""
    _BY_NAME[name] = summary
    while len(_BY_NAME) > _MAX_NAMES:
        _BY_NAME.pop(next(iter(_BY_NAME)), None)


def python_scans(plan: JavaObject) -> list[ScanSummary]:
    """Return the scans in a physical plan of classic PySpark that read in Python."""
    if not _BY_NAME:
        return []
    text: str = plan.toString()
    found = [(text.find(name), summary) for name, summary in list(_BY_NAME.items())]
    return [summary for position, summary in sorted(found, key=lambda item: item[0]) if position >= 0]


def _nodes(plan: Any, seen: set[int]) -> Iterator[Any]:
    """Yield all nodes of a plan of Spark Connect, children after their parents."""
    from pyspark.sql.connect.plan import LogicalPlan

    if id(plan) in seen:
        return
    seen.add(id(plan))
    yield plan
    for value in vars(plan).values():
        for child in value if isinstance(value, list | tuple) else (value,):
            if isinstance(child, LogicalPlan):
                yield from _nodes(child, seen)
