"""Spark's `FileIndex`, implemented in Python: the planner asks which files a query needs.

Catalyst calls `listFiles` with the filters of a query, wherever they come from: the DataFrame API, SQL over a
view, the other side of a join. Files that cannot match are left out by the log's pruning, which may keep too
many; partition filters are then applied exactly, because Spark does not look at them again: by Arrow where that is
certain to agree with Spark, else by Spark's own evaluation.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import HeadwaterError
from headwater.log.expressions import and_
from headwater.spark import bulk
from headwater.spark.catalyst import from_json
from headwater.spark.exact_filters import exact_rows
from headwater.spark.failures import remember_error
from headwater.spark.file_rows import MODIFIED, PATH, SIZE
from headwater.spark.jvm import DATASOURCES, EXPRESSIONS, JavaObject, jvm_of
from headwater.spark.listings import WholeListing

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headwater.log.expressions import Column, Expression

FILE_COLUMNS = (PATH, SIZE, MODIFIED)
"""The last columns of a source's rows; the partition columns come before them."""
_FILE_FIELDS = [
    {"name": name, "type": type_, "nullable": False, "metadata": {}}
    for name, type_ in zip(FILE_COLUMNS, ("string", "long", "long"), strict=True)
]


class FileSource(Protocol):
    """The files of one scan, as a `FileIndex` needs them."""

    @property
    def name(self) -> str:
        """Says which files these are, to people: table, version, kind of scan."""

    @property
    def key(self) -> str:
        """Says exactly which files these are: Spark takes sources with equal keys for one another."""

    @property
    def root(self) -> str:
        """The table's location, in the spelling of Hadoop's `Path`."""

    @property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The partition columns of the scan, as fields of a Spark schema in JSON."""

    @property
    def size_bytes(self) -> int:
        """The size of all files."""

    @property
    def lists_at_once(self) -> bool:
        """Whether opening the table lists all files, so that the first query need not."""

    @property
    def may_list_all(self) -> bool:
        """Whether all files may be kept on the JVM at once; every path must then occur once."""

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """The table's column for a column of the scan."""

    def rows(self, where: Expression) -> pa.Table:
        """The files that may match: typed partition columns, then `FILE_COLUMNS`. Paths are URIs."""


