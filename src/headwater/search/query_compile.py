"""A query for the index of one split.

The index library has silent limits; a leaf that it cannot answer exactly becomes a wider one, and the result says so:
then the rows it proposes are decided by `evaluate` (`matching` does that). A leaf on a field that lacks some rows'
values (`Split.partial_fields`) proposes those rows as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.search.compile_leaf import compile_leaf, has_gaps
from headwater.search.query import All, Boolean, Boost, Nothing, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    import tantivy

    from headwater.search.query import Leaf, Query
    from headwater.search.split import Split


class Compiled(NamedTuple):
    """A query of the index. If it is not exact, it finds more rows than were asked for, never fewer."""

    query: tantivy.Query
    exact: bool


def compile_query(
    query: Query, split: Split, weigh: Callable[[Leaf], float | None] | None = None, *, gaps: bool = True
) -> Compiled:
    """The query of a split's index.

    Args:
        query: the query.
        split: the split.
        weigh: for scores: the factor of a leaf that is scored by its frequency, or None for a leaf whose score is 1.
            Without it the scores of the result mean nothing.
        gaps: whether to propose the rows of which a field of the query has no value in the index; without them the
            answer is only right for the others (`gap_fields`).

    Raises:
        SearchQueryError: the split's index does not have a field, or cannot answer for it at all.
    """
    return _Compiler(split, weigh, gaps).compile(query)


def gap_fields(query: Query, split: Split) -> list[str]:
    """The fields of a query that lack the values of some rows in the index."""
    names = dict.fromkeys(has_gaps(leaf, split) for leaf in leaves(query))
    return [name for name in names if name is not None]


class _Compiler:
    def __init__(self, split: Split, weigh: Callable[[Leaf], float | None] | None, gaps: bool) -> None:
        import tantivy

        self._tantivy = tantivy
        self._split = split
        self._weigh = weigh
        self._gaps = gaps

    def compile(self, query: Query) -> Compiled:
        match query:
            case All():
                return Compiled(self._tantivy.Query.all_query(), exact=True)
            case Nothing():
                return Compiled(self._tantivy.Query.empty_query(), exact=True)
            case Boost(query=inner, factor=factor):
                return self._boosted(self.compile(inner), factor)
            case Boolean():
                return self._boolean(query)
            case _:
                return self._leaf(query)

    def _boosted(self, inner: Compiled, factor: float) -> Compiled:
        if self._weigh is None:
            return inner
        if factor == 0.0:
            return Compiled(self._constant(inner.query, 0.0), inner.exact)
        return Compiled(self._tantivy.Query.boost_query(inner.query, factor), inner.exact)

    def _leaf(self, leaf: Leaf) -> Compiled:
        query, exact = compile_leaf(leaf, self._split, gaps=self._gaps)
        if self._weigh is not None:
            factor = self._weigh(leaf)
            query = self._constant(query, 1.0) if factor is None else self._tantivy.Query.boost_query(query, factor)
        return Compiled(query, exact)

    def _boolean(self, query: Boolean) -> Compiled:
        occur = self._tantivy.Occur
        must, should, must_not = (
            [self.compile(part) for part in parts] for parts in (query.must, query.should, query.must_not)
        )
        exact = all(part.exact for part in (*must, *must_not)) and (bool(must) or all(part.exact for part in should))
        clauses = [(occur.Must, part.query) for part in must]
        clauses += [(occur.Should, part.query) for part in should]
        if not clauses:  # the library finds nothing for a query that is only NOT
            clauses.append((occur.Must, self._constant(self._tantivy.Query.all_query(), 0.0)))
        # What is forbidden must be known exactly: a wider clause would forbid too much.
        clauses += [(occur.MustNot, part.query) for part in must_not if part.exact]
        return Compiled(self._tantivy.Query.boolean_query(clauses), exact)

    def _constant(self, query: tantivy.Query, score: float) -> tantivy.Query:
        return self._tantivy.Query.const_score_query(query, score)
