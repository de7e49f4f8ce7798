"""A search table as a table of Spark's planner (DataSource V2), implemented in Python.

Spark calls these objects while it plans a query, whatever the query comes from: the DataFrame API, SQL over a view, a
join. It says which columns, rows, groups and how many rows it wants, and gets a scan that reads no more than that
(`headwater.spark.search.scan_builder`). Executors then run Python through Spark's own machinery for Python data
sources.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.spark.jvm import JavaObject, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.search.scan_source import ScanSource

CONNECTOR = "org.apache.spark.sql.connector"
_V2 = "org.apache.spark.sql.execution.datasources.v2"


class SearchRelation:
    """Spark's `Table` over one version of a search table. Method names are Spark's: the JVM calls them."""

    def __init__(self, spark: SparkSession, source: ScanSource) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._source = source
        self._schema = self._jvm.data_type(source.shown.to_dict())

    def name(self) -> str:
        """Table, version and search: shown in plans."""
        return self._source.name

    def schema(self) -> JavaObject:
        """All columns."""
        return self._schema

    def columns(self) -> JavaObject:
        """All columns, in the form of newer interfaces."""
        column = self._jvm.static(f"{CONNECTOR}.catalog.Column")
        made = [
            column.create(f.name, self._jvm.data_type(f.type_json), f.nullable, None, f.metadata_json)
            for f in map(_Field, self._source.shown.to_dict()["fields"])
        ]
        return java_array(self._spark, f"{CONNECTOR}.catalog.Column", made)

    def partitioning(self) -> JavaObject:
        """None that Spark must know of."""
        return empty_array(self._spark, f"{CONNECTOR}.expressions.Transform")

    def properties(self) -> JavaObject:
        """None."""
        return self._jvm.call("java.util.Collections", "emptyMap")

    def constraints(self) -> JavaObject:
        """None."""
        return empty_array(self._spark, f"{CONNECTOR}.catalog.constraints.Constraint")

    def id(self) -> None:
        """Spark's catalogs have no part in this."""

    def version(self) -> None:
        """A relation never changes: Spark need not look for another version."""

    def capabilities(self) -> JavaObject:
        """It can be read in batches."""
        kind = self._jvm.static(f"{CONNECTOR}.catalog.TableCapability")
        return self._jvm.call("java.util.Collections", "singleton", kind.BATCH_READ)

    def newScanBuilder(self, options: JavaObject) -> JavaObject:  # noqa: ARG002
        """A scan that is yet to be told what is wanted of it."""
        from headwater.spark.search.scan_builder import SearchScanBuilder

        return self._jvm.called_back(SearchScanBuilder(self._spark, self._source))

    @property
    def key(self) -> str:
        """What the relation is equal to: the same table, version and search."""
        return self._source.key

    class Java:
        """Tells py4j which interface this is."""

        implements = (f"{CONNECTOR}.catalog.SupportsRead",)


def relation_frame(spark: SparkSession, source: ScanSource) -> DataFrame:
    """A DataFrame over a source, in a classic session."""
    return frame_over(spark, SearchRelation(spark, source))


def frame_over(spark: SparkSession, table: SearchRelation) -> DataFrame:
    """A DataFrame over a relation."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    jvm = jvm_of(spark)
    jvm.start_callbacks()
    called = jvm.called_back(table, table.name(), table.key)
    relation = jvm.call(f"{_V2}.DataSourceV2Relation", "create", called, jvm.none, jvm.none)
    rows = jvm.static("org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, relation)
    frame: Any = ClassicDataFrame(rows, spark)
    return frame


class _Field:
    """A column, in the parts that Spark's interface wants."""

    def __init__(self, field: dict[str, Any]) -> None:
        self.name: str = field["name"]
        self.nullable: bool = field["nullable"]
        self.type_json: object = field["type"]
        self.metadata_json = json.dumps(field["metadata"]) if field["metadata"] else None


def empty_array(spark: SparkSession, class_name: str) -> JavaObject:
    """An empty Java array."""
    jvm = jvm_of(spark)
    return jvm.kept(f"{class_name}[0]", lambda: java_array(spark, class_name, []))


def java_array(spark: SparkSession, class_name: str, items: list[JavaObject]) -> JavaObject:
    """A Java array of a few things."""
    jvm = jvm_of(spark)
    array = jvm.gateway.new_array(jvm.static(class_name), len(items))
    for position, item in enumerate(items):
        array[position] = item
    return array
