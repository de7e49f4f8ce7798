"""Read and change the table of DELETE, UPDATE and MERGE.

A command opens its target, asks for the files that may hold rows it wants, reads them with hidden columns that
locate each row, and then marks rows as deleted or replaces files, and commits. The command chooses between deletion
vectors and copy-on-write.

    target = DmlTarget.open(table, "DELETE")
    files = target.candidates(pruning)
    positions = matched_positions(target.rows(files).where(condition))  # by the number of the file
    target.delete_rows(files, positions)  # or, where target.uses_vectors is False:
    target.replace_files(files, positions, target.write_copies(files, positions))
    target.commit({"predicate": ...}, metrics)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import InvalidCommitError
from headwater.features.basic_rules import check_change_type
from headwater.features.clustering import clustering_columns
from headwater.features.definition import TableDefinition
from headwater.features.iceberg_compat import must_materialize_partition_columns
from headwater.features.registry import is_active
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.log.actions.deletion_vectors import inline_vector, to_bitmap
from headwater.log.actions.model import Add, AddCdcFile, DeletionVector
from headwater.log.commit.draft import Operation
from headwater.log.commit.row_changes import RowChange, RowPlan
from headwater.log.commit.transaction import Transaction
from headwater.log.files.live import file_table, removals, with_vectors
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, STRING, StructField, mapping_mode, physical_path
from headwater.log.schema.types import quoted
from headwater.parquet.plan import CHANGE_DIRECTORY, WriteTarget, with_required_statistics
from headwater.spark.errors import explained_violations
from headwater.spark.functions import functions
from headwater.spark.scan.backends import scan
from headwater.spark.scan.changes import CHANGE_TYPE
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN, ROW_COMMIT_VERSION, ROW_ID, materialized_names
from headwater.spark.scan.deletion_vectors import VectorReader, descriptor
from headwater.spark.scan.request import ScanRequest
from headwater.spark.write.copies import Copies, can_copy
from headwater.spark.write.files import write_files
from headwater.spark.write.options import user_metadata_of
from headwater.spark.write.rows import stored_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.context import LogContext
    from headwater.log.filters.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.spark.session import SparkTable


_HIDDEN_COLUMNS = frozenset({FILE_COLUMN, ROW_COLUMN, ROW_ID, ROW_COMMIT_VERSION})
"""The columns of `DmlTarget.rows` that the table does not have."""
Positions = dict[int, "BitMap64"]
"""Positions of rows in their files (deleted rows count), by the number of the file."""


@dataclass(frozen=True)
class DmlTarget:
    """One version of a table, and the transaction that changes it. Use `DmlTarget.open`.

    Attributes:
        spark: the session.
        transaction: reads this version of the table.
        operation: the name in the history: `DELETE`, `UPDATE`, `MERGE`.
        started_ms: when the command began.
    """

    spark: SparkSession
    transaction: Transaction
    operation: str
    started_ms: int = 0

    @classmethod
    def open(cls, table: SparkTable, operation: str) -> DmlTarget:
        """Open the newest version of a table, to change rows of it.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedProtocolError: the table cannot be written.
        """
        ctx = table.context()
        started_ms = ctx.clock_ms()
        return cls(table.spark, Transaction(ctx, open_snapshot(ctx)), operation, started_ms)

    # --- the table ---------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The version that is read, under the schema that the table has now."""
        snapshot = self.transaction.snapshot
        assert snapshot is not None, "the table exists"
        return snapshot

    @property
    def uri(self) -> str:
        return self.snapshot.uri

    @property
    def definition(self) -> TableDefinition:
        """The table as it will be after the commit: the transaction may have changed its schema."""
        configuration = self.transaction.configuration
        assert configuration is not None
        return TableDefinition(configuration)

    @cached_property
    def uses_vectors(self) -> bool:
        """Whether rows are deleted by deletion vectors; otherwise files are rewritten without them."""
        return is_active("deletionVectors", self.snapshot.configuration)

    @cached_property
    def records_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return is_active("changeDataFeed", self.snapshot.configuration)

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether rows have ids, which they must keep."""
        return is_active("rowTracking", self.snapshot.configuration)

    def check_may_change(self) -> None:
        """Raise `InvalidCommitError` if the table only allows appends."""
        if is_active("appendOnly", self.snapshot.configuration):
            raise InvalidCommitError(
                f"{self.uri} only allows appends (delta.appendOnly is true), and {self.operation} changes or removes "
                "rows. Nothing was changed."
            )

    # --- reading -----------------------------------------------------------------------------------------

    def candidates(self, where: Expression | None = None) -> TargetFiles:
        """Return the files that may hold matching rows, by partition values and statistics.

        The transaction notes that such rows were looked for: no other writer may add some until the commit. Which
        files the result depends on is noted later, by `replace_files` and `delete_rows`.

        Args:
            where: the condition (see `condition.Condition.pruning`); None for all files.
        """
        if where is None:
            self.transaction.reads_whole_table()
        else:
            self.transaction.looks_for(where)
        return TargetFiles(self.snapshot, self.snapshot.files(where))

    def rows(
        self,
        files: TargetFiles,
        numbers: Iterable[int] | None = None,
        *,
        only: Positions | None = None,
        without: Positions | None = None,
        columns: Collection[str] | None = None,
    ) -> DataFrame:
        """Return rows of files.

        Args:
            numbers: of the files to read; all of them by default.
            only: of files that are named here, just these rows.
            without: of files that are named here, all rows but these.
            columns: that are enough, where files are read in Python; elsewhere Spark prunes by itself.

        Returns:
            The table's columns, by the names and types that the table will have after the commit; `ROW_ID` and
            `ROW_COMMIT_VERSION` where the table tracks rows; `FILE_COLUMN` and `ROW_COLUMN`: the number of a row's file
            and the row's position in it.
        """
        chosen = range(len(files)) if numbers is None else sorted(set(numbers))
        return scan(self.spark, self.request(files, chosen, only, without, columns))

    def request(
        self,
        files: TargetFiles,
        numbers: Sequence[int],
        only: Positions | None = None,
        without: Positions | None = None,
        columns: Collection[str] | None = None,
    ) -> ScanRequest:
        """Return what `rows` reads: files by their numbers, and which of their rows."""
        table = files.take(numbers).append_column(FILE_COLUMN, pa.array(numbers, pa.int32()))
        return ScanRequest(
            self._snapshot_to_be,
            with_vectors(table, files.vectors_for(numbers, only or {}, without or {})),
            locate_rows=True,
            columns=None if columns is None else tuple(columns),
            row_tracking=self.tracks_rows,
        )

    @property
    def _snapshot_to_be(self) -> Snapshot:
        """The version that is read, under the definition that the table has after the commit."""
        definition = self.definition
        return replace(self.snapshot, configuration=definition.configuration)

    def written_rows(self, adds: Collection[Add]) -> DataFrame:
        """Return the rows of files that this command has written: to compute them twice may give other rows."""
        return scan(self.spark, ScanRequest(self._snapshot_to_be, file_table(list(adds))))

    # --- writing -----------------------------------------------------------------------------------------

    def write_new(self, frame: DataFrame, identities: Collection[str] = ()) -> list[Add]:
        """Write rows as new data files; they become part of the table by `replace_files`.

        Args:
            frame: the table's columns. Rows of the table keep their ids by `ROW_ID`, and unchanged ones their
                `ROW_COMMIT_VERSION`; both are null for new rows, or the columns are missing.
            identities: identity columns that get new values in these rows.
        """
        return write_table_rows(frame, self.write_target(identities))

    @property
    def copies_fast(self) -> bool:
        """Whether Python workers can copy rows that stay as they are."""
        return can_copy(self.snapshot)

    def write_copies(self, files: TargetFiles, changed: Positions) -> list[Add]:
        """Write the rows of files that stay as they are into new files.

        Args:
            changed: the files, and the rows in them that do not stay.
        """
        copies = Copies(self.spark, self.request(files, sorted(changed), without=changed), self.write_target())
        return copies.write(lambda: self.write_new(self.rows(files, changed, without=changed)))

    def write_changes(self, frame: DataFrame) -> list[AddCdcFile]:
        """Write change data files; they must hold all changes of the commit."""
        return write_change_rows(frame, self.write_target())

    def write_target(self, identities: Collection[str] = ()) -> WriteTarget:
        domains = self.snapshot.domain_metadata
        return write_target(self.transaction.ctx, self.definition, domains, identities)

    # --- what changes ------------------------------------------------------------------------------------

    def reads(self, files: TargetFiles, numbers: Iterable[int]) -> None:
        """Note that the result depends on files: no other writer may remove them until the commit."""
        self.transaction.reads_paths(files.paths[number] for number in numbers)

    def replace_files(
        self, files: TargetFiles, removed: Iterable[int], added: Iterable[Add], changes: Iterable[AddCdcFile] = ()
    ) -> None:
        """Remove whole files, whose rows are gone or in new files; add data files and change data files."""
        old = files.take(removed)
        self.transaction.reads_paths(old.column("path").to_pylist())
        self.transaction.remove(removals(old, self.transaction.ctx.clock_ms(), data_change=True))
        self.transaction.add(added)
        self.transaction.add_changes(changes)

    def delete_rows(self, files: TargetFiles, positions: Positions, read: Positions | None = None) -> None:
        """Mark rows as deleted, by deletion vectors.

        Args:
            read: further rows that the result depends on.
        """
        reads = read or {}
        self.transaction.delete_rows(
            [RowChange(files.paths[number], rows, reads.get(number)) for number, rows in positions.items()]
        )

    def commit(
        self, parameters: Mapping[str, Any], metrics: Callable[[RowPlan], dict[str, int]], *, keeps_row_ids: bool = True
    ) -> dict[str, int]:
        """Commit all changes, and return the metrics.

        Args:
            parameters: of the operation, for the history.
            metrics: returns the metrics for the history, given what deleting rows amounts to at the committed version.
            keeps_row_ids: whether the rows that stay keep their ids, where the table tracks rows.

        Raises:
            DeltaConcurrentModificationException: another writer's commit conflicts.
        """
        tags = {PRESERVED_TAG: "true" if keeps_row_ids else "false"} if self.tracks_rows else {}
        so_far = {**metrics(self.transaction.planned_rows), "executionTimeMs": self.elapsed_ms()}
        operation = Operation(self.operation, parameters, so_far, user_metadata_of(self.spark), tags, metrics)
        return metrics(self.transaction.commit(operation).rows)

    def elapsed_ms(self) -> int:
        """Return how long the command has taken so far."""
        return max(0, self.transaction.ctx.clock_ms() - self.started_ms)


@dataclass(frozen=True)
class TargetFiles:
    """Live files of the table, with everything that the log knows of them; a file's number is its position here."""

    snapshot: Snapshot
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def paths(self) -> list[str]:
        found: list[str] = self.table.column("path").to_pylist()
        return found

    @cached_property
    def vectors(self) -> list[DeletionVector | None]:
        return [descriptor(value) for value in self.table.column("deletionVector").to_pylist()]

    @cached_property
    def physical_rows(self) -> list[int | None]:
        """How many rows each file has, deleted ones included; None where the statistics do not say it."""
        from headwater.log.stats.add_stats import row_counts

        return row_counts(self.table.column("stats").to_pylist())

    def live_rows(self, number: int) -> int | None:
        """Return how many rows of a file are not deleted, where the log says so."""
        physical, vector = self.physical_rows[number], self.vectors[number]
        return None if physical is None else physical - (0 if vector is None else vector.cardinality)

    def counted_rows(self, number: int) -> int:
        """Return how many rows a file has, deleted ones included; read its footer if the log does not say it."""
        from headwater.log.actions.paths import file_uris
        from headwater.parquet.read import DataFiles

        known = self.physical_rows[number]
        if known is not None:
            return known
        [uri] = file_uris(self.table.column("path").slice(number, 1), self.snapshot.uri).to_pylist()
        size = self.table.column("size")[number].as_py()
        return int(DataFiles(self.snapshot.uri, self.snapshot.ctx.storage_options).open(uri, size).metadata.num_rows)

    def take(self, numbers: Iterable[int]) -> pa.Table:
        """Return what the log knows of some of the files."""
        return self.table.take(pa.array(list(numbers), pa.int64()))

    def deleted_rows(self, numbers: Iterable[int]) -> dict[int, BitMap64]:
        """Return the rows that are deleted already, of those files that have such."""
        vectors = {number: vector for number in numbers if (vector := self.vectors[number]) is not None}
        reader = VectorReader.of(self.snapshot)
        read = reader.read(list(vectors.values()))
        return {number: to_bitmap(data) for number, data in zip(vectors, read, strict=True)}

    def vectors_for(
        self, numbers: Iterable[int], only: Mapping[int, BitMap64], without: Mapping[int, BitMap64]
    ) -> dict[str, DeletionVector]:
        """Return deletion vectors that leave just the wanted rows of files, by path.

        Args:
            numbers: of the files that are read.
            only: of files that are named here, just these rows are wanted.
            without: of files that are named here, all rows but these and those that are deleted already.
        """
        from pyroaring import BitMap64

        chosen = [number for number in numbers if number in only or number in without]
        found = {
            self.paths[number]: inline_vector(BitMap64(range(self.counted_rows(number))) - only[number])
            for number in chosen
            if number in only
        }
        rest = [number for number in chosen if number not in only]
        deleted = self.deleted_rows(rest)
        for number in rest:
            rows = without[number] | deleted[number] if number in deleted else without[number]
            found[self.paths[number]] = inline_vector(rows)
        return found


