"""`DeltaTable`: a table by its path, as PySpark users of Delta know it. A thin face over the commands in `spark/`."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from headwater.errors import TableNotFoundError
from headwater.searched_table import SearchedTable
from headwater.tables import open_delta_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.merge_builder import DeltaMergeBuilder
    from headwater.optimize_builder import DeltaOptimizeBuilder
    from headwater.table_builder import DeltaTableBuilder


class DeltaTable(SearchedTable):
    """A Delta table at a path. Get one with `DeltaTable.forPath`.

    Example:
        >>> table = DeltaTable.forPath(spark, "/data/events")  # doctest: +SKIP
        >>> table.toDF().where("date = '2024-01-31'").count()  # doctest: +SKIP
        42
    """

    _alias: str | None = None
    """The table's name in conditions and values."""

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
        open_delta_log(path, storage_options)
        return cls(sparkSession, str(path), storage_options)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:  # noqa: ARG003
        """Whether there is a Delta table at the path."""
        try:
            open_delta_log(identifier)
        except TableNotFoundError:
            return False
        return True

    def toDF(self) -> DataFrame:
        """The newest version of the table, at the time of this call; under its alias, if it has one."""
        from headwater.spark.scan import read

        frame = read(self._spark, self._path, storage_options=self._storage_options)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under a name, for conditions and values that say whose columns they mean.

        Example:
            >>> table.alias("events").delete("events.date < '2024-01-01'")  # doctest: +SKIP
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
            FilterError: it is no condition, is not deterministic, or has a subquery.
            InvalidCommitError: the table only allows appends.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> table.delete("date < '2024-01-01'")  # doctest: +SKIP
            >>> table.delete(col("date") < "2024-01-01")  # doctest: +SKIP
        """
        from headwater.spark.dml.delete import delete

        delete(self._spark, self._path, condition, alias=self._alias, storage_options=self._storage_options)

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
            FilterError: the condition is none, is not deterministic, or has a subquery.
            InvalidCommitError: the table only allows appends.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> table.update("city = 'NYC'", {"city": "'New York'"})  # doctest: +SKIP
            >>> table.update(set={"total": col("price") * col("amount")})  # doctest: +SKIP
        """
        from headwater.spark.dml.update import update

        update(self._spark, self._path, condition, set, alias=self._alias, storage_options=self._storage_options)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Merge rows of a DataFrame into the table: update, delete and insert, in one commit.

        Args:
            source: the rows; give it an alias (`df.alias("s")`) to tell its columns from the table's.
            condition: when a row of the source matches one of the table: SQL text or a Column over both. Null is no
                match.

        Returns:
            A builder that takes the clauses; its `execute` runs the merge.

        Example:
            >>> (
            ...     table.alias("t")
            ...     .merge(changes.alias("s"), "t.id = s.id")
            ...     .whenMatchedUpdateAll()
            ...     .whenNotMatchedInsertAll()
            ...     .execute()
            ... )  # doctest: +SKIP
        """
        from headwater.merge_builder import merge_builder

        return merge_builder(self._spark, self._path, source, condition, self._alias, self._storage_options)

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

    def optimize(self) -> DeltaOptimizeBuilder:
        """Rewrite files so that there are fewer, and so that queries read less of them; see `DeltaOptimizeBuilder`.

        Example:
            >>> table.optimize().where("date = '2024-01-31'").executeCompaction()  # doctest: +SKIP
        """
        from headwater.optimize_builder import DeltaOptimizeBuilder

        return DeltaOptimizeBuilder(self._spark, self._path, self._storage_options)

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
