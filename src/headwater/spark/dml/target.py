"""The table that a command changes rows of: what DELETE, UPDATE and MERGE have in common.

A command opens its target, asks for the files that may hold rows it wants, reads them with hidden columns that say
where each row is, and then marks rows as deleted or removes whole files, writes new files, and commits. Which way is
taken (deletion vectors or copy-on-write) is the command's to decide; everything about the table is known here.

    target = DmlTarget.open(spark, path, "DELETE")
    files = target.candidates(pruning)
    found = target.rows(files).where(condition)
    positions = target.matched_positions(found)          # {number of the file: positions of its rows}
    target.delete_rows(files, positions)                 # or, where target.uses_vectors is False:
    target.add(target.write_copies(files, positions))
    target.remove(files, positions)
    target.commit({"predicate": ...}, metrics)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidCommitError
from headwater.features.activation import is_active
from headwater.features.context import table_context
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.features.table_changes import TableDefinition
from headwater.log.draft import Operation
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN, NumberedPart
from headwater.log.opening import open_snapshot
from headwater.log.row_changes import RowChange
from headwater.log.transaction import Transaction
from headwater.spark.dml.positions import matched_positions
from headwater.spark.dml.row_files import RowFiles, write_target
from headwater.spark.dml.target_files import TargetFiles
from headwater.spark.file_copies import Copies, can_copy
from headwater.spark.overwrite import removals
from headwater.spark.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from headwater.spark.scan import scan
from headwater.spark.time_travel import session_zone
from headwater.spark.write_options import user_metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from os import PathLike

    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions import Add, AddCdcFile
    from headwater.log.expressions import Expression
    from headwater.log.row_changes import RowPlan
    from headwater.log.snapshot import Snapshot
    from headwater.spark.read_filter import Selection
    from headwater.spark.write_target import WriteTarget

HIDDEN_COLUMNS = frozenset({FILE_COLUMN, ROW_COLUMN, ROW_ID, ROW_COMMIT_VERSION})
"""The columns of `DmlTarget.rows` that are not the table's."""
Positions = dict[int, "BitMap64"]
"""Rows of files: positions (deleted rows counted) by the number of the file."""


