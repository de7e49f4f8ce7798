"""A searched table as a table of Spark's planner (DataSource V2), implemented in Python.

Spark calls these objects while it plans a query, whatever the query comes from: the DataFrame API, SQL over a view, a
join. It says which columns, rows, groups and how many rows it wants, and gets a scan that reads no more than that.

Filters arrive as Catalyst expressions, all of them. Each becomes a query of the index where that means exactly the
same, and then Spark does not look at it again; otherwise the index and the log leave out what cannot match, and Spark
evaluates the filter on what is left. Aggregates are answered split by split when all filters are exact.

The plan of a scan travels to the executors by Spark's own classes for Python data sources, so what runs there is an
ordinary Python worker that gives Arrow back (`headwater.spark.search.reader`).
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.filters.expressions import and_
from headwater.log.schema import ArrayType, MapType, StructType
from headwater.search.query.tree import all_of
from headwater.spark import jvm as bulk
from headwater.spark.errors import remember_error
from headwater.spark.jvm import JavaObject, Jvm, exact_key, jvm_of
from headwater.spark.scan.catalyst import to_expression
from headwater.spark.search.pushdown import aggregate_on_driver, pushed_aggregate
from headwater.spark.search.reader import NullRows
from headwater.spark.search.source import Wanted
from headwater.spark.search.splits import run_pickled
from headwater.spark.search.sql_functions import matching_query
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.filters.expressions import Expression
    from headwater.spark.search.pushdown import PushedAggregate
    from headwater.spark.search.reader import Reader
    from headwater.spark.search.source import ScanSource


CONNECTOR = "org.apache.spark.sql.connector"
_V2 = "org.apache.spark.sql.execution.datasources.v2"


class SearchRelation:
    """Spark's `Table` over one version of a searched table. Method names are Spark's: the JVM calls them."""

    def __init__(self, spark: SparkSession, source: ScanSource) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._source = source
        self._schema = self._jvm.data_type(source.shown.to_dict())

    def name(self) -> str:
        return self._source.name

    def schema(self) -> JavaObject:
        return self._schema

    def columns(self) -> JavaObject:
        """Return the columns in the form of newer interfaces."""
        column = self._jvm.static(f"{CONNECTOR}.catalog.Column")
        fields: list[dict[str, Any]] = self._source.shown.to_dict()["fields"]
        made = []
        for field in fields:
            metadata = json.dumps(field["metadata"]) if field["metadata"] else None
            type_ = self._jvm.data_type(field["type"])
            made.append(column.create(field["name"], type_, field["nullable"], None, metadata))
        return java_array(self._spark, f"{CONNECTOR}.catalog.Column", made)

    def partitioning(self) -> JavaObject:
        return empty_array(self._spark, f"{CONNECTOR}.expressions.Transform")

    def properties(self) -> JavaObject:
        return self._jvm.call("java.util.Collections", "emptyMap")

    def constraints(self) -> JavaObject:
        return empty_array(self._spark, f"{CONNECTOR}.catalog.constraints.Constraint")

    def id(self) -> None:
        """Spark's catalogs do not know the table."""

    def version(self) -> None:
        """A relation never changes: Spark need not look for another version."""

    def capabilities(self) -> JavaObject:
        kind = self._jvm.static(f"{CONNECTOR}.catalog.TableCapability")
        return self._jvm.call("java.util.Collections", "singleton", kind.BATCH_READ)

    def newScanBuilder(self, options: JavaObject) -> JavaObject:  # noqa: ARG002
        return self._jvm.called_back(SearchScanBuilder(self._spark, self._source))

    class Java:
        implements = (f"{CONNECTOR}.catalog.SupportsRead",)


