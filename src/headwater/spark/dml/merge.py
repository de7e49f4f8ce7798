"""MERGE: rows of a source change, remove and add rows of a table, in one commit.

Two passes. The first joins the columns of the conditions only, over files that may match by the log's statistics, and
finds where the rows are that change (`merge_matches`). The second reads just these rows, gives them their new values
(`merge_updates`), makes rows of what matched nothing (`merge_inserts`), and writes (`merge_files`). A merge that only
inserts reads the columns of its condition, and rewrites nothing. Upserts by keys do both without a join
(`merge_upsert`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import MultipleSourceRowsError
from headwater.log.row_changes import RowPlan
from headwater.spark.dml.merge_clauses import Action, When, check_clauses
from headwater.spark.dml.merge_files import MergedFiles, MergeWriter
from headwater.spark.dml.merge_matches import Matches, find_matches, kept, matched_source_rows, pairs_of
from headwater.spark.dml.merge_metrics import merge_metrics, merge_parameters
from headwater.spark.dml.merge_plan import MergePlan
from headwater.spark.dml.merge_source import FactsWanted, materialized
from headwater.spark.dml.merge_upsert import KeyedUpsert, NotKeyedError
from headwater.spark.dml.target import DmlTarget
from headwater.spark.functions import functions_for
from headwater.spark.parallel_jobs import ParallelJobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.dml.merge_request import MergeRequest
    from headwater.spark.dml.merge_source import SourceFacts
    from headwater.spark.dml.target_files import TargetFiles


_NARROW_FACTOR = 4
"""The first join would otherwise shuffle the keys of the whole table, so more is sent to executors than for others."""


def merge(
    spark: SparkSession,
    path: str | PathLike[str],
    request: MergeRequest,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Merge a source into a table, in one commit; there is none if nothing changes.

    Args:
        spark: the session.
        path: the table: a path or URI.
        request: what to do.
        storage_options: options of the object store.

    Returns:
        What the history says about it: `numTargetRowsUpdated`, `numTargetRowsInserted`, ...

    Raises:
        InvalidMergeError: the clauses do not go together, or do not fit table and source.
        MultipleSourceRowsError: several rows of the source want to change the same row of the table.
        ColumnNotFoundError: a condition or value names a column that is not there.
        FilterError: Spark does not understand a condition or value, or it is not deterministic.
        SchemaMismatchError: a value is of a type that its column cannot hold.
        ConstraintViolationError: a row breaks a rule of the table.
        InvalidCommitError: the table only allows appends, and a clause updates or deletes.
        DeltaConcurrentModificationException: another writer's commit stands in the way.
    """
    check_clauses(request.clauses)

    def planned() -> MergePlan:
        target = DmlTarget.open(spark, path, "MERGE", storage_options)
        if any(clause.action is not Action.INSERT for clause in request.clauses):
            target.check_may_change()
        request.check_deterministic(target.uri)
        return MergePlan.of(target, request)

    with functions_for(spark), ExitStack() as stack:
        plan = planned()
        times = _Times(plan.target)
        is_keyed = plan.is_keyed
        if not is_keyed:
            plan.check()
        else:
            try:
                return _upserted(plan, _checked_upsert(plan), times)
            except NotKeyedError as error:
                plan, is_keyed = planned(), not error.is_final
                times = _Times(plan.target)
        wanted = FactsWanted.of(plan.source, plan.understood.keys, plan.target.snapshot.schema)
        source, facts = stack.enter_context(materialized(plan.source, request.source, wanted))
        plan = replace(plan, source=source)
        if is_keyed:
            try:
                return _upserted(plan, KeyedUpsert(plan, facts), times)
            except NotKeyedError:
                plan = replace(planned(), source=source)
        return _joined(plan, facts, stack, times)


class _Times:
    """How long the parts of a merge take."""

    def __init__(self, target: DmlTarget) -> None:
        self._target = target
        self._marks = {"": target.elapsed_ms()}

    def mark(self, name: str) -> None:
        """A part is over."""
        self._marks[name] = self._target.elapsed_ms()

    def metrics(self) -> dict[str, int]:
        """The parts, as the history names them."""
        return {f"{name}TimeMs": end - start for (_, start), (name, end) in pairwise(self._marks.items())}


