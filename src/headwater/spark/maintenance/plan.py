"""Plan OPTIMIZE: which files it rewrites, in which groups, and into how many files each group goes.

Compaction takes small files, and files of which many rows are deleted. Z-ordering takes all files of the partitions
that it is asked for. Clustering is incremental (spec: "Writer Requirements for Clustered Table"): it takes files that
are not clustered by the table's columns yet, and clustered ones that are too small, or have lost many rows.

Small files of one partition are packed into bins in the order in which they were written, so that rows which came
together stay together and the bounds of their values stay narrow. A table may have a million small files, so they stay
columns of Arrow. File sizes and limits come from the table's properties, then from the session's settings
(`spark.databricks.delta.optimize.*`), then from defaults.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import WriteOptionError
from headwater.log.files.chunks import values_of_key
from headwater.log.stats.add_stats import row_counts
from headwater.parquet.plan import TARGET_SIZE_PROPERTY, size_bytes
from headwater.spark.write.overwrite import partition_key, partition_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.maintenance.layout import OrderingColumn


PROVIDER = "headwater"
"""Our name in `clusteringProvider`."""
SUPERSEDED_PROVIDERS = ("liquid",)
"""Files that these have clustered are clustered again as ours are; those of others are left alone."""
CLUSTERED_BY_TAG = "headwater.clusteredBy"
"""The columns that a file is clustered by, as the table's domain has them."""
_COLUMNS = ["path", "partitionValues", "size", "modificationTime", "deletionVector", "clusteringProvider", "tags"]
_GUESSED_ROW_BYTES = 50


@dataclass(frozen=True)
class FileGroup:
    """Files of one partition whose rows move to new files together."""

    files: pa.Table
    """As the log lists them, with all columns."""
    partition_values: Mapping[str, str | None]
    num_files: int
    """Into how many files the rows go."""
    cells_per_file: int
    num_rows: int
    """Approximate."""

    @property
    def size_bytes(self) -> int:
        return int(pc.sum(self.files.column("size")).as_py() or 0)

    @property
    def paths(self) -> list[str]:
        found: list[str] = self.files.column("path").to_pylist()
        return found


@dataclass(frozen=True)
class OptimizePlan:
    """The groups, and how many files the partitions in question have."""

    groups: tuple[FileGroup, ...]
    considered_files: int


@dataclass(frozen=True)
class Layout:
    """How rows are ordered.

    Attributes:
        columns: to order rows by; none for compaction.
        clustered_by: the text of the tag for clustered files; None if the table is not clustered.
    """

    columns: tuple[OrderingColumn, ...] = ()
    clustered_by: str | None = None


def planned(
    snapshot: Snapshot, layout: Layout, settings: OptimizeSettings, numbers: Sequence[int] | None
) -> OptimizePlan:
    """Decide what to rewrite.

    Args:
        layout: how rows are ordered.
        settings: file sizes and limits.
        numbers: of the files that may be rewritten, among all live files; None for all of them.
    """
    files = snapshot.files(columns=_COLUMNS)
    ratios = _deleted_ratios(snapshot, files)
    files = files.append_column("ratio", ratios).append_column("number", pa.array(range(files.num_rows), pa.int64()))
    if numbers is not None:
        files = files.take(pa.array(list(numbers), pa.int64()))
    chosen = files.filter(_wanted(files, layout, settings))
    if not chosen.num_rows:
        return OptimizePlan((), files.num_rows)
    limit = settings.max_size_bytes if not layout.columns else None if layout.clustered_by is None else CUBE_BYTES
    chosen = chosen.append_column("partition", _partitions(snapshot, chosen))
    if settings.min_files > 1:
        counted = chosen.group_by("partition").aggregate([([], "count_all")])
        many = counted.filter(pc.greater_equal(counted.column("count_all"), settings.min_files)).column("partition")
        chosen = chosen.filter(pc.is_in(chosen.column("partition"), value_set=many.combine_chunks()))
    groups = [chosen.take(rows) for rows in pack(chosen.column("partition"), chosen, limit)]
    kept = [group for group in groups if _is_worth_it(group, layout, settings)]
    if not kept:
        return OptimizePlan((), files.num_rows)
    details = snapshot.files()
    return OptimizePlan(tuple(_file_group(group, details, layout, settings) for group in kept), files.num_rows)


