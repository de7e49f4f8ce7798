"""What executors run to read or search splits: rows, or partial aggregates, as Arrow.

Which rows, columns and scores are wanted is the same for all tasks and stands in the plan, which reads one task at a
time. Rows have the Arrow types in which a Python worker gives them to Spark: those of splits, with variants marked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.schema import VARIANT, ArrayType, MapType, StructType, UserDefinedType
from headwater.search.engine.match import row_numbers
from headwater.search.engine.rank import top
from headwater.search.engine.snippets import snippets
from headwater.search.types import row_schema
from headwater.spark.scan.python import no_columns
from headwater.spark.search.pushdown import aggregate_split
from headwater.spark.search.splits import SplitPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headwater.log.schema import DataType, StructField
    from headwater.search.query.tree import Query
    from headwater.search.split.reader import Split
    from headwater.spark.search.pushdown import PushedAggregate
    from headwater.spark.search.source import Search
    from headwater.spark.search.splits import SplitRef

    Reader = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """What Spark's Arrow functions call."""


_BATCH_ROWS = 16_384


SCORE_COLUMN = "_score"
SNIPPET_SUFFIX = "_snippet"


@dataclass(frozen=True)
class SplitReadPlan:
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

    def read(self, splits: list[SplitRef]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some splits."""
        schema = worker_schema(StructType.from_json(self.shown_json))
        for batch in limited(self._found(splits), self.limit):
            yield conform_batch(batch, schema)

    def _found(self, splits: list[SplitRef]) -> Iterator[pa.RecordBatch]:
        places = SplitPlaces(self.uri, self.storage_options)
        names = StructType.from_json(self.shown_json).names
        for ref in splits:
            try:
                yield from self._batches(places.open(ref), names)
            except HeadwaterError as error:
                error.add_note(f"while reading the split {ref.path}")
                raise

    def _batches(self, split: Split, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if self.aggregate is not None:
            yield from aggregate_split(split, self.query, self.aggregate).to_batches()
        elif self.query is not None and self.search is not None and self.search.adds:
            yield from found_rows(split, self.query, self.search, names)
        elif self.query is None:
            yield from _all_rows(split, names)
        else:
            numbers = row_numbers(split, self.query)
            if self.limit is not None:
                numbers = numbers.slice(0, self.limit)
            yield from _rows(split, numbers, names)


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows, no more rows than the limit in all."""
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield batch
        if left == 0:
            return


def found_rows(split: Split, query: Query, search: Search, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows of the query, with the scores and fragments of the search; with scores the best ones come first."""
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
    """Return rows of a split by number, with their scores and fragments."""
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
    """Gives the rows of a reader without columns as rows with one column that is null in all of them.

    Spark asks for no column where it only counts, and PySpark 4.0 forgets how many rows a batch without one has.
    """

    def __init__(self, reader: Reader, column: StructField) -> None:
        self._reader = reader
        self._column = column

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = worker_schema(StructType([self._column]))
        for batch in self._reader(batches):
            yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, schema.field(0).type)], schema=schema)


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types that Spark expects of Python."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    if not columns:
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
)
"""As Spark itself hands variants to Arrow: it takes the two by their place."""


def worker_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of some columns, as Spark expects it of a Python worker."""
    plain = row_schema(schema)
    return pa.schema([pa.field(f.name, _marked(f.type, plain.field(f.name).type)) for f in schema.fields])


def _marked(data_type: DataType, arrow: pa.DataType) -> pa.DataType:
    match data_type:
        case UserDefinedType(sql_type=stored):
            return _marked(stored, arrow)
        case StructType(fields=fields):
            return pa.struct([pa.field(f.name, _marked(f.type, arrow.field(f.name).type)) for f in fields])
        case ArrayType(element_type=element):
            return pa.list_(pa.field("element", _marked(element, arrow.value_type)))
        case MapType(key_type=key, value_type=value):
            key_field = pa.field("key", _marked(key, arrow.key_type), nullable=False)
            return pa.map_(key_field, pa.field("value", _marked(value, arrow.item_type)))
    return _VARIANT if data_type == VARIANT else arrow
