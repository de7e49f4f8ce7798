"""Builders of a MERGE, an OPTIMIZE and a REORG, as delta-spark has them: they put a request together and run it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import WriteOptionError
from headwater.spark.dml.assignments import checked_values
from headwater.spark.dml.condition import is_column
from headwater.spark.functions import are_same_kind
from headwater.spark.maintenance.optimize import OptimizeRequest, optimize
from headwater.spark.merge.clauses import Action, Clause, When
from headwater.spark.merge.merge import MergeRequest, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.spark.session import SparkTable

_RESULT = {
    "num_affected_rows": ("numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsInserted"),
    "num_updated_rows": ("numTargetRowsUpdated",),
    "num_deleted_rows": ("numTargetRowsDeleted",),
    "num_inserted_rows": ("numTargetRowsInserted",),
}


class DeltaMergeBuilder:
    """A merge that is being put together. Get one with `DeltaTable.merge`; `execute` runs it.

    Clauses of a kind are tried in the order in which they are given: the first whose condition holds acts on the row,
    and only the last may have no condition. Conditions and values are SQL texts or Columns. In matched clauses they
    may use the columns of both sides, in not-matched clauses those of the source, and in not-matched-by-source clauses
    those of the table. Each method gives a new builder.

    Example:
        >>> (
        ...     table.alias("t")
        ...     .merge(source.alias("s"), "t.id = s.id")
        ...     .whenMatchedDelete("s.amount = 0")
        ...     .whenMatchedUpdate(set={"amount": "t.amount + s.amount"})
        ...     .whenNotMatchedInsertAll()
        ...     .execute()
        ...     .first()
        ... )
        Row(num_affected_rows=2, num_updated_rows=1, num_deleted_rows=0, num_inserted_rows=1)
    """

    def __init__(self, request: MergeRequest) -> None:
        self._request = request

    def whenMatchedUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as Delta users call it
    ) -> DeltaMergeBuilder:
        """Give new values to a row of the table that a row of the source matches.

        Args:
            condition: when to do so, beyond the condition of the merge.
            set: the new values by column, or by field in a struct (`address.city`); the others stay.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> update = merge.whenMatchedUpdate("s.amount > t.amount", {"amount": "s.amount"})
            >>> update.execute().first().num_updated_rows
            1
        """
        values = checked_values(set, "'set' in whenMatchedUpdate")
        return self._with(Clause(When.MATCHED, Action.UPDATE, condition, values))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Give a row of the table the values of the source's row, column by column by name.

        Without schema evolution the source must have all columns of the table; others that it has are ignored.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenMatchedUpdateAll("s.amount <> t.amount").execute().first().num_updated_rows
            1
        """
        return self._with(Clause(When.MATCHED, Action.UPDATE, condition, None))

    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a row of the table that a row of the source matches.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenMatchedDelete().execute().first().num_deleted_rows
            1
        """
        return self._with(Clause(When.MATCHED, Action.DELETE, condition))

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Add a row for a row of the source that matches nothing.

        Args:
            condition: when to do so.
            values: by column; the others get their default, generated or identity value, or are null.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> insert = merge.whenNotMatchedInsert("s.amount > 0", {"id": "s.id", "day": "s.day", "amount": lit(0)})
            >>> insert.execute().first().num_inserted_rows
            1
        """
        given = checked_values(values, "'values' in whenNotMatchedInsert")
        return self._with(Clause(When.NOT_MATCHED, Action.INSERT, condition, given))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Add a row of the source that matches nothing, column by column by name.

        Without schema evolution the source must have all columns of the table but those that get values by themselves.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenNotMatchedInsertAll().execute().first().num_inserted_rows
            1
        """
        return self._with(Clause(When.NOT_MATCHED, Action.INSERT, condition, None))

    def whenNotMatchedBySourceUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as Delta users call it
    ) -> DeltaMergeBuilder:
        """Give new values to a row of the table that no row of the source matches.

        Args:
            condition: when to do so. Without one, or with one that statistics do not help with, all files are read.
            set: the new values by column, over the columns of the table.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> update = merge.whenNotMatchedBySourceUpdate("t.day = '2024-01-31'", {"message": "'withdrawn'"})
            >>> update.execute().first().num_updated_rows
            3
        """
        values = checked_values(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._with(Clause(When.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, values))

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a row of the table that no row of the source matches.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenNotMatchedBySourceDelete().execute().first().num_deleted_rows
            5
        """
        return self._with(Clause(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add columns, nested ones too, that the source has and the table lacks, as far as clauses assign to them.

        The session setting `spark.databricks.delta.schema.autoMerge.enabled` does so for all merges.

        Example:
            >>> merge = table.alias("t").merge(source.withColumn("city", lit("Oslo")).alias("s"), "t.id = s.id")
            >>> merge.withSchemaEvolution().whenMatchedUpdateAll().execute().first().num_updated_rows
            1
            >>> table.toDF().where("city = 'Oslo'").count()
            1
        """
        return DeltaMergeBuilder(replace(self._request, evolves=True))

    def execute(self) -> DataFrame:
        """Run the merge, in one commit; nothing is committed if nothing changes.

        Returns:
            One row: `num_affected_rows`, `num_updated_rows`, `num_deleted_rows`, `num_inserted_rows`.

        Raises:
            InvalidMergeError: the clauses do not go together, or do not fit the table and the source.
            MultipleSourceRowsError: several rows of the source want to change the same row of the table.
            ColumnNotFoundError: a condition or value names a column that is not there.
            SchemaMismatchError: a value is of a type that its column cannot hold.
            ConstraintViolationError: a row breaks a rule of the table.
            DeltaConcurrentModificationException: another writer's commit stands in the way.

        Example:
            >>> merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().first()
            Row(num_affected_rows=2, num_updated_rows=1, num_deleted_rows=0, num_inserted_rows=1)
        """
        return merged_rows(self._request.table.spark, merge(self._request))

    def _with(self, clause: Clause) -> DeltaMergeBuilder:
        return DeltaMergeBuilder(replace(self._request, clauses=(*self._request.clauses, clause)))


def merged_rows(spark: SparkSession, metrics: Mapping[str, int]) -> DataFrame:
    """Return the one row that a merge gives as its result."""
    row = tuple(sum(metrics[name] for name in names) for names in _RESULT.values())
    return spark.createDataFrame([row], ", ".join(f"{name} long" for name in _RESULT))


def merge_builder(
    table: SparkTable, source: DataFrame, condition: str | Column, alias: str | None
) -> DeltaMergeBuilder:
    """Return a builder without clauses.

    Raises:
        TypeError: the source is not a DataFrame of the table's kind of session, or the condition not text or a Column.
    """
    if not hasattr(source, "sparkSession"):
        raise TypeError(f"the source of a merge is a DataFrame, not {type(source).__name__}")
    if not are_same_kind(source, table.spark):
        raise TypeError("the source of a merge must be of the same kind of session as the table: classic, or Connect.")
    if not isinstance(condition, str) and not is_column(condition):
        raise TypeError(f"the condition of a merge is SQL text or a Column, not {type(condition).__name__}")
    return DeltaMergeBuilder(MergeRequest(table, source, condition, (), alias))


class DeltaOptimizeBuilder:
    """An OPTIMIZE that is being described. Get one with `DeltaTable.optimize`.

    Example:
        >>> table.optimize().where("day >= '2024-01-31'").executeZOrderBy("country", "amount").columns
        ['path', 'metrics']
    """

    def __init__(self, table: SparkTable) -> None:
        self._table = table
        self._where: list[str] = []

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Choose the partitions that match; of several conditions all must hold.

        Args:
            partitionFilter: a condition in SQL on partition columns.

        Example:
            >>> recent = table.optimize().where("day >= '2024-01-31'").where("day < '2024-02-01'")
            >>> recent.executeCompaction().first().metrics.numFilesRemoved
            2
        """
        if not isinstance(partitionFilter, str):
            raise TypeError(f"where takes a condition in SQL, not {type(partitionFilter).__name__}")
        self._where.append(partitionFilter)
        return self

    def executeCompaction(self) -> DataFrame:
        """Join small files, and rewrite those of which many rows are deleted. A clustered table is clustered.

        Returns:
            One row: the table's path, and the metrics (`metrics.numFilesAdded`, `metrics.numFilesRemoved`, ...).

        Raises:
            FilterError: a condition is not on partition columns alone.
            DeltaConcurrentModificationException: other writers have changed the table itself, or all files that were
                rewritten.

        Example:
            >>> table.optimize().executeCompaction().select("metrics.numFilesAdded", "metrics.numFilesRemoved").first()
            Row(numFilesAdded=1, numFilesRemoved=2)
        """
        return self._run(())

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Rewrite all files (of the partitions that match) so that conditions on any of some columns skip most of them.

        A file that is alone in its partition, and would become one file again, stays as it is.

        Args:
            cols: the columns; those inside structs with dots.

        Returns:
            One row, as `executeCompaction` does.

        Raises:
            ColumnNotFoundError: the table has no such column.
            WriteOptionError: a column is a partition column or has no statistics, or the table is clustered.

        Example:
            >>> table.optimize().executeZOrderBy("country", "amount").first().metrics.numFilesRemoved
            2
        """
        names: list[str] = []
        for column in cols:
            names += [column] if isinstance(column, str) else list(column)
        if not names or not all(isinstance(name, str) for name in names):
            raise WriteOptionError(f"executeZOrderBy takes the names of one column or more, not {list(cols)!r}")
        return self._run(tuple(names))

    def _run(self, zorder_by: tuple[str, ...]) -> DataFrame:
        return optimize(OptimizeRequest(self._table, tuple(self._where), zorder_by)).frame(self._table.spark)


class DeltaReorgBuilder:
    """Says which files to rewrite, and for what. Get one with `DeltaTable.reorg`.

    Example:
        >>> table.setProperties({"delta.enableDeletionVectors": "true"})
        >>> table.delete("id IN (1, 5)")
        >>> table.reorg().where("day = '2024-01-31'").executePurge().first().metrics.numFilesRemoved
        1
    """

    def __init__(self, table: SparkTable) -> None:
        self._table = table
        self._where: tuple[str, ...] = ()

    def where(self, partitionFilter: str) -> DeltaReorgBuilder:
        """Choose the partitions that match a condition on partition columns; of several all must hold.

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
        return optimize(OptimizeRequest(self._table, self._where, purges=True)).frame(self._table.spark)
