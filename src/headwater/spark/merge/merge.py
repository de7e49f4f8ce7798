"""Run MERGE: rows of a source change, remove and add rows of a table, in one commit.

A merge has two passes. The first joins the columns of the conditions only, over files that may match by the log's
statistics, and finds the positions of the rows that change (`headwater.spark.merge.join`); for upserts by keys it needs
no join (`headwater.spark.merge.lookup`). The second reads only these rows, computes new values, and writes
(`headwater.spark.merge.write`). A merge that only inserts reads the columns of its condition, and rewrites nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from headwater.errors import FilterError, MultipleSourceRowsError
from headwater.log.commit.row_changes import RowPlan
from headwater.spark.dml.condition import expression_text
from headwater.spark.dml.delete import vector_metrics
from headwater.spark.dml.target import DmlTarget, TargetFiles
from headwater.spark.functions import RANDOM_FUNCTIONS, TIME_FUNCTIONS, called_functions, functions_for, words
from headwater.spark.merge.clauses import Action, Clause, SqlOrColumn, When, check_clauses
from headwater.spark.merge.join import Fate, Matches, find_matches, kept, matched_source_rows, pairs_of
from headwater.spark.merge.lookup import look_up, pack_upserts
from headwater.spark.merge.plan import MergePlan
from headwater.spark.merge.source import SOURCE_ROW, FactsWanted, SourceFacts, materialized
from headwater.spark.merge.write import MergedFiles, MergeWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.session import SparkTable


_NARROW_FACTOR = 4
"""The first join would otherwise shuffle the keys of the whole table, so more is sent to executors than for others."""
_MAX_LOOKED_UP_BYTES = 128 * 2**20
"""Keys of a source that are larger, as Spark counts, are joined."""


def merge(request: MergeRequest) -> dict[str, int]:
    """Merge a source into a table, in one commit; there is none if nothing changes.

    Returns:
        The metrics of the history: `numTargetRowsUpdated`, `numTargetRowsInserted`, ...

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

    with functions_for(request.table.spark), ExitStack() as stack:
        target = DmlTarget.open(request.table, "MERGE")
        if any(clause.action is not Action.INSERT for clause in request.clauses):
            target.check_may_change()
        request.check_deterministic(target.uri)
        plan = MergePlan.of(target, request)
        times = _Times(target)
        plan.check()
        wanted = FactsWanted.of(plan.source, plan.understood.keys, target.snapshot.schema)
        source, facts = stack.enter_context(
            materialized(plan.source, request.source, wanted, keeps_numbers=plan.is_keyed)
        )
        plan = replace(plan, source=source)
        times.mark("materializeSource")
        files = plan.candidates(facts)
        result = _upserted(plan, files, facts, times) or _joined(plan, files, facts, stack, times)
        return _committed(plan, result, times)


class _Times:
    """Measures how long the parts of a merge take."""

    def __init__(self, target: DmlTarget) -> None:
        self._target = target
        self._marks = {"": target.elapsed_ms()}

    def mark(self, name: str) -> None:
        """End a part."""
        self._marks[name] = self._target.elapsed_ms()

    def metrics(self) -> dict[str, int]:
        """Return the parts, as the history names them."""
        return {f"{name}TimeMs": end - start for (_, start), (name, end) in pairwise(self._marks.items())}


def _upserted(plan: MergePlan, files: TargetFiles, facts: SourceFacts, times: _Times) -> _Result | None:
    """Upsert by keys, without a join; None if the merge needs one."""
    if not plan.is_keyed or facts.key_bytes > _MAX_LOOKED_UP_BYTES:
        return None
    found = look_up(plan.target, files, plan.source, plan.understood.keys)
    if found is None:
        return None
    times.mark("scan")
    writer = MergeWriter(plan.target, files, found.matches, is_stable=True)
    job = plan.column_job(files, found.matches, facts)
    done = None
    if job is not None:
        rows = plan.inserts.rows(plan.source.frame, None, (SOURCE_ROW,)).frame
        done = job.run(pack_upserts(job, rows, found.pairs))
    if done is not None:
        merged = writer.tell_in_place(done, depends_on_matches=True)
    else:
        merged = writer.write_together(plan.inserts.rows(plan.source.frame, None))
    times.mark("rewrite")
    return _Result(files, found.matches, merged, facts.rows)


def _joined(plan: MergePlan, files: TargetFiles, facts: SourceFacts, stack: ExitStack, times: _Times) -> _Result:
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
    return _Result(files, matches, done, facts.rows)


