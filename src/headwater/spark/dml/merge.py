"""MERGE: rows of a source change, remove and add rows of a table, in one commit.

Two passes. The first joins the columns of the conditions only, over files that may match by the log's statistics, and
finds where the rows are that change (`merge_matches`). The second reads just these rows, gives them their new values
(`merge_updates`), makes rows of what matched nothing (`merge_inserts`), and writes (`merge_files`). A merge that only
inserts reads the columns of its condition, and rewrites nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import FilterError, MultipleSourceRowsError
from headwater.features.table_changes import set_table
from headwater.log.expressions import Constant, Expression, Or, and_
from headwater.log.row_changes import RowPlan
from headwater.spark.column_values import filled_columns
from headwater.spark.dml.column_sql import condition_sql
from headwater.spark.dml.condition import expression_text
from headwater.spark.dml.merge_clauses import Action, When, check_clauses
from headwater.spark.dml.merge_columns import MergeColumns, evolved_table
from headwater.spark.dml.merge_condition import Sides, understand
from headwater.spark.dml.merge_files import MergeWriter
from headwater.spark.dml.merge_inserts import Inserts
from headwater.spark.dml.merge_keyed import can_look_up, look_up
from headwater.spark.dml.merge_matches import Matches, find_matches, kept, matched_source_rows, pairs_of
from headwater.spark.dml.merge_metrics import merge_metrics, merge_parameters
from headwater.spark.dml.merge_source import FactsWanted, Source, materialized
from headwater.spark.dml.merge_updates import Updates
from headwater.spark.dml.merge_view import check_conditions, joined
from headwater.spark.dml.target import DmlTarget
from headwater.spark.dml.target_files import TargetFiles
from headwater.spark.functions import functions_for
from headwater.spark.quiet import quiet_analysis
from headwater.spark.read_filter import prunable
from headwater.spark.sql_words import RANDOM_FUNCTIONS, TIME_FUNCTIONS, called_functions, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.features.table_changes import TableDefinition
    from headwater.spark.dml.merge_clauses import Clause, SqlOrColumn
    from headwater.spark.dml.merge_condition import Understood
    from headwater.spark.dml.merge_source import SourceFacts
    from headwater.spark.dml.merge_view import Joined

_BROADCAST_SETTING = "spark.sql.autoBroadcastJoinThreshold"
_LOOKED_UP_BYTES = 128 * 2**20
"""Keys for every worker: Arrow needs about a third of this for them. Nobody gets them where broadcasts are off."""
_NARROW_FACTOR = 4
"""The first join would otherwise shuffle the keys of the whole table, so more is sent to executors than for others."""


@dataclass(frozen=True)
class MergeRequest:
    """What a merge is asked for.

    Attributes:
        source: the rows that are merged into the table.
        condition: when a row of the source matches one of the table.
        clauses: what happens then, in order.
        alias: a name for the table in conditions and values.
        evolves: whether columns that only the source has are added to the table.
    """

    source: DataFrame
    condition: SqlOrColumn
    clauses: tuple[Clause, ...]
    alias: str | None = None
    evolves: bool = False

    def has(self, when: When) -> bool:
        """Whether there is a clause of a kind."""
        return any(clause.when is when for clause in self.clauses)

    @cached_property
    def texts(self) -> list[str]:
        """All conditions as texts."""
        conditions = [self.condition, *(clause.condition for clause in self.clauses)]
        return [expression_text(condition) for condition in conditions if condition is not None]


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
    with functions_for(spark), ExitStack() as stack:
        target = DmlTarget.open(spark, path, "MERGE", storage_options)
        if any(clause.action is not Action.INSERT for clause in request.clauses):
            target.check_may_change()
        _check_deterministic(request, target.uri)
        source = Source.of(request.source)
        definition, evolves = evolved_table(
            target, source.schema, request.clauses, request.alias, evolves=request.evolves
        )
        set_table(target.transaction, definition)
        filled = filled_columns(definition.protocol, definition.schema)
        columns = MergeColumns(definition.schema, request.alias, source.schema, filled, evolves)
        asked = _Merge(target, source, request, definition, columns)
        with quiet_analysis():
            asked.check()
        began_ms = target.elapsed_ms()
        source, facts = stack.enter_context(materialized(source, request.source, asked.facts_wanted))
        materialized_ms = target.elapsed_ms() - began_ms
        return replace(asked, source=source).run(facts, stack, materialized_ms)


@dataclass(frozen=True)
class _Merge:
    target: DmlTarget
    source: Source
    request: MergeRequest
    definition: TableDefinition
    columns: MergeColumns

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return self.request.clauses

    @cached_property
    def updates(self) -> Updates:
        return Updates(self.clauses, self.columns, self.definition, self.target.tracks_rows)

    @cached_property
    def inserts(self) -> Inserts:
        return Inserts(self.clauses, self.columns, self.definition, self.target.uri)

    @cached_property
    def _is_upsert(self) -> bool:
        """Whether each row of the source is a row of the result as it is, unless it matches several of the table's.

        Then nothing of the old rows is needed, and it does not matter which rows of the source are new.
        """
        clauses = self.clauses
        kinds = {(clause.when, clause.action) for clause in clauses}
        is_star = all(clause.is_star and clause.condition is None for clause in clauses)
        given = {name.lower() for name in self.source.schema.names}
        is_whole = all(field.name.lower() in given for field in self.columns.table.fields)
        keeps_parts = self.columns.evolves or self.target.tracks_rows or self.target.records_changes
        return (
            kinds == {(When.MATCHED, Action.UPDATE), (When.NOT_MATCHED, Action.INSERT)}
            and is_star
            and is_whole
            and not keeps_parts
            and not self.columns.filled.names
        )

    @cached_property
    def understood(self) -> Understood:
        return self._understood(self.request.condition, self.source.schema.names)

    @cached_property
    def facts_wanted(self) -> FactsWanted:
        return FactsWanted.of(self.source, self.understood.keys, self.target.snapshot.schema)

    def run(self, facts: SourceFacts, stack: ExitStack, materialized_ms: int) -> dict[str, int]:
        began_ms = self.target.elapsed_ms()
        files = self.target.candidates(self._candidates(self.understood, facts))
        limit_bytes = self._broadcast_bytes()
        is_narrow = facts.key_bytes <= _NARROW_FACTOR * limit_bytes
        has_inserts = self.request.has(When.NOT_MATCHED)
        is_short = limit_bytes > 0 and facts.key_bytes <= _LOOKED_UP_BYTES
        matches = self._looked_up(files) if is_short else None
        if matches is None:
            view = self._view(self.target.rows(files), is_small=is_narrow)
            pairs = pairs_of(view, self.clauses, only_changes=not has_inserts)
            if has_inserts and not self._is_upsert:
                pairs = stack.enter_context(kept(pairs))
            matches = find_matches(pairs, counts_source=self._is_upsert) if len(files) else Matches({}, 0)
        self._check_unambiguous(matches)
        scanned_ms = self.target.elapsed_ms()
        writer = MergeWriter(self.target, files, matches, self._is_stable())
        if self._is_upsert and matches.is_one_to_one:
            done = writer.write_together(self.inserts.rows(self.source.frame, None))
        else:
            updated = None
            if matches.updated:
                rows = self.target.rows(files, matches.updated, only=matches.updated)
                updated = self.updates.rows(self._view(rows, is_small=facts.size_bytes <= limit_bytes))
            inserted = None
            if has_inserts and facts.rows:
                others = matched_source_rows(pairs) if matches.positions else None
                inserted = self.inserts.rows(self.source.frame, others)
            done = writer.write(updated, inserted)
        times = {
            "materializeSourceTimeMs": materialized_ms,
            "scanTimeMs": scanned_ms - began_ms,
            "rewriteTimeMs": self.target.elapsed_ms() - scanned_ms,
        }

        def metrics(planned: RowPlan) -> dict[str, int]:
            return {**merge_metrics(planned, files, matches, done, facts.rows), **times}

        if matches.changed or done.added or self.definition.metadata != self.target.snapshot.metadata:
            return self.target.commit(merge_parameters(self.request.condition, self.clauses), metrics)
        return metrics(RowPlan())

    def _looked_up(self, files: TargetFiles) -> Matches | None:
        """What the first pass finds, if it can do without Spark's join, and nobody needs the pairs."""
        keys = self.understood.keys
        if not (self._is_upsert and self.understood.is_keys and can_look_up(self.target, self.source, keys)):
            return None
        matches = look_up(self.target, files, self.source, keys) if len(files) else None
        return matches if matches is not None and matches.is_one_to_one else None

    def _view(self, rows: DataFrame, *, is_small: bool) -> Joined:
        alias = self.request.alias
        return joined(
            rows if alias is None else rows.alias(alias),
            self.source.frame,
            self.request.condition,
            keeps_target=self.request.has(When.NOT_MATCHED_BY_SOURCE),
            is_small=is_small,
        )

    # --- which files ---------------------------------------------------------------------------------

    def _understood(self, condition: SqlOrColumn, source_columns: Sequence[str] = ()) -> Understood:
        sides = Sides.of(self.target.snapshot.schema, self.request.alias, source_columns)
        return understand(condition_sql(condition), sides)

    def _candidates(self, understood: Understood, facts: SourceFacts) -> Expression:
        """What rows of the table fulfil that match, or that a clause for rows that do not may act on."""
        matching = and_(self._prunable(understood), *facts.bounds)
        others = [
            Constant(True) if clause.condition is None else self._prunable(self._understood(clause.condition))
            for clause in self.clauses
            if clause.when is When.NOT_MATCHED_BY_SOURCE
        ]
        return Or((matching, *others)) if others else matching

    def _prunable(self, understood: Understood) -> Expression:
        if understood.on_target is None:
            return Constant(True)
        return prunable(self.target.spark, understood.on_target, self.target.snapshot.schema)

    def _broadcast_bytes(self) -> int:
        text = str(self.target.spark.conf.get(_BROADCAST_SETTING))
        digits = text.removesuffix("b").removesuffix("B")
        return int(digits) if digits.lstrip("-").isdigit() else 10 * 2**20

    # --- what is refused -----------------------------------------------------------------------------

    def check(self) -> None:
        """Look at all conditions and values, over no rows, before any job runs."""
        nothing = TargetFiles(self.target.snapshot, self.target.snapshot.files(Constant(False)))
        view = self._view(self.target.rows(nothing), is_small=False)
        check_conditions(view.frame, self.clauses, When.MATCHED)
        check_conditions(view.target, self.clauses, When.NOT_MATCHED_BY_SOURCE)
        check_conditions(self.source.frame, self.clauses, When.NOT_MATCHED)
        # An upsert gives the same values to old rows as to new ones.
        if any(clause.action is Action.UPDATE for clause in self.clauses) and not self._is_upsert:
            assert self.updates.rows(view).schema is not None
        if self.request.has(When.NOT_MATCHED):
            assert self.inserts.rows(self.source.frame, None).frame.schema is not None

    def _check_unambiguous(self, matches: Matches) -> None:
        if not matches.is_ambiguous:
            return
        first = next(clause for clause in self.clauses if clause.when is When.MATCHED)
        if first.action is Action.DELETE and first.condition is None:
            return  # however often a row is deleted, it is gone
        raise MultipleSourceRowsError(
            f"{self.target.uri}: several rows of the source match the same row of the table, and a clause updates or "
            "deletes it (DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE): which of them counts is not defined. "
            "Leave one row for each key in the source. Nothing was committed."
        )

    def _is_stable(self) -> bool:
        """Whether conditions have the same answer a while later; in doubt not."""
        try:
            return all(TIME_FUNCTIONS.isdisjoint(words(text)) for text in self.request.texts)
        except FilterError:
            return False


def _check_deterministic(request: MergeRequest, uri: str) -> None:
    for text in request.texts:
        try:
            called = called_functions(text)
        except FilterError:  # the text of a Column need not be SQL; what comes of it is counted after the write
            continue
        if not called.isdisjoint(RANDOM_FUNCTIONS):
            raise FilterError(
                f"{uri}: a condition of MERGE ({text}) is not deterministic: it may match other rows each time that it "
                "is evaluated, so nobody can say which rows it means."
            )