def relation_frame(spark: SparkSession, source: ScanSource) -> DataFrame:
    """Return a DataFrame over a source, in a classic session."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    table = SearchRelation(spark, source)
    jvm = jvm_of(spark)
    jvm.start_callbacks()
    called = jvm.called_back(table, source.name, source.key)
    relation = jvm.call(f"{_V2}.DataSourceV2Relation", "create", called, jvm.none, jvm.none)
    rows = jvm.static("org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, relation)
    frame: Any = ClassicDataFrame(rows, spark)
    return frame


def empty_array(spark: SparkSession, class_name: str) -> JavaObject:
    jvm = jvm_of(spark)
    return jvm.kept(f"{class_name}[0]", lambda: java_array(spark, class_name, []))


def java_array(spark: SparkSession, class_name: str, items: list[JavaObject]) -> JavaObject:
    jvm = jvm_of(spark)
    array = jvm.gateway.new_array(jvm.static(class_name), len(items))
    for position, item in enumerate(items):
        array[position] = item
    return array


class SearchScanBuilder:
    """Collects what a query wants. Method names are Spark's: the JVM calls them."""

    def __init__(self, spark: SparkSession, source: ScanSource) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._source = source
        self._wanted = Wanted(columns=source.shown.names)
        self._answers: dict[PushedAggregate, pa.Table | None] = {}

    def pruneColumns(self, schema: JavaObject) -> None:
        """Take the columns that are wanted; structs come whole."""
        names = [field["name"] for field in json.loads(schema.json())["fields"]]
        self._wanted = replace(self._wanted, columns=tuple(names))

    def pushFilters(self, filters: JavaObject) -> JavaObject:
        """Take all filters, and return those that Spark must evaluate."""
        given = [filters.apply(i) for i in range(filters.size())]
        try:
            searched = [matching_query(self._spark, condition, self._source.config) for condition in given]
            others = [condition for condition, query in zip(given, searched, strict=True) if query is None]
            expressions = [to_expression(condition, self._source.resolve) for condition in others]
            exact = [self._is_exact(expression) for expression in expressions]
        except HeadwaterError as error:
            remember_error(error)
            raise
        left = [condition for condition, is_exact in zip(others, exact, strict=True) if not is_exact]
        where = and_(*expressions) if expressions else None
        matching = [query for query in searched if query is not None]
        self._wanted = replace(
            self._wanted, where=where, filters_left=len(left), matching=all_of(*matching) if matching else None
        )
        return self._jvm.seq(*left)

    def _is_exact(self, expression: Expression) -> bool:
        _, exact = self._source.index_filter(expression)
        return exact

    def pushedFilters(self) -> JavaObject:
        """Return none: plans show filters in the description of the scan."""
        return empty_array(self._spark, f"{CONNECTOR}.expressions.filter.Predicate")

    def pushLimit(self, limit: int) -> bool:
        """Take the limit for each task; Spark counts the rows of all tasks again."""
        if self._wanted.filters_left:
            return False
        self._wanted = replace(self._wanted, limit=int(limit))
        return True

    def isPartiallyPushed(self) -> bool:
        return True

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:
        """Say whether the scan gives final results: the log knows them, or the driver can ask the splits."""
        return self._answer(self._pushed(aggregation)) is not None

    def pushAggregation(self, aggregation: JavaObject) -> bool:
        """Take aggregates that the splits can answer one by one."""
        pushed = self._pushed(aggregation)
        self._wanted = replace(self._wanted, aggregate=pushed)
        return pushed is not None

    def _pushed(self, aggregation: JavaObject) -> PushedAggregate | None:
        wanted, source = self._wanted, self._source
        if wanted.filters_left or wanted.limit is not None or not source.answers_aggregates:
            return None
        ansi = str(self._spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        return pushed_aggregate(aggregation, source.schema, ansi=ansi)

    def _answer(self, aggregate: PushedAggregate | None) -> pa.Table | None:
        """Return the result of aggregates, if no job is needed for it."""
        if aggregate is None:
            return None
        if aggregate not in self._answers:
            try:
                self._answers[aggregate] = self._ask(aggregate)
            except HeadwaterError as error:
                remember_error(error)
                raise
        return self._answers[aggregate]

    def _ask(self, aggregate: PushedAggregate) -> pa.Table | None:
        source, wanted = self._source, self._wanted
        if aggregate.is_count_of_all and not wanted.is_filtered and source.num_records is not None:
            count = pa.array([source.num_records], pa.int64())
            return pa.table([count] * len(aggregate.shown), names=aggregate.shown.names)
        splits = source.splits(wanted.where)
        return aggregate_on_driver(self._spark, source.snapshot, splits, source.query(wanted), aggregate)

    def build(self) -> JavaObject:
        answer = self._answer(self._wanted.aggregate)
        if answer is None:
            return SplitScan(self._spark, self._source, self._wanted).called_back()
        return AnsweredScan(self._spark, self._source, self._wanted, answer).called_back()

    class Java:
        implements = (
            f"{CONNECTOR}.read.SupportsPushDownRequiredColumns",
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            f"{CONNECTOR}.read.SupportsPushDownLimit",
            f"{CONNECTOR}.read.SupportsPushDownAggregates",
        )


_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python"


class _Scan:
    """What all scans have in common."""

    def __init__(self, spark: SparkSession, name: str, source: ScanSource, wanted: Wanted) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._name = name
        self._key = exact_key(type(self).__name__, source.key, wanted.key)
        self._shown = wanted.shown(source)
        self._given = self._shown if self._shown.fields else _one_column(source.shown)

    def called_back(self) -> JavaObject:
        """Return the scan as Spark calls it: equal to those that give the same rows."""
        return self._jvm.called_back(self, self._name, self._key)

    def readSchema(self) -> JavaObject:
        return self._jvm.data_type(self._given.to_dict())

    def description(self) -> str:
        return self._name

    def supportedCustomMetrics(self) -> JavaObject:
        return empty_array(self._spark, f"{CONNECTOR}.metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:
        return empty_array(self._spark, f"{CONNECTOR}.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> JavaObject:
        """Say that rows, not columns, come from Spark's class for Python data sources."""
        return self._jvm.static(f"{CONNECTOR}.read.Scan$ColumnarSupportMode").UNSUPPORTED


class AnsweredScan(_Scan):
    """Rows that are known when the query is planned: aggregates that the log or splits on the driver's disk know."""

    def __init__(self, spark: SparkSession, source: ScanSource, wanted: Wanted, answer: pa.Table) -> None:
        super().__init__(spark, f"{source.name}: {wanted.text}, answered on the driver", source, wanted)
        self._answer = answer

    def rows(self) -> JavaObject:
        """Return the rows as `InternalRow[]`."""
        found = bulk.rows(self._spark, self._answer, self._shown.to_json())
        row = self._jvm.java_class("org.apache.spark.sql.catalyst.InternalRow")
        return found.toArray(self._jvm.static("scala.reflect.ClassTag").apply(row))

    class Java:
        implements = (f"{CONNECTOR}.read.LocalScan",)


class SplitScan(_Scan):
    """A scan that is also its batch. Tasks are planned when Spark first asks for them."""

    def __init__(self, spark: SparkSession, source: ScanSource, wanted: Wanted) -> None:
        self._source = source
        self._wanted = wanted
        super().__init__(spark, f"{source.name}: {wanted.text}", source, wanted)

    def toBatch(self) -> JavaObject:
        return self.called_back()

    def estimateStatistics(self) -> JavaObject:
        """Return how much is read at most, for joins."""
        return self._jvm.called_back(_Statistics(self._spark, *self._estimate))

    def estimateSizeInBytes(self) -> JavaObject:
        return _optional(self._jvm, self._estimate[0])

    @cached_property
    def _estimate(self) -> tuple[int, int]:
        return self._source.estimate(self._wanted)

    def reflectsFullyPushedDownFilters(self) -> bool:
        """Say yes: otherwise Spark would evaluate the filters once more, to estimate better."""
        return True

    def planInputPartitions(self) -> JavaObject:
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
        reader: Reader = partial(run_pickled, self._source.task_plan(self._wanted).read)
        counts = not self._shown.fields and self._given.fields
        return reader_factory(self._spark, NullRows(reader, self._given.fields[0]) if counts else reader, self._given)

    class Java:
        implements = (f"{CONNECTOR}.read.SupportsReportStatistics", f"{CONNECTOR}.read.Batch")


def _one_column(shown: StructType) -> StructType:
    """Return a simple column to give where none is wanted, for Spark counts rows by the columns that they have."""
    simple = [f for f in shown.fields if not isinstance(f.type, StructType | ArrayType | MapType)]
    return StructType([*simple, *shown.fields][:1])


def reader_factory(spark: SparkSession, reader: Reader, shown: StructType) -> JavaObject:
    """Return Spark's factory of readers that run a Python function."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.udf import _wrap_function

    jvm = jvm_of(spark)
    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    pickled = bytearray(serializer.dumps((reader, shown.to_spark())))
    # Only the environment of the workers is taken from it: paths, variables, the Python to run.
    environment: Any = _wrap_function(spark.sparkContext, str)
    source = jvm.static(f"{_PYTHON}.UserDefinedPythonDataSource")(environment)
    factory = jvm.static(f"{_PYTHON}.PythonPartitionReaderFactory")
    arguments = [source, pickled, jvm.data_type(shown.to_dict()), jvm.none]
    constructor = jvm.java_class(f"{_PYTHON}.PythonPartitionReaderFactory").getConstructors()[0]
    arguments += [jvm.none] * (constructor.getParameterCount() - len(arguments))  # newer Sparks: a session's id
    return factory(*arguments)


class _Statistics:
    def __init__(self, spark: SparkSession, size_bytes: int, num_rows: int) -> None:
        self._jvm = jvm_of(spark)
        self._size_bytes = size_bytes
        self._num_rows = num_rows

    def sizeInBytes(self) -> JavaObject:
        return _optional(self._jvm, self._size_bytes)

    def numRows(self) -> JavaObject:
        return _optional(self._jvm, self._num_rows)

    def columnStats(self) -> JavaObject:
        return self._jvm.call("java.util.Collections", "emptyMap")

    class Java:
        implements = (f"{CONNECTOR}.read.Statistics",)


def _optional(jvm: Jvm, number: int) -> JavaObject:
    return jvm.call("java.util.OptionalLong", "of", jvm.call("java.lang.Long", "valueOf", str(number)))
