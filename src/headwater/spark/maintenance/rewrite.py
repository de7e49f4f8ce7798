"""Rewrite groups of files for OPTIMIZE, commit them, and report metrics.

A group is read as a table, its rows are ordered, and written to new files: the same rows with the same ids, without
deleted ones. A group lies in one partition, so its files are written as those of a table without partitions, which
needs no sorting, and get the partition's values as the log spells them.

Groups are committed in batches. Rows only move, so other writers may add rows and change other files. A group of
which another writer has changed a file is left out, and the others of its batch are committed. Metrics are those of
delta-spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import (
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
)
from headwater.features.definition import TableDefinition
from headwater.features.registry import is_active
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.log.actions.model import Add, DeletionVector, Remove
from headwater.log.actions.paths import canonical, partition_directory
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.files.live import removals
from headwater.log.schema import StructType
from headwater.parquet.plan import TARGET_SIZE_PROPERTY, WriteTarget
from headwater.spark.dml.target import write_table_rows, write_target
from headwater.spark.maintenance.layout import laid_out
from headwater.spark.maintenance.plan import CLUSTERED_BY_TAG, PROVIDER, FileGroup, Layout
from headwater.spark.scan.backends import scan
from headwater.spark.scan.request import ScanRequest
from headwater.spark.write.copies import Copies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot


_RANDOMIZE = "delta.randomizeFilePrefixes"
_MANY_FILES = 200
_TINY_BYTES = 2**20


@dataclass(frozen=True)
class GroupRewriter:
    """Rewrites groups of files of one version of a table."""

    spark: SparkSession
    snapshot: Snapshot
    layout: Layout

    def rewrite(self, group: FileGroup) -> list[Add]:
        """Write the rows of a group to new files; return the `add` actions for them."""
        snapshot, target = self.snapshot, self._target(group)
        tracked = is_active("rowTracking", snapshot.configuration)
        request = ScanRequest(snapshot, group.files, row_tracking=tracked)

        def by_spark() -> list[Add]:
            return write_table_rows(self._in_order(scan(self.spark, request), group), target)

        copies = Copies(self.spark, request, target)
        is_plain = group.num_files == 1 and group.cells_per_file == 1
        if is_plain and _is_dust(group):
            adds = copies.gather(by_spark)
        elif _is_dust(group):
            adds = copies.read(lambda frame: write_table_rows(self._in_order(frame, group), target), by_spark)
        elif is_plain:
            adds = copies.write(by_spark, num_tasks=1)
        else:
            adds = by_spark()
        return [self._marked(add, group) for add in adds]

    def _in_order(self, frame: DataFrame, group: FileGroup) -> DataFrame:
        """Order the rows of a group, each file's in a task of its own."""
        if group.num_files > 1 or group.cells_per_file > 1:
            return laid_out(frame, self.layout.columns, group.num_files, group.cells_per_file, group.num_rows)
        return frame.repartition(1) if _is_dust(group) else frame.coalesce(1)

    def _target(self, group: FileGroup) -> WriteTarget:
        snapshot = self.snapshot
        definition = TableDefinition(snapshot.configuration)
        target = write_target(snapshot.ctx, definition, snapshot.domain_metadata)
        # A task has the rows of one file, whatever comes of its size.
        properties = {name: value for name, value in target.properties.items() if name != TARGET_SIZE_PROPERTY}
        target = replace(target, properties=properties, optimize_write=False)
        if not snapshot.partition_columns or target.materialize_partition_columns:
            return target
        names = set(snapshot.partition_columns)
        schema = StructType([f for f in target.schema.fields if f.name not in names])
        return replace(target, schema=schema, partition_columns=(), directory=self._directory(group))

    def _directory(self, group: FileGroup) -> str:
        """Return the directory of the group's partition, unless files have random directories."""
        snapshot = self.snapshot
        if snapshot.mapping_mode != "none" or snapshot.properties.get(_RANDOMIZE, "false").lower() == "true":
            return ""
        return (
            partition_directory({name: group.partition_values.get(name) for name in snapshot.partition_columns}) or ""
        )

    def _marked(self, add: Add, group: FileGroup) -> Add:
        clustered = self.layout.clustered_by
        return msgspec.structs.replace(
            add,
            data_change=False,
            partition_values=dict(group.partition_values),
            clustering_provider=None if clustered is None else PROVIDER,
            tags=None if clustered is None else {CLUSTERED_BY_TAG: clustered},
        )


def _is_dust(group: FileGroup) -> bool:
    """Return whether a group has many tiny files: opening them takes longer than shuffling their rows, so all cores
    read.
    """
    count = int(group.files.num_rows)
    return count >= _MANY_FILES and group.size_bytes < count * _TINY_BYTES


_MAX_REPEATS = 20
"""How often a batch is committed again without the groups that another writer has changed."""


@dataclass(frozen=True)
class RewrittenGroup:
    """A group whose rows are in new files."""

    group: FileGroup
    adds: tuple[Add, ...]


