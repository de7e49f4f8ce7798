"""Spark's `FileIndex`, implemented in Python: the planner asks which files a query needs.

Catalyst calls `listFiles` with the filters of a query, wherever they come from: the DataFrame API, SQL over a view, the
other side of a join. Files that cannot match are left out by the log's pruning, which may keep too many; partition
filters are then applied exactly, because Spark does not look at them again: by Arrow where that is certain to agree
with Spark, else by Spark's own evaluation.

The object in the plan is a small Java class (`resources/FileIndexes.java`), which asks Python only for files. All files
of a scan are kept on the JVM as objects of Spark, from the second listing on: the files of a query are then picked out
of them in a few calls.
"""

from __future__ import annotations

import json
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from headwater.errors import HeadwaterError
from headwater.log.filters.expressions import and_
from headwater.parquet.read import MODIFIED, PATH, SIZE
from headwater.spark import jvm as bulk
from headwater.spark.errors import remember_error
from headwater.spark.jvm import DATASOURCES, EXPRESSIONS, JavaObject, jvm_of
from headwater.spark.scan.catalyst import exact_rows, from_json
from headwater.spark.scan.columns import spark_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.filters.expressions import Column, Expression
    from headwater.log.schema import StructField


FILE_COLUMNS = (PATH, SIZE, MODIFIED)
"""The last columns of a source's rows; the partition columns come before them."""
_FILE_FIELDS = [
    {"name": name, "type": type_, "nullable": False, "metadata": {}}
    for name, type_ in zip(FILE_COLUMNS, ("string", "long", "long"), strict=True)
]


class FileSource(Protocol):
    """The files of one scan, as a `FileIndex` needs them.

    Attributes:
        name: says which files these are, to people: table, version, kind of scan.
        key: says exactly which files these are: Spark takes sources with equal keys for one another.
        root: the table's location, in the spelling of Hadoop's `Path`.
        partition_fields: the partition columns of the scan, as fields of a Spark schema in JSON.
        size_bytes: the size of all files.
        lists_at_once: whether opening the table lists all files, so that the first query need not.
        may_list_all: whether all files may be kept on the JVM at once; every path must then occur once.
    """

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def partition_fields(self) -> list[dict[str, Any]]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def lists_at_once(self) -> bool: ...
    @property
    def may_list_all(self) -> bool: ...
    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """Return the table's column for a column of the scan."""

    def rows(self, where: Expression) -> pa.Table:
        """Return the files that may match: typed partition columns, then `FILE_COLUMNS`. Paths are URIs."""


SourceT = TypeVar("SourceT", bound=FileSource)
INDEXES: WeakValueDictionary[str, PythonFileIndex[Any]] = WeakValueDictionary()
"""The indexes of living plans, by the names of their sources: all that a plan shows of an index is its text."""


class PythonFileIndex(Generic[SourceT]):
    """The `FileIndex` of a source. Methods that the JVM calls have Java's names.

    py4j keeps this object for as long as the JVM holds its proxy, so a plan, a view or a cached table keeps it.
    """

    def __init__(self, spark: SparkSession, source: SourceT) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self.source = source
        self._fields = source.partition_fields
        self._rows_schema = json.dumps({"type": "struct", "fields": [*self._fields, *_FILE_FIELDS]})
        self._directory = self._jvm.kept(f"directory {self._rows_schema}", self._directory_expression)
        self.root_paths = self._jvm.seq(self._jvm.static("org.apache.hadoop.fs.Path")(source.root))
        self.partition_schema = self._jvm.data_type({"type": "struct", "fields": self._fields})
        resolved = {field["name"]: source.resolve((field["name"],)) for field in self._fields}
        self._names = {column: name for name, column in resolved.items() if column is not None}
        self._whole: WholeListing | None = None
        self._has_listed = False
        INDEXES[source.name] = self

    def list_at_once(self) -> None:
        """List all files before any query does, if the source is for it."""
        if self._whole is None and self.source.lists_at_once:
            self._list_all(self.source.rows(and_()))

    # --- what Spark asks --------------------------------------------------------------------------------

    def apply(self, texts: str, filters: JavaObject) -> JavaObject:
        """Return the files that a query needs, as `Seq[PartitionDirectory]`.

        `texts` has the JSON of each partition filter and of each data filter, in two lists; `filters` are the two
        `Seq[Expression]` themselves.
        """
        try:
            exact, data = json.loads(texts)
            return self._list(exact, data, filters)
        except HeadwaterError as error:
            remember_error(error)
            raise

    def inputFiles(self) -> JavaObject:
        """Return the URIs of all files, as `String[]`."""
        jvm = self._jvm
        text = jvm.invoke(self._file_column(PATH), "toString", jvm.object_type("java.lang.String"))
        rows = bulk.rows(self._spark, self.source.rows(and_()), self._rows_schema)
        paths = rows.map(jvm.function(text))
        return paths.toArray(jvm.static("scala.reflect.ClassTag").apply(jvm.java_class("java.lang.String")))

    def sizeInBytes(self) -> int:
        """Return the size of all files: joins decide by it what to broadcast."""
        return self.source.size_bytes

    class Java:
        """Tell py4j which interfaces this is."""

        implements = (f"{DATASOURCES}.FileIndex", "java.util.function.BiFunction")

    # --- listing ---------------------------------------------------------------------------------------

    def _list(self, exact: list[Any], data: list[Any], filters: JavaObject) -> JavaObject:
        resolve = self.source.resolve
        exactly = and_(*(from_json(text, partial(_item, filters._1, i), resolve) for i, text in enumerate(exact)))
        where = and_(exactly, *(from_json(text, partial(_item, filters._2, i), resolve) for i, text in enumerate(data)))
        rows = self.source.rows(where)
        chosen = exact_rows(rows, exactly, self._names) if exact else rows
        if chosen is None:
            on_jvm = bulk.rows(self._spark, rows, self._rows_schema)
            return self._directories(on_jvm.filter(self._jvm.function(self._bound(_items(filters._1())))))
        return self._listing(chosen, complete=not exact and not data)

    def _listing(self, rows: pa.Table, *, complete: bool) -> JavaObject:
        """Return rows as Spark's objects: out of those of all files, from the second listing on."""
        if self._whole is None and self.source.may_list_all and (complete or self._has_listed):
            self._list_all(rows if complete else self.source.rows(and_()))
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
        """Return the expression for a row of partition values."""
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
        """Return the conjunction of partition filters, over the rows of the source."""
        jvm = self._jvm
        condition = reduce(lambda one, other: jvm.expression("And", one, other), filters)
        used = {a.name(): a for a in _items(condition.references().toSeq())}
        attributes = [used.get(field["name"]) or self._attribute(field) for field in self._fields]
        row = jvm.static(f"{EXPRESSIONS}.package$AttributeSeq")(jvm.seq(*attributes))
        return jvm.call(f"{EXPRESSIONS}.BindReferences", "bindReference", condition, row, False)

    def _attribute(self, field: dict[str, Any]) -> JavaObject:
        """Return an attribute that holds the place of a column that a filter does not use."""
        jvm = self._jvm
        metadata = jvm.call("org.apache.spark.sql.types.Metadata", "empty")
        identifier = jvm.call(f"{EXPRESSIONS}.NamedExpression", "newExprId")
        type_ = jvm.data_type(field["type"])
        return jvm.expression("AttributeReference", field["name"], type_, True, metadata, identifier, jvm.seq())


