"""Spark's scan over the splits of a search table: tasks are planned on the driver, and run in Python workers.

The plan of a scan travels to the executors by Spark's own classes for Python data sources, so what runs there is an
ordinary Python worker that gives Arrow back (`headwater.spark.search.split_reader`).
"""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.log.schema import ArrayType, MapType, StructType
from headwater.spark import bulk
from headwater.spark.failures import remember_error
from headwater.spark.jvm import JavaObject, Jvm, exact_key, jvm_of
from headwater.spark.search.relation import CONNECTOR, empty_array, java_array
from headwater.spark.search.split_reader import NullRows, SplitReader
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.spark.search.scan_source import ScanSource, Wanted
    from headwater.spark.search.split_reader import Reader

_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python"


class _Scan:
    """What all scans answer alike."""

    def __init__(self, spark: SparkSession, name: str, source: ScanSource, wanted: Wanted) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._name = name
        self._key = exact_key(type(self).__name__, source.key, wanted.key)
        self._shown = wanted.shown(source)
        self._given = self._shown if self._shown.fields else _one_column(source.shown)

    def called_back(self) -> JavaObject:
        """The scan as Spark calls it: equal to those that give the same rows."""
        return self._jvm.called_back(self, self._name, self._key)

    def readSchema(self) -> JavaObject:
        """The columns that it gives."""
        return self._jvm.data_type(self._given.to_dict())

    def description(self) -> str:
        """Shown in plans."""
        return self._name

    def supportedCustomMetrics(self) -> JavaObject:
        """None of its own."""
        return empty_array(self._spark, f"{CONNECTOR}.metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:
        """None."""
        return empty_array(self._spark, f"{CONNECTOR}.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> JavaObject:
        """Rows, not columns, come from Spark's class for Python data sources."""
        return self._jvm.static(f"{CONNECTOR}.read.Scan$ColumnarSupportMode").UNSUPPORTED


class AnsweredScan(_Scan):
    """Rows that are known when the query is planned: aggregates that the log knows, or splits on the driver's disk."""

    def __init__(self, spark: SparkSession, source: ScanSource, wanted: Wanted, answer: pa.Table) -> None:
        super().__init__(spark, f"{source.name}: {wanted.text}, answered on the driver", source, wanted)
        self._answer = answer

    def rows(self) -> JavaObject:
        """The rows, as `InternalRow[]`."""
        found = bulk.rows(self._spark, self._answer, self._shown.to_json())
        row = self._jvm.java_class("org.apache.spark.sql.catalyst.InternalRow")
        return found.toArray(self._jvm.static("scala.reflect.ClassTag").apply(row))

    class Java:
        """Tells py4j which interface this is."""

        implements = (f"{CONNECTOR}.read.LocalScan",)


class SplitScan(_Scan):
    """A scan that is also its batch. Tasks are planned when Spark first asks for them."""

    def __init__(self, spark: SparkSession, source: ScanSource, wanted: Wanted) -> None:
        self._source = source
        self._wanted = wanted
        super().__init__(spark, f"{source.name}: {wanted.text}", source, wanted)

    def toBatch(self) -> JavaObject:
        """This very object."""
        return self.called_back()

    def estimateStatistics(self) -> JavaObject:
        """How much it will read, for joins."""
        return self._jvm.called_back(_Statistics(self._spark, *self._estimate))

    def estimateSizeInBytes(self) -> JavaObject:
        """The same of the bytes alone."""
        return _optional(self._jvm, self._estimate[0])

    @cached_property
    def _estimate(self) -> tuple[int, int]:
        return self._source.estimate(self._wanted)

    def reflectsFullyPushedDownFilters(self) -> bool:
        """Yes, as far as anybody can know: otherwise Spark would evaluate them once more, to estimate better."""
        return True

    def planInputPartitions(self) -> JavaObject:
        """The tasks."""
        partition = self._jvm.static(f"{_PYTHON}.PythonInputPartition")
        made = [partition(number, bytearray(pickle.dumps(task))) for number, task in enumerate(self._tasks)]
        return java_array(self._spark, f"{CONNECTOR}.read.InputPartition", made)

    @cached_property
    def _tasks(self) -> list[Any]:
        try:
            return self._source.tasks(self._wanted, core_count(self._spark))
        except HeadwaterError as error:
            remember_error(error)
            raise

    def createReaderFactory(self) -> JavaObject:
        """What executors run."""
        return self._factory(SplitReader(self._source.read_plan(self._wanted)))

    def _factory(self, reader: Reader) -> JavaObject:
        counts = not self._shown.fields and self._given.fields
        return reader_factory(self._spark, NullRows(reader, self._given.fields[0]) if counts else reader, self._given)

    class Java:
        """Tells py4j which interfaces this is."""

        implements = (f"{CONNECTOR}.read.SupportsReportStatistics", f"{CONNECTOR}.read.Batch")


def _one_column(shown: StructType) -> StructType:
    """The column to give where none is wanted, for Spark counts rows by the columns that they have; a simple one."""
    simple = [f for f in shown.fields if not isinstance(f.type, StructType | ArrayType | MapType)]
    return StructType([*simple, *shown.fields][:1])


def reader_factory(spark: SparkSession, reader: Reader, shown: StructType) -> JavaObject:
    """Spark's factory of readers that run a Python function."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.udf import _wrap_function

    jvm = jvm_of(spark)
    pickled = bytearray(CloudPickleSerializer().dumps((reader, shown.to_spark())))
    # Only the environment of the workers is taken from it: paths, variables, the Python to run.
    environment: Any = _wrap_function(spark.sparkContext, str)
    source = jvm.static(f"{_PYTHON}.UserDefinedPythonDataSource")(environment)
    factory = jvm.static(f"{_PYTHON}.PythonPartitionReaderFactory")
    arguments = [source, pickled, jvm.data_type(shown.to_dict()), jvm.none]
    constructor = jvm.java_class(f"{_PYTHON}.PythonPartitionReaderFactory").getConstructors()[0]
    arguments += [jvm.none] * (constructor.getParameterCount() - len(arguments))  # newer Sparks: a session's id
    return factory(*arguments)


class _Statistics:
    """The size and number of rows of a scan, as Spark asks for them."""

    def __init__(self, spark: SparkSession, size_bytes: int, num_rows: int) -> None:
        self._jvm = jvm_of(spark)
        self._size_bytes = size_bytes
        self._num_rows = num_rows

    def sizeInBytes(self) -> JavaObject:
        """An upper bound of the bytes."""
        return _optional(self._jvm, self._size_bytes)

    def numRows(self) -> JavaObject:
        """An upper bound of the rows."""
        return _optional(self._jvm, self._num_rows)

    def columnStats(self) -> JavaObject:
        """None."""
        return self._jvm.call("java.util.Collections", "emptyMap")

    class Java:
        """Tells py4j which interface this is."""

        implements = (f"{CONNECTOR}.read.Statistics",)


def _optional(jvm: Jvm, number: int) -> JavaObject:
    return jvm.call("java.util.OptionalLong", "of", jvm.call("java.lang.Long", "valueOf", str(number)))