def _wanted(files: pa.Table, layout: Layout, settings: OptimizeSettings) -> pa.ChunkedArray:
    """Return which files to rewrite, if others of their partition are too."""
    worn = pc.greater(files.column("ratio"), settings.max_deleted_ratio)
    if not layout.columns:
        return pc.or_(worn, pc.less(files.column("size"), settings.min_size_bytes))
    if layout.clustered_by is None:
        return pc.is_valid(files.column("path"))
    provider = files.column("clusteringProvider")
    ours = pc.is_in(provider, value_set=pa.array([PROVIDER, *SUPERSEDED_PROVIDERS]))
    small = pc.less(files.column("size"), settings.small_cluster_bytes)
    again = pc.and_(ours, pc.or_(pc.or_(worn, small), _clustered_otherwise(files, layout.clustered_by)))
    return pc.or_(pc.is_null(provider), again)


def _clustered_otherwise(files: pa.Table, clustered_by: str) -> pa.ChunkedArray:
    """Return which files were clustered by other columns than the current ones."""
    tags = files.column("tags")
    found = [values_of_key(chunk, CLUSTERED_BY_TAG) for chunk in tags.chunks]
    texts = pa.chunked_array(found, pa.string())
    return pc.fill_null(pc.not_equal(texts, clustered_by), False)


def _deleted_ratios(snapshot: Snapshot, files: pa.Table) -> pa.Array:
    """Return the share of each file's rows that is deleted; 1 where it is unknown."""
    vectors = files.column("deletionVector")
    if vectors.null_count == len(vectors):
        return pa.array([0.0] * len(vectors), pa.float64())
    rows = pc.indices_nonzero(pc.is_valid(vectors)).to_pylist()
    counts = row_counts(snapshot.files(columns=["stats"]).column("stats").take(pa.array(rows, pa.int64())).to_pylist())
    deleted = pc.struct_field(vectors, "cardinality").take(pa.array(rows, pa.int64())).to_pylist()
    ratios = [0.0] * len(vectors)
    for row, records, count in zip(rows, counts, deleted, strict=True):
        ratios[row] = count / records if records else 1.0
    return pa.array(ratios, pa.float64())


def _partitions(snapshot: Snapshot, files: pa.Table) -> pa.ChunkedArray:
    """Return a text for each file, the same for files with the same partition values."""
    maps = files.column("partitionValues")
    columns = [
        pa.chunked_array([values_of_key(chunk, partition_key(snapshot, name)) for chunk in maps.chunks], pa.string())
        for name in snapshot.partition_columns
    ]
    return partition_texts(columns, files.num_rows)


def _is_worth_it(group: pa.Table, layout: Layout, settings: OptimizeSettings) -> bool:
    """Return whether rewriting a group makes fewer files, removes deleted rows, or orders rows."""
    if group.column("deletionVector").null_count < group.num_rows:
        return True
    if not layout.columns or group.num_rows == 1:
        return group.num_rows > 1 or (bool(layout.columns) and _num_files(group, settings) > 1)
    if layout.clustered_by is None:
        return True
    otherwise = pc.any(_clustered_otherwise(group, layout.clustered_by)).as_py()
    if group.column("clusteringProvider").null_count or otherwise:
        return True
    return _num_files(group, settings) < int(group.num_rows)


def _num_files(group: pa.Table, settings: OptimizeSettings) -> int:
    return max(1, round(_live_bytes(group) / settings.max_size_bytes))


def _live_bytes(group: pa.Table) -> float:
    kept = pc.subtract(1.0, group.column("ratio"))
    return float(pc.sum(pc.multiply(group.column("size").cast(pa.float64()), kept)).as_py())


def _file_group(group: pa.Table, details: pa.Table, layout: Layout, settings: OptimizeSettings) -> FileGroup:
    files = details.take(group.column("number"))
    assert files.column("path").equals(group.column("path")), "a snapshot lists its files in the same order each time"
    number = _num_files(group, settings) if layout.columns else 1
    live_bytes = _live_bytes(group)
    counts = row_counts(files.column("stats").to_pylist())
    known = sum(count or 0 for count in counts)
    rows = int(live_bytes / _GUESSED_ROW_BYTES) if None in counts else known
    values = files.slice(0, 1).column("partitionValues").to_pylist(maps_as_pydicts="strict")[0]
    cells = max(1, round(live_bytes / number / ROW_GROUP_BYTES)) if layout.columns else 1
    return FileGroup(files, values or {}, number, cells, rows)


_GROUP, _SIZE, _TIME, _PATH, _NUMBER = "group", "size", "time", "path", "number"


