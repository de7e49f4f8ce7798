"""Choose the backend that reads a table or a change feed, by what the session and the store allow.

Spark's own scan with our file index (`classic`) needs classic PySpark, and a Hadoop filesystem for the store. On Spark
Connect plain DataFrame operations take its place (`connect`). Where Spark has no filesystem for the store, or would
give other values for a column because of its name, Python reads the files on the executors (`python`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from headwater.errors import StorageError
from headwater.log.schema import StructType
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.spark.functions import functions_for, is_connect, no_rows
from headwater.spark.jvm import jvm_of
from headwater.spark.scan.changes import CHANGE_FIELDS, change_files
from headwater.spark.scan.classic import ClassicBackend
from headwater.spark.scan.columns import ScanColumns
from headwater.spark.scan.connect import ConnectBackend
from headwater.spark.scan.python import PythonBackend
from headwater.spark.scan.request import in_session_zone
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.files.changes import ChangeFeed
    from headwater.log.snapshot import Snapshot
    from headwater.spark.scan.changes import ChangeFiles
    from headwater.spark.scan.request import ScanRequest


_NO_FILESYSTEM = ("No FileSystem for scheme", "ClassNotFoundException: Class org.apache.hadoop.fs.")
"""What Hadoop says of a scheme that it cannot serve: unknown, or known and its JAR is not there."""
_ROW_INDEX = "_tmp_metadata_row_index"
"""Spark's Parquet reader fills a column of this name with the positions of rows, whatever the file has in it."""


class ScanBackend(Protocol):
    """A way to read data files in one session."""

    def scan(self, request: ScanRequest) -> DataFrame:
        """Return the rows of a request: the table's columns in their order, then those that the request adds.

        The result may have rows and columns that `where` and `columns` of the request leave out.
        """

    def scan_changes(self, kinds: Sequence[ChangeFiles]) -> DataFrame:
        """Return the rows that changed: the table's columns, then those of a change feed.

        `kinds` are the recorded or the derived changes of a feed, or both.
        """


def scan(spark: SparkSession, request: ScanRequest) -> DataFrame:
    """Return the rows of a request by the backend that session and store allow; see `ScanBackend.scan`."""
    snapshot = in_session_zone(spark, request.snapshot)
    if snapshot is not request.snapshot:
        request = replace(request, snapshot=snapshot)
    return choose_backend(spark, snapshot).scan(request)


def scan_changes(spark: SparkSession, feed: ChangeFeed) -> DataFrame:
    """Return the rows of a change feed by the backend that session and store allow."""
    snapshot = in_session_zone(spark, feed.snapshot)
    kinds = change_files(replace(feed, snapshot=snapshot))
    if not kinds:
        columns = ScanColumns(snapshot.schema, "none", ())
        with functions_for(spark):
            return no_rows(spark, StructType([*columns.visible.fields, *CHANGE_FIELDS]))
    return choose_backend(spark, snapshot).scan_changes(kinds)


def choose_backend(spark: SparkSession, snapshot: Snapshot) -> ScanBackend:
    """Return the backend for a table.

    Raises:
        StorageError: the table is in the memory of this process, where no executor can read it.
    """
    location = parse_uri(snapshot.uri)
    if location.kind == "memory":
        raise StorageError(
            f"Spark has no filesystem for memory://: {snapshot.uri} is in the memory of this Python process, where no "
            "executor can read it. Copy the table to a disk or an object store. Its log can be read without Spark, by "
            "headwater.open_log."
        )
    if any(str(f.metadata.get(PHYSICAL_NAME_KEY, f.name)).lower() == _ROW_INDEX for f in snapshot.schema.fields):
        return PythonBackend(spark)
    if is_connect(spark):
        served = location.kind == "local" or _server_has_filesystem(spark, f"{location.scheme}://{location.bucket}/")
        return ConnectBackend(spark) if served else PythonBackend(spark)
    served = location.kind == "local" or _jvm_has_filesystem(spark, location.scheme)
    return ClassicBackend(spark) if served else PythonBackend(spark)


def _jvm_has_filesystem(spark: SparkSession, scheme: str) -> bool:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    filesystem = jvm_of(spark).static("org.apache.hadoop.fs.FileSystem")
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        filesystem.getFileSystemClass(scheme, configuration)
    except (Py4JJavaError, PySparkException) as error:
        if _says_no_filesystem(error):
            return False
        raise
    return True


def _server_has_filesystem(spark: SparkSession, root: str) -> bool:
    """Ask the server to look at the store; other answers (nothing is there, access denied) do not matter here."""
    from pyspark.errors import PySparkException

    try:
        assert spark.read.schema("nothing int").parquet(root).schema is not None
    except PySparkException as error:
        return not _says_no_filesystem(error)
    return True


def _says_no_filesystem(error: Exception) -> bool:
    return any(sign in str(error) for sign in _NO_FILESYSTEM)
