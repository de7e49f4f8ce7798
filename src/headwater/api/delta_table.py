"""`DeltaTable`: a table by its path, with the methods that delta-spark has, and some more."""

from __future__ import annotations

from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self

from headwater.api.alter import TableAlter
from headwater.api.builders import DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaReorgBuilder, merge_builder
from headwater.api.open import literal_path, open_delta_log, path_to_convert, refusal
from headwater.api.table_builder import DeltaTableBuilder
from headwater.commands.alter.properties import AddFeature, DropFeature, UpgradeProtocol, drop_search_index
from headwater.commands.clone import CloneRequest, clone_target
from headwater.commands.create import CreateMode, declared_schema
from headwater.commands.restore import RestoreRequest
from headwater.commands.vacuum import VacuumRequest
from headwater.errors import InvalidUriError, TableNotFoundError
from headwater.features.context import TableRef
from headwater.features.symlink_manifests import write_manifests
from headwater.spark.commands import (
    AlterRequest,
    alter,
    clone_table,
    detail_frame,
    history_frame,
    restore_table,
    vacuum_table,
)
from headwater.spark.dml.delete import DeleteRequest, delete
from headwater.spark.dml.update import UpdateRequest, update
from headwater.spark.maintenance.convert import ConvertRequest, convert
from headwater.spark.scan.read import read
from headwater.spark.search.delta import open_indexed_table
from headwater.spark.search.search import SearchRequest, search_frame
from headwater.spark.session import SparkTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as spark_types

    from headwater.commands.vacuum_plan import VacuumMode
    from headwater.search.delta_index import SearchCoverage
    from headwater.spark.search.delta import IndexedTable

    Timestamp = str | datetime | date | int

P = ParamSpec("P")


def _forward(method: Callable[Concatenate[TableAlter, P], None]) -> Callable[Concatenate[DeltaTable, P], None]:
    """Give a method of `DeltaTable.alter` a second name on the table itself."""

    @wraps(method)
    def forward(table: DeltaTable, /, *args: P.args, **kwargs: P.kwargs) -> None:
        method(table.alter, *args, **kwargs)

    return forward


