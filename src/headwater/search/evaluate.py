"""A query on plain rows: the same meaning as in the index, with the same analysers.

This answers for rows that no index covers, and decides where the index can only propose. The work is done by Arrow on
whole columns; `leaf_rows` does one leaf, the rest is logic.

>>> from headwater.log.schema import STRING
>>> from headwater.search.fields import FieldConfig, IndexConfig
>>> from headwater.search.query_parser import parse_query
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),))
>>> rows = pa.table({"message": ["Disk full on web-1", "all fine"]})
>>> matches(parse_query("disk AND NOT web-2", config), rows, config).to_pylist()
[True, False]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.search.evaluate_leaf import PlainBatch, leaf_rows
from headwater.search.query import All, Boolean, Boost, Nothing, leaves
from headwater.search.query_targets import resolve
from headwater.search.token_column import row_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.search.fields import IndexConfig
    from headwater.search.query import Query

BATCH_ROWS = 65_536


def matches(query: Query, rows: pa.Table | pa.RecordBatch, config: IndexConfig) -> pa.BooleanArray:
    """Which rows the query finds; there are no nulls in the answer.

    Args:
        query: the query.
        rows: the rows, with at least the columns that the query needs (`columns_needed`).
        config: what the fields of the query mean.

    Raises:
        SearchQueryError: the query names a field that the configuration does not have, or the rows lack its column.
    """
    masks = [mask(query, batch) for batch in plain_batches(rows, config)]
    return pa.concat_arrays([*masks, build.bools([])])


def columns_needed(query: Query, config: IndexConfig) -> list[str]:
    """The columns that a query looks at."""
    return list(dict.fromkeys(resolve(config, leaf.on).field.column for leaf in leaves(query)))


def plain_batches(rows: pa.Table | pa.RecordBatch, config: IndexConfig) -> Iterator[PlainBatch]:
    """The rows in pieces of a size that is good for evaluation."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.num_columns == 0:  # Arrow forgets the number of rows then, but a query for all of them needs no column
        table = pa.table({"": pa.nulls(table.num_rows)})
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield PlainBatch(batch, config)


def mask(query: Query, batch: PlainBatch) -> pa.BooleanArray:
    """Which rows of a batch the query finds."""
    match query:
        case All():
            return _constant(True, batch)
        case Nothing():
            return _constant(False, batch)
        case Boost(query=inner):
            return mask(inner, batch)
        case Boolean(must=must, should=should, must_not=must_not):
            found = _constant(True, batch)
            for part in must:
                found = pc.and_(found, mask(part, batch))
            if should and not must:
                any_found = _constant(False, batch)
                for part in should:
                    any_found = pc.or_(any_found, mask(part, batch))
                found = pc.and_(found, any_found)
            for part in must_not:
                found = pc.and_not(found, mask(part, batch))
            return found
        case _:
            return row_mask(leaf_rows(query, batch), batch.num_rows)


def _constant(value: bool, batch: PlainBatch) -> pa.BooleanArray:
    return pa.repeat(build.bools([value])[0], batch.num_rows)
