"""Which way a table is read, by what the session and the store allow.

The main road is Spark's own scan with our file index (`headwater.spark.scan`): it needs classic PySpark, and a Hadoop
filesystem for the store. On Spark Connect plain DataFrame operations take its place, and where Spark has no filesystem
for the store, or would give other values for a column because of its name, Python reads the files on the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from headwater.errors import StorageError
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.spark.functions import is_connect
from headwater.spark.jvm import jvm_of
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.snapshot import Snapshot

Road: TypeAlias = Literal["spark", "connect", "python"]

_NO_FILESYSTEM = ("No FileSystem for scheme", "ClassNotFoundException: Class org.apache.hadoop.fs.")
"""What Hadoop says of a scheme that it cannot serve: unknown, or known and its JAR is not there."""


_ROW_INDEX = "_tmp_metadata_row_index"
"""Spark's Parquet reader fills a column of this name with the positions of rows, whatever the file has in it."""


def choose_road(spark: SparkSession, snapshot: Snapshot) -> Road:
    """The road for a table.

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
        return "python"
    if is_connect(spark):
        served = location.kind == "local" or _server_has_filesystem(spark, f"{location.scheme}://{location.bucket}/")
        return "connect" if served else "python"
    if location.kind == "local" or _jvm_has_filesystem(spark, location.scheme):
        return "spark"
    return "python"


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
    """Ask the server to look at the store; what else it says of it (nothing is there, access denied) is no matter."""
    from pyspark.errors import PySparkException

    try:
        assert spark.read.schema("nothing int").parquet(root).schema is not None
    except PySparkException as error:
        return not _says_no_filesystem(error)
    return True


def _says_no_filesystem(error: Exception) -> bool:
    return any(sign in str(error) for sign in _NO_FILESYSTEM)
