"""Compile a query for the index of one split.

The index library has silent limits; a leaf that it cannot answer exactly becomes a wider one, and the result says so:
then the rows that it proposes are read and decided (`headwater.search.engine.match`). A leaf on a field that lacks some
rows' values (`Split.partial_fields`) proposes those rows as well.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import tantivy

from headwater.errors import SearchQueryError
from headwater.search.analysis import MAX_TERM_BYTES
from headwater.search.query.patterns import prefix_regex, text_bound, wildcard_regex
from headwater.search.query.targets import index_path, resolve
from headwater.search.query.tree import (
    All,
    Boolean,
    Boost,
    Exists,
    Fuzzy,
    Nothing,
    Phrase,
    Prefix,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
    leaves,
)
from headwater.search.types import NULL_FIELD, UNINDEXED_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.search.query.targets import Target
    from headwater.search.query.tree import Leaf, Query, Value
    from headwater.search.split.reader import Split


class Compiled(NamedTuple):
    """A query of the index. If it is not exact, it finds more rows than were asked for, never fewer."""

    query: tantivy.Query
    exact: bool


def compile_query(
    query: Query, split: Split, weigh: Callable[[Leaf], float | None] | None = None, *, gaps: bool = True
) -> Compiled:
    """Return the query of a split's index.

    Args:
        query: the query.
        split: the split.
        weigh: for scores: the factor of a leaf that is scored by its frequency, or None for a leaf whose score is 1.
        gaps: whether to propose the rows of which a field of the query has no value in the index; without them the
            answer is only right for the others (`gap_fields`).

    Raises:
        SearchQueryError: the split's index does not have a field, or cannot answer for it at all.
    """
    return _Compiler(split, weigh, gaps).compile(query)


def gap_fields(query: Query, split: Split) -> list[str]:
    """Return the fields of a query that lack the values of some rows in the index."""
    names = dict.fromkeys(has_gaps(leaf, split) for leaf in leaves(query))
    return [name for name in names if name is not None]


class _Compiler:
    def __init__(self, split: Split, weigh: Callable[[Leaf], float | None] | None, gaps: bool) -> None:
        self._split = split
        self._weigh = weigh
        self._gaps = gaps

    def compile(self, query: Query) -> Compiled:
        match query:
            case All():
                return Compiled(tantivy.Query.all_query(), exact=True)
            case Nothing():
                return Compiled(tantivy.Query.empty_query(), exact=True)
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
        return Compiled(tantivy.Query.boost_query(inner.query, factor), inner.exact)

    def _leaf(self, leaf: Leaf) -> Compiled:
        query, exact = compile_leaf(leaf, self._split, gaps=self._gaps)
        if self._weigh is not None:
            factor = self._weigh(leaf)
            query = self._constant(query, 1.0) if factor is None else tantivy.Query.boost_query(query, factor)
        return Compiled(query, exact)

    def _boolean(self, query: Boolean) -> Compiled:
        occur = tantivy.Occur
        must, should, must_not = (
            [self.compile(part) for part in parts] for parts in (query.must, query.should, query.must_not)
        )
        exact = all(part.exact for part in (*must, *must_not)) and (bool(must) or all(part.exact for part in should))
        clauses = [(occur.Must, part.query) for part in must]
        clauses += [(occur.Should, part.query) for part in should]
        if not clauses:  # the library finds nothing for a query that is only NOT
            clauses.append((occur.Must, self._constant(tantivy.Query.all_query(), 0.0)))
        # What is forbidden must be known exactly: a wider clause would forbid too much.
        clauses += [(occur.MustNot, part.query) for part in must_not if part.exact]
        return Compiled(tantivy.Query.boolean_query(clauses), exact)

    def _constant(self, query: tantivy.Query, score: float) -> tantivy.Query:
        return tantivy.Query.const_score_query(query, score)


_MAX_AUTOMATON_CHARACTERS = 200
"""The library's automata have a limited number of states, and some for each character."""
_RANGE_TYPES = {"i64": tantivy.FieldType.Integer, "f64": tantivy.FieldType.Float, "ip": tantivy.FieldType.IpAddr}


