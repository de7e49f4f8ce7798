"""The best rows of a split, with the scores that one index of all splits would give them.

The index of a split scores with its own statistics. How rare a term is everywhere is corrected before the search, by a
boost. The mean length of a field everywhere is corrected after it, row by row; so more rows than asked for are ranked,
until none of the others could be among the best. Only where more than a hundred rows of a split are within 1 % of the
last one taken, which of those are taken is not certain; the scores always are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from headwater.log.files import arrow as build
from headwater.search.engine.compile import compile_query, gap_fields
from headwater.search.engine.match import (
    adapted,
    broken_rows,
    found_broken_rows,
    readable_columns,
    row_numbers,
    run,
    whole_rows,
)
from headwater.search.engine.scoring import (
    Statistics,
    is_additive,
    leaf_weight,
    merge_statistics,
    saturation,
    score_shares,
    scored_leaves,
)
from headwater.search.query.targets import target_of
from headwater.search.query.tree import Nothing, Phrase, Term
from headwater.search.rows.evaluate import BATCH_ROWS, chosen_terms, plain_batches, scores
from headwater.search.split.rows import uint64s
from headwater.search.types import NULL_FIELD, ROW_ID_FIELD, UNINDEXED_FIELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.search.config import FieldConfig, IndexConfig
    from headwater.search.query.tree import Leaf, Query
    from headwater.search.rows.evaluate import PlainBatch
    from headwater.search.split.reader import Split


_MORE_ROWS = 32
_MANY_ROWS = 128
_MAX_EXPLAINED_ROWS = 1_000
"""More rows are cheaper to read than to have each of their scores explained."""
_ROUNDING = 1 + 1e-6
_CLOSE = 1.01


class ScoredRows(NamedTuple):
    """Rows of a split, best first (of equal ones the first in the split first), and their scores."""

    row_numbers: pa.UInt64Array
    scores: pa.DoubleArray


def top(split: Split, query: Query, k: int | None, statistics: Statistics | None = None) -> ScoredRows:
    """Return the best `k` rows of a split; all that the query finds if `k` is None.

    `statistics` are those of all splits that are searched together (`term_statistics` of each, `merge_statistics`), by
    default those of this split alone.

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
        """Say whether the index can find the rows that it has whole, and tell what each leaf adds to a score."""
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
        """Read rows, and return their scores."""
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
            if kept * _ROUNDING >= left or (limit - (k or 0) >= _MANY_ROWS and kept * _CLOSE >= left):
                return found
            if limit >= _MAX_EXPLAINED_ROWS and self._can_read():
                return self._from_rows(k)
            limit = min(most, limit * 4)

    def _put_right(self, hits: Sequence[tuple[float, tantivy.DocAddress]], k: int | None) -> ScoredRows:
        totals = [score + self._difference(address) for score, address in hits]
        row_ids = self._split.searcher.fast_field_values(ROW_ID_FIELD, [address for _, address in hits])
        return _ranked(self._split.row_numbers_of(row_ids), build.float64s(totals), k)  # type: ignore[arg-type]

    def _difference(self, address: tantivy.DocAddress) -> float:
        """Return what a row's score lacks because the index of the split does not know the mean lengths everywhere."""
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


_token_counts: WeakKeyDictionary[Split, dict[str, float]] = WeakKeyDictionary()


def term_statistics(split: Split, query: Query) -> Statistics:
    """Return what BM25 needs about a split for a query; see `merge_statistics`."""
    tokens: dict[str, float] = {}
    frequencies: dict[str, dict[str, int]] = {}
    known = _token_counts.setdefault(split, {})
    for name, terms in _terms_by_field(query, split.config).items():
        field = split.config.field(name)
        frequencies[name] = {term: split.searcher.doc_freq(field.index_name, term) for term in terms}
        if name not in known:
            known[name] = _count_tokens(split, field, frequencies[name])
        tokens[name] = known[name]
    return Statistics(split.num_records, tokens, frequencies)


def row_statistics(query: Query, rows: pa.Table, config: IndexConfig) -> Statistics:
    """Return what BM25 needs about plain rows for a query."""
    terms = _terms_by_field(query, config)
    return merge_statistics(_batch_statistics(batch, terms, config) for batch in plain_batches(rows, config))


def _batch_statistics(batch: PlainBatch, terms: dict[str, list[str]], config: IndexConfig) -> Statistics:
    tokens: dict[str, float] = {}
    frequencies: dict[str, dict[str, int]] = {}
    for name, wanted in terms.items():
        target = target_of(config.field(name))
        column = batch.tokens(target)
        tokens[name] = len(column.codes)
        frequencies[name] = {
            term: pc.count_distinct(column.token_rows(chosen_terms(Term(target.on, term), column.terms))).as_py()
            for term in wanted
        }
    return Statistics(batch.num_rows, tokens, frequencies)


def _terms_by_field(query: Query, config: IndexConfig) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for leaf, terms in scored_leaves(query, config).items():
        found.setdefault(leaf.on.field, {}).update(dict.fromkeys(terms))
    return {name: list(terms) for name, terms in found.items()}


def _count_tokens(split: Split, field: FieldConfig, frequencies: Mapping[str, int]) -> float:
    """Count the tokens that the index has of a field, some terms of which are known."""
    searcher = split.searcher
    if field.kind == "string":
        missing = searcher.doc_freq(NULL_FIELD, field.column) + searcher.doc_freq(UNINDEXED_FIELD, field.name)
        return float(split.num_records - missing)
    term = next((term for term, rows in frequencies.items() if rows), None)
    if term is None:
        others = searcher.terms_with_prefix(field.index_name, "", limit=1)  # goes through all terms
        if not others:
            return 0.0
        term = others[0][0]
    # The library tells the mean length of a field only where it explains a score.
    query = tantivy.Query.term_query(split.index.schema, field.index_name, term)
    ((_, address),) = searcher.search(query, limit=1, count=False).hits
    explained = explained_values(query.explain(searcher, address))
    return round(explained["avgdl"] * split.num_records)


def explained_values(explanation: Any) -> dict[str, float]:
    """Return the numbers of an explained BM25 score by their short names: freq, dl, avgdl, ..."""
    found: dict[str, float] = {}
    pending = [json.loads(explanation.to_json())]
    while pending:
        node = pending.pop()
        found[str(node["description"]).split(",", 1)[0]] = float(node["value"])
        pending.extend(node.get("details") or [])
    return found
