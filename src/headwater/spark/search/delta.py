"""Delta tables with a search index: searching a version, and building the splits of data files that have none.

Which version is searched is decided by the log alone, and then the index of the table is asked, so an answer is never
stale. Files of the version that have a split are answered by it, all others are read and searched with the same
analysers; the answer is the same either way. Aggregates are Spark's, for rows that a deletion vector hides must not
count.

A task that builds reads a data file as it is, rows that a deletion vector hides included, indexes it, and puts the
split to its place in one step. After an interruption, what was built stays, and the next call builds the rest.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SearchQueryError
from headwater.log.actions.paths import file_uris, hadoop_root
from headwater.log.files.arrow import int64s
from headwater.log.filters.sql import parse_filter
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructField, StructType
from headwater.log.schema.types import hidden
from headwater.parquet.read import END, PATH, SIZE, START, ReaderSettings
from headwater.search.config import IndexConfig
from headwater.search.delta_index import (
    SearchIndexed,
    bind,
    coverage,
    existing_splits,
    required_definition,
    split_keys,
    with_splits,
)
from headwater.search.engine.scoring import merge_statistics
from headwater.search.rows.evaluate import columns_needed
from headwater.search.split.build import SplitWriter
from headwater.spark.errors import explained_failures
from headwater.spark.functions import jvm_session
from headwater.spark.scan.columns import ScanColumns
from headwater.spark.scan.deletion_vectors import VECTOR_COLUMN
from headwater.spark.scan.explain import ScanSummary, shortened
from headwater.spark.scan.files import partition_values
from headwater.spark.scan.python import ReadPlan, read_ranges, reader_settings
from headwater.spark.scan.request import prunable, resolve_target
from headwater.spark.search.delta_reader import SPLIT_BYTES_COLUMN, SPLIT_COLUMN, DeltaReadPlan, file_statistics
from headwater.spark.search.source import ScanSource, Wanted
from headwater.spark.search.splits import (
    SplitRef,
    can_answer_on_driver,
    check_reachable,
    collect_answers,
)
from headwater.spark.workers import core_count, distribute, in_workers
from headwater.storage import open_store
from headwater.storage.copying import copy_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date, datetime

    from pyspark.sql import SparkSession

    from headwater.log.filters.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.search.delta_index import BoundIndex, SearchCoverage, SearchDefinition
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Query
    from headwater.search.split.build import BuiltSplit
    from headwater.spark.search.source import Search
    from headwater.spark.session import SparkTable

_PARTITION_PREFIX = hidden("partition_")
_BEYOND_ALL_FILES = 2**62


@dataclass(frozen=True)
class IndexedTable:
    """One version of a Delta table, with the search index that the table has now."""

    spark: SparkSession
    snapshot: Snapshot
    definition: SearchDefinition
    settings: ReaderSettings
    """Of the session, when the table was opened."""

    @property
    def uri(self) -> str:
        return self.snapshot.uri

    @property
    def config(self) -> IndexConfig:
        """The fields of queries, by the names of this version."""
        return self.bound.shown

    @cached_property
    def bound(self) -> BoundIndex:
        """The definition with the schema of this version."""
        return bind(self.definition, self.snapshot)

    @cached_property
    def columns(self) -> ScanColumns:
        return ScanColumns(self.snapshot.schema, self.snapshot.mapping_mode, self.snapshot.metadata.partition_columns)

    @cached_property
    def splits(self) -> pa.Table:
        """The existing splits of the index, listed once."""
        return existing_splits(self.snapshot.ctx.store, self.bound.fingerprint)

    # --- what a search asks -----------------------------------------------------------------------------

    def source(self, search: Search | None = None) -> DeltaSource:
        return DeltaSource(self.snapshot, self.config, search, table=self)

    def pruning(self, condition: str) -> Expression | None:
        """Return the part of a filter that the log and the index understand; None where Spark plans the filter."""
        if jvm_session(self.spark) is not None:
            return None
        return prunable(self.spark, parse_filter(condition), self.snapshot.schema)

    def snippet_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        if isinstance(names, str):
            raise SearchQueryError(f"snippets is a list of columns, not a text: write [{names!r}]")
        for name in names:
            found = self.config.find(name)
            if found is None or found.kind not in ("text", "string") or found.name != found.column:
                raise SearchQueryError(
                    f"there are no fragments of {name!r}: it is not a column that is indexed as text or string"
                )
        return tuple(self.config.field(name).column for name in names)

    def statistics(self, query: Query) -> Statistics:
        check_reachable(self.uri)
        bound = self.bound
        count = partial(file_statistics, self.index_plan(), bound.stored.to_json(), bound.stored_query(query))
        tasks = file_tasks(self.files(), core_count(self.spark))
        if self._can_answer_on_driver():
            with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1) or 1, "headwater-search") as pool:
                found = merge_statistics(pool.map(count, tasks))
        else:
            found = merge_statistics(collect_answers(self.spark, count, tasks))
        return bound.shown_statistics(found)

    def _can_answer_on_driver(self) -> bool:
        """Say whether the driver should ask the splits itself: all files have one, and they are on its disk."""
        covered = self.covered()
        splits = [SplitRef("", pc.sum(covered.column("split_bytes")).as_py() or 0)]
        return covered.column("split").null_count == 0 and can_answer_on_driver(self.spark, self.uri, splits)

    # --- files ------------------------------------------------------------------------------------------

    def covered(self, where: Expression | None = None) -> pa.Table:
        """Return path (as the log has it), size and split of the files that may match."""
        return with_splits(self.snapshot.files(where, ["path", "size"]), self.splits, self.bound.fingerprint)

    def coverage(self, where: Expression | None = None) -> SearchCoverage:
        """Return how much of the files that may match is indexed."""
        return coverage(self.snapshot.version, self.covered(where))

    @property
    def has_vectors(self) -> bool:
        """Whether any live file has a deletion vector."""
        vectors = self.snapshot.files(columns=["deletionVector"]).column("deletionVector")
        return bool(vectors.null_count < len(vectors))

    def files(self, where: Expression | None = None) -> pa.Table:
        """Return the files that may match, one row each, for tasks.

        Partition values stand in columns of their own, called by their names in data files, for both the rows of the
        table and the columns of the index are made with them.
        """
        partitioned = ["partitionValues"] if self.columns.partition_columns else []
        found = self.snapshot.files(where, ["path", "size", "deletionVector", *partitioned])
        files = with_splits(found, self.splits, self.bound.fingerprint)
        rows = {
            PATH: file_uris(files.column("path"), self.uri),
            SIZE: files.column("size"),
            VECTOR_COLUMN: files.column("deletionVector"),
            SPLIT_COLUMN: files.column("split"),
            SPLIT_BYTES_COLUMN: files.column("split_bytes"),
        }
        for name in self.columns.partition_columns:
            key, column = self.columns.partition_key(name), self.columns.table.field(name)
            texts, zone = files.column("partitionValues"), self.snapshot.ctx.time_zone
            rows[_PARTITION_PREFIX + key] = partition_values(texts, column, key, zone)
        return pa.table(rows)

    def row_plan(self, schema: StructType) -> ReadPlan:
        """Return how to read columns of the table, by the names of this version, from its files."""
        columns = self.columns
        keys = {columns.table.field(name).name: columns.partition_key(name) for name in columns.partition_columns}
        return self._read_plan(schema, keys)

    def index_plan(self) -> ReadPlan:
        """Return how to read what a split is made from."""
        keys = [self.columns.partition_key(name) for name in self.columns.partition_columns]
        return self._read_plan(self.bound.stored_schema, {key: key for key in keys})

    def _read_plan(self, schema: StructType, partitions: dict[str, str]) -> ReadPlan:
        return ReadPlan(
            uri=self.uri,
            storage_options=self.snapshot.ctx.storage_options,
            schema_json=schema.to_json(),
            mode=self.snapshot.mapping_mode,
            partition_columns={n: _PARTITION_PREFIX + key for n, key in partitions.items() if n in schema.names},
            settings=self.settings,
        )


def open_indexed_table(
    table: SparkTable, version: int | None = None, timestamp: str | datetime | date | int | None = None
) -> IndexedTable:
    """Open one version of a Delta table with the search index that the table has now.

    Raises:
        SearchIndexNotFoundError: the table has no search index.
    """
    target = resolve_target(table.ref.location, version, timestamp, table.time_zone)
    ctx = replace(table.ref, location=target.path).context(time_zone=table.time_zone)
    snapshot = newest = open_snapshot(ctx)
    if target.version is not None or target.timestamp is not None:
        snapshot = open_snapshot(ctx, version=target.version, timestamp=target.timestamp)
    # The newest definition, for any version: what it says of a data file is true whenever the file was live.
    return IndexedTable(table.spark, snapshot, required_definition(newest), reader_settings(table.spark))


@dataclass(frozen=True)
class DeltaSource(ScanSource):
    """One version of a Delta table, and a search of it. Fields and columns have the names of that version."""

    table: IndexedTable = field(kw_only=True)

    @cached_property
    def coverage(self) -> SearchCoverage:
        return self.table.coverage()

    @cached_property
    def name(self) -> str:
        table = f"Delta table {self.snapshot.uri} ({self.snapshot.metadata.id}), {self.coverage}"
        return f"{table}: {shortened(self.search)}"

    @cached_property
    def schema(self) -> StructType:
        return StructType([StructField(f.name, f.type, True, f.metadata) for f in self.table.columns.visible.fields])

    @property
    def num_records(self) -> int | None:
        return None

    @property
    def answers_aggregates(self) -> bool:
        return False

    def summary(self) -> ScanSummary:
        covered = self.coverage
        rest = covered.num_files - covered.num_covered_files
        rows = f", row by row for {rest}" if rest else ""
        return ScanSummary(
            table=hadoop_root(self.snapshot.uri),
            version=covered.version,
            files_kept=covered.num_files,
            files_total=self.snapshot.num_files,
            size_bytes_kept=covered.size_bytes,
            size_bytes_total=self.snapshot.size_bytes,
            deletion_vectors=self.table.has_vectors,
            reader=f"the search index for {covered.num_covered_files} files{rows}",
        )

    def estimate(self, wanted: Wanted) -> tuple[int, int]:
        size_bytes = self.table.coverage(wanted.where).size_bytes
        return size_bytes, size_bytes

    def tasks(self, wanted: Wanted, parallelism: int) -> list[Any]:
        return file_tasks(self.table.files(wanted.where), parallelism)

    def task_plan(self, wanted: Wanted) -> DeltaReadPlan:
        query, shown, table = self.query(wanted), wanted.shown(self), self.table
        assert query is not None, "something is searched for"
        assert self.search is not None, "something is searched for"
        search = self.search.only(shown.names)
        scored = columns_needed(search.query, self.config) if search.score else []
        rows = [*(name for name in shown.names if name in self.schema.names), *scored, *search.snippets]
        needed = dict.fromkeys([*rows, *columns_needed(query, self.config)])
        return DeltaReadPlan(
            shown_json=shown.to_json(),
            rows=table.row_plan(StructType([table.columns.table.field(name) for name in needed])),
            row_columns=tuple(dict.fromkeys(rows)),
            index=table.index_plan(),
            doc_mapping=self.config.to_json(),
            query=query,
            stored_query=table.bound.stored_query(query),
            search=search,
            stored_statistics=table.bound.stored_statistics(search.statistics),
            limit=wanted.limit,
        )


_RANGE_BYTES = 16 * 2**20
"""Of a file that is searched row by row: analysing text takes much longer than reading it."""
_SEARCH_TASK_BYTES = 64 * 2**20
_TASKS_PER_CORE = 2


def file_tasks(files: pa.Table, parallelism: int) -> list[pa.Table]:
    """Distribute files over tasks: those with a split as they are, the others in ranges of bytes."""
    by_index = files.column(SPLIT_COLUMN).is_valid()
    work = pa.concat_tables([_whole(files.filter(by_index)), _ranges(files.filter(pc.invert(by_index)))])
    size_bytes = pc.sum(work.column(SIZE)).as_py() or 0
    count = min(work.num_rows, max(parallelism * _TASKS_PER_CORE, -(-size_bytes // _SEARCH_TASK_BYTES)))
    ordered = work.sort_by([(SIZE, "descending"), (PATH, "ascending"), (START, "ascending")])
    return [ordered.take(int64s(range(number, ordered.num_rows, count))) for number in range(count)]


def _whole(files: pa.Table) -> pa.Table:
    """Add the columns `START` and `END`, which say that all of a file is to be read."""
    ends = pa.repeat(pa.scalar(_BEYOND_ALL_FILES, pa.int64()), files.num_rows)
    return files.append_column(START, pa.repeat(pa.scalar(0, pa.int64()), files.num_rows)).append_column(END, ends)


def _ranges(files: pa.Table) -> pa.Table:
    """Cut files into ranges of bytes, from column `START` to column `END`."""
    counts = [max(1, -(-size // _RANGE_BYTES)) for size in files.column(SIZE).to_pylist()]
    numbers = [number for number, count in enumerate(counts) for _ in range(count)]
    starts = int64s([part * _RANGE_BYTES for count in counts for part in range(count)])
    return files.take(int64s(numbers)).append_column(START, starts).append_column(END, pc.add(starts, _RANGE_BYTES))


# --- building splits --------------------------------------------------------------------------------------


_RESULT = "num_records long, size_bytes long"
_RESULT_SCHEMA = pa.schema([("num_records", pa.int64()), ("size_bytes", pa.int64())])
_BUILD_TASK_BYTES = 32 * 2**20
"""Data files of one task; indexing them takes some seconds."""
_MIN_BUILD_TASKS = 8


def build_splits(spark: SparkSession, snapshot: Snapshot) -> SearchIndexed:
    """Build the splits of all live data files of a table that have none.

    Raises:
        SearchIndexNotFoundError: the table has no search index.
        UnreadableInPythonError: a data file holds something in an indexed column that only Spark's reader understands.
        MissingFilesError: a data file is gone.
    """
    table = IndexedTable(spark, snapshot, required_definition(snapshot), reader_settings(spark))
    missing = _missing(table)
    if not missing.num_rows:
        return SearchIndexed(0, 0, 0, table.coverage())
    num_tasks = max(_MIN_BUILD_TASKS, -(-pc.sum(missing.column(SIZE)).as_py() // _BUILD_TASK_BYTES))
    listed = distribute(table.spark, missing, int(min(missing.num_rows, num_tasks)), private=True)
    build = partial(_build, table.index_plan(), table.bound.stored.to_json())
    with explained_failures():
        done = in_workers(listed, build, _RESULT).toArrow()
    assert done.num_rows == missing.num_rows, "every file was indexed"
    return SearchIndexed(
        num_files=done.num_rows,
        num_records=pc.sum(done.column("num_records")).as_py(),
        size_bytes=pc.sum(done.column("size_bytes")).as_py(),
        coverage=replace(table).coverage(),  # the splits are listed again
    )


def _missing(table: IndexedTable) -> pa.Table:
    """Return the files without a split, the largest first, each with the key of the split to build."""
    rows = table.files()
    missing = rows.column(SPLIT_COLUMN).is_null()
    wanted = split_keys(table.snapshot.files(columns=["path", "size"]), table.bound.fingerprint)
    rows = rows.drop_columns([SPLIT_COLUMN, SPLIT_BYTES_COLUMN, VECTOR_COLUMN]).append_column(SPLIT_COLUMN, wanted)
    return _whole(rows.filter(missing)).sort_by([(SIZE, "descending")])


def _build(plan: ReadPlan, doc_mapping: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Build the splits of some data files, in a Python worker."""
    store = open_store(plan.uri, plan.storage_options)
    for batch in batches:
        for position in range(batch.num_rows):
            file = batch.slice(position, 1)
            key = file.column(SPLIT_COLUMN)[0].as_py().decode("utf-8", "surrogateescape")
            with tempfile.TemporaryDirectory(prefix="headwater-split-") as directory:
                built = _built(plan, doc_mapping, file, directory)
                name = str(built.path)[len(directory) + 1 :]
                copy_object(open_store(directory), name, store, key, built.size_bytes)
            counts = [pa.array([built.num_records], pa.int64()), pa.array([built.size_bytes], pa.int64())]
            yield pa.RecordBatch.from_arrays(counts, schema=_RESULT_SCHEMA)


def _built(plan: ReadPlan, doc_mapping: str, file: pa.RecordBatch, directory: str) -> BuiltSplit:
    writer = SplitWriter(IndexConfig.from_json(doc_mapping), StructType.from_json(plan.schema_json), directory)
    for rows in read_ranges(plan, iter([file])):
        writer.add(rows)
    return writer.finish()