def compile_leaf(leaf: Leaf, split: Split, *, gaps: bool) -> tuple[tantivy.Query, bool]:
    """Return the query for a leaf, and whether it is exact."""
    target = resolve(split.config, leaf.on)
    if isinstance(leaf, Exists) and not target.path:
        return _not_null(target.field.column, split), True
    if not target.field.indexed:
        return tantivy.Query.all_query(), False
    try:
        query = _LeafCompiler(split.index.schema, target).compile(leaf)
    except ValueError as error:
        raise SearchQueryError(f"the index cannot answer {leaf}: {error}") from error
    if query is None:
        return tantivy.Query.all_query(), False
    if gaps and has_gaps(leaf, split) is not None:
        should = tantivy.Occur.Should
        either = [(should, query.query), (should, unindexed_query(target.field.name, split))]
        return tantivy.Query.boolean_query(either), False
    return query.query, query.exact


def has_gaps(leaf: Leaf, split: Split) -> str | None:
    """Return the name of a leaf's field, if it lacks the values of some rows that the leaf could ask for."""
    target = resolve(split.config, leaf.on)
    # Whether there is a value is always known. Text that is no address is none that a query could ask for.
    if (isinstance(leaf, Exists) and not target.path) or target.kind == "ip" or not target.field.indexed:
        return None
    return target.field.name if target.field.name in split.partial_fields else None


def unindexed_query(name: str, split: Split) -> tantivy.Query:
    """Find the rows of which a field has no value in the index."""
    return tantivy.Query.term_query(split.index.schema, UNINDEXED_FIELD, name, "basic")


class _Answer:
    def __init__(self, query: tantivy.Query, exact: bool = True) -> None:
        self.query = query
        self.exact = exact


def _not_null(column: str, split: Split) -> tantivy.Query:
    null = tantivy.Query.term_query(split.index.schema, NULL_FIELD, column, "basic")
    every = tantivy.Query.all_query()
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, every), (tantivy.Occur.MustNot, null)])


