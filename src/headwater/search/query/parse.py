"""The query language: text to tree, with the position of whatever cannot be understood.

`NOT` binds tightest, then `AND`, then `OR`; words side by side are alternatives, of which `+` makes one required and
`-` (or `NOT`) forbidden. docs/search.md shows every form. Text is analysed here, with the field's own analyser, so the
tree holds tokens. A word that an analyser cuts into several tokens (`web-1`) asks for them as a phrase.

>>> from headwater.log.schema import LONG, STRING
>>> from headwater.search.config import FieldConfig, IndexConfig
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),
...                       FieldConfig("code", "code", "i64", LONG)))
>>> str(parse_query('"disk full" AND code:[400 TO 499}', config))
'(+message:"disk full" +code:[400 TO 499})'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headwater.errors import SearchQueryError
from headwater.search.analysis import tokens
from headwater.search.query.patterns import UnsupportedPatternError, check_regex, fold_case, folds_case, is_separator
from headwater.search.query.targets import Target, find_target
from headwater.search.query.tokens import Token, has_wildcard, query_error, tokenize, unescape, unquote
from headwater.search.query.tree import (
    MAX_DEPTH,
    MAX_FUZZY_DISTANCE,
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
    all_of,
    any_of,
    none_of,
)
from headwater.search.query.values import Between, json_values, network_bounds, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.search.config import IndexConfig
    from headwater.search.query.tokens import Kind
    from headwater.search.query.tree import Query, Value


_T = TypeVar("_T")

DEFAULT_FUZZY_DISTANCE = 2
MAX_SLOP = 10_000
MAX_BOOST = 1e9


def parse_query(text: str, config: IndexConfig, default_fields: Sequence[str] | None = None) -> Query:
    """Parse a query such as `error AND host:web-1`.

    Words without a field are searched in `default_fields`; by default in all text fields, and if there are none, in all
    string fields.
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
        """Parse clauses side by side."""
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
                query = self._leaf(scope, token, lambda target: regex(target, token.text))
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
            return self._leaf(scope, token, lambda target: fuzzy(target, unescape(token.text), distance))
        if has_wildcard(token.text):
            return self._leaf(scope, token, lambda target: pattern(target, token.text))
        return self._leaf(scope, token, lambda target: word(target, unescape(token.text)))

    def _phrase(self, scope: _Scope, token: Token) -> Query:
        slop = 0
        if (tilde := self._peek()).kind == "tilde":
            self._at += 1
            if not tilde.text or int(tilde.text) > MAX_SLOP:
                what = f"the distance between the words of a phrase is a number up to {MAX_SLOP:,}"
                raise query_error(self._text, tilde.position, what)
            slop = int(tilde.text)
        return self._leaf(scope, token, lambda target: phrase(target, token.text, slop))

    def _values(self, scope: _Scope, token: Token) -> Query:
        if not scope.is_named:
            raise query_error(
                self._text, token.position, "a range, comparison or set needs a field, as in size:[1 TO 5]"
            )
        parts = token.parts
        if token.kind == "set":
            return self._leaf(scope, token, lambda target: one_of(target, parts))
        if token.kind == "range":
            opening, lower, upper, closing = parts
            return self._leaf(
                scope, token, lambda target: between(target, lower, upper, opening == "[", closing == "]")
            )
        operator, bound = parts
        if bound == "*":
            raise query_error(self._text, token.position, f"{operator} needs a value")
        lower, upper = (bound, "*") if operator[0] == ">" else ("*", bound)
        inclusive = operator.endswith("=")
        return self._leaf(scope, token, lambda target: between(target, lower, upper, inclusive, inclusive))

    def _leaf(self, scope: _Scope, token: Token, build: Callable[[Target], Query]) -> Query:
        """Return the leaf in every field of the scope: of the default fields, in those that can hold it."""
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


_PATTERN_KINDS = ("text", "string", "any")


def word(target: Target, text: str) -> Query:
    """Return the leaf for a word, or for text in quotes without a slop.

    Raises:
        ValueError: the field cannot hold such a value, or the word has nothing in it to search for.
    """
    if target.kind == "text":
        return _tokenized(target, text, 0)
    if target.kind == "any":
        typed: list[Query] = [Term(target.on, value) for value in json_values(text)]
        found = tokens(target.tokenizer, text)
        return any_of(*([_tokenized(target, text, 0)] if found or not typed else []), *typed)
    _check_has_values(target)
    if target.kind == "ip" and (bounds := network_bounds(text)) is not None:
        return Range(target.on, *bounds)
    value = read_value(target, text)
    return Nothing() if isinstance(value, Between) else Term(target.on, value)


