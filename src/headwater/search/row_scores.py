"""The scores of plain rows, by the same rules as those of the index (`scoring` says which)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.search.evaluate import mask, plain_batches
from headwater.search.evaluate_leaf import leaf_rows
from headwater.search.query import All, Boolean, Boost, Nothing
from headwater.search.scoring import K1, B, leaf_weight, rounded_length, scored_terms
from headwater.search.token_column import counting, row_mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.search.evaluate_leaf import PlainBatch
    from headwater.search.fields import IndexConfig
    from headwater.search.query import Leaf, Query
    from headwater.search.scoring import Statistics


def scores(query: Query, rows: pa.Table, config: IndexConfig, statistics: Statistics) -> pa.DoubleArray:
    """The score of each row; 0 for those that the query does not find.

    Args:
        query: the query.
        rows: the rows, with the columns that the query needs.
        config: what the fields of the query mean.
        statistics: of all rows that are searched together, for this query.
    """
    scorer = _Scorer(config, statistics)
    return pa.concat_arrays([*(scorer.score(query, b) for b in plain_batches(rows, config)), build.float64s([])])


class _Scorer:
    def __init__(self, config: IndexConfig, statistics: Statistics) -> None:
        self._config = config
        self._statistics = statistics

    def score(self, query: Query, batch: PlainBatch) -> pa.DoubleArray:
        match query:
            case All():
                return _constant(1.0, batch)
            case Nothing():
                return _constant(0.0, batch)
            case Boost(query=inner, factor=factor):
                return pc.multiply(self.score(inner, batch), build.float64s([factor])[0])
            case Boolean(must=must, should=should):
                total = _constant(0.0, batch)
                for part in (*must, *should):
                    total = pc.add(total, self.score(part, batch))
                return pc.if_else(mask(query, batch), total, build.float64s([0.0])[0])
            case _:
                return self._leaf(query, batch)

    def _leaf(self, leaf: Leaf, batch: PlainBatch) -> pa.DoubleArray:
        found = leaf_rows(leaf, batch)
        terms = scored_terms(leaf, self._config)
        if terms is None:
            return row_mask(found, batch.num_rows).cast(pa.float64())
        if len(found) == 0:
            return _constant(0.0, batch)
        return self._bm25(leaf, terms, found, batch)

    def _bm25(self, leaf: Leaf, terms: Sequence[str], found: pa.Int64Array, batch: PlainBatch) -> pa.DoubleArray:
        counted = pc.value_counts(found)
        rows, frequencies = counted.field(0), counted.field(1).cast(pa.float64())
        length_rows, lengths = batch.tokens(batch.target(leaf.on)).lengths
        lengths = lengths.take(pc.index_in(rows, value_set=length_rows)).dictionary_encode()
        mean = self._statistics.mean_length(leaf.on.field)
        damping = [K1 * (1 - B + B * rounded_length(n) / mean) for n in lengths.dictionary.to_pylist()]
        saturated = pc.divide(frequencies, pc.add(frequencies, build.float64s(damping).take(lengths.indices)))
        scored = pc.multiply(saturated, build.float64s([leaf_weight(leaf, terms, self._statistics)])[0])
        places = pc.index_in(counting(batch.num_rows), value_set=rows)
        return pc.fill_null(scored.take(places), 0.0)


def _constant(value: float, batch: PlainBatch) -> pa.DoubleArray:
    return pa.repeat(build.float64s([value])[0], batch.num_rows)