class _LeafCompiler:
    def __init__(self, schema: tantivy.Schema, target: Target) -> None:
        self._schema = schema
        self._target = target
        keys = [key.replace("\\", "\\\\").replace(".", "\\.") for key in index_path(target)]
        self._name = ".".join((target.field.index_name, *(keys if target.field.kind == "json" else ())))

    def compile(self, leaf: Leaf) -> _Answer | None:
        """Return None when the index cannot narrow the rows down."""
        kind = self._target.kind
        if isinstance(leaf, Phrase) and kind not in ("text", "any"):
            raise ValueError("only text has phrases")
        if isinstance(leaf, Prefix | Wildcard | Regex | Fuzzy) and kind not in ("text", "string", "any"):
            raise ValueError("only text has patterns")  # the library would try them on the bytes of numbers
        match leaf:
            case Term(value=value):
                return _Answer(self._term(value))
            case TermSet(values=values):
                return _Answer(self._term_set(values))
            case Phrase(terms=terms, slop=0):
                return _Answer(tantivy.Query.phrase_query(self._schema, self._name, list(terms)))
            case Phrase():
                return self._sloppy(leaf)
            case Range():
                return self._range(leaf)
            case Fuzzy(text=text) if len(text) > _MAX_AUTOMATON_CHARACTERS:
                return None
            case Fuzzy(text=text, distance=distance):
                return _Answer(tantivy.Query.fuzzy_term_query(self._schema, self._name, text, distance, True, False))
            case Prefix(prefix=prefix):
                found = self._regex(prefix_regex(prefix[:_MAX_AUTOMATON_CHARACTERS]))
                return found if found is None else _Answer(found.query, len(prefix) <= _MAX_AUTOMATON_CHARACTERS)
            case Wildcard(pattern=pattern):
                return self._regex(wildcard_regex(pattern))
            case Regex(pattern=pattern):
                return self._regex(pattern)
        return None

    def _sloppy(self, leaf: Phrase) -> _Answer:
        """Compile a phrase with a slop.

        The library is right about two different words; it misses or invents rows for more, and for equal ones. Of a
        longer phrase, every two neighbours must be within the slop: the rows where they are have to be read.
        """
        pairs = [(a, b) for a, b in itertools.pairwise(leaf.terms) if a != b]
        queries = [tantivy.Query.phrase_query(self._schema, self._name, [a, b], leaf.slop) for a, b in pairs]
        if len(leaf.terms) == 2 and queries:
            return _Answer(queries[0])
        return _Answer(self._all([*queries, *(self._term(term) for term in dict.fromkeys(leaf.terms))]), exact=False)

    def _term(self, value: Value) -> tantivy.Query:
        if _is_nowhere(value):
            return tantivy.Query.empty_query()
        if not self._target.field.has_terms:
            return self._one_value(value)
        # The option says what is read of the postings: frequencies are only asked of fields that have them.
        option = "position" if self._target.field.kind == "text" else "basic"
        return tantivy.Query.term_query(self._schema, self._name, value, option)

    def _one_value(self, value: Value) -> tantivy.Query:
        """Find a value of a field that has only its columnar copy, as the range of itself."""
        kind = _RANGE_TYPES[self._target.kind]
        return tantivy.Query.range_query(self._schema, self._name, kind, value, value)

    def _term_set(self, values: tuple[Value, ...]) -> tantivy.Query:
        possible = [value for value in values if not _is_nowhere(value)]
        if not possible:
            return tantivy.Query.empty_query()
        if not self._target.field.has_terms:
            each = [(tantivy.Occur.Should, self._one_value(value)) for value in possible]
            return tantivy.Query.boolean_query(each)
        return tantivy.Query.term_set_query(self._schema, self._name, possible)

    def _range(self, leaf: Range) -> _Answer | None:
        target = self._target
        if target.field.kind == "json":
            return None
        if target.kind == "text" or (target.kind == "string" and target.field.ordered):
            return self._text_range(leaf)
        if target.kind not in _RANGE_TYPES:
            return None
        return _Answer(
            tantivy.Query.range_query(
                self._schema,
                self._name,
                _RANGE_TYPES[target.kind],
                leaf.lower,
                leaf.upper,
                leaf.include_lower or leaf.lower is None,  # the library wants a missing bound to be inclusive
                leaf.include_upper or leaf.upper is None,
                use_inverted_index=not target.field.fast,
            )
        )

    def _text_range(self, leaf: Range) -> _Answer | None:
        """Compile a range of text, which the library does not have: each bound is a regular expression.

        Of several tokens one may keep the lower bound and another one the upper: then the rows have to be read.
        """
        if leaf.upper == "" and not leaf.include_upper:
            return _Answer(tantivy.Query.empty_query())
        bounds = [text_bound(str(leaf.lower), leaf.include_lower, is_lower=True)] if leaf.lower is not None else []
        bounds += [text_bound(str(leaf.upper), leaf.include_upper, is_lower=False)] if leaf.upper is not None else []
        parts = [self._regex(pattern) for pattern, _ in bounds]
        exact = all(is_exact for _, is_exact in bounds) and (self._target.kind == "string" or len(bounds) < 2)
        return _Answer(self._all([part.query for part in parts if part is not None]), exact)

    def _regex(self, pattern: str) -> _Answer | None:
        if self._target.field.kind == "json":
            return None
        try:
            return _Answer(tantivy.Query.regex_query(self._schema, self._name, pattern))
        except ValueError as error:
            if "size limit" in str(error):
                return None  # too many states for the library: the rows have to be asked
            raise

    def _all(self, queries: list[tantivy.Query]) -> tantivy.Query:
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in queries])


def _is_nowhere(value: Value) -> bool:
    """Say whether the index never has such a term, even where a row has the value: such rows are noted as unindexed."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and len(value.encode()) > MAX_TERM_BYTES
