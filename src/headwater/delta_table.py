"""`DeltaTable`: a table by its path, as PySpark users of Delta know it. A thin face over the commands in `spark/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.alterable_table import AlterableTable
from headwater.errors import TableNotFoundError
from headwater.tables import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.table_builder import DeltaTableBuilder


class DeltaTable(AlterableTable):
    """A Delta table at a path. Get one with `DeltaTable.forPath`.

    Example:
        >>> table = DeltaTable.forPath(spark, "/data/events")  # doctest: +SKIP
        >>> table.toDF().where("date = '2024-01-31'").count()  # doctest: +SKIP
        42
    """

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str | PathLike[str],
        hadoopConf: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """The table at a path or URI.

        Args:
            sparkSession: the session that reads it.
            path: where it is.
            hadoopConf: must be empty: Hadoop's settings belong to the session, the log's to `storage_options`.
            storage_options: options of the object store for the log, by the names that deltalake uses.

        Raises:
            TableNotFoundError: there is no Delta table at the path.
        """
        if hadoopConf:
            raise ValueError(
                f"hadoopConf {sorted(hadoopConf)} cannot be set for one table: set them on the session "
                "(spark.hadoop.*) for the data, and give storage_options for the log."
            )
        open_log(path, storage_options=storage_options)
        return cls(sparkSession, str(path), storage_options)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:  # noqa: ARG003
        """Whether there is a Delta table at the path."""
        try:
            open_log(identifier)
        except TableNotFoundError:
            return False
        return True

    def toDF(self) -> DataFrame:
        """The newest version of the table, at the time of this call."""
        from headwater.spark.scan import read

        return read(self._spark, self._path, storage_options=self._storage_options)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits of the table, newest first, with the columns of DESCRIBE HISTORY."""
        from headwater.spark.describe import history_frame

        return history_frame(self._spark, self._snapshot(), limit)

    def detail(self) -> DataFrame:
        """One row about the table, with the columns of DESCRIBE DETAIL."""
        from headwater.alterations.clustering import clustering_paths
        from headwater.log.schema.lookup import dotted
        from headwater.spark.describe import detail_frame

        snapshot = self._snapshot()
        return detail_frame(self._spark, snapshot, [dotted(path) for path in clustering_paths(snapshot)])

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that does not exist yet; see `DeltaTableBuilder`."""
        return cls._builder("CREATE", sparkSession, storage_options)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table; where there is one already, it stays as it is."""
        return cls._builder("CREATE_IF_NOT_EXISTS", sparkSession, storage_options)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that takes the place of an existing one, whose history stays."""
        return cls._builder("REPLACE", sparkSession, storage_options)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Declare a table that takes the place of an existing one, if there is one."""
        return cls._builder("CREATE_OR_REPLACE", sparkSession, storage_options)

    @classmethod
    def _builder(
        cls, creation: str, sparkSession: SparkSession | None, storage_options: Mapping[str, str] | None
    ) -> DeltaTableBuilder:
        from headwater.alterations.creation import Creation
        from headwater.table_builder import DeltaTableBuilder

        return DeltaTableBuilder(sparkSession, Creation[creation], cls, storage_options)