def pack(groups: pa.Array, files: pa.Table, max_bytes: int | None) -> list[pa.Array]:
    """Put files into bins.

    Args:
        groups: a text for each file; only files with the same text may share a bin.
        files: with the columns `size`, `modificationTime` and `path` of the log.
        max_bytes: what a bin may hold (a larger file has a bin of its own); None for one bin a group.

    Returns:
        The numbers of the files in each bin; every file is in just one.
    """
    if not files.num_rows:
        return []
    ordered = pa.table(
        {
            _GROUP: groups,
            _TIME: files.column("modificationTime"),
            _PATH: files.column("path"),
            _SIZE: files.column("size"),
            _NUMBER: pa.array(range(files.num_rows), pa.int64()),
        }
    ).sort_by([(_GROUP, "ascending"), (_TIME, "ascending"), (_PATH, "ascending")])
    ends = pc.cumulative_sum(ordered.column(_SIZE).combine_chunks()).to_pylist()
    numbers = ordered.column(_NUMBER).combine_chunks()
    bins = []
    for start, end in _runs(ordered.column(_GROUP).combine_chunks()):
        for first, last in _cuts(ends, start, end, max_bytes):
            bins.append(numbers.slice(first, last - first))
    return bins


def _runs(groups: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield where the files of a group begin and end."""
    changes = pc.indices_nonzero(pc.not_equal(groups.slice(1), groups.slice(0, len(groups) - 1))).to_pylist()
    bounds = [0, *(change + 1 for change in changes), len(groups)]
    yield from pairwise(bounds)


def _cuts(ends: list[int], start: int, end: int, max_bytes: int | None) -> Iterator[tuple[int, int]]:
    """Yield where the bins of a group begin and end, by the cumulative sizes of files."""
    if max_bytes is None:
        yield start, end
        return
    while start < end:
        before = ends[start - 1] if start else 0
        last = max(bisect_right(ends, before + max_bytes, start, end), start + 1)
        yield start, last
        start = last


PREFIX = "spark.databricks.delta.optimize."
DEFAULT_SIZE_BYTES = 2**30
_DEFAULT_DELETED_RATIO = 0.05
_DEFAULT_THREADS = 15
_DEFAULT_BATCH_BYTES = 100 * 2**30
CUBE_BYTES = 150 * 2**30
"""The most of a clustered table that is ordered at once: a larger shuffle gains nothing, and loses more if it fails."""
ROW_GROUP_BYTES = 128 * 2**20
"""The size at which Spark's writer starts a new row group."""


@dataclass(frozen=True, slots=True)
class OptimizeSettings:
    """The sizes and limits of a run of OPTIMIZE.

    Attributes:
        max_size_bytes: about how large files become.
        min_size_bytes: files of at least this size stay as they are.
        max_deleted_ratio: files of which more rows are deleted are written again, whatever their size.
        max_threads: how many groups of files are rewritten at the same time.
        batch_bytes: after how many bytes the rewritten groups are committed.
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
        """Clustered files below this size are clustered again: files of one run are at least this large."""
        return min(self.min_size_bytes, self.max_size_bytes // 2)


def optimize_settings(spark: SparkSession, properties: Mapping[str, str]) -> OptimizeSettings:
    """Return the settings for a table.

    Raises:
        WriteOptionError: a setting is not a positive number.
    """
    declared = properties.get(TARGET_SIZE_PROPERTY)
    largest = _size(TARGET_SIZE_PROPERTY, declared) if declared is not None else None
    if largest is None:
        largest = size_setting(spark, f"{PREFIX}maxFileSize") or DEFAULT_SIZE_BYTES
    smallest = size_setting(spark, f"{PREFIX}minFileSize")
    return OptimizeSettings(
        max_size_bytes=largest,
        min_size_bytes=largest if smallest is None else smallest,
        max_deleted_ratio=_ratio(spark),
        max_threads=size_setting(spark, f"{PREFIX}maxThreads") or _DEFAULT_THREADS,
        batch_bytes=size_setting(spark, f"{PREFIX}batchSize") or _DEFAULT_BATCH_BYTES,
    )


def text_setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting of the session; None if it is not set."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value).strip()


def size_setting(spark: SparkSession, name: str) -> int | None:
    """Return a setting of the session that is a positive number, perhaps with a unit of bytes.

    Raises:
        WriteOptionError: it is not.
    """
    text = text_setting(spark, name)
    return None if text is None else _size(name, text)


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