def write_target(
    ctx: LogContext, definition: TableDefinition, domains: Mapping[str, str], identities: Collection[str] = ()
) -> WriteTarget:
    """Return how files of a table are written by default.

    Args:
        domains: its metadata domains.
        identities: identity columns that get new values: their statistics tell the last one.
    """
    protocol, metadata = definition.protocol, definition.metadata
    schema = stored_columns(definition.schema)
    mode = mapping_mode(protocol, metadata)
    required = [*clustering_columns(domains), *(physical_path(schema, [name], mode) for name in identities)]
    return WriteTarget(
        uri=ctx.uri,
        schema=schema,
        partition_columns=metadata.partition_columns,
        mapping_mode=mode,
        properties=with_required_statistics(metadata, schema, mode, required),
        storage_options=ctx.storage_options,
        materialize_partition_columns=must_materialize_partition_columns(definition.configuration),
    )


def write_table_rows(frame: DataFrame, target: WriteTarget) -> list[Add]:
    """Write data files.

    Args:
        frame: the table's columns; where rows keep their ids or commit versions also `ROW_ID` and `ROW_COMMIT_VERSION`,
            null for rows that are to get new ones (spec: "Row Tracking", materialized row ids).
        target: where the files go.
    """
    sf = functions()
    held = frame.columns
    kept = {column: name for column, name in materialized_names(target.properties).items() if column in held}
    columns: list[Any] = [sf.col(quoted(field.name)) for field in target.schema.fields]
    columns += [sf.col(column).alias(name) for column, name in kept.items()]
    hidden = tuple(StructField(name, LONG) for name in kept.values())
    with explained_violations(target.uri):
        return write_files(frame.select(*columns), replace(target, hidden=hidden))


def write_change_rows(frame: DataFrame, target: WriteTarget) -> list[AddCdcFile]:
    """Write change data files: the table's columns, and `_change_type` (spec: "Add CDC File")."""
    sf = functions()
    check_change_type(target.schema, target.uri)
    columns: list[Any] = [sf.col(quoted(field.name)) for field in target.schema.fields]
    changes = replace(target, hidden=(StructField(CHANGE_TYPE, STRING),), directory=CHANGE_DIRECTORY, statistics=False)
    with explained_violations(target.uri):
        files = write_files(frame.select(*columns, sf.col(CHANGE_TYPE)), changes)
    return [AddCdcFile(path=f.path, partition_values=f.partition_values, size=f.size) for f in files]


def with_change_type(frame: DataFrame, change: str) -> DataFrame:
    """Return rows of `DmlTarget.rows` for `write_change_rows`."""
    sf = functions()
    columns = [sf.col(quoted(name)) for name in frame.columns if name not in _HIDDEN_COLUMNS]
    return frame.select(*columns, sf.lit(change).alias(CHANGE_TYPE))
