"""The best rows of a split, with the scores that one index of all splits would give them.

The index of a split scores with its own statistics. How rare a term is everywhere is put right before the search, by a
boost. What the mean length of a field is everywhere is put right after it, row by row; so more rows than asked for are
looked at, until none of those left behind could be among the best. Only where more than a hundred rows of a split are
within 1 % of the last one taken, which of those are taken is not certain; the scores always are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.search.evaluate import BATCH_ROWS
from headwater.search.fields import ROW_ID_FIELD
from headwater.search.matching import (
    adapted,
    broken_rows,
    found_broken_rows,
    readable_columns,
    row_numbers,
    run,
    whole_rows,
)
from headwater.search.query import Nothing, Phrase
from headwater.search.query_compile import compile_query, gap_fields
from headwater.search.row_ids import uint64s
from headwater.search.row_scores import scores
from headwater.search.score_shares import is_additive, score_shares
from headwater.search.scoring import leaf_weight, saturation, scored_leaves
from headwater.search.term_statistics import explained_values, term_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tantivy

    from headwater.search.query import Leaf, Query
    from headwater.search.scoring import Statistics
    from headwater.search.split import Split

_MORE_ROWS = 32
_MANY_ROWS = 128
_MAX_EXPLAINED_ROWS = 1_000
"""Beyond so many rows it is cheaper to read them than to have each of their scores explained."""
_ROUNDING = 1 + 1e-6
_NEAR = 1.01


class ScoredRows(NamedTuple):
    """Rows of a split, best first (of equal ones the first in the split first), and their scores."""

    row_numbers: pa.UInt64Array
    scores: pa.DoubleArray


def top(split: Split, query: Query, k: int | None, statistics: Statistics | None = None) -> ScoredRows:
    """The best rows of a split.

    Args:
        split: the split.
        query: the query.
        k: how many; None for all that the query finds.
        statistics: of all splits that are searched together (`term_statistics` of each, `merge_statistics`); those of
            this split alone if not given.

    Raises:
        ValueError: `k` is negative.
        SearchQueryError: the query cannot be answered, or scoring it needs a column that is only indexed.
    """
    if k is not None and k < 0:
        raise ValueError(f"the number of rows must not be negative: {k}")
    query = adapted(split, query)
    if k == 0 or split.num_records == 0 or isinstance(query, Nothing):
        return ScoredRows(uint64s([]), build.float64s([]))
    local = term_statistics(split, query)
    return _Ranking(split, query, local, statistics or local).top(k)


class _Ranking:
    def __init__(self, split: Split, query: Query, local: Statistics, everywhere: Statistics) -> None:
        self._split = split
        self._query = query
        self._everywhere = everywhere
        self._shares = score_shares(query)
        self._gaps = gap_fields(query, split)
        self._weights: dict[Leaf, float] = {}
        self._factors: dict[Leaf, float] = {}
        self._ratios: dict[str, tuple[float, float]] = {}
        for leaf, terms in scored_leaves(query, split.config).items():
            self._weights[leaf] = leaf_weight(leaf, terms, everywhere)
            self._factors[leaf] = self._weights[leaf] / leaf_weight(leaf, terms, local)
            name = leaf.on.field
            here, mean = local.mean_length(name), everywhere.mean_length(name)
            if here and abs(mean / here - 1) > _ROUNDING - 1:
                self._ratios[name] = here, mean
        self._differences: dict[tuple[int, int], float] = {}
        self._corrected = {
            leaf: compile_query(leaf, split, gaps=False).query
            for leaf in self._weights
            if leaf.on.field in self._ratios and self._shares.get(leaf)
        }

    def top(self, k: int | None) -> ScoredRows:
        if not self._index_knows():
            return self._from_rows(k)
        if self._ratios and (k is None or k > _MAX_EXPLAINED_ROWS) and self._can_read():
            return self._from_rows(k)
        if not self._gaps:
            return self._from_index(k)
        # A row that the index does not have whole (one giant token is enough) is read; the others need not be.
        whole = self._from_index(k)
        numbers = found_broken_rows(self._split, self._query, self._gaps)
        scored = self._scores_of(numbers)
        return _ranked(pa.concat_arrays([whole.row_numbers, numbers]), pa.concat_arrays([whole.scores, scored]), k)

    def _index_knows(self) -> bool:
        """Whether the index can find the rows that it has whole, and say what each leaf adds to a score."""
        if not is_additive(self._query) or any(isinstance(leaf, Phrase) and leaf.slop for leaf in self._shares):
            return False
        return all(compile_query(part, self._split, gaps=False).exact for part in (self._query, *self._shares))

    def _can_read(self) -> bool:
        return not any(
            self._split.config.field(leaf.on.field).column in self._split.config.index_only_columns
            for leaf in self._shares
        )

    def _from_rows(self, k: int | None) -> ScoredRows:
        numbers = row_numbers(self._split, self._query)
        return _ranked(numbers, self._scores_of(numbers), k)

    def _scores_of(self, numbers: pa.UInt64Array) -> pa.DoubleArray:
        """The scores of rows by reading them."""
        columns = readable_columns(self._split, self._query)
        parts = [build.float64s([])]
        for start in range(0, len(numbers), BATCH_ROWS):
            rows = self._split.rows(numbers.slice(start, BATCH_ROWS), columns)
            parts.append(scores(self._query, rows, self._split.config, self._everywhere))
        return pa.concat_arrays(parts)

    def _from_index(self, k: int | None) -> ScoredRows:
        query = compile_query(self._query, self._split, self._factors.get, gaps=False).query
        if self._gaps:
            query = whole_rows(query, broken_rows(self._split, self._gaps))
        most = max(1, self._split.searcher.num_docs)
        growth = max([1.0, *(mean / here for here, mean in self._ratios.values())])
        limit = most if k is None else min(most, k + (_MORE_ROWS if self._ratios else 0))
        while True:
            hits = run(self._split, query, limit=limit, count=False).hits
            found = self._put_right(hits, k)
            if len(hits) < limit or limit == most or not self._ratios:
                return found
            kept, left = found.scores[-1].as_py(), hits[-1][0] * growth
            if kept * _ROUNDING >= left or (limit - (k or 0) >= _MANY_ROWS and kept * _NEAR >= left):
                return found
            if limit >= _MAX_EXPLAINED_ROWS and self._can_read():
                return self._from_rows(k)
            limit = min(most, limit * 4)

    def _put_right(self, hits: Sequence[tuple[float, tantivy.DocAddress]], k: int | None) -> ScoredRows:
        totals = [score + self._difference(address) for score, address in hits]
        row_ids = self._split.searcher.fast_field_values(ROW_ID_FIELD, [address for _, address in hits])
        return _ranked(self._split.row_numbers_of(row_ids), build.float64s(totals), k)  # type: ignore[arg-type]

    def _difference(self, address: tantivy.DocAddress) -> float:
        """What a row's score lacks because the index of the split does not know the mean lengths everywhere."""
        if not self._ratios:
            return 0.0
        place = address.segment_ord, address.doc
        if place not in self._differences:
            self._differences[place] = sum(self._leaf_difference(leaf, address) for leaf in self._corrected)
        return self._differences[place]

    def _leaf_difference(self, leaf: Leaf, address: tantivy.DocAddress) -> float:
        try:
            explained = explained_values(self._corrected[leaf].explain(self._split.searcher, address))
        except ValueError:  # the row does not have the term
            return 0.0
        here, mean = self._ratios[leaf.on.field]
        frequency, length = explained["freq"], round(explained["dl"])
        share = self._shares[leaf] * self._weights[leaf]
        return share * (saturation(frequency, length, mean) - saturation(frequency, length, here))


def _ranked(numbers: pa.UInt64Array, values: pa.DoubleArray, k: int | None) -> ScoredRows:
    table = pa.table({"score": values, "number": numbers})
    order = pc.sort_indices(table, [("score", "descending"), ("number", "ascending")])
    order = order if k is None else order.slice(0, k)
    return ScoredRows(numbers.take(order), values.take(order))
