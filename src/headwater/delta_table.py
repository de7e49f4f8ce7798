"""`DeltaTable`: a table by its path, as PySpark users of Delta know it. A thin face over the commands in `spark/`."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from headwater.errors import InvalidUriError, TableNotFoundError
from headwater.searched_table import SearchedTable
from headwater.table_names import literal_path, refusal
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
        open_delta_log(literal_path(path, "DeltaTable.forPath(spark, {})"), storage_options)
        return cls(sparkSession, str(path), storage_options)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:  # noqa: ARG003
        """Refused: tables are opened by their paths; names come with the catalog, in a later release.

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
        raise InvalidUriError(
            refusal(
                tableOrViewName, "a table cannot be opened by", "Say where it is, with DeltaTable.forPath(spark, {})"
            )
        )

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:  # noqa: ARG003
        """Whether there is a Delta table at the path.

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
            open_delta_log(literal_path(identifier, "DeltaTable.isDeltaTable(spark, {})"))
        except TableNotFoundError:
            return False
        return True

    def toDF(self) -> DataFrame:
        """The newest version of the table, at the time of this call; under its alias, if it has one.

        Example:
            >>> table.toDF().where(col("country") == "SE").count()
            3
        """
        from headwater.spark.scan import read

        frame = read(self._spark, self._path, storage_options=self._storage_options)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under a name, for conditions and values that say whose columns they mean.

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
            FilterError: it is no condition, is not deterministic, or has a subquery.
            InvalidCommitError: the table only allows appends.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> table.delete("day < '2024-01-31'")
            >>> table.delete(col("amount") > 50)
            >>> table.toDF().count()
            3
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
            >>> table.update("country = 'SE'", {"country": "'Sweden'"})
            >>> table.update(set={"amount": col("amount") * 100})
            >>> table.toDF().where("id = 1").select("country", "amount").first()
            Row(country='Sweden', amount=1000)
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
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().first()
            Row(num_affected_rows=2, num_updated_rows=1, num_deleted_rows=0, num_inserted_rows=1)
        """
        from headwater.merge_builder import merge_builder

        return merge_builder(self._spark, self._path, source, condition, self._alias, self._storage_options)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits of the table, newest first, with the columns of DESCRIBE HISTORY.

        Args:
            limit: no more than so many; all that the log still has by default.

        Example:
            >>> table.delete("country = 'DK'")
            >>> table.history(limit=1).select("version", "operation").first()
            Row(version=2, operation='DELETE')
        """
        from headwater.spark.describe import history_frame

        return history_frame(self._spark, self._snapshot(), limit)

    def detail(self) -> DataFrame:
        """One row about the table, with the columns of DESCRIBE DETAIL.

        Example:
            >>> table.detail().select("numFiles", "partitionColumns").first()
            Row(numFiles=4, partitionColumns=['day'])
        """
        from headwater.alterations.clustering import clustering_paths
        from headwater.log.schema.lookup import dotted
        from headwater.spark.describe import detail_frame

        snapshot = self._snapshot()
        return detail_frame(self._spark, snapshot, [dotted(path) for path in clustering_paths(snapshot)])

    def optimize(self) -> DeltaOptimizeBuilder:
        """Rewrite files so that there are fewer, and so that queries read less of them; see `DeltaOptimizeBuilder`.

        Example:
            >>> table.optimize().where("day = '2024-01-31'").executeCompaction().first().metrics.numFilesRemoved
            2
        """
        from headwater.optimize_builder import DeltaOptimizeBuilder

        return DeltaOptimizeBuilder(self._spark, self._path, self._storage_options)

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
        return cls._builder("CREATE", sparkSession, storage_options)

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
        return cls._builder("CREATE_IF_NOT_EXISTS", sparkSession, storage_options)

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
        return cls._builder("REPLACE", sparkSession, storage_options)

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
        return cls._builder("CREATE_OR_REPLACE", sparkSession, storage_options)

    @classmethod
    def _builder(
        cls, creation: str, sparkSession: SparkSession | None, storage_options: Mapping[str, str] | None
    ) -> DeltaTableBuilder:
        from headwater.alterations.creation import Creation
        from headwater.table_builder import DeltaTableBuilder

        return DeltaTableBuilder(sparkSession, Creation[creation], cls, storage_options)