@dataclass
class Commits:
    """The commits of one run.

    Attributes:
        snapshot: the version that all groups were read from.
        parameters: of the operation, for the history.
        user_metadata: a note for the history.
        name: of the operation: `OPTIMIZE`, or `REORG`.
        done: the groups that were committed.
        removes: their old files.
        lost: the groups that another writer has changed in the meantime.
        versions: that were made.
        conflict: the last conflict of a lost group.
    """

    snapshot: Snapshot
    parameters: Mapping[str, Any]
    user_metadata: str | None = None
    name: str = "OPTIMIZE"
    done: list[RewrittenGroup] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)
    lost: list[FileGroup] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    conflict: DeltaConcurrentModificationException | None = None

    def commit(self, batch: Sequence[RewrittenGroup]) -> None:
        """Replace the old files of a batch by the new ones.

        Raises:
            DeltaConcurrentModificationException: the table itself has changed, so no group can be committed.
        """
        groups = list(batch)
        for _ in range(_MAX_REPEATS):
            if not groups:
                return
            try:
                self._commit(groups)
                return
            except (ConcurrentDeleteDeleteException, ConcurrentDeleteReadException) as conflict:
                self.conflict = conflict
                changed = _changed(self.snapshot.refresh(), groups)
                if not any(changed):
                    raise
                self.lost += [one.group for one, is_lost in zip(groups, changed, strict=True) if is_lost]
                groups = [one for one, is_lost in zip(groups, changed, strict=True) if not is_lost]
        assert self.conflict is not None
        raise self.conflict

    def _commit(self, groups: Sequence[RewrittenGroup]) -> None:
        snapshot = self.snapshot
        transaction = Transaction(snapshot.ctx, snapshot)
        now_ms = snapshot.ctx.clock_ms()
        removes = [remove for one in groups for remove in removals(one.group.files, now_ms, data_change=False)]
        adds = [add for one in groups for add in one.adds]
        transaction.remove(removes)
        transaction.add(adds)
        tags = {PRESERVED_TAG: "true"} if is_active("rowTracking", snapshot.configuration) else {}
        metrics = operation_metrics(adds, removes)
        operation = Operation(self.name, self.parameters, metrics, self.user_metadata, tags)
        self.versions.append(transaction.commit(operation).version)
        self.removes += removes
        self.done += groups


def _changed(newest: Snapshot, groups: Sequence[RewrittenGroup]) -> list[bool]:
    """Return which groups have a file that is no longer in the table as it was read."""
    wanted = {canonical(path) for one in groups for path in one.group.paths}
    live = _vectors_by_path(newest.files_named(wanted, ["path", "deletionVector"]))
    return [
        any(path not in live or live[path] != vector for path, vector in _vectors_by_path(one.group.files).items())
        for one in groups
    ]


def _vectors_by_path(files: pa.Table) -> dict[str, str | None]:
    """Return the ids of the deletion vectors of files."""
    vectors = files.column("deletionVector").to_pylist()
    ids = [None if fields is None else msgspec.convert(fields, DeletionVector).unique_id for fields in vectors]
    return dict(zip(map(canonical, files.column("path").to_pylist()), ids, strict=True))


_SIZES = (
    "STRUCT<min: BIGINT, max: BIGINT, avg: DOUBLE NOT NULL, totalFiles: BIGINT NOT NULL, totalSize: BIGINT NOT NULL>"
)
_COUNT = "STRUCT<num: BIGINT NOT NULL, size: BIGINT NOT NULL>"
_ZORDER = (
    f"STRUCT<strategyName: STRING, inputCubeFiles: {_COUNT}, inputOtherFiles: {_COUNT}, "
    f"inputNumCubes: BIGINT NOT NULL, mergedFiles: {_COUNT}, numOutputCubes: BIGINT NOT NULL, mergedNumCubes: BIGINT>"
)
_FILES = "STRUCT<numFiles: BIGINT NOT NULL, size: BIGINT NOT NULL>"
_CLUSTERING = (
    f"STRUCT<inputZCubeFiles: {_FILES}, inputOtherFiles: {_FILES}, inputNumZCubes: BIGINT NOT NULL, "
    f"mergedFiles: {_FILES}, numOutputZCubes: BIGINT NOT NULL>"
)
_PARALLELISM = (
    "STRUCT<maxClusterActiveParallelism: BIGINT, minClusterActiveParallelism: BIGINT, "
    "maxSessionActiveParallelism: BIGINT, minSessionActiveParallelism: BIGINT>"
)
_VECTORS = "STRUCT<numDeletionVectorsRemoved: BIGINT NOT NULL, numDeletionVectorRowsRemoved: BIGINT NOT NULL>"
RESULT_SCHEMA = (
    "path STRING, metrics STRUCT<numFilesAdded: BIGINT NOT NULL, numFilesRemoved: BIGINT NOT NULL, "
    f"filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: BIGINT NOT NULL, zOrderStats: {_ZORDER}, "
    f"clusteringStats: {_CLUSTERING}, numBins: BIGINT NOT NULL, numBatches: BIGINT NOT NULL, "
    "totalConsideredFiles: BIGINT NOT NULL, totalFilesSkipped: BIGINT NOT NULL, "
    "preserveInsertionOrder: BOOLEAN NOT NULL, numFilesSkippedToReduceWriteAmplification: BIGINT NOT NULL, "
    "numBytesSkippedToReduceWriteAmplification: BIGINT NOT NULL, startTimeMs: BIGINT NOT NULL, "
    "endTimeMs: BIGINT NOT NULL, totalClusterParallelism: BIGINT NOT NULL, totalScheduledTasks: BIGINT NOT NULL, "
    f"autoCompactParallelismStats: {_PARALLELISM}, deletionVectorStats: {_VECTORS}, "
    "numTableColumns: BIGINT NOT NULL, numTableColumnsWithStats: BIGINT NOT NULL>"
)


