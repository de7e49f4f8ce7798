"""What a query wants of a search table, as Spark's planner hands it over: columns, filters, a limit, groups.

Filters arrive as Catalyst expressions, all of them. Each becomes a query of the index where that means exactly the
same, and then Spark does not look at it again; otherwise the index and the log leave out what cannot match, and Spark
evaluates the filter on what is left. Aggregates are answered split by split when all filters are exact.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.expressions import and_
from headwater.search.query import all_of
from headwater.spark.catalyst import to_expression
from headwater.spark.failures import remember_error
from headwater.spark.jvm import JavaObject, jvm_of
from headwater.spark.search.opening import OpenTable
from headwater.spark.search.pushed_aggregates import pushed_aggregate
from headwater.spark.search.relation import CONNECTOR, empty_array
from headwater.spark.search.scan_source import Wanted
from headwater.spark.search.split_aggregate import aggregate_near
from headwater.spark.search.split_scan import AnsweredScan, SplitScan
from headwater.spark.search.sql_functions import matching_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.expressions import Expression
    from headwater.spark.search.pushed_aggregates import PushedAggregate
    from headwater.spark.search.scan_source import ScanSource


class SearchScanBuilder:
    """Collects what is wanted. Method names are Spark's: the JVM calls them."""

    def __init__(self, spark: SparkSession, source: ScanSource) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._source = source
        self._wanted = Wanted(columns=source.shown.names)
        self._answers: dict[PushedAggregate, pa.Table | None] = {}

    def pruneColumns(self, schema: JavaObject) -> None:
        """Only these columns are wanted; structs come whole."""
        names = [field["name"] for field in json.loads(schema.json())["fields"]]
        self._wanted = replace(self._wanted, columns=tuple(names))

    def pushFilters(self, filters: JavaObject) -> JavaObject:
        """Take all filters; those that Spark must evaluate are given back."""
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
        """What plans show of them is in the description of the scan."""
        return empty_array(self._spark, f"{CONNECTOR}.expressions.filter.Predicate")

    def pushLimit(self, limit: int) -> bool:
        """No task needs to give more rows than this; Spark counts them again."""
        if self._wanted.filters_left:
            return False
        self._wanted = replace(self._wanted, limit=int(limit))
        return True

    def isPartiallyPushed(self) -> bool:
        """Each task has the limit for itself."""
        return True

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:
        """Whether the scan gives final results: where the log knows them, or splits that are near."""
        return self._answer(self._pushed(aggregation)) is not None

    def pushAggregation(self, aggregation: JavaObject) -> bool:
        """Take aggregates that the splits can answer one by one."""
        pushed = self._pushed(aggregation)
        self._wanted = replace(self._wanted, aggregate=pushed)
        return pushed is not None

    def _pushed(self, aggregation: JavaObject) -> PushedAggregate | None:
        if self._wanted.filters_left or self._wanted.limit is not None:
            return None
        ansi = str(self._spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        return pushed_aggregate(aggregation, self._source.schema, ansi=ansi)

    def _answer(self, aggregate: PushedAggregate | None) -> pa.Table | None:
        """The result of aggregates, if no job is needed for it."""
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
        table = OpenTable(self._spark, source.snapshot, source.storage_options)
        return aggregate_near(table, source.splits(wanted.where), source.query(wanted), aggregate)

    def build(self) -> JavaObject:
        """The scan."""
        answer = self._answer(self._wanted.aggregate)
        if answer is None:
            return SplitScan(self._spark, self._source, self._wanted).called_back()
        return AnsweredScan(self._spark, self._source, self._wanted, answer).called_back()

    class Java:
        """Tells py4j which interfaces this is."""

        implements = (
            f"{CONNECTOR}.read.SupportsPushDownRequiredColumns",
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            f"{CONNECTOR}.read.SupportsPushDownLimit",
            f"{CONNECTOR}.read.SupportsPushDownAggregates",
        )
