"""What OPTIMIZE says about itself: the row that it returns, and the metrics in the history, as delta-spark has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions import Add, Remove
    from headwater.spark.maintenance.optimize_commit import RewrittenGroup

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
    """What a run of OPTIMIZE has done.

    Attributes:
        path: the table.
        metrics: by the names that delta-spark has for them.
        versions: that were made; none if there was nothing to do.
    """

    path: str
    metrics: dict[str, Any]
    versions: tuple[int, ...]

    def frame(self, spark: SparkSession) -> DataFrame:
        """As a DataFrame with one row."""
        return spark.createDataFrame([(self.path, self.metrics)], RESULT_SCHEMA)


@dataclass(frozen=True)
class RunFacts:
    """What the metrics need to know beside the files."""

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
    """The `operationMetrics` of a commit."""
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
    """The struct that a run returns."""
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
