"""A version of a search table, or of what a search finds in it, as a DataFrame.

In classic PySpark it is a relation that Spark's planner talks to, so whatever a query wants less of is never read. On
Spark Connect there is no JVM to reach: a list of splits goes through `mapInArrow`, and only the `filter` of a search
leaves out splits and rows from the start.
"""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import StorageError
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.failures import remember_scan
from headwater.spark.functions import functions_for_connect, is_connect
from headwater.spark.no_rows import no_rows
from headwater.spark.search.relation import relation_frame
from headwater.spark.search.scan_source import ScanSource, Wanted
from headwater.spark.search.split_reader import SplitReader
from headwater.spark.workers import core_count, dealt, in_workers
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.expressions import Expression
    from headwater.spark.search.opening import OpenTable
    from headwater.spark.search.scan_source import Search


def table_frame(table: OpenTable) -> DataFrame:
    """All rows of a version."""
    return scan_frame(table, None)


def scan_frame(table: OpenTable, search: Search | None, where: Expression | None = None) -> DataFrame:
    """The rows that a search finds, or all rows.

    Args:
        table: the version.
        search: what to search for.
        where: a filter that Spark evaluates afterwards; on Spark Connect it says which rows need not be given to it.

    Raises:
        StorageError: the table is in the memory of this process, where no executor can read it.
    """
    check_reachable(table.uri)
    source = ScanSource(table.snapshot, table.config, search, table.storage_options)
    spark = table.spark
    if not is_connect(spark):
        remember_scan(table.uri, table.snapshot.version)
        return relation_frame(spark, source)
    remember_connect_scan(table.uri, table.snapshot.version)
    wanted = Wanted(source.shown.names, where)
    tasks = source.tasks(wanted, core_count(spark))
    return run_tasks(spark, SplitReader(source.read_plan(wanted)), tasks, source.shown.to_spark())


def run_tasks(
    spark: SparkSession,
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    tasks: Sequence[Any],
    shown: Any,
) -> DataFrame:
    """A DataFrame of what a function gives for tasks, each in a Python worker.

    Args:
        spark: the session, of either kind.
        run: gets rows with one binary column, each a pickled task.
        tasks: what can be pickled.
        shown: the columns of the result: a schema of Spark's, or DDL.
    """
    if not tasks:
        with functions_for_connect() if is_connect(spark) else nullcontext():
            return no_rows_of(spark, shown)
    listed = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batches)

    return in_workers(dealt(spark, listed, len(tasks)), work, shown)


def no_rows_of(spark: SparkSession, shown: Any) -> DataFrame:
    """No rows, with columns in one of Spark's forms."""
    from headwater.log.schema import StructType

    if isinstance(shown, str):
        return spark.createDataFrame([], shown)
    return no_rows(spark, StructType.from_spark(shown))


def check_reachable(uri: str) -> None:
    """Raise unless executors can reach a table."""
    if parse_uri(uri).kind == "memory":
        raise StorageError(f"{uri} is in the memory of this Python process, where no executor can read or write it")
