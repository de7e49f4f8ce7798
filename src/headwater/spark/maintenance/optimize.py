"""OPTIMIZE: fewer and larger files, with rows that belong together in the same ones.

Rows only move from files to files (`dataChange` is false), with their ids, so readers, streams and other writers are
not disturbed. Compaction joins small files, Z-ordering and clustering also bring rows in order, so that conditions on
some columns skip most files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import FilterError, WriteOptionError
from headwater.features.clustering import clustering_columns, logical_path
from headwater.features.column_names import column_path
from headwater.log.paths import canonical
from headwater.log.schema import physical_path, to_physical
from headwater.log.schema.lookup import dotted
from headwater.maintenance.progress import shown_progress
from headwater.spark.dml.condition import read_condition
from headwater.spark.dml.partitions import matching_files
from headwater.spark.dml.target import DmlTarget
from headwater.spark.file_rows import hadoop_root
from headwater.spark.functions import functions_for, is_connect
from headwater.spark.indexed_columns import indexed_leaves, leaves
from headwater.spark.maintenance.optimize_commit import Commits
from headwater.spark.maintenance.optimize_layout import check_ordering
from headwater.spark.maintenance.optimize_metrics import OptimizeResult, RunFacts, result_metrics
from headwater.spark.maintenance.optimize_plan import Layout, planned
from headwater.spark.maintenance.optimize_rewrite import GroupRewriter
from headwater.spark.maintenance.optimize_run import run_groups
from headwater.spark.maintenance.optimize_settings import PREFIX, optimize_settings, text_setting
from headwater.spark.write_options import user_metadata_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import SparkSession

    from headwater.errors import DeltaConcurrentModificationException
    from headwater.log.actions import Remove
    from headwater.log.snapshot import Snapshot
    from headwater.maintenance.progress import Progress
    from headwater.spark.maintenance.optimize_commit import RewrittenGroup
    from headwater.spark.maintenance.optimize_layout import OrderingColumn
    from headwater.spark.maintenance.optimize_settings import OptimizeSettings

_MAX_ROUNDS = 3
"""How often groups are rewritten that another writer has changed while they were."""
_CHECK_STATISTICS = PREFIX + "zorder.checkStatsCollection.enabled"


@dataclass(frozen=True)
class OptimizeRequest:
    """What OPTIMIZE is asked for.

    Attributes:
        where: conditions on partition columns, all of which must hold.
        zorder_by: columns to order rows by, as users name them.
        auto: whether a write has asked for it, and not a person.
        settings: file sizes and limits; those of the table and the session by default.
        purges: whether only deleted rows shall go (REORG): just files that have some are rewritten, in no order.
    """

    where: tuple[str, ...] = ()
    zorder_by: tuple[str, ...] = ()
    auto: bool = False
    settings: OptimizeSettings | None = None
    purges: bool = False

    @property
    def operation(self) -> str:
        """The name in the history."""
        return "REORG" if self.purges else "OPTIMIZE"


def optimize(
    spark: SparkSession,
    path: str | PathLike[str],
    request: OptimizeRequest | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Optimize the layout of a table.

    Args:
        spark: the session.
        path: the table.
        request: what to do; compaction, or clustering if the table is clustered, by default.
        storage_options: options of the object store.

    Raises:
        FilterError: a condition is none, or is on other than partition columns.
        ColumnNotFoundError: the table has no such column.
        WriteOptionError: rows of this table cannot be ordered like that.
        DeltaConcurrentModificationException: other writers have changed the table itself, or all files that were
            rewritten.

    Example:
        >>> optimize(spark, "/data/events").metrics["numFilesAdded"]  # doctest: +SKIP
        1
    """
    with functions_for(spark), shown_progress() as progress:
        request = request or OptimizeRequest()
        target = DmlTarget.open(spark, path, request.operation, storage_options)
        return _Optimization(target, request, progress).run()


