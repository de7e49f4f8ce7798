"""What each leaf of a query adds to the score of a row: needed to put scores right leaf by leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.search.query import All, Boolean, Boost, Nothing

if TYPE_CHECKING:
    from headwater.search.query import Leaf, Query


def score_shares(query: Query, factor: float = 1.0) -> dict[Leaf, float]:
    """The leaves that add to a score, each with the sum of its boosts."""
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
    """Whether every leaf that a found row matches adds to its score.

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
    """Whether the clause matches wherever one of its leaves does."""
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