@dataclass(frozen=True)
class OptimizeResult:
    """The result of a run of OPTIMIZE.

    Attributes:
        path: the table.
        metrics: by the names that delta-spark has for them.
        versions: that were made; none if there was nothing to do.
    """

    path: str
    metrics: dict[str, Any]
    versions: tuple[int, ...]

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([(self.path, self.metrics)], RESULT_SCHEMA)


@dataclass(frozen=True)
class RunFacts:
    """What the metrics need beside the files."""

    kind: str
    """`compaction`, `zorder` or `clustering`."""
    considered_files: int
    batches: int
    started_ms: int
    ended_ms: int
    parallelism: int
    num_columns: int
    num_columns_with_stats: int


def operation_metrics(adds: Sequence[Add], removes: Sequence[Remove]) -> dict[str, str]:
    """Return the `operationMetrics` of a commit."""
    sizes = sorted(add.size for add in adds)
    found = {
        "numAddedFiles": len(adds),
        "numRemovedFiles": len(removes),
        "numAddedBytes": sum(sizes),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in removes),
    }
    if sizes:
        found["minFileSize"], found["maxFileSize"] = sizes[0], sizes[-1]
        for percent in (25, 50, 75):
            found[f"p{percent}FileSize"] = sizes[min(len(sizes) * percent // 100, len(sizes) - 1)]
    return {name: str(value) for name, value in found.items()}


def result_metrics(groups: Sequence[RewrittenGroup], removes: Sequence[Remove], facts: RunFacts) -> dict[str, Any]:
    """Return the struct that a run returns."""
    added = [add.size for one in groups for add in one.adds]
    removed = [remove.size or 0 for remove in removes]
    vectors = [remove.deletion_vector for remove in removes if remove.deletion_vector is not None]
    partitions = {tuple(sorted(one.group.partition_values.items(), key=str)) for one in groups}
    return {
        "numFilesAdded": len(added),
        "numFilesRemoved": len(removed),
        "filesAdded": _sizes(added),
        "filesRemoved": _sizes(removed),
        "partitionsOptimized": len(partitions),
        "zOrderStats": _zorder(removed, len(groups)) if facts.kind == "zorder" else None,
        "clusteringStats": _clustering(groups) if facts.kind == "clustering" else None,
        "numBins": len(groups),
        "numBatches": facts.batches,
        "totalConsideredFiles": facts.considered_files,
        "totalFilesSkipped": facts.considered_files - len(removed),
        "preserveInsertionOrder": False,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "startTimeMs": facts.started_ms,
        "endTimeMs": facts.ended_ms,
        "totalClusterParallelism": facts.parallelism,
        "totalScheduledTasks": len(added),
        "autoCompactParallelismStats": None,
        "deletionVectorStats": _vectors([v.cardinality for v in vectors]) if vectors else None,
        "numTableColumns": facts.num_columns,
        "numTableColumnsWithStats": facts.num_columns_with_stats,
    }


def _zorder(sizes: list[int], groups: int) -> dict[str, Any]:
    files = {"num": len(sizes), "size": sum(sizes)}
    return {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": files,
        "inputNumCubes": 0,
        "mergedFiles": files,
        "numOutputCubes": groups,
        "mergedNumCubes": None,
    }


def _clustering(groups: Sequence[RewrittenGroup]) -> dict[str, Any]:
    """Files that were clustered before, and others; a group becomes what others call a Z-cube."""
    clustered: list[int] = []
    others: list[int] = []
    for one in groups:
        sizes = one.group.files.column("size").to_pylist()
        providers = one.group.files.column("clusteringProvider").to_pylist()
        for size, provider in zip(sizes, providers, strict=True):
            (others if provider is None else clustered).append(size)
    return {
        "inputZCubeFiles": _files(clustered),
        "inputOtherFiles": _files(others),
        "inputNumZCubes": int(bool(clustered)),
        "mergedFiles": _files([*clustered, *others]),
        "numOutputZCubes": len(groups),
    }


def _files(sizes: list[int]) -> dict[str, int]:
    return {"numFiles": len(sizes), "size": sum(sizes)}


def _vectors(rows: list[int]) -> dict[str, int]:
    return {"numDeletionVectorsRemoved": len(rows), "numDeletionVectorRowsRemoved": sum(rows)}


def _sizes(sizes: list[int]) -> dict[str, Any]:
    total = sum(sizes)
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": total / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": total,
    }
