"""The tokens of a filter text, by Spark's lexical rules.

sqlglot splits the text; this module then corrects what Spark reads in another way: escapes and doubled quotes in
strings, strings that follow one another, and numbers with a suffix (`5L`, `1.5BD`, `0.1F`).
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.errors import FilterError
from headwater.log.stats.value_text import nearest_float

if TYPE_CHECKING:
    from sqlglot import Token, TokenType

HINT = "Write strings in single quotes, and names with spaces, dots or reserved words in backticks: `my name` = 'x'."

_SHOWN_BEFORE, _SHOWN_AFTER = 60, 40
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_RAW_STRING = re.compile(r"""[rR](?:'[^']*'|"[^"]*")""")
_HEX_STRING = re.compile(r"""[xX](?:'[0-9a-fA-F]*'|"[0-9a-fA-F]*")""")
_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<open>['"`]|/\*)""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
# `\%` and `\_` keep their backslash: they are for LIKE.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?(BD|[LSYFD])?", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_]+")
_INTEGER_BITS = {"L": 64, "S": 16, "Y": 8}
_MAX_DIGITS = 38


def syntax_error(text: str, position: int, what: str, hint: str = HINT) -> FilterError:
    """Return the error for a bad filter: what is wrong, the text with a mark below the position, and what to do."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line, column = text[start : end if end >= 0 else len(text)], position - start
    left, right = max(0, column - _SHOWN_BEFORE), column + _SHOWN_AFTER
    shown = f"{'…' if left else ''}{line[left:right]}{'…' if right < len(line) else ''}"
    mark = " " * (column - left + (1 if left else 0)) + "^"
    return FilterError(f"cannot understand the filter: {what}\n  {shown}\n  {mark}\n{hint}")


def tokenize(text: str, dialect: Any) -> list[Token]:
    """Split a filter into tokens, with strings and numbers in the form that `filters.sql` expects.

    Raises:
        FilterError: a quote is not closed, a number is out of range, or something else that Spark refuses.
    """
    from sqlglot import TokenType
    from sqlglot.errors import TokenError

    try:
        tokens = dialect.tokenize(text)
    except TokenError as e:
        raise _unclosed(text) from e
    return _Reader(text, tokens, TokenType).read()


def _unclosed(text: str) -> FilterError:
    opening = next((m for m in _QUOTED.finditer(text) if m["open"]), None)
    if opening is None:
        return syntax_error(text, len(text), "the text ends too early")
    what = {"/*": "comment", "`": "backtick"}.get(opening["open"], "quote")
    return syntax_error(text, opening.start(), f"this {what} is not closed")


class _Reader:
    """Corrects sqlglot's tokens in one pass."""

    def __init__(self, text: str, tokens: list[Token], kinds: type[TokenType]) -> None:
        self._text = text
        self._tokens = tokens
        self._kinds = kinds
        self._out: list[Token] = []
        self._quote = ""  # the quote that the last token was written in, if it is a string with escapes
        self._pieces: list[str] = []  # of the string that is the last token so far

    def read(self) -> list[Token]:
        kinds, position = self._kinds, 0
        while position < len(self._tokens):
            token = self._tokens[position]
            if any(c.endswith("\\") for c in token.comments):
                raise self._error(token.end, "a comment line ends with a backslash, which would continue it")
            following = self._tokens[position + 1] if position + 1 < len(self._tokens) else None
            kind, used = token.token_type, 1
            if kind not in (kinds.STRING, kinds.RAW_STRING):
                self._end_string()
            if kind in (kinds.STRING, kinds.RAW_STRING):
                self._string(token)
            elif kind == kinds.NUMBER:
                used = self._number(token.start, position)
            elif kind == kinds.DOT and following is not None and following.token_type == kinds.NUMBER:
                if token.end + 1 != following.start:
                    raise self._error(following.start, "did not expect this")
                # `.5`: in Spark a point right before digits belongs to them
                used = 1 + self._number(token.start, position + 1)
            elif kind == kinds.HEX_STRING:
                self._hex(token)
            else:
                if kind in (kinds.ISNULL, kinds.NOTNULL) and (
                    following is None or following.token_type != kinds.L_PAREN
                ):
                    raise self._error(token.start, f"write IS NULL or IS NOT NULL instead of {token.text}")
                self._out.append(token)
            if kind != kinds.STRING:
                self._quote = ""
            position += used
        self._end_string()
        return self._out

    def _string(self, token: Token) -> None:
        """Add a string: strings that follow one another are one; a doubled quote inside a string is that quote."""
        source = self._source(token)
        raw = token.token_type == self._kinds.RAW_STRING
        if not (_RAW_STRING if raw else _STRING).fullmatch(source):
            raise self._error(token.start, "did not expect this")
        value = source[2:-1] if raw else _unescape(source[1:-1])
        if not raw and any("\ud800" <= c <= "\udfff" for c in value):
            raise self._error(token.start, "this string has half of a surrogate pair")
        if self._pieces:
            last = self._out.pop()
            if last.end + 1 == token.start and self._quote == source[0]:
                self._pieces.append(self._quote)
            self._append(token, self._kinds.STRING, "", last.start)
        else:
            self._append(token, self._kinds.STRING, "", token.start)
        self._pieces.append(value)
        self._quote = "" if raw else source[0]

    def _end_string(self) -> None:
        """Give the last token its text, if it is a string: once for all of its pieces."""
        if self._pieces:
            last = self._out.pop()
            self._append(last, self._kinds.STRING, "".join(self._pieces), last.start)
            self._pieces = []

    def _hex(self, token: Token) -> None:
        if _HEX_STRING.fullmatch(self._source(token)):
            self._out.append(token)
        else:  # `0x1F` is a name in Spark
            self._append(token, self._kinds.VAR, self._source(token), token.start)

    def _number(self, start: int, position: int) -> int:
        """Add the number whose digits are at `position`; return how many tokens it takes from there."""
        token, used = self._tokens[position], 1
        while position + used < len(self._tokens) and self._tokens[position + used].end == token.end:
            used += 1  # sqlglot writes a suffix as a cast: more tokens at the same place
        source = self._text[start : token.end + 1]
        if m := _NUMBER.fullmatch(source):
            negative = bool(self._out) and self._out[-1].token_type == self._kinds.DASH
            text = self._number_text(start, m[1], m[2] or "", (m[3] or "").upper(), negative)
            self._append(token, self._kinds.NUMBER, text, start)
        elif _WORD.fullmatch(source):  # `1E` and `2024_q1` are names in Spark
            self._append(token, self._kinds.VAR, source, start)
        else:
            raise self._error(start, f"{source} is not a number")
        return used

    def _number_text(self, start: int, digits: str, exponent: str, suffix: str, negative: bool) -> str:
        """Return a number without suffix: a double has an exponent, a decimal a point, an integer neither."""
        if suffix in _INTEGER_BITS:
            largest = 2 ** (_INTEGER_BITS[suffix] - 1) - (0 if negative else 1)
            if exponent or "." in digits or len(digits) > _MAX_DIGITS or int(digits) > largest:
                raise self._error(start, f"{digits}{exponent}{suffix} is out of range")
            return digits
        if suffix == "BD" or (not suffix and not exponent):
            return self._exact_text(start, digits, exponent, suffix)
        number = float(digits + exponent)
        if suffix == "F":
            number = self._single(start, number, digits + exponent)
        if not math.isfinite(number):
            raise self._error(start, f"{digits}{exponent}{suffix} is out of range")
        text = repr(number)
        return text if "e" in text else f"{text}e0"

    def _exact_text(self, start: int, digits: str, exponent: str, suffix: str) -> str:
        number = Decimal(digits + exponent)
        _, coefficient, power = number.as_tuple()
        assert isinstance(power, int)
        if len(coefficient) > _MAX_DIGITS or abs(power) > _MAX_DIGITS or number.adjusted() >= _MAX_DIGITS:
            raise self._error(start, f"{digits}{exponent}{suffix} has more than {_MAX_DIGITS} digits")
        if not suffix:
            return digits
        text = format(number, "f")
        return text if "." in text else f"{text}."

    def _single(self, start: int, number: float, text: str) -> float:
        """Return the nearest 32-bit float; refuse a value that rounding twice could get wrong."""
        try:
            single = nearest_float(number)
        except OverflowError:
            raise self._error(start, f"{text}F is out of range") from None
        bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
        half_way = bits & (2**29 - 1) == 2**28 or 0 < abs(number) < 2**-126
        if half_way and Decimal(text) != Decimal(number):
            raise self._error(start, f"{text}F has too many digits for a float")
        return single

    def _append(self, token: Token, kind: TokenType, text: str, start: int) -> None:
        self._out.append(type(token)(kind, text, token.line, token.col, start, token.end))

    def _source(self, token: Token) -> str:
        return self._text[token.start : token.end + 1]

    def _error(self, position: int, what: str) -> FilterError:
        return syntax_error(self._text, position, what)


def _unescape(body: str) -> str:
    """Return the value of a string literal's body."""

    def value(m: re.Match[str]) -> str:
        if code := m[1] or m[2]:
            number = int(code, 16)
            return chr(number) if number <= 0x10FFFF else m[0][1:]
        return chr(int(m[3], 8)) if m[3] else _ESCAPED.get(m[4], m[4])

    if "\\" not in body:
        return body
    text = _ESCAPE.sub(value, body)
    # `\ud83d\ude00` is one character, written as its two surrogates.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
