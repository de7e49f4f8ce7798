"""The tree of a search query, which a text query and a SQL filter become.

Every node is a frozen value that pickles, compares, and goes to JSON and back (`to_json`, `from_json`), so that tasks
get the tree and never the text. Values are already analysed: a `Term` on a text field holds one token, on a timestamp
its microseconds. The tree is evaluated by the index (`headwater.search.engine.compile`) and on plain rows
(`headwater.search.rows.evaluate`), with the same meaning.

>>> q = all_of(Term(FieldPath("message"), "error"), none_of(Term(FieldPath("host"), "web-1")))
>>> str(q)
'(+message:error -host:web-1)'
>>> from_json(to_json(q)) == q
True
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value: TypeAlias = str | int | float | bool
"""What a leaf compares with, in the form in which the field is indexed."""

MAX_FUZZY_DISTANCE = 2
MAX_DEPTH = 50
"""The most levels of a query: functions on trees are recursive, and Python limits the depth of calls."""


class FieldPath(msgspec.Struct, frozen=True):
    """An index field, and the keys that lead into it when it is a JSON field."""

    field: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.field, *(key.replace("\\", "\\\\").replace(".", "\\.") for key in self.path)))


class _Node(msgspec.Struct, frozen=True, tag=True):
    """The base of all nodes: JSON names the kind of node as `type`."""


class All(_Node, frozen=True, tag=True):
    """Every row."""

    def __str__(self) -> str:
        return "*"


class Nothing(_Node, frozen=True, tag=True):
    """No row."""

    def __str__(self) -> str:
        return "-*"


class Term(_Node, frozen=True, tag=True):
    """The field holds exactly this token (text) or value (all others)."""

    on: FieldPath
    value: Value

    def __str__(self) -> str:
        return f"{self.on}:{self.value}"


class TermSet(_Node, frozen=True, tag=True):
    """The field holds one of these tokens or values; the score is constant."""

    on: FieldPath
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.on}:IN [{' '.join(map(str, self.values))}]"


class Phrase(_Node, frozen=True, tag=True):
    """The tokens stand one after another.

    With a slop the tokens may be moved: give every token the distance between where it stands and where the phrase
    wants it; the phrase matches when the largest and the smallest of these distances differ by at most `slop`. So one
    word in between costs 1, two neighbours swapped cost 2. Two tokens of the phrase never stand for one of the text.
    """

    on: FieldPath
    terms: tuple[str, ...]
    slop: int = 0

    def __str__(self) -> str:
        return f'{self.on}:"{" ".join(self.terms)}"' + (f"~{self.slop}" if self.slop else "")


class Range(_Node, frozen=True, tag=True):
    """A token or value between two optional bounds. Text compares by its UTF-8 bytes, as in Spark."""

    on: FieldPath
    lower: Value | None = None
    upper: Value | None = None
    include_lower: bool = True
    include_upper: bool = True

    def __str__(self) -> str:
        left, right = "[" if self.include_lower else "{", "]" if self.include_upper else "}"
        lower, upper = ("*" if bound is None else str(bound) for bound in (self.lower, self.upper))
        return f"{self.on}:{left}{lower} TO {upper}{right}"


class Prefix(_Node, frozen=True, tag=True):
    """A token or text that starts with this prefix."""

    on: FieldPath
    prefix: str

    def __str__(self) -> str:
        return f"{self.on}:{self.prefix}*"


class Wildcard(_Node, frozen=True, tag=True):
    r"""A token or text of this pattern: `*` any characters, `?` one character, `\` before one that means itself."""

    on: FieldPath
    pattern: str

    def __str__(self) -> str:
        return f"{self.on}:{self.pattern}"


class Regex(_Node, frozen=True, tag=True):
    """A whole token or text that the regular expression describes (`query_patterns` says which expressions)."""

    on: FieldPath
    pattern: str

    def __str__(self) -> str:
        return f"{self.on}:/{self.pattern}/"


class Fuzzy(_Node, frozen=True, tag=True):
    """A token at most `distance` edits away: a character more, less or other, or two neighbours swapped."""

    on: FieldPath
    text: str
    distance: int = 1

    def __str__(self) -> str:
        return f"{self.on}:{self.text}~{self.distance}"


class Exists(_Node, frozen=True, tag=True):
    """The column is not null; at a JSON path: there is a value that is not null (in a list: at least one)."""

    on: FieldPath

    def __str__(self) -> str:
        return f"{self.on}:*"


class Boolean(_Node, frozen=True, tag=True):
    """All of `must`, none of `must_not`, and at least one of `should` if nothing is in `must`.

    With nothing but `must_not` it is every other row. The score is the sum over `must` and `should`.
    """

    must: tuple[Query, ...] = ()
    should: tuple[Query, ...] = ()
    must_not: tuple[Query, ...] = ()

    def __str__(self) -> str:
        parts = [f"+{q}" for q in self.must] + [str(q) for q in self.should] + [f"-{q}" for q in self.must_not]
        return f"({' '.join(parts)})"


class Boost(_Node, frozen=True, tag=True):
    """The same rows, with their score multiplied; by 0 for a clause that only filters."""

    query: Query
    factor: float

    def __str__(self) -> str:
        return f"{self.query}^{self.factor:g}"


Leaf: TypeAlias = Term | TermSet | Phrase | Range | Prefix | Wildcard | Regex | Fuzzy | Exists
Query: TypeAlias = (
    All | Nothing | Term | TermSet | Phrase | Range | Prefix | Wildcard | Regex | Fuzzy | Exists | Boolean | Boost
)


def all_of(*queries: Query) -> Query:
    """Return the rows of all queries; their scores are added up.

    >>> all_of()
    All()
    """
    negated = tuple(n for q in queries for n in (_negated(q) or ()))
    others = tuple(q for q in queries if _negated(q) is None)
    if not negated and len(others) < 2:
        return others[0] if others else All()
    return Boolean(must=others, must_not=negated)


def any_of(*queries: Query) -> Query:
    """Return the rows of any of the queries; the scores of those that match are added up.

    >>> any_of()
    Nothing()
    """
    if len(queries) < 2:
        return queries[0] if queries else Nothing()
    return Boolean(should=queries)


def none_of(*queries: Query) -> Query:
    """Return the rows of none of the queries, without SQL's rules for nulls (`headwater.search.query.sql`)."""
    return Boolean(must_not=queries) if queries else All()


def filtered(query: Query, condition: Query | None) -> Query:
    """Return the rows of `query` that also fulfil `condition`, which adds nothing to the score."""
    return query if condition is None else Boolean(must=(query, Boost(condition, 0.0)))


def _negated(query: Query) -> tuple[Query, ...] | None:
    """Return the clauses of a query that is only NOT."""
    if isinstance(query, Boolean) and not query.must and not query.should:
        return query.must_not
    return None


def leaves(query: Query) -> Iterator[Leaf]:
    """Yield every leaf of the tree, from left to right."""
    match query:
        case All() | Nothing():
            return
        case Boolean(must=must, should=should, must_not=must_not):
            for part in (*must, *should, *must_not):
                yield from leaves(part)
        case Boost(query=inner):
            yield from leaves(inner)
        case _:
            yield query


def map_leaves(query: Query, change: Callable[[Leaf], Query]) -> Query:
    """Return the same tree with every leaf replaced."""
    match query:
        case All() | Nothing():
            return query
        case Boolean(must=must, should=should, must_not=must_not):
            new = [tuple(map_leaves(part, change) for part in parts) for parts in (must, should, must_not)]
            return Boolean(*new)
        case Boost(query=inner, factor=factor):
            return Boost(map_leaves(inner, change), factor)
        case _:
            return change(query)


def to_json(query: Query) -> str:
    """Return the tree as JSON text, with `Infinity` and `NaN` for numbers that JSON does not have."""
    return json.dumps(msgspec.to_builtins(query))


def from_json(text: str | bytes) -> Query:
    query: Query = msgspec.convert(json.loads(text), type=Query)
    return query
