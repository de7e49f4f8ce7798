"""Run the second pass of a MERGE: write files with new values, and take the old rows out.

With deletion vectors the rows that change are marked as deleted, and only updated and inserted rows are written.
Without them the files that hold rows which change are written again: only the columns that change, where rows can keep
their positions (`headwater.spark.dml.in_place`); else the rows that stay are copied without a join or a shuffle.

`Inserts` makes new rows of the source's rows that match nothing; columns that no clause gives a value for are filled in
as for any other write. `Updates` computes new values: only the rows that the first pass found are read, and joined with
the source again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.errors import FilterError, InvalidMergeError
from headwater.log.schema import LONG, VOID, StructField, StructType
from headwater.log.schema.types import hidden, quoted
from headwater.log.stats.add_stats import num_records
from headwater.spark.dml.assignments import new_values
from headwater.spark.dml.target import DmlTarget, Positions, TargetFiles, with_change_type
from headwater.spark.functions import functions
from headwater.spark.merge.clauses import Action, Clause, MergeColumns, When
from headwater.spark.merge.join import CLAUSE, MATCHED_ROW, Fate, Joined, Matches, acting
from headwater.spark.merge.source import SOURCE_ROW
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN, ROW_COMMIT_VERSION, ROW_ID
from headwater.spark.workers import ParallelJobs
from headwater.spark.write.constraints import with_checks
from headwater.spark.write.rows import TableRows, recomputed, row_checks, stored_columns, table_rows
from headwater.spark.write.schema import spark_type
from headwater.spark.write.values import as_compared, as_partition_value, as_written, computed, null_of, with_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.features.definition import TableDefinition
    from headwater.log.actions.model import Add, AddCdcFile
    from headwater.spark.dml.in_place import ColumnJobResult


@dataclass(frozen=True)
class MergedFiles:
    """The files that a merge has written and removed.

    Attributes:
        added: all new data files.
        changes: change data files.
        removed: the numbers of removed files.
        updated_rows: how many rows are updated.
        inserted_rows: how many rows are new.
        copied_rows: how many rows are only written again.
    """

    added: list[Add]
    changes: list[AddCdcFile]
    removed: list[int]
    updated_rows: int
    inserted_rows: int
    copied_rows: int


class _NewFiles(NamedTuple):
    """Files with the rows that a merge changes and adds."""

    updated: list[Add]
    """Files with updated rows; new rows may be among them."""
    inserted: list[Add]
    """Files with only new rows."""


@dataclass(frozen=True)
class MergeWriter:
    """Writes the result of a merge.

    Attributes:
        target: the table.
        files: the candidates of the first pass.
        matches: what the first pass has found.
        is_stable: whether conditions give the same result when they are evaluated again.
    """

    target: DmlTarget
    files: TargetFiles
    matches: Matches
    is_stable: bool

    def write(self, updated: DataFrame | None, inserted: TableRows | None) -> MergedFiles:
        """Write updated and new rows, and tell the transaction what changes.

        Raises:
            FilterError: the conditions gave another result when they were evaluated again.
        """
        done = self._written(updated, inserted)
        return self._told(done, *self._old_rows(depends_on_matches=inserted is not None))

    def write_together(self, rows: TableRows) -> MergedFiles:
        """Write the new values of all matching rows and the new rows, which need not be told apart."""
        with ParallelJobs(self.target.spark, "merge", 1) as jobs:
            new = jobs.submit(lambda: self._new_files(rows.frame, rows))
            copies, removed = self._old_rows(depends_on_matches=True)
            return self._told(_NewFiles(new.result(), []), copies, removed)

    def tell_in_place(self, done: ColumnJobResult, *, depends_on_matches: bool) -> MergedFiles:
        """Tell the transaction that rows have new values in place.

        Args:
            done: the files that were written.
            depends_on_matches: which rows are new depends on rows that match and stay as they are.

        Raises:
            FilterError: the conditions gave another result when they were evaluated again.
        """
        self._check_count(done.num_updated)
        target, added = self.target, [*done.changed, *done.new]
        target.reads(self.files, self.matches.rows(Fate.STAYS) if depends_on_matches else ())
        target.reads(self.files, self.matches.updated)
        target.replace_files(self.files, done.replaced, added)
        return MergedFiles(added, [], done.replaced, done.num_updated, _rows(done.new), done.num_copied)

    def _told(self, done: _NewFiles, copies: list[Add], removed: list[int]) -> MergedFiles:
        changes: list[AddCdcFile] = []
        if self.target.records_changes and (done.updated or copies):
            changes = write_merge_changes(self.target, self.files, self.matches, done.updated, done.inserted)
        added = [*done.updated, *done.inserted, *copies]
        self.target.replace_files(self.files, removed, added, changes)
        inserted_rows = _rows([*done.updated, *done.inserted]) - self._updated_rows
        return MergedFiles(added, changes, removed, self._updated_rows, inserted_rows, _rows(copies))

    def _written(self, updated: DataFrame | None, inserted: TableRows | None) -> _NewFiles:
        is_plain = not self.target.records_changes and self.is_stable
        if updated is not None and inserted is not None and is_plain and not inserted.identities:
            return _NewFiles(self._new_files(updated.unionByName(inserted.frame, allowMissingColumns=True)), [])
        changed = [] if updated is None else self._new_files(updated)
        self._check_count(_rows(changed))
        return _NewFiles(changed, [] if inserted is None else self._new_files(inserted.frame, inserted))

    @cached_property
    def _updated_rows(self) -> int:
        return self.matches.count(Fate.UPDATED, Fate.UPDATED_UNMATCHED)

    def _check_count(self, count: int) -> None:
        if count != self._updated_rows:
            raise FilterError(
                f"{self.target.uri}: the conditions of MERGE meant {self._updated_rows} rows to be updated, and "
                f"{count} when they were evaluated again: they are not deterministic, or depend on the time. Nothing "
                "was committed."
            )

    def _new_files(self, frame: DataFrame, rows: TableRows | None = None) -> list[Add]:
        """Write rows in few files: they come from all over the table."""
        conf = self.target.spark.conf
        if str(conf.get("spark.sql.adaptive.enabled")).lower() == "true":
            partitions = self.target.definition.metadata.partition_columns
            frame = frame.hint("rebalance", *(quoted(name) for name in partitions))
        identities = {} if rows is None else rows.identities
        adds = self.target.write_new(frame, list(identities))
        if identities and adds:
            definition = self.target.definition
            mode = definition.mapping_mode
            schema = with_marks(definition.schema, identities, adds, mode)
            metadata = msgspec.structs.replace(definition.metadata, schema_string=schema.to_json())
            self.target.transaction.set_metadata(metadata)
        return adds

    def _old_rows(self, *, depends_on_matches: bool) -> tuple[list[Add], list[int]]:
        """Take the rows that change out of the table; return copies of the others, and the files to remove."""
        from pyroaring import BitMap64

        target, changed = self.target, self.matches.changed
        read = self.matches.rows(Fate.STAYS) if depends_on_matches else {}
        if target.uses_vectors:
            nothing = {number: BitMap64() for number in read if number not in changed}
            if changed or nothing:
                target.delete_rows(self.files, {**changed, **nothing}, read)
            return [], []
        target.transaction.reads_paths(self.files.paths[number] for number in read)
        partial = {number: rows for number, rows in changed.items() if len(rows) != self.files.live_rows(number)}
        return target.write_copies(self.files, partial) if partial else [], list(changed)


def _rows(adds: list[Add]) -> int:
    return sum(num_records(add) or 0 for add in adds)


Values = dict[int, dict[str, "Column"]]


@dataclass(frozen=True)
class Inserts:
    """The NOT MATCHED clauses of a merge.

    Attributes:
        clauses: all clauses of the merge; a clause is known by its position here.
        columns: of both sides.
        definition: the table after the merge.
        uri: the table's location, for messages.
    """

    clauses: tuple[Clause, ...]
    columns: MergeColumns
    definition: TableDefinition
    uri: str

    def rows(self, source: DataFrame, matched: DataFrame | None, also: tuple[str, ...] = ()) -> TableRows:
        """Return the new rows, ready for the files.

        Args:
            source: with `SOURCE_ROW`.
            matched: the numbers of those of its rows that match something; None if none does.
            also: hidden columns of the source to keep.

        Raises:
            InvalidMergeError: clauses differ in which identity columns they give values for.
        """
        sf = functions()
        if matched is not None:
            source = source.join(matched, sf.col(SOURCE_ROW) == sf.col(MATCHED_ROW), "left_anti")
        number = acting(self.clauses, When.NOT_MATCHED, lambda number, _: number)
        frame = source.withColumn(CLAUSE, number).where(sf.col(CLAUSE).isNotNull())
        clauses = {number: one for number, one in enumerate(self.clauses) if one.when is When.NOT_MATCHED}
        values = _clause_values(self.columns, clauses, frame, frame, frame)
        self._check_identities(values)
        given = {name for own in values.values() for name in own}
        fields = [field for field in self.columns.table.fields if field.name in given and field.type != VOID]
        chosen = [self._chosen(field, values).alias(field.name) for field in fields]
        rows = frame.select(*chosen, *(sf.col(name) for name in also), sf.col(CLAUSE))
        rows = self._generated(rows, fields, values).drop(CLAUSE)
        data = StructType.from_spark(rows.drop(*also).schema)
        return table_rows(rows, data, self.definition, self.uri, also=also)

    def _check_identities(self, values: Values) -> None:
        for name in self.columns.filled.identities:
            if 0 < sum(name in own for own in values.values()) < len(values):
                raise InvalidMergeError(
                    f"some WHEN NOT MATCHED clauses give values for the identity column {name}, others do not: let all "
                    "of them do, or none."
                )

    def _chosen(self, field: StructField, values: Values) -> Column:
        """Return the value of a column that some clause gives one for."""
        if len(values) == 1:
            [only] = values.values()
            return only[field.name]
        default = self.columns.filled.defaults.get(field.name)
        filled = null_of(field.type) if default is None else computed(field, default)
        return _by_clause(field.name, values, filled)

    def _generated(self, rows: DataFrame, fields: list[StructField], values: Values) -> DataFrame:
        """Compute generated columns that only some clauses give values for."""
        sf = functions()
        for field in fields:
            own = [number for number, given in values.items() if field.name in given]
            expression = self.columns.filled.generated.get(field.name)
            if expression is not None and len(own) < len(values):
                given = sf.when(sf.col(CLAUSE).isin(*own), sf.col(quoted(field.name)))
                rows = rows.withColumn(field.name, given.otherwise(computed(field, expression)))
        return rows


_NEW = hidden("new_")


@dataclass(frozen=True)
class Updates:
    """The UPDATE clauses of a merge.

    Attributes:
        clauses: all clauses of the merge; a clause is known by its position here.
        columns: of both sides.
        definition: the table after the merge.
        tracks_rows: whether rows have ids, which they keep.
    """

    clauses: tuple[Clause, ...]
    columns: MergeColumns
    definition: TableDefinition
    tracks_rows: bool

    def of(self, when: When) -> dict[int, Clause]:
        return {
            number: clause
            for number, clause in enumerate(self.clauses)
            if clause.when is when and clause.action is Action.UPDATE
        }

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The columns of the table that may get new values."""
        sf = functions()
        clauses = (*self.of(When.MATCHED).values(), *self.of(When.NOT_MATCHED_BY_SOURCE).values())
        given = (self.columns.assignments(clause, lambda name: sf.col(quoted(name))) for clause in clauses)
        assigned = [assignment.path[0] for assignments in given for assignment in assignments]
        names = dict.fromkeys((*assigned, *self.columns.filled.generated))
        return tuple(name for name in names if self.columns.table.field(name).type != VOID)

    def located_values(self, view: Joined) -> DataFrame:
        """Return the positions of the updated rows, and the new values of the columns that may change."""
        sf = functions()
        rows = self.rows(view, (FILE_COLUMN, ROW_COLUMN))
        return rows.select(FILE_COLUMN, ROW_COLUMN, *(sf.col(quoted(name)) for name in self.changed))

    def rows(self, view: Joined, located: tuple[str, ...] = ()) -> DataFrame:
        """Return the updated rows: the table's columns, and those of row tracking, where the table has them.

        Args:
            view: the rows to update, joined with the source; with rows that match nothing, if clauses are for them.
            located: columns with the position of a row to keep; rows that break a rule fail when these are read.
        """
        sf = functions()
        stored = stored_columns(self.columns.table)
        both = self._matched(view)
        matched = _clause_values(self.columns, self.of(When.MATCHED), both, view.source, view.target)
        frame = both.select(
            *view.target_columns,
            sf.col(SOURCE_ROW),
            sf.col(CLAUSE),
            *(
                _by_clause(field.name, matched, view.target[quoted(field.name)]).alias(_NEW + field.name)
                for field in stored.fields
            ),
        )
        given = dict(matched)
        if unmatched_clauses := self.of(When.NOT_MATCHED_BY_SOURCE):
            frame = self._unmatched(frame, view, unmatched_clauses)
            values = _clause_values(self.columns, unmatched_clauses, frame, view.source, view.target)
            given |= values
            new = {f.name: sf.col(quoted(_NEW + f.name)) for f in stored.fields}
            chosen = {name: _by_clause(name, values, default) for name, default in new.items()}
        else:
            chosen = {f.name: sf.col(quoted(_NEW + f.name)) for f in stored.fields}
        hidden = {name: view.target[name] for name in located}
        if self.tracks_rows:
            no_version = sf.lit(None).cast(spark_type(LONG)).alias(ROW_COMMIT_VERSION)
            hidden |= {ROW_ID: view.target[ROW_ID], ROW_COMMIT_VERSION: no_version}
        columns = [self._stored(value, stored.field(name)).alias(name) for name, value in chosen.items()]
        also = [*hidden, CLAUSE]
        frame = as_compared(frame.select(*columns, *hidden.values(), sf.col(CLAUSE)), stored, also)
        frame = as_compared(recomputed(frame, self.definition, self._stale(given), also), stored, also)
        checks = row_checks(self.definition, {name for values in given.values() for name in values})
        frame = with_checks(frame, stored, checks, also, next(iter(located), None))
        return as_written(frame, stored, also).drop(CLAUSE)

    def _stale(self, given: Values) -> dict[str, Column | None]:
        """Return in which rows generated columns are computed again: not where a clause gives them values."""
        sf = functions()
        own = {name: [n for n, values in given.items() if name in values] for name in self.columns.filled.generated}
        return {name: ~sf.col(CLAUSE).isin(*numbers) if numbers else None for name, numbers in own.items()}

    def _stored(self, value: Column, field: StructField) -> Column:
        return as_partition_value(value, field, self.definition.metadata.partition_columns)

    def _matched(self, view: Joined) -> DataFrame:
        """Return the pairs that an UPDATE clause acts on, and rows that match nothing."""
        sf = functions()
        frame = view.with_clause(acting(self.clauses, When.MATCHED, lambda number, _: number))
        is_update = sf.col(CLAUSE).isin(*self.of(When.MATCHED)) if self.of(When.MATCHED) else sf.lit(False)
        return frame.where(view.source[SOURCE_ROW].isNull() | is_update)

    def _unmatched(self, frame: DataFrame, view: Joined, clauses: dict[int, Clause]) -> DataFrame:
        """Keep of the rows that match nothing only those that an UPDATE clause acts on."""
        sf = functions()
        number = acting(self.clauses, When.NOT_MATCHED_BY_SOURCE, lambda number, _: number)
        clause = sf.when(sf.col(SOURCE_ROW).isNull(), number).otherwise(sf.col(CLAUSE))
        names = [name for name in frame.columns if name.startswith(_NEW)]
        chosen = frame.select(*view.target_columns, *(sf.col(quoted(n)) for n in names), clause.alias(CLAUSE))
        return chosen.where(sf.col(CLAUSE).isin(*self.of(When.MATCHED), *clauses))


