"""What executors run to search data files of a Delta table: by the split of a file, or row by row where it has none.

The index of a data file is in its split, the rows are in the data file and nowhere else. Either way a row counts unless
the snapshot's deletion vector of its file hides it, and rows come from the data file, in the schema of the snapshot. A
split that has vanished since the search was planned costs only time.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from headwater.errors import HeadwaterError, ObjectNotFoundError
from headwater.log.actions.deletion_vectors import inline_vector, to_bitmap
from headwater.log.schema import StructType
from headwater.log.schema.types import hidden
from headwater.parquet.read import PATH, output_schema
from headwater.search.config import IndexConfig
from headwater.search.engine.match import row_numbers
from headwater.search.engine.rank import row_statistics, term_statistics, top
from headwater.search.engine.scoring import Statistics, merge_statistics
from headwater.search.engine.snippets import snippets
from headwater.search.rows.evaluate import columns_needed, matches, scores
from headwater.search.split.reader import Split, open_split
from headwater.spark.scan.deletion_vectors import VECTOR_COLUMN, VectorReader, descriptor
from headwater.spark.scan.python import ReadPlan, no_columns, read_ranges
from headwater.spark.search.reader import SCORE_COLUMN, SNIPPET_SUFFIX, conform_batch, limited
from headwater.spark.workers import ONLY_COLUMN
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.search.query.tree import Query
    from headwater.spark.search.source import Search
    from headwater.storage import ObjectStore


SPLIT_COLUMN = hidden("split")
"""The key of a file's split in the table's store, as bytes; null where a file has none."""
SPLIT_BYTES_COLUMN = hidden("split_bytes")

_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)


class FileSplit(Split):
    """A split whose rows are read from the data file that it was made from, by the names of the index.

    It has all rows of the file, deleted ones too, for their numbers are positions in the file. The caller leaves
    out of the answer what a deletion vector hides.
    """

    def __init__(self, split: Split, plan: ReadPlan, file: pa.RecordBatch) -> None:
        assert split.searcher is not None, "what is open now is open for all that are made from it"
        self.__dict__.update(split.__dict__)
        for name in ("config", "stored_schema"):  # what depends on where the rows are
            self.__dict__.pop(name, None)
        self._bundle_config = split.config
        self._plan = plan
        self._file = file.drop_columns([VECTOR_COLUMN])

    @cached_property
    def config(self) -> IndexConfig:
        """The fields of the index; all their columns can be read."""
        return IndexConfig(tuple(replace(field, stored=True) for field in self._bundle_config.fields))

    def rows(self, row_numbers: pa.Array | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else tuple(columns)
        if row_numbers is None:
            return self._read(self._file, names)
        if not names:
            return pa.Table.from_batches([no_columns(len(row_numbers))])
        ascending = pc.unique(row_numbers.take(pc.sort_indices(row_numbers)))
        found = self._read(only_rows(self._file, bitmap_of(ascending)), names)
        return found.take(pc.index_in(row_numbers, value_set=ascending))

    def iter_rows(self, columns: Sequence[str] | None = None, max_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else tuple(columns)
        for batch in read_ranges(narrowed(self._plan, names), iter([self._file])):
            for start in range(0, batch.num_rows, max_rows):
                yield batch.slice(start, max_rows)

    def _read(self, file: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
        plan = narrowed(self._plan, names)
        schema = output_schema(StructType.from_json(plan.schema_json))
        return pa.Table.from_batches(list(read_ranges(plan, iter([file]))), schema)


def narrowed(plan: ReadPlan, names: Sequence[str]) -> ReadPlan:
    """Return the plan for some of its columns, in the given order."""
    schema = StructType.from_json(plan.schema_json)
    partitions = {name: column for name, column in plan.partition_columns.items() if name in names}
    kept = StructType([schema.field(name) for name in names])
    return replace(plan, schema_json=kept.to_json(), partition_columns=partitions)


def only_rows(file: pa.RecordBatch, rows: BitMap64) -> pa.RecordBatch:
    """Return a data file of which only some rows count."""
    vector = inline_vector(rows)
    value = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return file.append_column(ONLY_COLUMN, pa.array([value], _VECTOR_TYPE))


def bitmap_of(row_numbers: pa.Array) -> BitMap64:
    """Return row numbers (u64, none of them null) as a bitmap."""
    numbers = array("Q")
    start = row_numbers.offset * numbers.itemsize
    numbers.frombytes(row_numbers.buffers()[1][start : start + len(row_numbers) * numbers.itemsize])
    return BitMap64(numbers)


_MORE_ROWS = 64


@dataclass(frozen=True)
class DeltaReadPlan:
    """What all tasks of one search have in common. It travels to the executors."""

    shown_json: str
    """The columns to give, in order."""
    rows: ReadPlan
    """How to read all that is needed of a row, by the names of the snapshot."""
    row_columns: tuple[str, ...]
    """What is needed of a row that is known to be found."""
    index: ReadPlan
    """How to read what splits are made from, by their names."""
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

    def read(self, files: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are found in some files."""
        task = _Task(self)
        found = (batch for file in files.to_batches(max_chunksize=1) for batch in task.found(file))
        yield from limited(found, self.limit)


