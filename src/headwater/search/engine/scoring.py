"""BM25 over many splits: the statistics of all of them give the scores that one big index would give.

A term or phrase on a text or string field is scored by BM25 (k1 = 1.2, b = 0.75, lengths rounded as the index does);
every other leaf that matches counts 1; what is forbidden counts nothing; a boost multiplies. A phrase with a slop is
counted once in a text. For BM25 a split needs to know about the others only these numbers, which can be added up.

>>> one = Statistics(10, {"message": 60}, {"message": {"error": 2}})
>>> merge_statistics([one, one]).frequencies
{'message': {'error': 4}}
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.search.query.tree import All, Boolean, Boost, Nothing, Phrase, Term, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headwater.search.config import IndexConfig
    from headwater.search.query.tree import Leaf, Query


K1 = 1.2
B = 0.75
_EXACT_LENGTHS = 24
_MANTISSA_BITS = 3


@dataclass(frozen=True)
class Statistics:
    """What BM25 needs to know about a collection of rows: tokens by field, and rows by field and term of the query."""

    num_rows: int = 0
    tokens: Mapping[str, float] = field(default_factory=dict)
    frequencies: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def mean_length(self, name: str) -> float:
        """Return the mean number of tokens of a field."""
        return self.tokens.get(name, 0) / self.num_rows if self.num_rows else 0.0

    def inverse_frequency(self, name: str, term: str) -> float:
        """Return the weight of a term: the rarer, the higher."""
        rows = self.frequencies.get(name, {}).get(term, 0)
        return math.log(1 + (self.num_rows - rows + 0.5) / (rows + 0.5))


def merge_statistics(parts: Iterable[Statistics]) -> Statistics:
    num_rows = 0
    tokens: Counter[str] = Counter()
    frequencies: dict[str, Counter[str]] = {}
    for part in parts:
        num_rows += part.num_rows
        tokens.update(part.tokens)
        for name, counts in part.frequencies.items():
            frequencies.setdefault(name, Counter()).update(counts)
    return Statistics(num_rows, dict(tokens), {name: dict(counts) for name, counts in frequencies.items()})


def scored_terms(leaf: Leaf, config: IndexConfig) -> tuple[str, ...] | None:
    """Return the terms of a leaf that is scored by BM25; None for the others, whose score is 1."""
    found = config.find(leaf.on.field)
    if found is None or not found.indexed or found.kind not in ("text", "string"):
        return None
    if isinstance(leaf, Term):
        return (str(leaf.value),)
    if isinstance(leaf, Phrase):
        return leaf.terms
    return None


def scored_leaves(query: Query, config: IndexConfig) -> dict[Leaf, tuple[str, ...]]:
    """Return the leaves that are scored by BM25, with their terms."""
    found = {leaf: scored_terms(leaf, config) for leaf in leaves(query)}
    return {leaf: terms for leaf, terms in found.items() if terms is not None}


def leaf_weight(leaf: Leaf, terms: Sequence[str], statistics: Statistics) -> float:
    """Return the factor of a leaf's BM25 score that is the same for every row."""
    return (1 + K1) * sum(statistics.inverse_frequency(leaf.on.field, term) for term in terms)


def saturation(frequency: float, length: int, mean_length: float) -> float:
    """Return the factor that depends on the row: its frequency of the term, damped by its length."""
    if not mean_length:
        return 0.0
    return frequency / (frequency + K1 * (1 - B + B * rounded_length(length) / mean_length))


@functools.lru_cache(maxsize=65_536)
def rounded_length(length: int) -> int:
    """Return a length as the index remembers it, in one byte: exact up to 40, then with four significant bits.

    >>> [rounded_length(n) for n in (7, 40, 41, 100, 1000)]
    [7, 40, 40, 96, 984]
    """
    if length < _EXACT_LENGTHS:
        return length
    rest = length - _EXACT_LENGTHS
    shift = max(rest.bit_length() - _MANTISSA_BITS - 1, 0)
    return _EXACT_LENGTHS + (rest >> shift << shift)


def score_shares(query: Query, factor: float = 1.0) -> dict[Leaf, float]:
    """Return the leaves that add to a score, each with the sum of its boosts."""
    shares: dict[Leaf, float] = {}
    match query:
        case All() | Nothing():
            pass
        case Boost(query=inner, factor=own):
            return score_shares(inner, factor * own)
        case Boolean(must=must, should=should):
            for part in (*must, *should):
                for leaf, share in score_shares(part, factor).items():
                    shares[leaf] = shares.get(leaf, 0.0) + share
        case _:
            shares[query] = factor
    return shares


def is_additive(query: Query) -> bool:
    """Say whether every leaf that a found row matches adds to its score.

    That is not so where a leaf is only one of several conditions of an optional clause.
    """
    match query:
        case Boost(query=inner):
            return is_additive(inner)
        case Boolean(must=must, should=should):
            return all(map(is_additive, must)) and all(map(_is_simple, should))
        case _:
            return True


def _is_simple(query: Query) -> bool:
    """Say whether the clause matches wherever one of its leaves does."""
    match query:
        case Boost(query=inner):
            return _is_simple(inner)
        case Boolean(must=must, should=should, must_not=must_not):
            return (
                not must_not
                and (not must or (len(must) == 1 and not should))
                and all(map(_is_simple, (*must, *should)))
            )
        case _:
            return True