def _item(sequence: Callable[[], JavaObject], position: int) -> JavaObject:
    """Return one element of a Scala `Seq`; calling is left until it is needed."""
    return sequence().apply(position)


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(i) for i in range(sequence.size())]


_MAX_RUNS = 32
"""Files that lie together are picked in one call; from more places than this, sending them again is quicker."""


class WholeListing:
    """All files of a scan on the JVM, and where each of them is."""

    def __init__(self, paths: pa.ChunkedArray, directories: JavaObject) -> None:
        """Keep the path of every file, and a Scala `IndexedSeq` with one element a file, in the same order."""
        # A dictionary, for Arrow would hash all paths again for every query. A listing that is kept is not large.
        self._positions = {path: position for position, path in enumerate(paths.to_pylist())}
        self._directories = directories

    def pick(self, paths: pa.ChunkedArray) -> JavaObject | None:
        """Return the elements of some files, in their order; None where they lie in too many places."""
        runs = _runs(self._positions[path] for path in paths.to_pylist())
        if len(runs) > _MAX_RUNS:
            return None
        parts = [self._directories.slice(start, end) for start, end in runs] or [self._directories.take(0)]
        return reduce(lambda one, other: one.concat(other), parts)


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return consecutive positions as ranges; when there are too many, the first of them.

    >>> _runs([4, 5, 6, 9])
    [(4, 7), (9, 10)]
    """
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        elif len(runs) <= _MAX_RUNS:
            runs.append((position, position + 1))
        else:
            break
    return runs


SAFE_OPTIONS = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Rows must not vanish because of a setting of the session: only the reader itself may say so."""


def relation(
    spark: SparkSession, index: PythonFileIndex[Any], data_fields: list[StructField], options: Mapping[str, str]
) -> DataFrame:
    """Return Spark's relation over the files of an index, with all its columns.

    Args:
        spark: a classic session.
        index: the files, with their partition columns.
        data_fields: the columns in the files. A partition column among them says where it stands in the
            result.
        options: of the Parquet reader.
    """
    from pyspark.sql import DataFrame

    jvm = jvm_of(spark)
    jvm.start_callbacks()
    session = spark._jsparkSession
    index.list_at_once()
    source = index.source
    # The plan holds a class of Java, which keeps the index of Python for as long as it lives.
    callback = jvm.called_back(index, source.name, source.key)
    indexes = jvm.compiled("FileIndexes", f"{DATASOURCES}.FileIndex")
    java_relation = jvm.static(f"{DATASOURCES}.HadoopFsRelation")(
        indexes.create(callback, source.name, source.key, index.root_paths, index.partition_schema),
        index.partition_schema,
        jvm.data_type({"type": "struct", "fields": spark_fields(data_fields)}),
        jvm.none,
        jvm.static(f"{DATASOURCES}.parquet.ParquetFileFormat")(),
        jvm.map({**SAFE_OPTIONS, **options}),
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(java_relation), spark)
