"""The second pass of a MERGE: new files for new values, and what becomes of the old rows.

With deletion vectors the rows that change are marked as deleted, and only updated and inserted rows are written.
Without them the files that hold rows which change are written again; the rows in them that stay are copied as they
are, without a join or a shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    from pyspark.sql import DataFrame

    from headwater.log.actions import Add, AddCdcFile
    from headwater.spark.dml.merge_matches import Matches
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.dml.target_files import TargetFiles
    from headwater.spark.write_rows import TableRows


@dataclass(frozen=True)
class MergedFiles:
    """What a merge has written and removed.

    Attributes:
        updated: files with the new values of updated rows; those of `new_rows` may be among them.
        inserted: files with nothing but new rows.
        copies: files with rows that stay as they are.
        changes: change data files.
        removed: the numbers of files that go.
        updated_rows: how many rows are updated.
    """

    updated: list[Add] = field(default_factory=list)
    inserted: list[Add] = field(default_factory=list)
    copies: list[Add] = field(default_factory=list)
    changes: list[AddCdcFile] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    updated_rows: int = 0

    @property
    def added(self) -> list[Add]:
        """All new data files."""
        return [*self.updated, *self.inserted, *self.copies]

    @property
    def inserted_rows(self) -> int:
        """How many rows are new."""
        return _rows([*self.updated, *self.inserted]) - self.updated_rows

    @property
    def copied_rows(self) -> int:
        """How many rows are only written again."""
        return _rows(self.copies)


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
        return self._finished(self._written(updated, inserted), depends_on_matches=inserted is not None)

    def write_together(self, rows: TableRows) -> MergedFiles:
        """Write the new values of all matching rows and the new rows, which need not be told apart.

        Args:
            rows: all of them.
        """
        count = self.matches.count(Fate.UPDATED, Fate.UPDATED_UNMATCHED)
        with ParallelJobs(self.target.spark, "merge", 1) as jobs:
            new = jobs.submit(lambda: self._new_files(rows.frame, rows))
            copies, removed = self._old_rows(depends_on_matches=True)
            return self._told(MergedFiles(new.result(), updated_rows=count), copies, removed)

    def _finished(self, done: MergedFiles, *, depends_on_matches: bool) -> MergedFiles:
        """Take the old rows away, and tell the transaction."""
        return self._told(done, *self._old_rows(depends_on_matches=depends_on_matches))

    def _told(self, done: MergedFiles, copies: list[Add], removed: list[int]) -> MergedFiles:
        """Tell the transaction."""
        changes: list[AddCdcFile] = []
        if self.target.records_changes and (done.updated or copies):
            changes = write_merge_changes(self.target, self.files, self.matches, done.updated, done.inserted)
        found = MergedFiles(done.updated, done.inserted, copies, changes, removed, done.updated_rows)
        self.target.add(found.added)
        self.target.add_changes(changes)
        return found

    def _written(self, updated: DataFrame | None, inserted: TableRows | None) -> MergedFiles:
        count = self.matches.count(Fate.UPDATED, Fate.UPDATED_UNMATCHED)
        is_plain = not self.target.records_changes and self.is_stable
        if updated is not None and inserted is not None and is_plain and not inserted.identities:
            together = updated.unionByName(inserted.frame, allowMissingColumns=True)
            return MergedFiles(self._new_files(together), updated_rows=count)
        changed = [] if updated is None else self._new_files(updated)
        if _rows(changed) != count:
            raise FilterError(
                f"{self.target.uri}: the conditions of MERGE meant {count} rows to be updated, and {_rows(changed)} "
                "when they were evaluated again: they are not deterministic, or depend on the time. Nothing was "
                "committed."
            )
        new = [] if inserted is None else self._new_files(inserted.frame, inserted)
        return MergedFiles(changed, new, updated_rows=count)

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