def _checked_upsert(plan: MergePlan) -> KeyedUpsert:
    """An upsert by keys of a source that is not materialised. Its keys are read while the plan is checked."""
    with ParallelJobs(plan.target.spark, "merge", 1) as jobs:
        begun = jobs.submit(lambda: KeyedUpsert(plan, None))
        plan.check()
        return begun.result()


def _upserted(plan: MergePlan, upsert: KeyedUpsert, times: _Times) -> dict[str, int]:
    """An upsert by keys.

    Raises:
        NotKeyedError: it cannot be done by keys. Nothing was committed; the transaction is of no use any more.
    """
    times.mark("materializeSource")
    files = plan.candidates(upsert.facts)
    found = upsert.look_up(files)
    times.mark("scan")
    done = upsert.write(files, found)
    times.mark("rewrite")
    return _committed(plan, _Result(files, found.matches, done, upsert.facts.rows), times)


def _joined(plan: MergePlan, facts: SourceFacts, stack: ExitStack, times: _Times) -> dict[str, int]:
    """Any merge, of a source that is materialised."""
    times.mark("materializeSource")
    files = plan.candidates(facts)
    is_narrow = facts.key_bytes <= _NARROW_FACTOR * plan.broadcast_bytes
    pairs = pairs_of(
        plan.view(plan.target.rows(files), is_small=is_narrow),
        plan.clauses,
        only_changes=not plan.request.has(When.NOT_MATCHED),
    )
    if plan.request.has(When.NOT_MATCHED) and not plan.is_upsert:
        pairs = stack.enter_context(kept(pairs))
    matches = find_matches(pairs, counts_source=plan.is_upsert) if len(files) else Matches({}, 0)
    _check_unambiguous(plan, matches)
    times.mark("scan")
    done = _written(plan, files, matches, pairs, facts)
    times.mark("rewrite")
    return _committed(plan, _Result(files, matches, done, facts.rows), times)


def _written(
    plan: MergePlan, files: TargetFiles, matches: Matches, pairs: DataFrame, facts: SourceFacts
) -> MergedFiles:
    """The second pass."""
    writer = MergeWriter(plan.target, files, matches, plan.request.is_stable)
    if plan.is_upsert and matches.is_one_to_one:
        return writer.write_together(plan.inserts.rows(plan.source.frame, None))
    updated = None
    if touched := matches.updated:
        rows = plan.target.rows(files, touched, only=touched)
        updated = plan.view(rows, is_small=facts.size_bytes <= plan.broadcast_bytes)
    inserted = None
    if plan.request.has(When.NOT_MATCHED) and facts.rows:
        others = matched_source_rows(pairs) if matches.positions else None
        inserted = plan.inserts.rows(plan.source.frame, others)
    job = plan.column_job(files, matches, facts)
    if job is not None and updated is not None and not (inserted and inserted.identities):
        packs = job.located(plan.updates.located_values(updated))
        done = job.run(packs if inserted is None else packs.union(job.new(inserted.frame)))
        if done is not None:
            return writer.tell_in_place(done, depends_on_matches=inserted is not None)
    return writer.write(None if updated is None else plan.updates.rows(updated), inserted)


class _Result(NamedTuple):
    """What a merge comes to."""

    files: TargetFiles
    matches: Matches
    done: MergedFiles
    source_rows: int


def _committed(plan: MergePlan, result: _Result, times: _Times) -> dict[str, int]:
    files, matches, done, source_rows = result

    def metrics(planned: RowPlan) -> dict[str, int]:
        return {**merge_metrics(planned, files, matches, done, source_rows), **times.metrics()}

    if matches.changed or done.added or plan.definition.metadata != plan.target.snapshot.metadata:
        return plan.target.commit(merge_parameters(plan.request.condition, plan.clauses), metrics)
    return metrics(RowPlan())


def _check_unambiguous(plan: MergePlan, matches: Matches) -> None:
    if not matches.is_ambiguous:
        return
    first = next(clause for clause in plan.clauses if clause.when is When.MATCHED)
    if first.action is Action.DELETE and first.condition is None:
        return  # however often a row is deleted, it is gone
    raise MultipleSourceRowsError(
        f"{plan.target.uri}: several rows of the source match the same row of the table, and a clause updates or "
        "deletes it (DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE): which of them counts is not defined. "
        "Leave one row for each key in the source. Nothing was committed."
    )
