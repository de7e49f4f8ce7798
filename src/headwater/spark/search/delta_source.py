"""What a search of a Delta table scans: one snapshot, the splits of its data files, and the files without one.

It stands where a version of a search table stands otherwise (`headwater.spark.search.scan_source`), so queries on what
a search finds reach it in the same way: columns, filters and limits are planned by Spark and pushed down. Aggregates
are Spark's, for rows that a deletion vector hides must not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import int64s
from headwater.log.schema import StructField, StructType
from headwater.search.evaluate import columns_needed
from headwater.spark.explain import shortened
from headwater.spark.file_rows import END, PATH, SIZE, START
from headwater.spark.search.delta_files import SPLIT_COLUMN, whole_files
from headwater.spark.search.delta_reader import DeltaReader, DeltaReadPlan
from headwater.spark.search.relation import SearchRelation, frame_over
from headwater.spark.search.scan_builder import SearchScanBuilder
from headwater.spark.search.scan_source import ScanSource
from headwater.spark.search.split_scan import SplitScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.search.delta_index import SearchCoverage
    from headwater.spark.jvm import JavaObject
    from headwater.spark.search.delta_files import DeltaFiles
    from headwater.spark.search.pushed_aggregates import PushedAggregate
    from headwater.spark.search.scan_source import Wanted

_RANGE_BYTES = 16 * 2**20
"""Of a file that is searched row by row: analysing text takes much longer than reading it."""
_TASK_BYTES = 64 * 2**20
_TASKS_PER_CORE = 2


@dataclass(frozen=True)
class DeltaSource(ScanSource):
    """One version of a Delta table, and a search of it. Fields and columns have the names of that version."""

    files: DeltaFiles = field(kw_only=True)

    @cached_property
    def coverage(self) -> SearchCoverage:
        """How much of the table is indexed."""
        return self.files.coverage()

    @cached_property
    def name(self) -> str:
        """Says what is scanned, to people."""
        table = f"Delta table {self.snapshot.uri} ({self.snapshot.metadata.id}), {self.coverage}"
        return f"{table}: {shortened(self.search)}"

    @cached_property
    def schema(self) -> StructType:
        """The columns of the table."""
        return StructType([StructField(f.name, f.type, True, f.metadata) for f in self.files.columns.visible.fields])

    @property
    def num_records(self) -> int | None:
        """Only a search can say."""
        return None

    def estimate(self, wanted: Wanted) -> tuple[int, int]:
        """At most so many bytes and rows."""
        size_bytes = self.files.coverage(wanted.where).size_bytes
        return size_bytes, size_bytes

    def tasks(self, wanted: Wanted, parallelism: int) -> list[pa.Table]:
        """The files of each task, as rows of `DeltaFiles.rows`."""
        return dealt_out(self.files.rows(wanted.where), parallelism)

    def delta_plan(self, wanted: Wanted) -> DeltaReadPlan:
        """What all tasks have in common."""
        query, shown = self.query(wanted), wanted.shown(self)
        assert query is not None, "something is searched for"
        assert self.search is not None, "something is searched for"
        search = self.search.only(shown.names)
        scored = columns_needed(search.query, self.config) if search.score else []
        rows = [*(name for name in shown.names if name in self.schema.names), *scored, *search.snippets]
        table = self.files.columns.table
        needed = dict.fromkeys([*rows, *columns_needed(query, self.config)])
        return DeltaReadPlan(
            shown_json=shown.to_json(),
            read=self.files.read_plan(StructType([table.field(name) for name in needed])),
            row_columns=tuple(dict.fromkeys(rows)),
            index=self.files.index_plan(),
            doc_mapping=self.config.to_json(),
            query=query,
            stored_query=self.files.bound.stored_query(query),
            search=search,
            stored_statistics=self.files.bound.stored_statistics(search.statistics),
            limit=wanted.limit,
        )


def dealt_out(rows: pa.Table, parallelism: int) -> list[pa.Table]:
    """Files dealt out to tasks: those with a split as they are, the others in ranges of bytes."""
    by_index = rows.column(SPLIT_COLUMN).is_valid()
    work = pa.concat_tables([whole_files(rows.filter(by_index)), _ranges(rows.filter(pc.invert(by_index)))])
    size_bytes = pc.sum(work.column(SIZE)).as_py() or 0
    count = min(work.num_rows, max(parallelism * _TASKS_PER_CORE, -(-size_bytes // _TASK_BYTES)))
    ordered = work.sort_by([(SIZE, "descending"), (PATH, "ascending"), (START, "ascending")])
    return [ordered.take(int64s(range(number, ordered.num_rows, count))) for number in range(count)]


def _ranges(rows: pa.Table) -> pa.Table:
    """Files in ranges of bytes: columns `START` and `END` say which."""
    sizes = rows.column(SIZE).to_pylist()
    counts = [max(1, -(-size // _RANGE_BYTES)) for size in sizes]
    files = [number for number, count in enumerate(counts) for _ in range(count)]
    starts = int64s([part * _RANGE_BYTES for count in counts for part in range(count)])
    return rows.take(int64s(files)).append_column(START, starts).append_column(END, pc.add(starts, _RANGE_BYTES))


def delta_frame(spark: SparkSession, source: DeltaSource) -> DataFrame:
    """A DataFrame over a source, in a classic session."""
    return frame_over(spark, DeltaRelation(spark, source))


class DeltaRelation(SearchRelation):
    """Spark's `Table` over what a search of a Delta table finds."""

    def __init__(self, spark: SparkSession, source: DeltaSource) -> None:
        super().__init__(spark, source)
        self._delta_source = source

    def newScanBuilder(self, options: JavaObject) -> JavaObject:  # noqa: ARG002
        """A scan that is yet to be told what is wanted of it."""
        return self._jvm.called_back(DeltaScanBuilder(self._spark, self._delta_source))


class DeltaScanBuilder(SearchScanBuilder):
    """Collects what is wanted, but for aggregates."""

    def __init__(self, spark: SparkSession, source: DeltaSource) -> None:
        super().__init__(spark, source)
        self._delta_source = source

    def _pushed(self, aggregation: JavaObject) -> PushedAggregate | None:  # noqa: ARG002
        return None

    def build(self) -> JavaObject:
        """The scan."""
        return DeltaScan(self._spark, self._delta_source, self._wanted).called_back()


class DeltaScan(SplitScan):
    """Spark's scan over the files of a Delta table."""

    def __init__(self, spark: SparkSession, source: DeltaSource, wanted: Wanted) -> None:
        super().__init__(spark, source, wanted)
        self._delta_source = source

    def createReaderFactory(self) -> JavaObject:
        """What executors run."""
        return self._factory(DeltaReader(self._delta_source.delta_plan(self._wanted)))
