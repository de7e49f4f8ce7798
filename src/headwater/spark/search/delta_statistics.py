"""How often the words of a query occur in all data files of a Delta snapshot, so that scores of all rows compare.

Counted are the rows that files hold, deleted ones included: that is what the index of a file knows, and so a score does
not depend on which files are indexed.
"""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.search.evaluate import columns_needed
from headwater.search.fields import IndexConfig
from headwater.search.scoring import Statistics, merge_statistics
from headwater.search.term_statistics import row_statistics, term_statistics
from headwater.spark.deletion_vectors import VECTOR_COLUMN
from headwater.spark.failures import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.python_reader import read_splits
from headwater.spark.search.delta_reader import open_file_split
from headwater.spark.search.delta_source import dealt_out
from headwater.spark.search.file_split import narrowed
from headwater.spark.search.near import is_near
from headwater.spark.search.opening import OpenTable
from headwater.spark.search.scan import check_reachable, run_tasks
from headwater.spark.search.split_places import SplitRef
from headwater.spark.workers import core_count
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headwater.search.query import Query
    from headwater.spark.python_reader import ReadPlan
    from headwater.spark.search.delta_files import DeltaFiles


@dataclass(frozen=True)
class DeltaStatistics:
    """Counts the words of a query in the files of tasks, by the names of splits. It travels to the executors."""

    index: ReadPlan
    doc_mapping: str
    query: Query

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pickled statistics of pickled tasks; made for `mapInArrow`."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                found = pickle.dumps(self.of(pickle.loads(task)))
                yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], names=["found"])

    def of(self, files: pa.Table) -> Statistics:
        """The statistics of some files."""
        store = open_store(self.index.uri, self.index.storage_options)
        config = IndexConfig.from_json(self.doc_mapping)
        plan = narrowed(self.index, columns_needed(self.query, config))
        parts = []
        for file in files.to_batches(max_chunksize=1):
            split = open_file_split(store, self.index, file)
            if split is not None:
                parts.append(term_statistics(split, self.query))
            else:
                rows = file.drop_columns([VECTOR_COLUMN])
                parts += [
                    row_statistics(self.query, pa.Table.from_batches([batch]), config)
                    for batch in read_splits(plan, iter([rows]))
                ]
        return merge_statistics(parts)


def delta_statistics(spark: SparkSession, files: DeltaFiles, query: Query) -> Statistics:
    """The statistics of all files of a version for a query, by the names of that version."""
    check_reachable(files.snapshot.uri)
    bound = files.bound
    run = DeltaStatistics(files.index_plan(), bound.stored.to_json(), bound.stored_query(query))
    tasks = dealt_out(files.rows(), core_count(spark))
    if _is_near(spark, files):  # an index answers in no time
        with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1) or 1, "headwater-search") as pool:
            found = merge_statistics(pool.map(run.of, tasks))
    else:
        with functions_for(spark), explained_failures():
            rows = run_tasks(spark, run, tasks, "found BINARY").collect()
        found = merge_statistics(pickle.loads(bytes(row.found)) for row in rows)
    return bound.shown_statistics(found)


def _is_near(spark: SparkSession, files: DeltaFiles) -> bool:
    """Whether the driver should ask the splits itself: all files have one, and they are near."""
    covered = files.covered()
    size_bytes = pc.sum(covered.column("split_bytes")).as_py() or 0
    table = OpenTable(spark, files.snapshot, files.storage_options)
    return covered.column("split").null_count == 0 and is_near(table, [SplitRef("", size_bytes)])
