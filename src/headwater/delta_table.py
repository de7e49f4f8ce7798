"""`DeltaTable`: a table by its path, as PySpark users of Delta know it. A thin face over the commands in `spark/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import TableNotFoundError
from headwater.tables import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession


class DeltaTable:
    """A Delta table at a path. Get one with `DeltaTable.forPath`.

    Example:
        >>> table = DeltaTable.forPath(spark, "/data/events")  # doctest: +SKIP
        >>> table.toDF().where("date = '2024-01-31'").count()  # doctest: +SKIP
        42
    """

    def __init__(self, sparkSession: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._spark = sparkSession
        self._path = path
        self._storage_options = storage_options

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