@dataclass
class _Optimization:
    """One run of the command."""

    target: DmlTarget
    request: OptimizeRequest
    progress: Progress
    done: list[RewrittenGroup] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def run(self) -> OptimizeResult:
        spark, snapshot = self.target.spark, self.target.snapshot
        settings = self.request.settings or optimize_settings(spark, snapshot.metadata.configuration)
        if self.request.purges:
            settings = replace(settings, min_size_bytes=0, max_deleted_ratio=0.0)
        layout = self._layout(snapshot)
        considered: int | None = None
        paths: set[str] | None = None
        conflict: DeltaConcurrentModificationException | None = None
        for _ in range(_MAX_ROUNDS):
            plan = planned(snapshot, layout, settings, self._numbers(snapshot, paths))
            considered = plan.considered_files if considered is None else considered
            name = self.request.operation
            commits = Commits(snapshot, self._parameters(layout), user_metadata_of(spark), name)
            self.progress.begin(f"{name} {snapshot.uri}", len(plan.groups))
            rewriter = GroupRewriter(spark, snapshot, layout, self.target.storage_options)
            try:
                run_groups(plan.groups, rewriter, commits, settings, self.progress)
            finally:
                self.done += commits.done
                self.removes += commits.removes
                self.versions += commits.versions
            if not commits.lost:
                break
            conflict = commits.conflict
            paths = {canonical(path) for group in commits.lost for path in group.paths}
            snapshot = snapshot.refresh()
        else:
            if conflict is not None and not self.versions:
                raise conflict
        return self._result(snapshot, layout, considered or 0)

    # --- what to do ----------------------------------------------------------------------------------------

    def _layout(self, snapshot: Snapshot) -> Layout:
        clustered = clustering_columns(snapshot.domain_metadata)
        if not clustered or self.request.purges:
            return Layout(tuple(self._zorder_column(snapshot, name) for name in dict.fromkeys(self.request.zorder_by)))
        if self.request.zorder_by:
            raise WriteOptionError(
                f"{snapshot.uri} is clustered, and OPTIMIZE orders its rows by the clustering columns: do not ask for "
                f"ZORDER BY ({', '.join(self.request.zorder_by)})."
            )
        if self.request.where:
            raise WriteOptionError(
                f"{snapshot.uri} is clustered, so it has no partitions: OPTIMIZE takes no partition predicates "
                f"({' AND '.join(self.request.where)})."
            )
        paths = [logical_path(snapshot.schema, physical) for physical in clustered]
        columns = tuple(check_ordering(path, snapshot.schema.resolve(path)[-1].type) for path in paths)
        return Layout(columns, msgspec.json.encode(clustered).decode())

    def _zorder_column(self, snapshot: Snapshot, name: str) -> OrderingColumn:
        fields = snapshot.schema.resolve(column_path(name))
        path = tuple(f.name for f in fields)
        if path[0] in snapshot.partition_columns:
            raise WriteOptionError(
                f"{path[0]} is a partition column of {snapshot.uri}. Z-ordering can only be performed on data columns."
            )
        column = check_ordering(path, fields[-1].type)
        if (text_setting(self.target.spark, _CHECK_STATISTICS) or "true").lower() == "true":
            physical = physical_path(snapshot.schema, path, snapshot.mapping_mode)
            if physical not in _indexed(snapshot):
                raise WriteOptionError(
                    f"Z-ordering {snapshot.uri} by {dotted(path)} would be of no use, because no statistics are "
                    "collected for this column: name it in delta.dataSkippingStatsColumns, or raise "
                    f"delta.dataSkippingNumIndexedCols. To do it all the same, set {_CHECK_STATISTICS} to false."
                )
        return column

    def _numbers(self, snapshot: Snapshot, paths: set[str] | None) -> list[int] | None:
        """The files that may be rewritten, by their places; None for all of them."""
        numbers: list[int] | None = None
        if paths is not None:
            found = snapshot.files(columns=["path"]).column("path").to_pylist()
            numbers = [number for number, path in enumerate(found) if canonical(path) in paths]
        if not self.request.where:
            return numbers
        files = snapshot.files(columns=["partitionValues"])
        for text in self.request.where:
            condition = read_condition(self.target, text, None)
            foreign = sorted(condition.analyzed.columns - set(snapshot.partition_columns))
            if foreign:
                raise FilterError(
                    f"OPTIMIZE {snapshot.uri}: the predicate references non-partition column {foreign[0]!r}. Only the "
                    f"partition columns may be referenced: [{', '.join(snapshot.partition_columns)}]."
                )
            matching = set(matching_files(self.target.spark, snapshot, files, condition.filtered))
            numbers = [n for n in (range(files.num_rows) if numbers is None else numbers) if n in matching]
        return numbers

    # --- what is said about it -----------------------------------------------------------------------------

    def _parameters(self, layout: Layout) -> dict[str, Any]:
        if self.request.purges:
            return {"predicate": list(self.request.where), "applyPurge": True}
        ordered = [dotted(column.path) for column in layout.columns]
        parameters: dict[str, Any] = {
            "predicate": list(self.request.where),
            "zOrderBy": ordered if layout.clustered_by is None else [],
            "clusterBy": ordered if layout.clustered_by is not None else [],
            "auto": self.request.auto,
        }
        return parameters if layout.clustered_by is None else {**parameters, "isFull": False}

    def _result(self, snapshot: Snapshot, layout: Layout, considered: int) -> OptimizeResult:
        kind = "compaction" if not layout.columns else "zorder" if layout.clustered_by is None else "clustering"
        spark = self.target.spark
        facts = RunFacts(
            kind=kind,
            considered_files=considered,
            batches=max(1, len(self.versions)),
            started_ms=self.target.started_ms,
            ended_ms=self.target.started_ms + self.target.elapsed_ms(),
            parallelism=1 if is_connect(spark) else spark.sparkContext.defaultParallelism,
            num_columns=len(leaves(snapshot.schema)),
            num_columns_with_stats=len(_indexed(snapshot)) + len(snapshot.partition_columns),
        )
        metrics = result_metrics(self.done, self.removes, facts)
        return OptimizeResult(hadoop_root(snapshot.uri), metrics, tuple(self.versions))


def _indexed(snapshot: Snapshot) -> set[tuple[str, ...]]:
    """The columns that get statistics, by physical names."""
    schema = snapshot.schema
    partitions = set(snapshot.partition_columns)
    data = replace(schema, fields=tuple(f for f in schema.fields if f.name not in partitions))
    mode = snapshot.mapping_mode
    found = indexed_leaves(schema, to_physical(data, mode), mode, snapshot.metadata.configuration)
    return {leaf.path for leaf in found}