def _clause_values(
    columns: MergeColumns, clauses: dict[int, Clause], frame: DataFrame, source: DataFrame, old: DataFrame
) -> Values:
    """Return the values that each clause gives: expressions over a frame with columns of the source and old values."""
    return {
        number: new_values(
            frame,
            columns.assignments(clause, lambda name: source[quoted(name)]),
            columns.table,
            lambda name: old[quoted(name)],
            clause.title,
        )
        for number, clause in clauses.items()
    }


def _by_clause(name: str, values: Values, default: Column) -> Column:
    """Return the value that the acting clause gives to a column."""
    sf = functions()
    own = [(number, given[name]) for number, given in values.items() if name in given]
    if not own:
        return default
    chosen = reduce(
        lambda so_far, item: so_far.when(sf.col(CLAUSE) == item[0], item[1]),
        own[1:],
        sf.when(sf.col(CLAUSE) == own[0][0], own[0][1]),
    )
    found: Column = chosen.otherwise(default)
    return found


def write_merge_changes(
    target: DmlTarget, files: TargetFiles, matches: Matches, updated: Sequence[Add], inserted: Sequence[Add]
) -> list[AddCdcFile]:
    """Write the change data files of a merge (spec: "Add CDC File"): every row that it inserts, updates or deletes.

    Old rows are read from the positions that the first pass found; new ones from the files that were just written,
    because values that are computed twice may differ.
    """
    frames: list[DataFrame] = []

    def old(positions: Positions, change: str) -> None:
        if positions:
            frames.append(with_change_type(target.rows(files, positions, only=positions), change))

    def new(adds: Sequence[Add], change: str) -> None:
        if adds:
            frames.append(with_change_type(target.written_rows(adds), change))

    old(matches.deleted, "delete")
    old(matches.updated, "update_preimage")
    new(updated, "update_postimage")
    new(inserted, "insert")
    return target.write_changes(reduce(lambda one, other: one.unionByName(other), frames)) if frames else []
