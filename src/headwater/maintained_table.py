"""What keeps a table in shape, as methods of `DeltaTable`: VACUUM, RESTORE, CLONE, CONVERT, GENERATE and REORG.

A thin face: the commands are in `maintenance/`, where they need no Spark, and in `spark/maintenance/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from headwater.alterable_table import AlterableTable
from headwater.table_names import literal_path, path_to_convert

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as spark_types


class MaintainedTable(AlterableTable):
    """The methods of `DeltaTable` that maintain a table."""

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
        from headwater.spark.maintenance.commands import vacuum_table

        return vacuum_table(
            self._spark,
            self._path,
            retentionHours,
            mode="LITE" if lite else "FULL",
            dry_run=dryRun,
            inventory=inventory,
            storage_options=self._storage_options,
        )

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
        from headwater.spark.maintenance.commands import restore_table

        return restore_table(self._spark, self._path, version=version, storage_options=self._storage_options)

    def restoreToTimestamp(self, timestamp: str | datetime | date) -> DataFrame:
        """Make the table what it was at a point in time (in the session's time zone); see `restoreToVersion`.

        Example:
            >>> table.restoreToTimestamp("2024-01-31 18:00:00").first().num_removed_files
            2
            >>> table.toDF().count()
            3
        """
        from headwater.spark.maintenance.commands import restore_table

        return restore_table(self._spark, self._path, timestamp=timestamp, storage_options=self._storage_options)

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

        A shallow clone names the files of this table: it is made in no time, and breaks when they are vacuumed here. A
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
        from headwater.spark.maintenance.commands import clone_table
        from headwater.storage.options import clone_options
        from headwater.storage.uri import parse_uri

        literal_path(target, "clone({})")
        if target_options is None and parse_uri(target).kind == parse_uri(self._path).kind:
            target_options = self._storage_options
        clone_table(
            self._spark,
            self._path,
            target,
            version=version,
            timestamp=timestamp,
            is_shallow=is_shallow,
            replace=replace,
            properties=properties,
            storage_options=self._storage_options,
            target_options=target_options,
        )
        if is_shallow:
            target_options = clone_options(target, target_options, self._path, self._storage_options)
        return type(self)(self._spark, target, target_options)

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
            InvalidUriError: the identifier is none of Parquet files at a path.
            SchemaMismatchError: the directories have other partition columns, or files contradict each other.
            TableNotFoundError: there are no files.

        Example:
            >>> DeltaTable.convertToDelta(spark, "parquet.`raw`", "day DATE").toDF().count()
            6
        """
        from headwater.alterations.declared_columns import column_fields, column_type
        from headwater.log.schema import StructType
        from headwater.spark.maintenance.convert import convert

        path = path_to_convert(identifier)
        columns: StructType | None = None
        if isinstance(partitionSchema, str):
            declared = column_type(f"struct<{partitionSchema}>", "partitionSchema")
            assert isinstance(declared, StructType)
            columns = declared
        elif partitionSchema is not None:
            columns = StructType(column_fields(partitionSchema))
        convert(sparkSession, path, columns, storage_options)
        return cls(sparkSession, path, storage_options)

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
        from headwater.features.symlink_manifests import write_manifests

        if mode.strip().lower() != "symlink_format_manifest":
            raise ValueError(f"what can be generated is symlink_format_manifest, not {mode!r}")
        write_manifests(self._snapshot())

    def reorg(self) -> DeltaReorgBuilder:
        """Rewrite files to get rid of what is deleted in them; see `DeltaReorgBuilder`.

        Example:
            >>> table.setProperties({"delta.enableDeletionVectors": "true"})
            >>> table.delete("id = 5")
            >>> table.reorg().executePurge().first().metrics.numFilesRemoved
            1
        """
        return DeltaReorgBuilder(self._spark, self._path, self._storage_options)


class DeltaReorgBuilder:
    """Says which files to rewrite, and for what. Get one with `DeltaTable.reorg`.

    Example:
        >>> table.setProperties({"delta.enableDeletionVectors": "true"})
        >>> table.delete("id IN (1, 5)")
        >>> table.reorg().where("day = '2024-01-31'").executePurge().first().metrics.numFilesRemoved
        1
    """

    def __init__(self, sparkSession: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._spark = sparkSession
        self._path = path
        self._storage_options = storage_options
        self._where: tuple[str, ...] = ()

    def where(self, partitionFilter: str) -> DeltaReorgBuilder:
        """Only partitions that match a condition on partition columns; said more than once, all must hold.

        Example:
            >>> table.setProperties({"delta.enableDeletionVectors": "true"})
            >>> table.delete("id IN (1, 5)")
            >>> some = table.reorg().where("day > '2024-01-01'").where("day < '2024-01-31'")
            >>> some.executePurge().first().metrics.numFilesRemoved
            1
        """
        self._where = (*self._where, partitionFilter)
        return self

    def executePurge(self) -> DataFrame:
        """Rewrite the files that have deletion vectors without the rows that these delete.

        No row changes. The old files stay until VACUUM deletes them.

        Returns:
            One row with the columns `path` and `metrics`, as for `optimize().executeCompaction()`.

        Example:
            >>> table.setProperties({"delta.enableDeletionVectors": "true"})
            >>> table.delete("id IN (1, 5)")
            >>> table.reorg().executePurge().first().metrics.numFilesRemoved
            2
        """
        from headwater.spark.maintenance.optimize import OptimizeRequest, optimize

        request = OptimizeRequest(where=self._where, purges=True)
        return optimize(self._spark, self._path, request, self._storage_options).frame(self._spark)
