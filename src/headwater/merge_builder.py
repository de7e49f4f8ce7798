"""`DeltaMergeBuilder`: a MERGE clause by clause, as PySpark users of Delta know it. A face over `spark/dml/`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.spark.dml.merge import merge
from headwater.spark.dml.merge_clauses import Action, Clause, When, checked_values
from headwater.spark.dml.merge_request import MergeRequest
from headwater.spark.functions import is_connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

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

    def __init__(
        self,
        sparkSession: SparkSession,
        path: str,
        request: MergeRequest,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = sparkSession
        self._path = path
        self._request = request
        self._storage_options = storage_options

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
        return self._of(replace(self._request, evolves=True))

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
        metrics = merge(self._spark, self._path, self._request, storage_options=self._storage_options)
        row = tuple(sum(metrics[name] for name in names) for names in _RESULT.values())
        return self._spark.createDataFrame([row], ", ".join(f"{name} long" for name in _RESULT))

    def _with(self, clause: Clause) -> DeltaMergeBuilder:
        return self._of(replace(self._request, clauses=(*self._request.clauses, clause)))

    def _of(self, request: MergeRequest) -> DeltaMergeBuilder:
        return DeltaMergeBuilder(self._spark, self._path, request, self._storage_options)


def merge_builder(
    spark: SparkSession,
    path: str,
    source: DataFrame,
    condition: str | Column,
    alias: str | None,
    storage_options: Mapping[str, str] | None,
) -> DeltaMergeBuilder:
    """A builder without clauses yet.

    Raises:
        TypeError: the source is no DataFrame of the table's kind of session, or the condition neither text nor Column.
    """
    from headwater.spark.dml.condition import is_column

    if not hasattr(source, "sparkSession"):
        raise TypeError(f"the source of a merge is a DataFrame, not {type(source).__name__}")
    if is_connect(source) != is_connect(spark):
        raise TypeError("the source of a merge must be of the same kind of session as the table: classic, or Connect.")
    if not isinstance(condition, str) and not is_column(condition):
        raise TypeError(f"the condition of a merge is SQL text or a Column, not {type(condition).__name__}")
    return DeltaMergeBuilder(spark, path, MergeRequest(source, condition, (), alias), storage_options)
