"""What OPTIMIZE will do: which files it rewrites, in which groups, and into how many files each group goes.

Compaction takes small files, and files of which many rows are deleted. Z-ordering takes all files of the partitions
that it is asked for. Clustering is incremental (spec: "Writer Requirements for Clustered Table"): it takes files that
nobody has clustered by the table's columns yet, and clustered ones that are too small, or have lost many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.features.file_statistics import row_counts
from headwater.log.columns import float64s, int64s
from headwater.log.map_lookup import values_of_key
from headwater.spark.maintenance.optimize_bins import pack
from headwater.spark.maintenance.optimize_settings import CUBE_BYTES, ROW_GROUP_BYTES
from headwater.spark.overwrite import partition_key, partition_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.snapshot import Snapshot
    from headwater.spark.maintenance.optimize_layout import OrderingColumn
    from headwater.spark.maintenance.optimize_settings import OptimizeSettings

PROVIDER = "headwater"
"""Our name in `clusteringProvider`."""
SUPERSEDED_PROVIDERS = ("liquid",)
"""Files that these have clustered are clustered again as ours are; those of others are left to them."""
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
    """About how many there are."""

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return int(pc.sum(self.files.column("size")).as_py() or 0)

    @property
    def paths(self) -> list[str]:
        """As the log has them."""
        found: list[str] = self.files.column("path").to_pylist()
        return found


@dataclass(frozen=True)
class OptimizePlan:
    """All groups, and what was looked at to find them."""

    groups: tuple[FileGroup, ...]
    considered_files: int
    """Files of the partitions in question."""


@dataclass(frozen=True)
class Layout:
    """How rows shall lie.

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
        snapshot: the table.
        layout: how rows shall lie.
        settings: file sizes and limits.
        numbers: of the files that may be rewritten, among all live files; None for all of them.
    """
    files = snapshot.files(columns=_COLUMNS)
    ratios = _deleted_ratios(snapshot, files)
    files = files.append_column("ratio", ratios).append_column("number", int64s(range(files.num_rows)))
    if numbers is not None:
        files = files.take(int64s(list(numbers)))
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
    """Which files shall be rewritten, if others of their partition are too."""
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
    """Which files were clustered by other columns than those of today."""
    tags = files.column("tags")
    found = [values_of_key(chunk, CLUSTERED_BY_TAG) for chunk in tags.chunks]
    texts = pa.chunked_array(found, pa.string())
    return pc.fill_null(pc.not_equal(texts, clustered_by), False)


def _deleted_ratios(snapshot: Snapshot, files: pa.Table) -> pa.Array:
    """The part of each file's rows that is deleted; all of them, where nobody knows."""
    vectors = files.column("deletionVector")
    if vectors.null_count == len(vectors):
        return float64s([0.0] * len(vectors))
    rows = pc.indices_nonzero(pc.is_valid(vectors)).to_pylist()
    counts = row_counts(snapshot.files(columns=["stats"]).column("stats").take(int64s(rows)).to_pylist())
    deleted = pc.struct_field(vectors, "cardinality").take(int64s(rows)).to_pylist()
    ratios = [0.0] * len(vectors)
    for row, records, count in zip(rows, counts, deleted, strict=True):
        ratios[row] = count / records if records else 1.0
    return float64s(ratios)


def _partitions(snapshot: Snapshot, files: pa.Table) -> pa.ChunkedArray:
    """A text for each file, the same for files with the same partition values."""
    maps = files.column("partitionValues")
    columns = [
        pa.chunked_array([values_of_key(chunk, partition_key(snapshot, name)) for chunk in maps.chunks], pa.string())
        for name in snapshot.partition_columns
    ]
    return partition_texts(columns, files.num_rows)


def _is_worth_it(group: pa.Table, layout: Layout, settings: OptimizeSettings) -> bool:
    """Whether rewriting a group makes fewer files, takes deleted rows out, or brings rows in order."""
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