@dataclass(frozen=True)
class DmlTarget:
    """One version of a table, and the transaction that changes it. Use `DmlTarget.open`.

    Attributes:
        spark: the session.
        transaction: reads this version of the table.
        operation: the name in the history: `DELETE`, `UPDATE`, `MERGE`.
        storage_options: options of the object store.
        started_ms: when the command began.
    """

    spark: SparkSession
    transaction: Transaction
    operation: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    started_ms: int = field(default=0)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        path: str | PathLike[str],
        operation: str,
        storage_options: Mapping[str, str] | None = None,
    ) -> DmlTarget:
        """The newest version of a table, to change rows of it.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedProtocolError: the table cannot be written.
        """
        ctx = table_context(path, storage_options, time_zone=session_zone(spark))
        started_ms = ctx.clock_ms()
        return cls(spark, Transaction(ctx, open_snapshot(ctx)), operation, storage_options, started_ms)

    # --- the table ---------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The version that is read, under the schema that the table has now."""
        snapshot = self.transaction.snapshot
        assert snapshot is not None, "the table exists"
        return snapshot

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.snapshot.uri

    @property
    def definition(self) -> TableDefinition:
        """The table as it will be after the commit: the transaction may have changed its schema."""
        protocol, metadata = self.transaction.protocol, self.transaction.metadata
        assert protocol is not None
        assert metadata is not None
        return TableDefinition(protocol, metadata)

    @cached_property
    def uses_vectors(self) -> bool:
        """Whether rows are deleted by deletion vectors; otherwise files are rewritten without them."""
        return is_active("deletionVectors", self.snapshot.protocol, self.snapshot.metadata)

    @cached_property
    def records_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return is_active("changeDataFeed", self.snapshot.protocol, self.snapshot.metadata)

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether rows have ids, which those that stay must keep."""
        return is_active("rowTracking", self.snapshot.protocol, self.snapshot.metadata)

    def check_may_change(self) -> None:
        """Raise if rows of the table may not be changed or deleted.

        Raises:
            InvalidCommitError: the table only allows appends.
        """
        if is_active("appendOnly", self.snapshot.protocol, self.snapshot.metadata):
            raise InvalidCommitError(
                f"{self.uri} only allows appends (delta.appendOnly is true), and {self.operation} changes or removes "
                "rows. Nothing was changed."
            )

    # --- reading -----------------------------------------------------------------------------------------

    def candidates(self, where: Expression | None = None) -> TargetFiles:
        """The files that may hold matching rows, by partition values and statistics.

        That such rows were looked for is noted: nobody else may add some until the commit. Which files the result
        depends on is noted later, by `remove` and `delete_rows`.

        Args:
            where: what the rows fulfil (see `condition.Condition.pruning`); None for all files.
        """
        if where is None:
            self.transaction.reads_whole_table()
        else:
            self.transaction.looks_for(where)
        return TargetFiles(self.snapshot, self.snapshot.files(where), self.storage_options)

    def rows(
        self,
        files: TargetFiles,
        numbers: Iterable[int] | None = None,
        *,
        only: Positions | None = None,
        without: Positions | None = None,
        selection: Selection | None = None,
    ) -> DataFrame:
        """Rows of files, on the road that session and store allow.

        Args:
            files: candidates.
            numbers: of the files to read; all of them by default.
            only: of files that are named here, just these rows.
            without: of files that are named here, all rows but these.
            selection: columns that are enough, where files are read in Python; elsewhere Spark prunes by itself.

        Returns:
            The table's columns, by the names and types that the table will have after the commit; where the table
            tracks rows `ROW_ID` and `ROW_COMMIT_VERSION`; and `FILE_COLUMN` and `ROW_COLUMN`
            (`headwater.log.numbered_part`): the number of the row's file, and the row's position in it.
        """
        chosen = range(len(files)) if numbers is None else sorted(set(numbers))
        return scan(
            self.spark,
            self.part(files, chosen, only, without),
            selection=selection,
            row_tracking=self.tracks_rows,
            storage_options=self.storage_options,
        )

    def part(
        self,
        files: TargetFiles,
        numbers: Sequence[int],
        only: Positions | None = None,
        without: Positions | None = None,
    ) -> NumberedPart:
        """What `rows` reads: files by their numbers, and which of their rows."""
        definition = self.definition
        snapshot = replace(self.snapshot, protocol=definition.protocol, metadata=definition.metadata)
        return NumberedPart.numbered(
            snapshot, [files.paths[n] for n in numbers], numbers, files.vectors_for(numbers, only or {}, without or {})
        )

    def written_rows(self, adds: Collection[Add]) -> DataFrame:
        """The rows of files that this command has written: what is not the same when it is computed twice."""
        from headwater.spark.dml.uncommitted import with_files

        definition = self.definition
        snapshot = replace(self.snapshot, protocol=definition.protocol, metadata=definition.metadata)
        return scan(self.spark, with_files(snapshot, adds), storage_options=self.storage_options)

    @staticmethod
    def matched_positions(frame: DataFrame) -> Positions:
        """Where the rows of a DataFrame are that was made from `rows`; see `headwater.spark.dml.positions`."""
        return matched_positions(frame)

    # --- writing -----------------------------------------------------------------------------------------

    def write_new(self, frame: DataFrame, identities: Collection[str] = ()) -> list[Add]:
        """Write rows as new data files. They are part of the table once they are given to `add`.

        Args:
            frame: the table's columns. Rows that are the table's own keep their ids by `ROW_ID`; those that are not
                changed keep their `ROW_COMMIT_VERSION` as well. Both are null for new rows (or the columns are not
                there at all).
            identities: identity columns that get new values in these rows.
        """
        return self._files(identities).write_rows(frame)

    @property
    def copies_fast(self) -> bool:
        """Whether rows that stay as they are can be copied without Spark's reader and writer."""
        return can_copy(self.snapshot)

    def write_copies(self, files: TargetFiles, changed: Positions) -> list[Add]:
        """Write the rows of files that stay as they are into new files, for `add`.

        Args:
            files: candidates.
            changed: the files, and the rows in them that do not stay.
        """
        part = self.part(files, sorted(changed), without=changed)
        copies = Copies(self.spark, part, self.write_target(), self.tracks_rows, self.storage_options)
        return copies.write(lambda: self.write_new(self.rows(files, changed, without=changed)))

    def write_changes(self, frame: DataFrame) -> list[AddCdcFile]:
        """Write change data files: the table's columns, and `_change_type`.

        A commit that has such files is described by them alone, so they must hold all its changes.
        """
        return self._files().write_changes(frame)

    def write_target(self, identities: Collection[str] = ()) -> WriteTarget:
        """How new files of the table are written."""
        domains = self.snapshot.domain_metadata
        return write_target(self.uri, self.definition, domains, self.storage_options, identities)

    def _files(self, identities: Collection[str] = ()) -> RowFiles:
        return RowFiles(self.write_target(identities))

    # --- what changes ------------------------------------------------------------------------------------

    def add(self, adds: Iterable[Add]) -> None:
        """Add new data files."""
        self.transaction.add(adds)

    def add_changes(self, changes: Iterable[AddCdcFile]) -> None:
        """Add change data files."""
        self.transaction.add_changes(changes)

    def reads(self, files: TargetFiles, numbers: Iterable[int]) -> None:
        """The result depends on rows of files: until the commit nobody else may remove them."""
        self.transaction.reads_paths(files.paths[number] for number in numbers)

    def remove(self, files: TargetFiles, numbers: Iterable[int]) -> None:
        """Remove whole files: all their rows are gone, or are in new files."""
        old = files.take(numbers)
        self.transaction.reads_paths(old.column("path").to_pylist())
        self.transaction.remove(removals(old, self.transaction.ctx.clock_ms(), data_change=True))

    def delete_rows(self, files: TargetFiles, positions: Positions, read: Positions | None = None) -> None:
        """Mark rows as deleted, by deletion vectors.

        Args:
            files: candidates.
            positions: the rows.
            read: further rows that the result depends on.
        """
        reads = read or {}
        self.transaction.delete_rows(
            [RowChange(files.paths[number], rows, reads.get(number)) for number, rows in positions.items()]
        )

    def commit(
        self, parameters: Mapping[str, Any], metrics: Callable[[RowPlan], dict[str, int]], *, keeps_row_ids: bool = True
    ) -> dict[str, int]:
        """Make the changes visible, all together; the metrics of what was committed.

        Args:
            parameters: of the operation, for the history.
            metrics: of the operation, for the history, by what the deleted rows come to at the version that is
                committed; the time that it took is added.
            keeps_row_ids: whether the rows that stay keep their ids, where the table tracks rows.

        Raises:
            DeltaConcurrentModificationException: another writer's commit stands in the way.
        """
        tags = {PRESERVED_TAG: "true" if keeps_row_ids else "false"} if self.tracks_rows else {}
        so_far = {**metrics(self.transaction.planned_rows), "executionTimeMs": self.elapsed_ms()}
        operation = Operation(self.operation, parameters, so_far, user_metadata_of(self.spark), tags, metrics)
        return metrics(self.transaction.commit(operation).rows)

    def elapsed_ms(self) -> int:
        """How long the command has taken so far."""
        return max(0, self.transaction.ctx.clock_ms() - self.started_ms)