class PythonFileIndex:
    """The `FileIndex` of one scan. Method names are Java's: the JVM calls them, through `jvm_file_index`.

    py4j keeps this object for as long as the JVM holds its proxy, so a plan, a view or a cached table keeps
    it.
    """

    def __init__(self, spark: SparkSession, source: FileSource) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._source = source
        self._fields = source.partition_fields
        self._rows_schema = json.dumps({"type": "struct", "fields": [*self._fields, *_FILE_FIELDS]})
        self._directory = self._jvm.kept(f"directory {self._rows_schema}", self._directory_expression)
        self._root_paths = self._jvm.seq(self._jvm.static("org.apache.hadoop.fs.Path")(source.root))
        self._partition_schema = self._jvm.data_type({"type": "struct", "fields": self._fields})
        resolved = {field["name"]: source.resolve((field["name"],)) for field in self._fields}
        self._names = {column: name for name, column in resolved.items() if column is not None}
        self._whole: WholeListing | None = None
        self._has_listed = False

    def list_all(self) -> None:
        """List all files before any query does."""
        self._list_all(self._source.rows(and_()))

    @property
    def key(self) -> str:
        """What the index is equal to."""
        return self._source.key

    # --- what Spark asks --------------------------------------------------------------------------------

    def apply(self, texts: str, filters: JavaObject) -> JavaObject:
        """The files that a query needs, as `Seq[PartitionDirectory]`.

        Args:
            texts: the JSON of each partition filter and of each data filter, in two lists.
            filters: the two `Seq[Expression]` themselves.
        """
        try:
            exact, data = json.loads(texts)
            return self._list(exact, data, filters)
        except HeadwaterError as error:
            remember_error(error)
            raise

    def inputFiles(self) -> JavaObject:
        """The URIs of all files, as `String[]`."""
        jvm = self._jvm
        text = jvm.invoke(self._file_column(PATH), "toString", jvm.object_type("java.lang.String"))
        rows = bulk.rows(self._spark, self._source.rows(and_()), self._rows_schema)
        paths = rows.map(jvm.function(text))
        return paths.toArray(jvm.static("scala.reflect.ClassTag").apply(jvm.java_class("java.lang.String")))

    def rootPaths(self) -> JavaObject:
        """The table's location."""
        return self._root_paths

    def partitionSchema(self) -> JavaObject:
        """The partition columns, hidden ones included."""
        return self._partition_schema

    def sizeInBytes(self) -> int:
        """The size of all files: joins decide by it what to broadcast."""
        return self._source.size_bytes

    def toString(self) -> str:
        """Table, version and kind of scan."""
        return self._source.name

    class Java:
        """Tells py4j which interfaces this is."""

        implements = (f"{DATASOURCES}.FileIndex", "java.util.function.BiFunction")

    # --- listing ---------------------------------------------------------------------------------------

    def _list(self, exact: list[Any], data: list[Any], filters: JavaObject) -> JavaObject:
        resolve = self._source.resolve
        exactly = and_(*(from_json(text, partial(_item, filters._1, i), resolve) for i, text in enumerate(exact)))
        where = and_(exactly, *(from_json(text, partial(_item, filters._2, i), resolve) for i, text in enumerate(data)))
        rows = self._source.rows(where)
        chosen = exact_rows(rows, exactly, self._names) if exact else rows
        if chosen is None:
            on_jvm = bulk.rows(self._spark, rows, self._rows_schema)
            return self._directories(on_jvm.filter(self._jvm.function(self._bound(_items(filters._1())))))
        return self._listing(chosen, complete=not exact and not data)

    def _listing(self, rows: pa.Table, *, complete: bool) -> JavaObject:
        """The rows as Spark's objects: out of those of all files, from the second listing on."""
        if self._whole is None and self._source.may_list_all and (complete or self._has_listed):
            self._list_all(rows if complete else self._source.rows(and_()))
        self._has_listed = True
        picked = None if self._whole is None else self._whole.pick(rows.column(PATH))
        return self._directories(bulk.rows(self._spark, rows, self._rows_schema)) if picked is None else picked

    def _list_all(self, rows: pa.Table) -> None:
        on_jvm = self._directories(bulk.rows(self._spark, rows, self._rows_schema)).toIndexedSeq()
        self._whole = WholeListing(rows.column(PATH), on_jvm)

    # --- expressions over the rows of a source ------------------------------------------------------------

    def _directories(self, rows: JavaObject) -> JavaObject:
        # A compiled function keeps a row of its own, so every listing has its own function: listings may overlap.
        return rows.map(self._jvm.function(self._directory))

    def _bound_column(self, position: int, type_: object, *, nullable: bool) -> JavaObject:
        return self._jvm.expression("BoundReference", position, self._jvm.data_type(type_), nullable)

    def _file_column(self, name: str) -> JavaObject:
        position = FILE_COLUMNS.index(name)
        return self._bound_column(len(self._fields) + position, _FILE_FIELDS[position]["type"], nullable=False)

    def _path_expression(self) -> JavaObject:
        jvm = self._jvm
        text = jvm.invoke(self._file_column(PATH), "toString", jvm.object_type("java.lang.String"))
        uri = jvm.static_invoke("java.net.URI", "create", jvm.object_type("java.net.URI"), text)
        return jvm.new("org.apache.hadoop.fs.Path", uri)

    def _directory_expression(self) -> JavaObject:
        """`new PartitionDirectory(values, List(new FileStatusWithMetadata(status, Map())))`."""
        jvm = self._jvm
        size, modified = self._file_column(SIZE), self._file_column(MODIFIED)
        no, one = jvm.literal(False, jvm.data_type("boolean")), jvm.literal(1, jvm.data_type("integer"))
        # Length, is a directory, replication, block size (of no meaning here), modification time, path.
        status = jvm.new("org.apache.hadoop.fs.FileStatus", size, no, one, size, modified, self._path_expression())
        no_metadata = jvm.literal(jvm.map({}), jvm.object_type("scala.collection.immutable.Map"))
        file = jvm.new(f"{DATASOURCES}.FileStatusWithMetadata", status, no_metadata)
        seq = jvm.object_type("scala.collection.immutable.Seq")
        files = jvm.invoke(jvm.new("scala.Some", file), "toList", seq)
        return jvm.new(f"{DATASOURCES}.PartitionDirectory", self._values_expression(), files)

    def _values_expression(self) -> JavaObject:
        """The partition values as a row of their own."""
        jvm = self._jvm
        parts: list[JavaObject] = []
        for position, field in enumerate(self._fields):
            parts.append(jvm.literal(field["name"], jvm.data_type("string")))
            parts.append(self._bound_column(position, field["type"], nullable=True))
        if not parts:
            no_values = jvm.call("org.apache.spark.sql.catalyst.InternalRow", "empty")
            return jvm.literal(no_values, jvm.data_type({"type": "struct", "fields": []}))
        return jvm.expression("CreateNamedStruct", jvm.seq(*parts))

    def _bound(self, filters: list[JavaObject]) -> JavaObject:
        """The conjunction of partition filters, over the rows of the source."""
        jvm = self._jvm
        condition = filters[0]
        for further in filters[1:]:
            condition = jvm.expression("And", condition, further)
        used = {a.name(): a for a in _items(condition.references().toSeq())}
        attributes = [used.get(field["name"]) or self._attribute(field) for field in self._fields]
        row = jvm.static(f"{EXPRESSIONS}.package$AttributeSeq")(jvm.seq(*attributes))
        return jvm.call(f"{EXPRESSIONS}.BindReferences", "bindReference", condition, row, False)

    def _attribute(self, field: dict[str, Any]) -> JavaObject:
        """An attribute of no plan: it holds the place of a column that a filter does not use."""
        jvm = self._jvm
        metadata = jvm.call("org.apache.spark.sql.types.Metadata", "empty")
        identifier = jvm.call(f"{EXPRESSIONS}.NamedExpression", "newExprId")
        type_ = jvm.data_type(field["type"])
        return jvm.expression("AttributeReference", field["name"], type_, True, metadata, identifier, jvm.seq())


def _item(sequence: Callable[[], JavaObject], position: int) -> JavaObject:
    """One element of a Scala `Seq`, fetched when it is needed."""
    return sequence().apply(position)


def _items(sequence: JavaObject) -> list[JavaObject]:
    """The elements of a short Scala `Seq`."""
    return [sequence.apply(i) for i in range(sequence.size())]