class _Task:
    def __init__(self, plan: DeltaReadPlan) -> None:
        self._plan = plan
        uri, options = plan.rows.uri, plan.rows.storage_options
        self._store = open_store(uri, options)
        self._vectors = VectorReader(self._store, options)
        self._output = output_schema(StructType.from_json(plan.shown_json))
        self._config = IndexConfig.from_json(plan.doc_mapping)

    def found(self, file: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
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
        plan = narrowed(self._plan.rows, self._plan.row_columns)
        for batch in read_ranges(plan, iter([only_rows(file, rows)])):
            yield self._shown(batch)

    def _row_by_row(self, file: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for batch in read_ranges(self._plan.rows, iter([file])):
            kept = batch.filter(matches(self._plan.query, batch, self._config))
            if kept.num_rows:
                yield self._shown(kept) if self._plan.row_columns else no_columns(kept.num_rows)

    def _found_rows(self, file: pa.RecordBatch, split: FileSplit) -> BitMap64:
        """Return the rows that the index finds, without deleted ones; only the best, where more are not wanted."""
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
        """Return rows that are found, with what the search adds to them."""
        search, table = self._plan.search, pa.Table.from_batches([rows])
        if search.score:
            assert search.statistics is not None, "scores need statistics"
            rows = rows.append_column(SCORE_COLUMN, scores(search.query, table, self._config, search.statistics))
        for column in search.snippets:
            found = snippets(search.query, table, self._config, column)
            rows = rows.append_column(f"{column}{SNIPPET_SUFFIX}", found)
        return conform_batch(rows, self._output)

    def _deleted(self, file: pa.RecordBatch) -> BitMap64 | None:
        """Return the rows of a file that a deletion vector hides."""
        value: dict[str, Any] | None = file.column(VECTOR_COLUMN)[0].as_py()
        vector = descriptor(value)
        return None if vector is None else to_bitmap(self._vectors.read([vector])[0])


def _without(numbers: pa.UInt64Array, deleted: BitMap64) -> pa.UInt64Array:
    hidden = pa.array((bitmap_of(numbers) & deleted).to_array(), pa.uint64())
    return numbers.filter(pc.invert(pc.is_in(numbers, value_set=hidden)))


def open_file_split(store: ObjectStore, plan: ReadPlan, file: pa.RecordBatch) -> FileSplit | None:
    """Open the split of a data file, which is one row of a task; None if it has no split, or none any more."""
    key = file.column(SPLIT_COLUMN)[0].as_py()
    if key is None:
        return None
    size_bytes = file.column(SPLIT_BYTES_COLUMN)[0].as_py()
    try:
        split = open_split(store, key.decode("utf-8", "surrogateescape"), size_bytes=size_bytes)
        return FileSplit(split, plan, file)
    except ObjectNotFoundError:
        return None


def file_statistics(index: ReadPlan, doc_mapping: str, query: Query, files: pa.Table) -> Statistics:
    """Count the words of a query in some files, by the names of splits.

    Counted are the rows that files hold, deleted ones included: that is what the index of a file knows, and so a score
    does not depend on which files are indexed.
    """
    store = open_store(index.uri, index.storage_options)
    config = IndexConfig.from_json(doc_mapping)
    plan = narrowed(index, columns_needed(query, config))
    parts = []
    for file in files.to_batches(max_chunksize=1):
        split = open_file_split(store, index, file)
        if split is not None:
            parts.append(term_statistics(split, query))
        else:
            rows = file.drop_columns([VECTOR_COLUMN])
            parts += [
                row_statistics(query, pa.Table.from_batches([batch]), config)
                for batch in read_ranges(plan, iter([rows]))
            ]
    return merge_statistics(parts)