def _written(
    plan: MergePlan, files: TargetFiles, matches: Matches, pairs: DataFrame, facts: SourceFacts
) -> MergedFiles:
    """Run the second pass."""
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
        packs = job.pack_updates(plan.updates.located_values(updated))
        done = job.run(packs if inserted is None else packs.union(job.pack_inserts(inserted.frame)))
        if done is not None:
            return writer.tell_in_place(done, depends_on_matches=inserted is not None)
    return writer.write(None if updated is None else plan.updates.rows(updated), inserted)


class _Result(NamedTuple):
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


@dataclass(frozen=True)
class MergeRequest:
    """A source, and what its rows do to a table.

    Attributes:
        table: the table.
        source: the rows that are merged into the table.
        condition: when a row of the source matches one of the table.
        clauses: what happens then, in order.
        alias: a name for the table in conditions and values.
        evolves: whether columns that only the source has are added to the table.
    """

    table: SparkTable
    source: DataFrame
    condition: SqlOrColumn
    clauses: tuple[Clause, ...]
    alias: str | None = None
    evolves: bool = False

    def has(self, when: When) -> bool:
        return any(clause.when is when for clause in self.clauses)

    @property
    def is_stable(self) -> bool:
        """Whether conditions give the same result later; in doubt not."""
        try:
            return all(TIME_FUNCTIONS.isdisjoint(words(text)) for text in self._texts)
        except FilterError:
            return False

    def check_deterministic(self, uri: str) -> None:
        """Raise `FilterError` if a condition gives another result each time."""
        for text in self._texts:
            try:
                called = called_functions(text)
            except FilterError:  # the text of a Column need not be SQL; what comes of it is counted after the write
                continue
            if not called.isdisjoint(RANDOM_FUNCTIONS):
                raise FilterError(
                    f"{uri}: a condition of MERGE ({text}) is not deterministic: it may match other rows each time "
                    "that it is evaluated, so it does not say which rows it means."
                )

    @cached_property
    def _texts(self) -> list[str]:
        conditions = [self.condition, *(clause.condition for clause in self.clauses)]
        return [expression_text(condition) for condition in conditions if condition is not None]


_PARAMETERS = {
    When.MATCHED: "matchedPredicates",
    When.NOT_MATCHED: "notMatchedPredicates",
    When.NOT_MATCHED_BY_SOURCE: "notMatchedBySourcePredicates",
}


def merge_parameters(condition: SqlOrColumn, clauses: tuple[Clause, ...]) -> dict[str, Any]:
    """Return the `operationParameters`."""
    return {
        "predicate": [expression_text(condition)],
        **{name: [_described(c) for c in clauses if c.when is when] for when, name in _PARAMETERS.items()},
    }


def merge_metrics(
    planned: RowPlan, files: TargetFiles, matches: Matches, done: MergedFiles, source_rows: int
) -> dict[str, int]:
    """Return the `operationMetrics`, without the times."""
    removed_bytes = pc.sum(files.take(done.removed).column("size")).as_py() or 0
    vectors = vector_metrics(planned, files, done.removed)
    return {
        "numSourceRows": source_rows,
        "numTargetRowsInserted": done.inserted_rows,
        "numTargetRowsUpdated": done.updated_rows,
        "numTargetRowsMatchedUpdated": matches.count(Fate.UPDATED),
        "numTargetRowsNotMatchedBySourceUpdated": matches.count(Fate.UPDATED_UNMATCHED),
        "numTargetRowsDeleted": matches.count(Fate.DELETED, Fate.DELETED_UNMATCHED),
        "numTargetRowsMatchedDeleted": matches.count(Fate.DELETED),
        "numTargetRowsNotMatchedBySourceDeleted": matches.count(Fate.DELETED_UNMATCHED),
        "numTargetRowsCopied": done.copied_rows,
        "numOutputRows": done.inserted_rows + done.updated_rows + done.copied_rows,
        "numTargetFilesAdded": len(done.added),
        "numTargetFilesRemoved": len(done.removed) + planned.files_removed,
        "numTargetBytesAdded": sum(add.size for add in done.added),
        "numTargetBytesRemoved": removed_bytes + planned.bytes_removed,
        "numTargetChangeFilesAdded": len(done.changes),
        **{name.replace("num", "numTarget", 1): count for name, count in vectors.items()},
    }


def _described(clause: Clause) -> dict[str, str]:
    action = {"actionType": clause.action.value}
    return action if clause.condition is None else {"predicate": expression_text(clause.condition), **action}
