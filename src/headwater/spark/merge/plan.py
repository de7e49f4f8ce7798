"""Plan a MERGE: target and source, what the clauses do, which files may match, and how they are rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.features.definition import TableDefinition, set_table
from headwater.log.filters.expressions import Constant, Expression, Or, and_
from headwater.spark.dml.in_place import ColumnJob, column_job
from headwater.spark.dml.target import DmlTarget, TargetFiles
from headwater.spark.errors import quiet_analysis
from headwater.spark.merge.clauses import Action, Clause, MergeColumns, SqlOrColumn, When, evolved_table
from headwater.spark.merge.condition import Sides, Understood, condition_sql, understand
from headwater.spark.merge.join import Joined, Matches, check_conditions, joined
from headwater.spark.merge.lookup import can_look_up, is_exact
from headwater.spark.merge.source import Source, SourceFacts
from headwater.spark.merge.write import Inserts, Updates
from headwater.spark.scan.request import prunable
from headwater.spark.write.table_sql import check_table_sql
from headwater.spark.write.values import filled_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headwater.spark.merge.merge import MergeRequest


_BROADCAST_SETTING = "spark.sql.autoBroadcastJoinThreshold"
_MAX_NEW_BYTES = 2**30
"""For more new rows, Spark finds out in a job of its own how many belong into a file."""


@dataclass(frozen=True)
class MergePlan:
    """A checked and resolved merge. Use `MergePlan.of`."""

    target: DmlTarget
    source: Source
    request: MergeRequest
    definition: TableDefinition
    """The table after the merge."""
    columns: MergeColumns

    @classmethod
    def of(cls, target: DmlTarget, request: MergeRequest) -> MergePlan:
        """Resolve a request; the transaction then knows how the schema of the table grows."""
        source = Source.of(request.source)
        definition, evolves = evolved_table(
            target, source.schema, request.clauses, request.alias, evolves=request.evolves
        )
        set_table(target.transaction, definition)
        if any(clause.action is Action.UPDATE for clause in request.clauses):  # inserts are checked as any other write
            check_table_sql(target.spark, definition, target.uri)
        filled = filled_columns(definition.protocol, definition.schema)
        columns = MergeColumns(definition.schema, request.alias, source.schema, filled, evolves)
        return cls(target, source, request, definition, columns)

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
    def is_upsert(self) -> bool:
        """Whether each row of the source is a row of the result as it is, unless it matches several of the table's.

        Then nothing of the old rows is needed, and it does not matter which rows of the source are new.
        """
        kinds = {(clause.when, clause.action) for clause in self.clauses}
        is_star = all(clause.is_star and clause.condition is None for clause in self.clauses)
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
    def is_keyed(self) -> bool:
        """Whether it is an upsert by keys that can be looked up without a join."""
        is_keys = self.is_upsert and self.understood.is_keys and self.broadcast_bytes > 0
        return is_keys and can_look_up(self.target, self.source, self.understood.keys)

    @cached_property
    def understood(self) -> Understood:
        return self._understood(self.request.condition, self.source.schema.names)

    @cached_property
    def broadcast_bytes(self) -> int:
        """How much Spark sends to all executors; nothing if that is 0 or less."""
        text = str(self.target.spark.conf.get(_BROADCAST_SETTING))
        digits = text.removesuffix("b").removesuffix("B")
        return int(digits) if digits.lstrip("-").isdigit() else 10 * 2**20

    def view(self, rows: DataFrame, *, is_small: bool) -> Joined:
        """Join rows of the target with those of the source that match them."""
        alias = self.request.alias
        return joined(
            rows if alias is None else rows.alias(alias),
            self.source.frame,
            self.request.condition,
            keeps_target=self.request.has(When.NOT_MATCHED_BY_SOURCE),
            is_small=is_small,
        )

    def check(self) -> None:
        """Analyze all conditions and values, over no rows, before anything is changed."""
        with quiet_analysis():
            self._check()

    def _check(self) -> None:
        nothing = TargetFiles(self.target.snapshot, self.target.snapshot.files(Constant(False)))
        view = self.view(self.target.rows(nothing), is_small=False)
        check_conditions(view.frame, self.clauses, When.MATCHED)
        check_conditions(view.target, self.clauses, When.NOT_MATCHED_BY_SOURCE)
        check_conditions(self.source.frame, self.clauses, When.NOT_MATCHED)
        # An upsert gives the same values to old rows as to new ones.
        if any(clause.action is Action.UPDATE for clause in self.clauses) and not self.is_upsert:
            assert self.updates.rows(view).schema is not None
        if self.request.has(When.NOT_MATCHED):
            assert self.inserts.rows(self.source.frame, None).frame.schema is not None

    # --- which files ---------------------------------------------------------------------------------

    def candidates(self, facts: SourceFacts) -> TargetFiles:
        """Return the files with rows that may match, or that a clause for unmatched rows may act on."""
        matching = and_(self._prunable(self.understood), *facts.bounds)
        others = [
            Constant(True) if clause.condition is None else self._prunable(self._understood(clause.condition))
            for clause in self.clauses
            if clause.when is When.NOT_MATCHED_BY_SOURCE
        ]
        return self.target.candidates(Or((matching, *others)) if others else matching)

    def _understood(self, condition: SqlOrColumn, source_columns: Sequence[str] = ()) -> Understood:
        sides = Sides.of(self.target.snapshot.schema, self.request.alias, source_columns)
        return understand(condition_sql(condition), sides)

    def _prunable(self, understood: Understood) -> Expression:
        if understood.on_target is None:
            return Constant(True)
        return prunable(self.target.spark, understood.on_target, self.target.snapshot.schema)

    # --- which way -----------------------------------------------------------------------------------

    def column_job(self, files: TargetFiles, matches: Matches, facts: SourceFacts) -> ColumnJob | None:
        """Return a job that gives rows new values in place; None if files must be written as a whole."""
        touched = matches.updated
        if not touched or matches.deleted:
            return None
        changed = [name for name in self.updates.changed if name not in self._equal_columns]
        sizes = [files.physical_rows[number] for number in touched]
        # Where most rows change, writing whole files is faster.
        is_sparse = None in sizes or 2 * sum(map(len, touched.values())) <= sum(size or 0 for size in sizes)
        unmatched = facts.rows - (matches.source_rows or 0)
        has_inserts = self.request.has(When.NOT_MATCHED)
        new_bytes = max(1, facts.size_bytes * unmatched // max(1, facts.rows)) if has_inserts else 0
        if not is_sparse or new_bytes > _MAX_NEW_BYTES:
            return None
        return column_job(self.target, files, sorted(touched), changed, new_bytes)

    @cached_property
    def _equal_columns(self) -> frozenset[str]:
        """Columns of the table to which clauses assign the value that they equal anyway."""
        is_star = all(clause.is_star for clause in self.clauses if clause.action is Action.UPDATE)
        if not is_star or self.request.has(When.NOT_MATCHED_BY_SOURCE):
            return frozenset()
        keys = [key for key in self.understood.keys if is_exact(self.target, self.source, key)]
        return frozenset(key.target[0] for key in keys if key.target[0].lower() == key.source.lower())
