"""The statistics of BM25 for a query: from the index of a split, or from plain rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow.compute as pc

from headwater.search.evaluate import plain_batches
from headwater.search.evaluate_leaf import chosen_terms
from headwater.search.fields import NULL_FIELD, UNINDEXED_FIELD
from headwater.search.query import Term
from headwater.search.query_targets import target_of
from headwater.search.scoring import Statistics, merge_statistics, scored_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headwater.search.evaluate_leaf import PlainBatch
    from headwater.search.fields import FieldConfig, IndexConfig
    from headwater.search.query import Query
    from headwater.search.split import Split

_token_counts: WeakKeyDictionary[Split, dict[str, float]] = WeakKeyDictionary()


def term_statistics(split: Split, query: Query) -> Statistics:
    """What BM25 has to know about a split for a query; see `merge_statistics`."""
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
    """What BM25 has to know about plain rows for a query."""
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
    """How many tokens the index has of a field, some terms of which are known."""
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
    import tantivy

    # The library tells the mean length of a field only where it explains a score.
    query = tantivy.Query.term_query(split.index.schema, field.index_name, term)
    ((_, address),) = searcher.search(query, limit=1, count=False).hits
    explained = explained_values(query.explain(searcher, address))
    return round(explained["avgdl"] * split.num_records)


def explained_values(explanation: Any) -> dict[str, float]:
    """The numbers of an explained BM25 score by their short names: freq, dl, avgdl, ..."""
    found: dict[str, float] = {}
    pending = [json.loads(explanation.to_json())]
    while pending:
        node = pending.pop()
        found[str(node["description"]).split(",", 1)[0]] = float(node["value"])
        pending.extend(node.get("details") or [])
    return found
