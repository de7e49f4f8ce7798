"""What executors run to read or search splits: rows, or partial aggregates, as Arrow.

One function serves Spark's Python data sources and `mapInArrow`: its input is rows with one binary column, each a
pickled list of splits. Which rows, columns and scores are wanted is the same for all tasks and stands in the plan.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.schema import StructType
from headwater.spark.python_reader import no_columns
from headwater.spark.search.search_spec import SCORE_COLUMN, SNIPPET_SUFFIX
from headwater.spark.search.split_places import SplitPlaces, SplitRef
from headwater.spark.search.worker_types import worker_schema
from headwater.spark.workers import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headwater.log.schema import StructField
    from headwater.search.query import Query
    from headwater.search.split import Split
    from headwater.spark.search.pushed_aggregates import PushedAggregate
    from headwater.spark.search.search_spec import Search

    Reader = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """Gives rows for rows with one binary column, each a pickled task."""

__all__ = ["NullRows", "ReadPlan", "SplitReader", "SplitRef"]

_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class ReadPlan:
    """What all tasks of one scan have in common. It travels to the executors."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    shown_json: str
    """The columns to give, in order."""
    query: Query | None = None
    """Which rows; None for all of them."""
    search: Search | None = None
    """What is shown of the search: scores and fragments."""
    limit: int | None = None
    """A task needs to give no more rows."""
    aggregate: PushedAggregate | None = None
    """Partial aggregates of each split instead of its rows."""


class SplitReader:
    """Reads the splits of tasks. It travels to the executors with its plan."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of pickled lists of splits; made for Spark's Arrow functions."""
        settle()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from self.read(pickle.loads(task))

    def read(self, splits: list[SplitRef]) -> Iterator[pa.RecordBatch]:
        """The rows of some splits."""
        places = SplitPlaces(self._plan.uri, self._plan.storage_options)
        shown = StructType.from_json(self._plan.shown_json)
        schema = worker_schema(shown)
        left = self._plan.limit
        for ref in splits:
            try:
                for batch in self._batches(places.open(ref), shown.names):
                    if left is not None:
                        batch = batch.slice(0, left)
                        left -= batch.num_rows
                    if batch.num_rows:
                        yield conform_batch(batch, schema)
                    if left == 0:
                        return
            except HeadwaterError as error:
                error.add_note(f"while reading the split {ref.path}")
                raise

    def _batches(self, split: Split, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        if plan.aggregate is not None:
            from headwater.spark.search.split_aggregate import aggregate_split

            yield from aggregate_split(split, plan.query, plan.aggregate).to_batches()
        elif plan.query is not None and plan.search is not None and plan.search.adds:
            yield from found_rows(split, plan.query, plan.search, names)
        elif plan.query is None:
            yield from _all_rows(split, names)
        else:
            from headwater.search.searching import row_numbers

            numbers = row_numbers(split, plan.query)
            if plan.limit is not None:
                numbers = numbers.slice(0, plan.limit)
            yield from _rows(split, numbers, names)


def found_rows(split: Split, query: Query, search: Search, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows with scores and fragments; with scores the best ones come first.

    Args:
        split: the split.
        query: which rows: those of the search, perhaps only some of them.
        search: what is shown.
        names: the columns to give, in order.
    """
    from headwater.search.searching import row_numbers, top

    if search.score or search.best is not None:
        numbers, scores = top(split, query, search.best, search.statistics)
    else:
        numbers, scores = row_numbers(split, query), None
    for start in range(0, len(numbers), _BATCH_ROWS):
        some = None if scores is None else scores.slice(start, _BATCH_ROWS)
        shown = shown_rows(split, numbers.slice(start, _BATCH_ROWS), some, search, names)
        yield from shown.combine_chunks().to_batches()


def shown_rows(
    split: Split, numbers: pa.Array, scores: pa.Array | None, search: Search, names: Sequence[str]
) -> pa.Table:
    """Some rows of a split by number, with their scores and fragments."""
    from headwater.search.searching import snippets

    fragments = {f"{column}{SNIPPET_SUFFIX}": column for column in search.snippets}
    added = {SCORE_COLUMN, *fragments} if search.score else fragments.keys()
    stored = [name for name in names if name not in added]
    needed = list(dict.fromkeys([*stored, *fragments.values()]))
    if not needed and (not search.score or SCORE_COLUMN not in names):
        return pa.Table.from_batches([no_columns(len(numbers))])
    rows = split.rows(numbers, needed)
    columns: dict[str, Any] = {name: rows.column(name) for name in stored}
    if search.score:
        columns[SCORE_COLUMN] = scores
    for name, column in fragments.items():
        columns[name] = snippets(search.query, rows, split.config, column)
    return pa.table({name: columns[name] for name in names})


def _all_rows(split: Split, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    if names:
        yield from split.iter_rows(names)
    else:
        yield no_columns(split.num_records)


def _rows(split: Split, numbers: pa.Array, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    if not names:
        yield no_columns(len(numbers))
        return
    for start in range(0, len(numbers), _BATCH_ROWS):
        yield from split.rows(numbers.slice(start, _BATCH_ROWS), names).to_batches()


class NullRows:
    """Counts the rows of a reader that gives no columns: as many rows with one column, null in all of them.

    Spark asks for no column where it only counts, and PySpark 4.0 forgets how many rows a batch without one has.
    """

    def __init__(self, reader: Reader, column: StructField) -> None:
        self._reader = reader
        self._column = column

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; made for Spark's Arrow functions."""
        schema = worker_schema(StructType([self._column]))
        for batch in self._reader(batches):
            yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, schema.field(0).type)], schema=schema)


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the types that Spark expects of Python."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    if not columns:
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=schema)
