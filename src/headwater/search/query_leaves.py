"""From the words of a query to the leaves of its tree: what a word, a phrase, a pattern or a range asks of a field.

Text is analysed here, with the field's own analyser, so the tree holds tokens. A word that an analyser cuts into
several tokens (`web-1`) asks for them as a phrase.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.search.analysis import tokens
from headwater.search.query import (
    MAX_FUZZY_DISTANCE,
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
    any_of,
)
from headwater.search.query_patterns import UnsupportedPatternError, check_regex, fold_case, folds_case, is_separator
from headwater.search.query_tokens import has_wildcard, unescape, unquote
from headwater.search.query_values import Between, json_values, network_bounds, read_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.search.query import Query, Value
    from headwater.search.query_targets import Target

_PATTERN_KINDS = ("text", "string", "any")


def word(target: Target, text: str) -> Query:
    """A word, or text in quotes without a slop.

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
    """Text in quotes."""
    if target.kind in ("text", "any"):
        return _tokenized(target, text, slop)
    if slop:
        raise ValueError(f"a distance (~{slop}) between words needs a text field")
    return word(target, text)


def pattern(target: Target, text: str) -> Query:
    r"""A word with `*` or `?` in it, still escaped."""
    _check_patterns(target)
    text = fold_case(text) if _is_folded(target) else text
    _check_no_separators(target, unescape("".join(_literal_parts(text))))
    if text.endswith("*") and not has_wildcard(text[:-1]) and not _ends_escaped(text[:-1]):
        return Prefix(target.on, unescape(text[:-1]))
    return Wildcard(target.on, text)


def regex(target: Target, text: str) -> Query:
    """A regular expression for a whole token or value."""
    _check_patterns(target)
    try:
        return Regex(target.on, check_regex(text, folded=_is_folded(target)))
    except UnsupportedPatternError as e:
        raise ValueError(str(e)) from None


def fuzzy(target: Target, text: str, distance: int) -> Query:
    """A word and what is `distance` edits away from it."""
    _check_patterns(target)
    if distance > MAX_FUZZY_DISTANCE:
        raise ValueError(f"the distance of a fuzzy word is at most {MAX_FUZZY_DISTANCE}")
    found = tokens(target.tokenizer, text)
    if len(found) != 1:
        raise ValueError(f"a fuzzy search is for one word, and {text!r} has {len(found)} in this field")
    return Fuzzy(target.on, found[0], distance)


def between(target: Target, lower: str, upper: str, include_lower: bool, include_upper: bool) -> Query:
    """A range; a bound is still escaped, and `*` is no bound."""
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
    """A set of values, still escaped."""
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
    """The pieces between the wildcards, still escaped."""
    return re.findall(r"\\.|[^*?\\]", text, flags=re.DOTALL)


def _ends_escaped(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
