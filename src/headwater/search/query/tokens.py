r"""The words of a query text: operators, fields, values, each with its position.

A word ends at a blank or at one of `( ) [ ] { } " ^ ~`; a backslash before any character makes it an ordinary one.
What follows a field's colon is read as a value, so that `x:-5` is a number and `-x` is a negation.

>>> [(token.kind, token.text) for token in tokenize('level:ERROR -"disk full"~2')]
[('field', 'level'), ('word', 'ERROR'), ('minus', '-'), ('quoted', 'disk full'), ('tilde', '2'), ('end', '')]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from headwater.errors import SearchQueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind: TypeAlias = Literal[
    "field", "word", "quoted", "regex", "range", "set", "compare", "star", "tilde", "boost",
    "open", "close", "and", "or", "not", "plus", "minus", "end",
]  # fmt: skip

MAX_QUERY_CHARACTERS = 100_000
_SHOWN_BEFORE, _SHOWN_AFTER = 60, 40

_BLANKS = re.compile(r"\s*")
_WORD = re.compile(r'(?:\\.|[^\s()\[\]{}"^~\\])+', re.DOTALL)
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'""", re.DOTALL)
_REGEX = re.compile(r"/((?:\\.|[^/\\])*)/(?=[\s)^]|\Z)", re.DOTALL)
_BOUND = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:\\.|[^\s\[\]{}"'\\])(?:\\.|[^\s\[\]{}\\])*)"""
_RANGE = re.compile(rf"([\[{{])\s*({_BOUND})\s+TO\s+({_BOUND})\s*([\]}}])", re.DOTALL)
_SET = re.compile(rf"IN\s*\[\s*({_BOUND}(?:\s+{_BOUND})*)?\s*\]", re.DOTALL)
_COMPARED = _BOUND.replace(r"[^\s", r"[^\s()^")
_COMPARE = re.compile(rf"([<>]=?)\s*({_COMPARED})", re.DOTALL)
_TILDE = re.compile(r"~(\d*)(?![^\s)^])")
_BOOST = re.compile(r"\^(\d+(?:\.\d*)?|\.\d+)(?![^\s)])")
_OPERATORS: dict[str, Kind] = {"AND": "and", "&&": "and", "OR": "or", "||": "or", "NOT": "not"}
_SIGNS: dict[str, Kind] = {"+": "plus", "-": "minus", "!": "not"}
_VALUES: frozenset[Kind] = frozenset({"word", "quoted", "regex", "range", "set", "compare", "star", "tilde", "boost"})
_OPENING: frozenset[Kind] = _VALUES - {"tilde", "boost"} | {"open", "field"}


@dataclass(frozen=True, slots=True)
class Token:
    """One word of a query. `text` is still escaped, but for quoted text and regular expressions."""

    kind: Kind
    text: str
    position: int
    parts: tuple[str, ...] = ()
    """Of a range: bracket, lower, upper, bracket. Of a set: its values. Of a comparison: operator, value."""


def query_error(text: str, position: int, what: str) -> SearchQueryError:
    """Return the error for a bad query: what is wrong, the text with a mark under the place."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line, column = text[start : end if end >= 0 else len(text)], position - start
    left, right = max(0, column - _SHOWN_BEFORE), column + _SHOWN_AFTER
    shown = f"{'…' if left else ''}{line[left:right]}{'…' if right < len(line) else ''}"
    mark = " " * (column - left + (1 if left else 0)) + "^"
    message = f"cannot understand the query: {what} (at character {position})\n  {shown}\n  {mark}"
    return SearchQueryError(message, position)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a query, the last of them `end`."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise SearchQueryError(
            f"the query has {len(text):,} characters, more than {MAX_QUERY_CHARACTERS:,}: put long lists of values "
            "into a filter (IN), or join with a DataFrame that holds them"
        )
    return list(_Lexer(text).tokens())


def unescape(text: str) -> str:
    r"""Remove the escapes of a text.

    >>> unescape(r"a\*b\\c")
    'a*b\\c'
    """
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def has_wildcard(text: str) -> bool:
    """Say whether a `*` or `?` stands in the text that is not escaped."""
    return re.search(r"[*?]", re.sub(r"\\.", "", text, flags=re.DOTALL)) is not None


def split_unescaped(text: str, separator: str) -> list[str]:
    r"""Cut a text at every separator that is not escaped; the parts are without escapes.

    >>> split_unescaped(r"attrs.a\.b.c", ".")
    ['attrs', 'a.b', 'c']
    """
    parts = re.findall(rf"(?:\\.|[^\\{re.escape(separator)}])+|{re.escape(separator)}", text, flags=re.DOTALL)
    out = [""]
    for part in parts:
        if part == separator:
            out.append("")
        else:
            out[-1] = unescape(part)
    return out


def unquote(text: str) -> str:
    """Return a bound or value of a set: quoted text without quotes, other text without escapes."""
    if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]:
        text = text[1:-1]
    return unescape(text)


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def tokens(self) -> Iterator[Token]:
        after_field = False
        last: Kind | None = None
        while True:
            end, self._at = self._at, _match_end(_BLANKS, self._text, self._at)
            if self._at == len(self._text):
                yield Token("end", "", self._at)
                return
            token = self._value() or (None if after_field else self._operator()) or self._word(after_field)
            if (last in _VALUES or last == "close") and token.kind in _OPENING and token.position == end:
                raise query_error(self._text, end, "a blank is missing here (or a backslash before this character)")
            after_field, last = token.kind == "field", token.kind
            yield token

    def _value(self) -> Token | None:
        """Return a token that looks the same wherever it stands."""
        text, start, first = self._text, self._at, self._text[self._at]
        if first in "()":
            self._at += 1
            return Token("open" if first == "(" else "close", first, start)
        if first in "\"'" and (token := self._quoted(first)) is not None:
            return token
        if first == "/" and (m := _REGEX.match(text, start)):
            self._at = m.end()
            return Token("regex", m[1].replace("\\/", "/"), start)
        if first in "[{":
            return self._range()
        if first in "<>" and (m := _COMPARE.match(text, start)):
            self._at = m.end()
            return Token("compare", m[0], start, (m[1], m[2]))
        if first == "~":
            return self._suffix(_TILDE, "tilde", "after ~ stands a whole number, and then a blank")
        if first == "^":
            return self._suffix(_BOOST, "boost", "after ^ stands a number such as 2 or 0.5, and then a blank")
        if first in "]}":
            raise query_error(text, start, f"this {first} closes nothing; write \\{first} for the character itself")
        return None

    def _quoted(self, quote: str) -> Token | None:
        m = _QUOTED.match(self._text, self._at)
        if m is None:
            if quote == "'":
                return None  # an apostrophe
            raise query_error(self._text, self._at, "this quote is not closed")
        token = Token("quoted", unescape(m[1] if m[1] is not None else m[2]), self._at)
        self._at = m.end()
        return token

    def _range(self) -> Token:
        m = _RANGE.match(self._text, self._at)
        if m is None:
            raise query_error(self._text, self._at, "a range is written [a TO b], {a TO b}, [a TO *], ...")
        self._at = m.end()
        return Token("range", m[0], m.start(), (m[1], m[2], m[3], m[4]))

    def _suffix(self, pattern: re.Pattern[str], kind: Kind, what: str) -> Token:
        m = pattern.match(self._text, self._at)
        if m is None:
            raise query_error(self._text, self._at, what)
        if self._at == 0 or self._text[self._at - 1].isspace():
            raise query_error(self._text, self._at, f"{self._text[self._at]} stands directly behind what it belongs to")
        self._at = m.end()
        return Token(kind, m[1], m.start())

    def _operator(self) -> Token | None:
        text, start = self._text, self._at
        for sign in ("&&", "||"):
            if text.startswith(sign, start):
                self._at += 2
                return Token(_OPERATORS[sign], sign, start)
        if text[start] in _SIGNS:
            self._at += 1
            if self._at == len(text) or text[self._at].isspace():
                raise query_error(text, start, f"{text[start]} stands directly before what it belongs to")
            return Token(_SIGNS[text[start]], text[start], start)
        return None

    def _word(self, after_field: bool) -> Token:
        text, start = self._text, self._at
        if after_field and (m := _SET.match(text, start)):
            self._at = m.end()
            return Token("set", m[0], start, tuple(re.findall(_BOUND, m[1] or "", flags=re.DOTALL)))
        m = _WORD.match(text, start)
        if m is None:
            raise query_error(text, start, "a backslash stands before the character that it is meant for")
        word = m[0]
        colon = None if after_field else re.match(r"((?:\\.|[^\\:])+):", word, flags=re.DOTALL)
        if colon is not None:
            self._at = start + colon.end()
            return Token("field", colon[1], start)
        self._at = m.end()
        if word == "*":
            return Token("star", word, start)
        kind = "word" if after_field else _OPERATORS.get(word, "word")
        return Token(kind, word, start)


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    m = pattern.match(text, at)
    return at if m is None else m.end()