def phrase(target: Target, text: str, slop: int) -> Query:
    """Return the leaf for text in quotes."""
    if target.kind in ("text", "any"):
        return _tokenized(target, text, slop)
    if slop:
        raise ValueError(f"a distance (~{slop}) between words needs a text field")
    return word(target, text)


def pattern(target: Target, text: str) -> Query:
    r"""Return the leaf for a word with `*` or `?` in it, still escaped."""
    _check_patterns(target)
    text = fold_case(text) if _is_folded(target) else text
    _check_no_separators(target, unescape("".join(_literal_parts(text))))
    if text.endswith("*") and not has_wildcard(text[:-1]) and not _ends_escaped(text[:-1]):
        return Prefix(target.on, unescape(text[:-1]))
    return Wildcard(target.on, text)


def regex(target: Target, text: str) -> Query:
    """Return the leaf for a regular expression for a whole token or value."""
    _check_patterns(target)
    try:
        return Regex(target.on, check_regex(text, folded=_is_folded(target)))
    except UnsupportedPatternError as e:
        raise ValueError(str(e)) from None


def fuzzy(target: Target, text: str, distance: int) -> Query:
    """Return the leaf for a word and all that is `distance` edits away from it."""
    _check_patterns(target)
    if distance > MAX_FUZZY_DISTANCE:
        raise ValueError(f"the distance of a fuzzy word is at most {MAX_FUZZY_DISTANCE}")
    found = tokens(target.tokenizer, text)
    if len(found) != 1:
        raise ValueError(f"a fuzzy search is for one word, and {text!r} has {len(found)} in this field")
    return Fuzzy(target.on, found[0], distance)


def between(target: Target, lower: str, upper: str, include_lower: bool, include_upper: bool) -> Query:
    """Return the leaf for a range; a bound is still escaped, and `*` stands for no bound."""
    low, high = (None if bound == "*" else _bound(target, unquote(bound)) for bound in (lower, upper))
    if low is None and high is None:
        return Exists(target.on)
    if isinstance(low, str) != isinstance(high, str) and low is not None and high is not None:
        raise ValueError("one bound is a number, the other one is text")
    if isinstance(low, Between):
        low, include_lower = low.below, False
    if isinstance(high, Between):
        high, include_upper = high.below, True
    return Range(target.on, low, high, include_lower or low is None, include_upper or high is None)


def one_of(target: Target, values: Sequence[str]) -> Query:
    """Return the leaf for a set of values, still escaped."""
    singles: list[Value] = []
    others: list[Query] = []
    for value in values:
        query = word(target, unquote(value))
        if isinstance(query, Term):
            singles.append(query.value)
        elif not isinstance(query, Nothing):
            others.append(query)
    return any_of(*([TermSet(target.on, tuple(singles))] if singles else []), *others)


def _bound(target: Target, text: str) -> Value | Between:
    if target.kind == "any" and (numbers := [v for v in json_values(text) if not isinstance(v, bool)]):
        return numbers[0]
    if target.kind in ("text", "any"):
        found = tokens(target.tokenizer, text)
        if len(found) != 1:
            raise ValueError(f"a bound of a text field is one word, and {text!r} has {len(found)} in it")
        return found[0]
    _check_has_values(target)
    return read_value(target, text)


def _tokenized(target: Target, text: str, slop: int) -> Query:
    found = tokens(target.tokenizer, text)
    if not found:
        raise ValueError(f"{text!r} has no word in it that this field could hold")
    return Term(target.on, found[0]) if len(found) == 1 else Phrase(target.on, tuple(found), slop)


def _check_has_values(target: Target) -> None:
    if target.kind == "object":
        raise ValueError(
            "this is an object: name one of its keys, as in field.key:value (field.key:* asks if it is there)"
        )


def _check_patterns(target: Target) -> None:
    if target.kind not in _PATTERN_KINDS:
        _check_has_values(target)
        raise ValueError("patterns are for text; use a range here, as in field:[1 TO 5]")


def _is_folded(target: Target) -> bool:
    return target.kind in ("text", "any") and folds_case(target.tokenizer)


def _check_no_separators(target: Target, literal: str) -> None:
    if target.kind != "string":
        for character in literal:
            if is_separator(target.tokenizer, character):
                raise ValueError(
                    f"a pattern here is for one word, and {character!r} stands between words in this field; search "
                    "for a phrase, or in a field of the type string"
                )


def _literal_parts(text: str) -> list[str]:
    """Return the pieces between the wildcards, still escaped."""
    return re.findall(r"\\.|[^*?\\]", text, flags=re.DOTALL)


def _ends_escaped(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
