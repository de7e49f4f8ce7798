"""What executors run to search data files of a Delta table: by the split of a file, or row by row where it has none.

Either way a row counts unless the snapshot's deletion vector of its file hides it, and rows come from the data file, in
the schema of the snapshot. A split that has vanished since the search was planned costs only time.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import HeadwaterError, ObjectNotFoundError
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.schema import StructType
from headwater.search.fields import IndexConfig
from headwater.spark.arrow_rows import output_schema
from headwater.spark.deletion_vectors import VECTOR_COLUMN, VectorReader, descriptor
from headwater.spark.file_rows import PATH
from headwater.spark.python_reader import ReadPlan, no_columns, read_splits
from headwater.spark.search.delta_files import SPLIT_BYTES_COLUMN, SPLIT_COLUMN
from headwater.spark.search.file_split import FileSplit, bitmap_of, narrowed, only_rows
from headwater.spark.search.search_spec import SCORE_COLUMN, SNIPPET_SUFFIX
from headwater.spark.search.split_reader import conform_batch
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap64

    from headwater.search.query import Query
    from headwater.search.scoring import Statistics
    from headwater.spark.search.search_spec import Search
    from headwater.storage import ObjectStore

_MORE_ROWS = 64


@dataclass(frozen=True)
class DeltaReadPlan:
    """What all tasks of one search have in common. It travels to the executors."""

    shown_json: str
    """The columns to give, in order."""
    read: ReadPlan
    """How to read all that is needed of a row, by the names of the snapshot."""
    row_columns: tuple[str, ...]
    """What is needed of a row that is known to be found."""
    index: ReadPlan
    """How to read what splits are made of, by their names."""
    doc_mapping: str
    """The fields of the query, by the names of the snapshot."""
    query: Query
    """Which rows."""
    stored_query: Query
    """The same by the names of splits."""
    search: Search
    """What is shown of the search: scores and fragments."""
    stored_statistics: Statistics | None = None
    """Of all files, for the scores, by the names of splits."""
    limit: int | None = None
    """A task needs to give no more rows."""


class DeltaReader:
    """Searches the data files of tasks. It travels to the executors with its plan."""

    def __init__(self, plan: DeltaReadPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of pickled tables of files; made for Spark's Arrow functions."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from self.read(pickle.loads(task))

    def read(self, files: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows that are found in some files."""
        task = _Task(self._plan)
        left = self._plan.limit
        for file in files.to_batches(max_chunksize=1):
            for batch in task.found(file):
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    return


class _Task:
    """Searches the files of one task."""

    def __init__(self, plan: DeltaReadPlan) -> None:
        self._plan = plan
        uri, options = plan.read.uri, plan.read.storage_options
        self._store = open_store(uri, options)
        self._vectors = VectorReader(self._store, options)
        self._output = output_schema(StructType.from_json(plan.shown_json))
        self._config = IndexConfig.from_json(plan.doc_mapping)

    def found(self, file: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that are found in a file."""
        try:
            split = open_file_split(self._store, self._plan.index, file)
            if split is None:
                yield from self._row_by_row(file)
            else:
                yield from self._by_index(file, split)
        except HeadwaterError as error:
            error.add_note(f"while searching the file {file.column(PATH)[0].as_py()}")
            raise

    def _by_index(self, file: pa.RecordBatch, split: FileSplit) -> Iterator[pa.RecordBatch]:
        rows = self._found_rows(file, split)
        if not rows:
            return
        if not self._plan.row_columns:
            yield no_columns(len(rows))
            return
        plan = narrowed(self._plan.read, self._plan.row_columns)
        for batch in read_splits(plan, iter([only_rows(file, rows)])):
            yield self._shown(batch)

    def _row_by_row(self, file: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        from headwater.search.evaluate import matches

        for batch in read_splits(self._plan.read, iter([file])):
            kept = batch.filter(matches(self._plan.query, batch, self._config))
            if kept.num_rows:
                yield self._shown(kept) if self._plan.row_columns else no_columns(kept.num_rows)

    def _found_rows(self, file: pa.RecordBatch, split: FileSplit) -> BitMap64:
        """The rows that the index finds, without deleted ones; only the best, where more are not wanted."""
        from headwater.search.searching import row_numbers, top

        plan, deleted = self._plan, self._deleted(file)
        best = plan.search.best
        if best is None:
            rows = bitmap_of(row_numbers(split, plan.stored_query))
            return rows if deleted is None else rows - deleted
        wanted = best
        while True:  # the best rows may be deleted ones: ask for more, until there are enough others
            numbers = top(split, plan.stored_query, wanted, plan.stored_statistics).row_numbers
            left = numbers if deleted is None else _without(numbers, deleted)
            if len(left) >= best or len(numbers) < wanted:
                return bitmap_of(left.slice(0, best))
            wanted = max(2 * wanted, best + _MORE_ROWS)

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that are found, with what the search adds to them."""
        from headwater.search.searching import scores, snippets

        search, table = self._plan.search, pa.Table.from_batches([rows])
        if search.score:
            assert search.statistics is not None, "scores need statistics"
            rows = rows.append_column(SCORE_COLUMN, scores(search.query, table, self._config, search.statistics))
        for column in search.snippets:
            found = snippets(search.query, table, self._config, column)
            rows = rows.append_column(f"{column}{SNIPPET_SUFFIX}", found)
        return conform_batch(rows, self._output)

    def _deleted(self, file: pa.RecordBatch) -> BitMap64 | None:
        """The rows of a file that a deletion vector hides."""
        value: dict[str, Any] | None = file.column(VECTOR_COLUMN)[0].as_py()
        vector = descriptor(value)
        return None if vector is None else to_bitmap(self._vectors.read([vector])[0])


def _without(numbers: pa.UInt64Array, deleted: BitMap64) -> pa.UInt64Array:
    """Row numbers in their order, but for deleted ones."""
    hidden = pa.array((bitmap_of(numbers) & deleted).to_array(), pa.uint64())
    return numbers.filter(pc.invert(pc.is_in(numbers, value_set=hidden)))


def open_file_split(store: ObjectStore, plan: ReadPlan, file: pa.RecordBatch) -> FileSplit | None:
    """The split of a data file; None if it has none, or none any more.

    Args:
        store: the table's.
        plan: how to read what splits are made of.
        file: one row of `DeltaFiles.rows`.
    """
    from headwater.search.split import open_split

    key = file.column(SPLIT_COLUMN)[0].as_py()
    if key is None:
        return None
    size_bytes = file.column(SPLIT_BYTES_COLUMN)[0].as_py()
    try:
        split = open_split(store, key.decode("utf-8", "surrogateescape"), size_bytes=size_bytes)
        return FileSplit(split, plan, file)
    except ObjectNotFoundError:
        return None
