"""Building the search index of a Delta table: one split for each data file that has none, by Spark's executors.

A task reads a data file as it is, rows that a deletion vector hides included, indexes it, and puts the split to its
place in one step. Whoever is interrupted has built what is there; the next one builds the rest.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import StructType
from headwater.search.delta_index import SearchIndexed, split_keys
from headwater.spark.deletion_vectors import VECTOR_COLUMN
from headwater.spark.failures import explained_failures
from headwater.spark.file_rows import SIZE
from headwater.spark.python_reader import ReadPlan, read_splits
from headwater.spark.search.delta_files import SPLIT_BYTES_COLUMN, SPLIT_COLUMN, whole_files
from headwater.spark.workers import dealt, in_workers
from headwater.storage import open_store
from headwater.storage.copying import copy_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headwater.search.built_split import BuiltSplit
    from headwater.spark.search.delta_files import DeltaFiles

_RESULT = "num_records long, size_bytes long"
_RESULT_SCHEMA = pa.schema([("num_records", pa.int64()), ("size_bytes", pa.int64())])
_TASK_BYTES = 32 * 2**20
"""Data files of one task; indexing takes some seconds for so much."""
_MIN_TASKS = 8


@dataclass(frozen=True)
class BuildPlan:
    """What all tasks of one build have in common. It travels to the executors."""

    read: ReadPlan
    doc_mapping: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: build the splits of some data files."""
        store = open_store(self.read.uri, self.read.storage_options)
        for batch in batches:
            for position in range(batch.num_rows):
                file = batch.slice(position, 1)
                key = file.column(SPLIT_COLUMN)[0].as_py().decode("utf-8", "surrogateescape")
                with tempfile.TemporaryDirectory(prefix="headwater-split-") as directory:
                    built = self._build(file, directory)
                    name = str(built.path)[len(directory) + 1 :]
                    copy_object(open_store(directory), name, store, key, built.size_bytes)
                counts = [pa.array([built.num_records], pa.int64()), pa.array([built.size_bytes], pa.int64())]
                yield pa.RecordBatch.from_arrays(counts, schema=_RESULT_SCHEMA)

    def _build(self, file: pa.RecordBatch, directory: str) -> BuiltSplit:
        from headwater.search.fields import IndexConfig
        from headwater.search.split_writer import SplitWriter

        writer = SplitWriter(
            IndexConfig.from_json(self.doc_mapping), StructType.from_json(self.read.schema_json), directory
        )
        for rows in read_splits(self.read, iter([file])):
            writer.add(rows)
        return writer.finish()


def build_splits(spark: SparkSession, files: DeltaFiles) -> SearchIndexed:
    """Build the splits of all live data files that have none.

    Raises:
        UnreadableInPythonError: a data file holds something in an indexed column that only Spark's reader understands.
        MissingFilesError: a data file is gone.
    """
    missing = _missing(files)
    if not missing.num_rows:
        return SearchIndexed(0, 0, 0, files.coverage())
    plan = BuildPlan(files.index_plan(), files.bound.stored.to_json())
    largest_first = missing.sort_by([(SIZE, "descending")])
    listed = dealt(spark, largest_first, _task_count(largest_first), private=True)
    with explained_failures():
        done = in_workers(listed, partial(BuildPlan.run, plan), _RESULT).toArrow()
    assert done.num_rows == missing.num_rows, "every file was indexed"
    return SearchIndexed(
        num_files=done.num_rows,
        num_records=pc.sum(done.column("num_records")).as_py(),
        size_bytes=pc.sum(done.column("size_bytes")).as_py(),
        coverage=replace(files).coverage(),  # the splits are listed again
    )


def _missing(files: DeltaFiles) -> pa.Table:
    """The files without a split, each with the key that its split shall have."""
    rows = files.rows()
    missing = rows.column(SPLIT_COLUMN).is_null()
    wanted = split_keys(files.snapshot.files(columns=["path", "size"]), files.bound.fingerprint)
    rows = rows.drop_columns([SPLIT_COLUMN, SPLIT_BYTES_COLUMN, VECTOR_COLUMN]).append_column(SPLIT_COLUMN, wanted)
    return whole_files(rows.filter(missing))


def _task_count(files: pa.Table) -> int:
    size_bytes = pc.sum(files.column(SIZE)).as_py()
    return int(min(files.num_rows, max(_MIN_TASKS, -(-size_bytes // _TASK_BYTES))))
