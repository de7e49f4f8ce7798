"""`DeltaOptimizeBuilder`: what OPTIMIZE shall do, as PySpark users of Delta know it. A thin face over the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import WriteOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


class DeltaOptimizeBuilder:
    """An OPTIMIZE that is being described. Get one with `DeltaTable.optimize`.

    Example:
        >>> table.optimize().where("day >= '2024-01-31'").executeZOrderBy("country", "amount").columns
        ['path', 'metrics']
    """

    def __init__(self, sparkSession: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._spark = sparkSession
        self._path = path
        self._storage_options = storage_options
        self._where: list[str] = []

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only the partitions that match; of several conditions all must hold.

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
        from headwater.spark.maintenance.optimize import OptimizeRequest, optimize

        request = OptimizeRequest(tuple(self._where), zorder_by)
        return optimize(self._spark, self._path, request, self._storage_options).frame(self._spark)
