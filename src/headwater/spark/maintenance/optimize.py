"""Run OPTIMIZE: fewer and larger files, with rows that belong together in the same ones.

Rows only move from files to files (`dataChange` is false), with their ids, so readers, streams and other writers are
not disturbed. Compaction joins small files; Z-ordering and clustering also order rows, so that conditions on some
columns skip most files. Groups of files are rewritten at the same time, each in a Spark job of its own, and
committed in batches: what is committed stays, whatever happens to the rest. An interruption stops the jobs and
commits nothing more.

Auto-compaction runs after a write that leaves many small files, by the property `delta.autoOptimize.autoCompact`, or
the setting `spark.databricks.delta.autoCompact.enabled`. The write stays, whatever becomes of the compaction.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.commands.progress import Progress, shown_progress
from headwater.errors import DeltaConcurrentModificationException, FilterError, WriteOptionError
from headwater.features.clustering import clustering_columns, logical_path
from headwater.features.column_mapping import column_path
from headwater.features.context import TableRef
from headwater.log.actions.paths import canonical, hadoop_root
from headwater.log.schema import physical_path, to_physical
from headwater.log.schema.types import dotted
from headwater.parquet.plan import indexed_leaves, leaves
from headwater.spark.dml.condition import matching_files, read_condition
from headwater.spark.dml.target import DmlTarget
from headwater.spark.functions import default_parallelism, functions_for
from headwater.spark.maintenance.layout import OrderingColumn, check_ordering
from headwater.spark.maintenance.plan import (
    PREFIX,
    FileGroup,
    Layout,
    OptimizeSettings,
    optimize_settings,
    planned,
    size_setting,
    text_setting,
)
from headwater.spark.maintenance.rewrite import (
    Commits,
    GroupRewriter,
    OptimizeResult,
    RewrittenGroup,
    RunFacts,
    result_metrics,
)
from headwater.spark.session import SparkTable
from headwater.spark.workers import ParallelJobs
from headwater.spark.write.options import user_metadata_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from headwater.log.actions.model import Remove
    from headwater.log.snapshot import Snapshot


_MAX_ROUNDS = 3
"""How often groups are rewritten that another writer has changed in the meantime."""
_CHECK_STATISTICS = PREFIX + "zorder.checkStatsCollection.enabled"


@dataclass(frozen=True)
class OptimizeRequest:
    """Which files of a table to rewrite, and how; compaction, or clustering of a clustered table, by default.

    Attributes:
        table: the table.
        where: conditions on partition columns, all of which must hold.
        zorder_by: columns to order rows by, as users name them.
        auto: whether a write has asked for it, and not a person.
        settings: file sizes and limits; those of the table and the session by default.
        purges: whether to rewrite only files that have deleted rows, in no order (REORG).
    """

    table: SparkTable
    where: tuple[str, ...] = ()
    zorder_by: tuple[str, ...] = ()
    auto: bool = False
    settings: OptimizeSettings | None = None
    purges: bool = False

    @property
    def operation(self) -> str:
        """The name in the history."""
        return "REORG" if self.purges else "OPTIMIZE"


def optimize(request: OptimizeRequest) -> OptimizeResult:
    """Optimize the layout of a table.

    Raises:
        FilterError: it is not a condition, or is on other than partition columns.
        ColumnNotFoundError: the table has no such column.
        WriteOptionError: rows of this table cannot be ordered like that.
        DeltaConcurrentModificationException: other writers have changed the table itself, or all files that were
            rewritten.

    Example:
        >>> optimize(OptimizeRequest(table)).metrics["numFilesAdded"]  # doctest: +SKIP
        1
    """
    with functions_for(request.table.spark), shown_progress() as progress:
        target = DmlTarget.open(request.table, request.operation)
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
            rewriter = GroupRewriter(spark, snapshot, layout)
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
        """Return the positions of the files that may be rewritten; None for all of them."""
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
        facts = RunFacts(
            kind=kind,
            considered_files=considered,
            batches=max(1, len(self.versions)),
            started_ms=self.target.started_ms,
            ended_ms=self.target.started_ms + self.target.elapsed_ms(),
            parallelism=default_parallelism(self.target.spark) or 1,
            num_columns=len(leaves(snapshot.schema)),
            num_columns_with_stats=len(_indexed(snapshot)) + len(snapshot.partition_columns),
        )
        metrics = result_metrics(self.done, self.removes, facts)
        return OptimizeResult(hadoop_root(snapshot.uri), metrics, tuple(self.versions))


def _indexed(snapshot: Snapshot) -> set[tuple[str, ...]]:
    """Return the columns that get statistics, by physical names."""
    schema = snapshot.schema
    partitions = set(snapshot.partition_columns)
    data = replace(schema, fields=tuple(f for f in schema.fields if f.name not in partitions))
    mode = snapshot.mapping_mode
    found = indexed_leaves(schema, to_physical(data, mode), mode, snapshot.metadata.configuration)
    return {leaf.path for leaf in found}


def run_groups(
    groups: Sequence[FileGroup],
    rewriter: GroupRewriter,
    commits: Commits,
    settings: OptimizeSettings,
    progress: Progress,
) -> None:
    """Rewrite all groups and commit them. When a group fails, commit those that are done, and raise the failure."""
    ready: list[RewrittenGroup] = []
    failures: list[Exception] = []
    waiting = list(reversed(groups))
    running: set[Future[RewrittenGroup]] = set()
    with ParallelJobs(rewriter.spark, "optimize", settings.max_threads) as jobs:
        while running or (waiting and not failures):
            while waiting and not failures and len(running) < settings.max_threads:
                running.add(jobs.submit(partial(_rewritten, rewriter, waiting.pop())))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                error = future.exception()
                if isinstance(error, Exception):
                    failures.append(error)
                else:
                    ready.append(future.result())
                    progress.advance()
            if sum(one.group.size_bytes for one in ready) >= settings.batch_bytes:
                batch, ready = ready, []
                commits.commit(batch)
        commits.commit(ready)
    if failures:
        raise failures[0]


def _rewritten(rewriter: GroupRewriter, group: FileGroup) -> RewrittenGroup:
    return RewrittenGroup(group, tuple(rewriter.rewrite(group)))


_PREFIX = "spark.databricks.delta.autoCompact."
_PROPERTIES = ("delta.autoOptimize.autoCompact", "delta.autoOptimize")
_DEFAULT_MIN_FILES = 50
_DEFAULT_MAX_BYTES = 128 * 2**20
_ON = ("true", "auto", "legacy")
_log = logging.getLogger(__name__)


def wants_compaction(spark: SparkSession, properties: Mapping[str, str]) -> bool:
    """Return whether small files are joined after a write; the session's setting takes precedence."""
    setting = text_setting(spark, f"{_PREFIX}enabled")
    if setting is not None:
        return setting.lower() in _ON
    return any(properties.get(name, "false").lower() in _ON for name in _PROPERTIES)


def compact_after_write(spark: SparkSession, snapshot: Snapshot) -> tuple[int, ...]:
    """Join small files if there are many of them; never fails.

    Args:
        snapshot: the table right after the write.

    Returns:
        The versions that were made; none if there was nothing to do, or if it failed, which is logged.
    """

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
        table = SparkTable(spark, TableRef(snapshot.uri, snapshot.ctx.storage_options))
        return optimize(OptimizeRequest(table, auto=True, settings=settings)).versions
    except Exception as error:  # whatever it is: the write has happened, and must not seem to have failed
        _log.warning("auto-compaction of %s failed, the write before it has not: %s", snapshot.uri, error)
        return ()
