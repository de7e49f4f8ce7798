"""The query language: text to tree, with the position of whatever cannot be understood.

`NOT` binds tightest, then `AND`, then `OR`; words that just stand side by side are alternatives, of which `+` makes one
required and `-` (or `NOT`) forbidden. docs/search.md shows every form.

>>> from headwater.log.schema import LONG, STRING
>>> from headwater.search.fields import FieldConfig, IndexConfig
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),
...                       FieldConfig("code", "code", "i64", LONG)))
>>> str(parse_query('"disk full" AND code:[400 TO 499}', config))
'(+message:"disk full" +code:[400 TO 499})'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headwater.errors import SearchQueryError
from headwater.search import query_leaves as leaf
from headwater.search.query import MAX_DEPTH, All, Boolean, Boost, Exists, all_of, any_of, none_of
from headwater.search.query_targets import Target, find_target
from headwater.search.query_tokens import Token, has_wildcard, query_error, tokenize, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.search.fields import IndexConfig
    from headwater.search.query import Query
    from headwater.search.query_tokens import Kind

_T = TypeVar("_T")

DEFAULT_FUZZY_DISTANCE = 2
MAX_SLOP = 10_000
MAX_BOOST = 1e9


def parse_query(text: str, config: IndexConfig, default_fields: Sequence[str] | None = None) -> Query:
    """Parse a query.

    Args:
        text: the query, such as `error AND host:web-1`.
        config: the fields there are.
        default_fields: where words without a field are searched; all text fields if not given, and if there are none,
            all string fields.

    Raises:
        SearchQueryError: the query cannot be understood, or asks a field for what it cannot hold.
    """
    if not isinstance(text, str):
        raise SearchQueryError(f"a query is text, not {type(text).__name__}")
    return _Parser(text, config, _defaults(config, default_fields)).parse()


def _defaults(config: IndexConfig, names: Sequence[str] | None) -> tuple[Target, ...]:
    if names is None:
        fields = config.text_fields or tuple(f for f in config.indexed_fields if f.kind == "string")
        return tuple(find_target(config, _escaped(field.name)) for field in fields)
    if isinstance(names, str):
        names = [names]
    return tuple(find_target(config, name) for name in names)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\")


class _Clause(NamedTuple):
    """A part of the query with the sign before it: "+", "-" or none."""

    query: Query
    sign: str
    position: int

    @property
    def logical(self) -> Query:
        return none_of(self.query) if self.sign == "-" else self.query


class _Scope(NamedTuple):
    """Where words are searched: in the named field, or in the default ones."""

    targets: tuple[Target, ...]
    is_named: bool


class _Parser:
    def __init__(self, text: str, config: IndexConfig, defaults: tuple[Target, ...]) -> None:
        self._text = text
        self._config = config
        self._defaults = _Scope(defaults, is_named=False)
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Query:
        if self._peek().kind == "end":
            raise query_error(self._text, 0, "the query is empty; * finds every row")
        query = self._sequence(self._defaults)
        if (token := self._peek()).kind != "end":
            raise query_error(self._text, token.position, "this ) closes nothing")
        return query

    # --- the grammar --------------------------------------------------------------------------------------

    def _sequence(self, scope: _Scope) -> Query:
        """Clauses side by side."""
        clauses = [self._disjunction(scope)]
        while self._peek().kind not in ("end", "close"):
            clauses.append(self._disjunction(scope))
        if len(clauses) == 1:
            return clauses[0].logical
        by_sign = {sign: tuple(c.query for c in clauses if c.sign == sign) for sign in ("+", "", "-")}
        return Boolean(by_sign["+"], by_sign[""], by_sign["-"])

    def _disjunction(self, scope: _Scope) -> _Clause:
        clauses = [self._conjunction(scope)]
        while self._accept("or"):
            clauses.append(self._conjunction(scope))
        if len(clauses) == 1:
            return clauses[0]
        for clause in clauses:
            if clause.sign == "+":
                raise query_error(
                    self._text, clause.position, "+ and OR contradict each other; use AND and parentheses"
                )
        return _Clause(any_of(*(c.logical for c in clauses)), "", clauses[0].position)

    def _conjunction(self, scope: _Scope) -> _Clause:
        clauses = [self._signed(scope)]
        while self._accept("and"):
            clauses.append(self._signed(scope))
        if len(clauses) == 1:
            return clauses[0]
        return _Clause(all_of(*(c.logical for c in clauses)), "", clauses[0].position)

    def _signed(self, scope: _Scope) -> _Clause:
        token = self._peek()
        if token.kind in ("not", "minus", "plus"):
            self._at += 1
            inner = self._nested(token, lambda: self._signed(scope))
            if token.kind != "plus":
                return _Clause(inner.logical, "-", token.position)
            if inner.sign:
                raise query_error(self._text, inner.position, "two signs stand before the same clause")
            return _Clause(inner.query, "+", token.position)
        return _Clause(self._boosted(scope), "", token.position)

    def _boosted(self, scope: _Scope) -> Query:
        query = self._primary(scope)
        while (token := self._peek()).kind == "boost":
            factor = float(self._next().text)
            if factor > MAX_BOOST:  # scores of the index are single floats, and must stay finite
                raise query_error(self._text, token.position, f"a boost is a number up to {MAX_BOOST:.0e}")
            query = Boost(query, factor)
        return query

    def _primary(self, scope: _Scope) -> Query:
        token = self._next()
        match token.kind:
            case "field":
                return self._field(token)
            case "open":
                query = self._nested(token, lambda: self._group(scope, token))
            case "star":
                query = any_of(*(Exists(t.on) for t in scope.targets)) if scope.is_named else All()
            case "word":
                query = self._word(scope, token)
            case "quoted":
                query = self._phrase(scope, token)
            case "regex":
                query = self._leaf(scope, token, lambda target: leaf.regex(target, token.text))
            case "range" | "compare" | "set":
                query = self._values(scope, token)
            case _:
                raise query_error(self._text, token.position, self._unexpected(token))
        if self._peek().kind == "tilde":
            raise query_error(self._text, self._peek().position, "~ stands behind a word or a text in quotes")
        return query

    def _field(self, token: Token) -> Query:
        following = self._peek()
        if following.kind in ("end", "close", "and", "or", "field", "tilde", "boost"):
            raise query_error(self._text, following.position, f"a value for the field {token.text} is missing here")
        if token.text == "*":
            if following.kind != "star":
                raise query_error(self._text, token.position, "*: stands only in *:*, which finds every row")
            self._at += 1
            return All()
        try:
            target = find_target(self._config, token.text)
        except SearchQueryError as e:
            raise query_error(self._text, token.position, str(e)) from None
        return self._primary(_Scope((target,), is_named=True))

    def _group(self, scope: _Scope, opening: Token) -> Query:
        if self._peek().kind == "close":
            raise query_error(self._text, opening.position, "nothing stands between these parentheses")
        query = self._sequence(scope)
        if not self._accept("close"):
            raise query_error(self._text, opening.position, "this ( is not closed")
        return query

    # --- leaves -------------------------------------------------------------------------------------------

    def _word(self, scope: _Scope, token: Token) -> Query:
        if (tilde := self._peek()).kind == "tilde":
            self._at += 1
            if has_wildcard(token.text):
                raise query_error(self._text, tilde.position, "a pattern cannot be fuzzy as well")
            distance = int(tilde.text) if tilde.text else DEFAULT_FUZZY_DISTANCE
            return self._leaf(scope, token, lambda target: leaf.fuzzy(target, unescape(token.text), distance))
        if has_wildcard(token.text):
            return self._leaf(scope, token, lambda target: leaf.pattern(target, token.text))
        return self._leaf(scope, token, lambda target: leaf.word(target, unescape(token.text)))

    def _phrase(self, scope: _Scope, token: Token) -> Query:
        slop = 0
        if (tilde := self._peek()).kind == "tilde":
            self._at += 1
            if not tilde.text or int(tilde.text) > MAX_SLOP:
                what = f"the distance between the words of a phrase is a number up to {MAX_SLOP:,}"
                raise query_error(self._text, tilde.position, what)
            slop = int(tilde.text)
        return self._leaf(scope, token, lambda target: leaf.phrase(target, token.text, slop))

    def _values(self, scope: _Scope, token: Token) -> Query:
        if not scope.is_named:
            raise query_error(
                self._text, token.position, "a range, comparison or set needs a field, as in size:[1 TO 5]"
            )
        parts = token.parts
        if token.kind == "set":
            return self._leaf(scope, token, lambda target: leaf.one_of(target, parts))
        if token.kind == "range":
            opening, lower, upper, closing = parts
            return self._leaf(
                scope, token, lambda target: leaf.between(target, lower, upper, opening == "[", closing == "]")
            )
        operator, bound = parts
        if bound == "*":
            raise query_error(self._text, token.position, f"{operator} needs a value")
        lower, upper = (bound, "*") if operator[0] == ">" else ("*", bound)
        inclusive = operator.endswith("=")
        return self._leaf(scope, token, lambda target: leaf.between(target, lower, upper, inclusive, inclusive))

    def _leaf(self, scope: _Scope, token: Token, build: Callable[[Target], Query]) -> Query:
        """The leaf in every field of the scope: of the default fields, in those that can hold it."""
        found: list[Query] = []
        errors: list[str] = []
        for target in scope.targets:
            try:
                found.append(build(_searchable(target)))
            except ValueError as e:
                errors.append(f"field {str(target.on)!r}: {e}")
        if not found:
            reasons = "; ".join(errors) or "there is no text field to search in: name a field, as in host:web-1"
            raise query_error(self._text, token.position, reasons)
        return any_of(*found)

    # --- tokens -------------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _accept(self, kind: Kind) -> bool:
        if self._peek().kind != kind:
            return False
        self._at += 1
        return True

    def _nested(self, token: Token, parse: Callable[[], _T]) -> _T:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise query_error(self._text, token.position, f"more than {MAX_DEPTH} levels of parentheses and signs")
        result = parse()
        self._depth -= 1
        return result

    def _unexpected(self, token: Token) -> str:
        if token.kind == "end":
            return "something is missing at the end"
        return f"did not expect {token.text or token.kind!r} here"


def _searchable(target: Target) -> Target:
    if not target.field.indexed or target.kind == "stored":
        raise ValueError("it is not indexed; use a filter for it")
    return target
