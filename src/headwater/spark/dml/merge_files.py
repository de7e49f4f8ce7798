"""The second pass of a MERGE: new files for new values, and what becomes of the old rows.

With deletion vectors the rows that change are marked as deleted, and only updated and inserted rows are written.
Without them the files that hold rows which change are written again: only the columns that change, where rows can stay
in their places (`headwater.spark.dml.column_job`); else the rows that stay are copied as they are, without a join or a
shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.errors import FilterError
from headwater.features.file_statistics import num_records
from headwater.log.schema import mapping_mode
from headwater.spark.columns import quoted
from headwater.spark.dml.merge_changes import write_merge_changes
from headwater.spark.dml.merge_matches import Fate
from headwater.spark.identity import with_marks
from headwater.spark.parallel_jobs import ParallelJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from headwater.log.actions import Add, AddCdcFile
    from headwater.spark.dml.column_job import ChangedFiles
    from headwater.spark.dml.merge_matches import Matches
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.dml.target_files import TargetFiles
    from headwater.spark.write_rows import TableRows


@dataclass(frozen=True)
class MergedFiles:
    """What a merge has written and removed.

    Attributes:
        added: all new data files.
        changes: change data files.
        removed: the numbers of files that go.
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
    """Those with the new values of updated rows; new rows may be among them."""
    inserted: list[Add]
    """Those with nothing but new rows."""


@dataclass(frozen=True)
class MergeWriter:
    """Writes the result of a merge.

    Attributes:
        target: the table.
        files: the candidates of the first pass.
        matches: what the first pass has found.
        is_stable: whether conditions have the same answer when they are evaluated again.
    """

    target: DmlTarget
    files: TargetFiles
    matches: Matches
    is_stable: bool

    def write(self, updated: DataFrame | None, inserted: TableRows | None) -> MergedFiles:
        """Write the files, and tell the transaction what changes.

        Args:
            updated: the updated rows with their new values.
            inserted: the new rows.

        Raises:
            FilterError: the conditions had another answer when they were evaluated again.
        """
        done = self._written(updated, inserted)
        return self._told(done, *self._old_rows(depends_on_matches=inserted is not None))

    def write_together(self, rows: TableRows) -> MergedFiles:
        """Write the new values of all matching rows and the new rows, which need not be told apart.

        Args:
            rows: all of them.
        """
        return self.write_beside(lambda: self._new_files(rows.frame, rows))

    def write_beside(self, write: Callable[[], list[Add]]) -> MergedFiles:
        """The same, for rows that somebody else writes."""
        with ParallelJobs(self.target.spark, "merge", 1) as jobs:
            new = jobs.submit(write)
            copies, removed = self._old_rows(depends_on_matches=True)
            return self._told(_NewFiles(new.result(), []), copies, removed)

    def tell_in_place(self, done: ChangedFiles, *, depends_on_matches: bool) -> MergedFiles:
        """Tell the transaction that rows have new values where they are.

        Args:
            done: the files that were written.
            depends_on_matches: which rows are new depends on rows that match and stay as they are.

        Raises:
            FilterError: the conditions had another answer when they were evaluated again.
        """
        self._check_count(done.num_updated)
        target, added = self.target, [*done.changed, *done.new]
        target.reads(self.files, self.matches.rows(Fate.STAYS) if depends_on_matches else ())
        target.reads(self.files, self.matches.updated)
        target.remove(self.files, done.replaced)
        target.add(added)
        return MergedFiles(added, [], done.replaced, done.num_updated, _rows(done.new), done.num_copied)

    def _told(self, done: _NewFiles, copies: list[Add], removed: list[int]) -> MergedFiles:
        """Tell the transaction."""
        changes: list[AddCdcFile] = []
        if self.target.records_changes and (done.updated or copies):
            changes = write_merge_changes(self.target, self.files, self.matches, done.updated, done.inserted)
        added = [*done.updated, *done.inserted, *copies]
        self.target.add(added)
        self.target.add_changes(changes)
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
            mode = mapping_mode(definition.protocol, definition.metadata)
            schema = with_marks(definition.schema, identities, adds, mode)
            metadata = msgspec.structs.replace(definition.metadata, schema_string=schema.to_json())
            self.target.transaction.set_metadata(metadata)
        return adds

    def _old_rows(self, *, depends_on_matches: bool) -> tuple[list[Add], list[int]]:
        """Take the rows that change out of the table: the copies of others, and the files that go."""
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
        copies = target.write_copies(self.files, partial) if partial else []
        target.remove(self.files, changed)
        return copies, list(changed)


def _rows(adds: list[Add]) -> int:
    return sum(num_records(add) or 0 for add in adds)