class DeltaTable:
    """A Delta table at a path. Get one with `DeltaTable.forPath`.

    In the examples `table` is `events`: six rows with `id`, `country`, `amount`, `message` and `day`, by which it is
    partitioned; three of them are of version 0. `source` is a DataFrame with two more: a new amount for the event 6,
    and the event 7. `customers` is a table without partitions.

    Example:
        >>> table = DeltaTable.forPath(spark, "events")
        >>> table.toDF().where("day = '2024-01-31'").count()
        3
    """

    _alias: str | None = None
    """The table's name in conditions and values."""

    def __init__(self, sparkSession: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._table = SparkTable(sparkSession, TableRef(path, storage_options))

    def __repr__(self) -> str:
        return f"DeltaTable({str(self._table)!r})"

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str | PathLike[str],
        hadoopConf: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Open the table at a path or URI.

        Args:
            sparkSession: the session that reads it.
            path: where it is.
            hadoopConf: must be empty: Hadoop's settings belong to the session, the log's to `storage_options`.
            storage_options: options of the object store for the log, by the names that deltalake uses.

        Raises:
            TableNotFoundError: there is no Delta table at the path.
            InvalidUriError: it is not a path or URI.

        Example:
            >>> DeltaTable.forPath(spark, "events").toDF().count()
            6
        """
        if hadoopConf:
            raise ValueError(
                f"hadoopConf {sorted(hadoopConf)} cannot be set for one table: set them on the session "
                "(spark.hadoop.*) for the data, and give storage_options for the log."
            )
        open_delta_log(TableRef(literal_path(path, "DeltaTable.forPath(spark, {})"), storage_options))
        return cls(sparkSession, str(path), storage_options)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:  # noqa: ARG003
        """Raise: tables are opened by their paths; names come with the catalog, in a later release.

        Args:
            sparkSession: the session.
            tableOrViewName: a name such as `db.events`.

        Raises:
            InvalidUriError: always; the message says what to call instead.

        Example:
            >>> DeltaTable.forName(spark, "delta.`/data/events`")
            Traceback (most recent call last):
                ...
            headwater.errors.InvalidUriError: ... Say where it is, with DeltaTable.forPath(spark, '/data/events').
        """
        advice = "Say where it is, with DeltaTable.forPath(spark, {})"
        raise InvalidUriError(refusal(tableOrViewName, "a table cannot be opened by", advice))

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:  # noqa: ARG003
        """Return whether there is a Delta table at the path.

        Args:
            sparkSession: the session.
            identifier: a path or URI. `db.events` is one too: a directory of that name.

        Raises:
            InvalidUriError: it is a name with a path in it, such as ``delta.`/data/events` ``.

        Example:
            >>> DeltaTable.isDeltaTable(spark, "events")
            True
            >>> DeltaTable.isDeltaTable(spark, "nowhere")
            False
        """
        try:
            open_delta_log(TableRef(literal_path(identifier, "DeltaTable.isDeltaTable(spark, {})")))
        except TableNotFoundError:
            return False
        return True

    def toDF(self) -> DataFrame:
        """Return the newest version of the table, at the time of this call; under its alias, if it has one.

        Example:
            >>> table.toDF().where(col("country") == "SE").count()
            3
        """
        ref = self._table.ref
        frame = read(self._table.spark, ref.location, storage_options=ref.storage_options)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """Return the same table under a name, which tells its columns from others in conditions and values.

        Example:
            >>> events = table.alias("events")
            >>> events.delete("events.country = 'DK'")
            >>> events.toDF().select("events.id").count()
            5
        """
        named = copy(self)
        named._alias = aliasName
        return named

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows that match a condition, in one commit; without a condition, all rows.

        A condition on partition columns alone reads no data. With `delta.enableDeletionVectors` rows are marked as
        deleted; otherwise the files that hold them are written again.

        Args:
            condition: SQL text or a Column. Rows for which it is null stay.

        Raises:
            ColumnNotFoundError: the table has no such column.
            FilterError: it is not a condition, is not deterministic, or has a subquery.
            InvalidCommitError: the table only allows appends.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> table.delete("day < '2024-01-31'")
            >>> table.delete(col("amount") > 50)
            >>> table.toDF().count()
            3
        """
        delete(DeleteRequest(self._table, condition, self._alias))

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as Delta users call it
    ) -> None:
        """Give new values to the rows that match a condition, in one commit; without a condition, to all rows.

        Args:
            condition: SQL text or a Column. Rows for which it is null stay as they are.
            set: new values by column: SQL texts or Columns, over the values that the row has. `address.city` is a
                field inside a struct. Generated columns follow by themselves.

        Raises:
            ColumnNotFoundError: the table has no such column.
            SchemaMismatchError: a value is of a type that its column cannot hold.
            ConstraintViolationError: a new row breaks a rule of the table.
            FilterError: it is not a condition, is not deterministic, or has a subquery.
            InvalidCommitError: the table only allows appends.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> table.update("country = 'SE'", {"country": "'Sweden'"})
            >>> table.update(set={"amount": col("amount") * 100})
            >>> table.toDF().where("id = 1").select("country", "amount").first()
            Row(country='Sweden', amount=1000)
        """
        update(UpdateRequest(self._table, condition, set, self._alias))

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Merge rows of a DataFrame into the table: update, delete and insert, in one commit.

        Args:
            source: the rows; give it an alias (`df.alias("s")`) to tell its columns from the table's.
            condition: when a row of the source matches one of the table: SQL text or a Column over both. Null does not
                match.

        Returns:
            A builder that takes the clauses; its `execute` runs the merge.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().first()
            Row(num_affected_rows=2, num_updated_rows=1, num_deleted_rows=0, num_inserted_rows=1)
        """
        return merge_builder(self._table, source, condition, self._alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits of the table, newest first, with the columns of DESCRIBE HISTORY.

        Args:
            limit: the largest number of commits; all that the log still has by default.

        Example:
            >>> table.delete("country = 'DK'")
            >>> table.history(limit=1).select("version", "operation").first()
            Row(version=2, operation='DELETE')
        """
        return history_frame(self._table.spark, self._table.ref.snapshot(), limit)

    def detail(self) -> DataFrame:
        """Return one row about the table, with the columns of DESCRIBE DETAIL.

        Example:
            >>> table.detail().select("numFiles", "partitionColumns").first()
            Row(numFiles=4, partitionColumns=['day'])
        """
        return detail_frame(self._table.spark, self._table.ref.snapshot())

    def optimize(self) -> DeltaOptimizeBuilder:
        """Rewrite files so that there are fewer, and so that queries read less of them; see `DeltaOptimizeBuilder`.

        Example:
            >>> table.optimize().where("day = '2024-01-31'").executeCompaction().first().metrics.numFilesRemoved
            2
        """
        return DeltaOptimizeBuilder(self._table)

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that does not exist yet; see `DeltaTableBuilder`.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers").addColumn("name", "STRING").execute()
            >>> rivers.toDF().columns
            ['name']
        """
        return DeltaTableBuilder(sparkSession, CreateMode.CREATE, cls, storage_options)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table; where there is one already, it stays as it is.

        Example:
            >>> events = DeltaTable.createIfNotExists(spark).location("events").addColumn("id", "BIGINT").execute()
            >>> events.toDF().count()
            6
        """
        return DeltaTableBuilder(sparkSession, CreateMode.CREATE_IF_NOT_EXISTS, cls, storage_options)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that takes the place of an existing one, whose history stays.

        Example:
            >>> events = DeltaTable.replace(spark).location("events").addColumn("id", "BIGINT").execute()
            >>> events.toDF().count(), hw.read(spark, "events", version=1).count()
            (0, 6)
        """
        return DeltaTableBuilder(sparkSession, CreateMode.REPLACE, cls, storage_options)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that takes the place of an existing one, if there is one.

        Example:
            >>> events = DeltaTable.createOrReplace(spark).location("events").addColumn("id", "BIGINT").execute()
            >>> events.history().first().operation
            'CREATE OR REPLACE TABLE'
        """
        return DeltaTableBuilder(sparkSession, CreateMode.CREATE_OR_REPLACE, cls, storage_options)

    # --- vacuum ---------------------------------------------------------------------------------------

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        lite: bool = False,
        inventory: DataFrame | pa.Table | None = None,
    ) -> DataFrame:
        """Delete the files that no version of the last hours needs. It cannot be undone.

        Versions that are older cannot be read any more afterwards. Files of writes that are under way are safe as long
        as a write takes less than the retention.

        Args:
            retentionHours: by default what `delta.deletedFileRetentionDuration` says (a week). Fewer are refused,
                unless `spark.databricks.delta.retentionDurationCheck.enabled` is false.
            dryRun: delete nothing; return what would be deleted.
            lite: find the files in the log alone, without listing what is there: much faster, but it leaves behind
                what no commit has ever named.
            inventory: what is there, instead of a listing: `path`, `length`, `isDir`, `modificationTime` (in ms).

        Returns:
            For a dry run the column `path`, else a DataFrame without columns.

        Raises:
            RetentionError: the retention is too short.
            InvalidCommitError: `lite` is not possible, because the log does not reach far enough back.

        Example:
            >>> table.delete("day = '2024-01-31'")
            >>> table.vacuum(dryRun=True).count()  # its two files stay for a week
            0
            >>> table.vacuum()
            DataFrame[]
        """
        listed = inventory.toArrow() if inventory is not None and hasattr(inventory, "toArrow") else inventory
        mode: VacuumMode = "LITE" if lite else "FULL"
        request = VacuumRequest(self._table.ref, retentionHours, mode, dryRun, inventory=listed)
        return vacuum_table(self._table.spark, request)

    # --- restore --------------------------------------------------------------------------------------

    def restoreToVersion(self, version: int) -> DataFrame:
        """Make the table what it was at a version, in a new commit: nothing of the history is lost.

        Returns:
            One row: `table_size_after_restore`, `num_of_files_after_restore`, `num_removed_files`,
            `num_restored_files`, `removed_files_size` and `restored_files_size`.

        Raises:
            VersionNotFoundError: there is no such version (any more).
            InvalidCommitError: it is the newest version already.
            MissingFilesError: VACUUM has deleted files of it, and `spark.sql.files.ignoreMissingFiles` is not true.

        Example:
            >>> table.restoreToVersion(0).first().num_removed_files
            2
            >>> table.toDF().count()
            3
        """
        return restore_table(self._table.spark, RestoreRequest(self._table.ref, version=version))

    def restoreToTimestamp(self, timestamp: str | datetime | date) -> DataFrame:
        """Make the table what it was at a point in time (in the session's time zone); see `restoreToVersion`.

        Example:
            >>> table.restoreToTimestamp("2024-01-31 18:00:00").first().num_removed_files
            2
            >>> table.toDF().count()
            3
        """
        return restore_table(self._table.spark, RestoreRequest(self._table.ref, timestamp=timestamp))

    # --- clone ----------------------------------------------------------------------------------------

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Make another table with the rows, the schema and the properties of this one.

        A shallow clone names the files of this table: it copies nothing, and breaks when they are vacuumed here. A
        deep clone has copies. Cloning again to the same target (with `replace`) copies only files that are new.

        Args:
            target: a path or URI. `db.events` is one too: a directory of that name.
            isShallow: share the files instead of copying them.
            replace: let the clone take the place of a table that is there, whose history stays.
            properties: table properties that the clone has instead of this table's, or besides them.
            storage_options: options of the target's store; this table's if it is of the same kind.

        Returns:
            The clone.

        Raises:
            TableAlreadyExistsError: there is a table at the target, and `replace` is False.
            InvalidUriError: the target is a name with a path in it, such as ``delta.`/data/events` ``.

        Example:
            >>> backup = table.clone("events-backup", properties={"delta.appendOnly": "true"})
            >>> backup.toDF().count()
            6
        """
        return self._clone(target, isShallow, replace, properties, storage_options)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Clone the table as it was at a version; see `clone`.

        Example:
            >>> table.cloneAtVersion(0, "events-draft", isShallow=True).toDF().count()
            3
        """
        return self._clone(target, isShallow, replace, properties, storage_options, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str | datetime | date,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Clone the table as it was at a point in time (in the session's time zone); see `clone`.

        Example:
            >>> table.cloneAtTimestamp("2024-01-31 18:00:00", "events-draft", isShallow=True).toDF().count()
            3
        """
        return self._clone(target, isShallow, replace, properties, storage_options, timestamp=timestamp)

    def _clone(
        self,
        target: str,
        is_shallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
        target_options: Mapping[str, str] | None,
        *,
        version: int | None = None,
        timestamp: str | datetime | date | None = None,
    ) -> Self:
        literal_path(target, "clone({})")
        source, made = self._table.ref, clone_target(self._table.ref, target, target_options)
        request = CloneRequest(source, made, version, timestamp, is_shallow, replace, properties)
        clone_table(self._table.spark, request)
        return type(self)(self._table.spark, target, request.clone_options)

    # --- convert, generate, reorg ---------------------------------------------------------------------

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | spark_types.StructType | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a Delta table of a directory of Parquet files, in place: none of them is rewritten.

        Args:
            sparkSession: the session whose executors read the footers.
            identifier: ``parquet.`/path/to/directory` ``. Names of a catalog come in a later release.
            partitionSchema: the columns that directories are named after, in order: `"year INT, month INT"`, or
                PySpark's StructType.
            storage_options: options of the object store.

        Returns:
            The table; also if it was one already.

        Raises:
            InvalidUriError: the identifier does not name Parquet files at a path.
            SchemaMismatchError: the directories have other partition columns, or files contradict each other.
            TableNotFoundError: there are no files.

        Example:
            >>> DeltaTable.convertToDelta(spark, "parquet.`raw`", "day DATE").toDF().count()
            6
        """
        table = cls(sparkSession, path_to_convert(identifier), storage_options)
        columns = None if partitionSchema is None else declared_schema(partitionSchema)
        convert(ConvertRequest(table._table, columns))
        return table

    def generate(self, mode: str) -> None:
        """Write manifests for engines that know symlinks and not Delta: `generate("symlink_format_manifest")`.

        The table property `delta.compatibility.symlinkFormatManifest.enabled` keeps them up to date.

        Raises:
            ValueError: there is no other mode.
            InvalidCommitError: the table has deletion vectors or column mapping, which those engines do not know.

        Example:
            >>> table.generate("symlink_format_manifest")
            >>> sorted(file.parent.name for file in Path("events", "_symlink_format_manifest").rglob("manifest"))
            ['day=2024-01-30', 'day=2024-01-31', 'day=2024-02-01']
        """
        if mode.strip().lower() != "symlink_format_manifest":
            raise ValueError(f"what can be generated is symlink_format_manifest, not {mode!r}")
        write_manifests(self._table.ref.snapshot())

    def reorg(self) -> DeltaReorgBuilder:
        """Rewrite files to get rid of what is deleted in them; see `DeltaReorgBuilder`.

        Example:
            >>> table.alter.set_properties({"delta.enableDeletionVectors": "true"})
            >>> table.delete("id = 5")
            >>> table.reorg().executePurge().first().metrics.numFilesRemoved
            1
        """
        return DeltaReorgBuilder(self._table)

    # --- alter --------------------------------------------------------------------------------------

    @property
    def alter(self) -> TableAlter:
        """The changes of the table's definition: `table.alter.add_columns(...)`; see `TableAlter`."""
        return TableAlter(self._table)

    setProperties = _forward(TableAlter.set_properties)
    unsetProperties = _forward(TableAlter.unset_properties)
    setDomainMetadata = _forward(TableAlter.set_domain_metadata)
    removeDomainMetadata = _forward(TableAlter.remove_domain_metadata)
    clusterBy = _forward(TableAlter.cluster_by)
    addColumns = _forward(TableAlter.add_columns)
    dropColumns = _forward(TableAlter.drop_columns)
    reorderColumn = _forward(TableAlter.reorder_column)
    setColumnComment = _forward(TableAlter.set_column_comment)
    setNullable = _forward(TableAlter.set_nullable)
    dropNotNull = _forward(TableAlter.drop_not_null)
    setDefault = _forward(TableAlter.set_default)
    dropDefault = _forward(TableAlter.drop_default)
    addConstraint = _forward(TableAlter.add_constraint)
    dropConstraint = _forward(TableAlter.drop_constraint)

    def renameColumn(self, name: str, newName: str) -> None:
        """Rename a column; see `TableAlter.rename_column`.

        Example:
            >>> table.setProperties({"delta.columnMapping.mode": "name"})
            >>> table.renameColumn("message", newName="text")
        """
        self.alter.rename_column(name, newName)

    def setColumnType(self, name: str, dataType: str | spark_types.DataType) -> None:
        """Make the type of a column wider; see `TableAlter.set_column_type`.

        Example:
            >>> table.setProperties({"delta.enableTypeWidening": "true"})
            >>> table.setColumnType("amount", dataType="BIGINT")
        """
        self.alter.set_column_type(name, dataType)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the versions of the table's protocol. This locks out older clients and cannot be undone.

        Raises:
            InvalidCommitError: there are no such versions, or they are lower than the table's.

        Example:
            >>> table.upgradeTableProtocol(readerVersion=3, writerVersion=7)
            >>> table.detail().select("minReaderVersion", "minWriterVersion").first()
            Row(minReaderVersion=3, minWriterVersion=7)
        """
        alter(AlterRequest(self._table, UpgradeProtocol(readerVersion, writerVersion)))

    def addFeatureSupport(self, featureName: str) -> None:
        """Support a table feature; clients that do not know it are locked out.

        Raises:
            UnsupportedProtocolError: there is no such feature, or it cannot be written.

        Example:
            >>> table.addFeatureSupport("deletionVectors")
            >>> "deletionVectors" in table.detail().first().tableFeatures
            True
        """
        alter(AlterRequest(self._table, AddFeature(featureName)))

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Stop supporting a table feature that the table does not use any more.

        Features that readers need as well cannot be dropped: older versions of the table use them.

        Raises:
            InvalidCommitError: the table uses the feature, or it cannot be dropped.
            UnsupportedProtocolError: there is no such feature.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.dropFeatureSupport("allowColumnDefaults")
            >>> "allowColumnDefaults" in table.detail().first().tableFeatures
            False
        """
        alter(AlterRequest(self._table, DropFeature(featureName, bool(truncateHistory))))

    # --- search

    def search(
        self,
        query: str | None = None,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - what it is
        limit: int | None = None,
        with_score: bool = False,
        snippets: Sequence[str] = (),
        default_fields: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return the rows that a query finds, in the newest version or any other: all, unless there is a limit.

        The answer is never stale: data files that have no index yet are read and searched with the same analysers,
        which takes longer. `search_coverage` tells how many these are, and so does `explain` of the result.

        The arguments are those of `SearchTable.search`.

        Raises:
            SearchIndexNotFoundError: the table has no search index; `headwater.search_index` makes one.
            SearchQueryError: the query cannot be understood; the message shows where.

        Example:
            >>> hw.search_index(table, columns={"message": "text", "country": "string"}).num_files
            4
            >>> table.search("refused AND country:NO", columns=["id", "message"]).first()
            Row(id=2, message='card refused: expired')
        """
        request = SearchRequest(query, columns, filter, limit, with_score, snippets, default_fields)
        return search_frame(self._searched(version, timestamp), request)

    def search_coverage(self, version: int | None = None, timestamp: Timestamp | None = None) -> SearchCoverage:
        """Return how much of a version the search index covers.

        Example:
            >>> hw.search_index(table, columns={"message": "text"}).num_files
            4
            >>> hw.write(source.coalesce(1), "events", mode="append").version
            3
            >>> print(table.search_coverage())
            version 3: 4 of 5 files are indexed (...% of the bytes); the other one is searched row by row
        """
        return self._searched(version, timestamp).coverage()

    def drop_search_index(self) -> None:
        """Remove the search index of the table. VACUUM deletes its files once they are old enough.

        Example:
            >>> hw.search_index(table, columns={"message": "text"}).num_files
            4
            >>> table.drop_search_index()
        """
        drop_search_index(self._table.ref.snapshot())

    def _searched(self, version: int | None, timestamp: Timestamp | None) -> IndexedTable:
        return open_indexed_table(self._table, version, timestamp)
