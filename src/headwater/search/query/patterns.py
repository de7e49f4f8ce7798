r"""Patterns that the index and plain rows read alike: wildcards, and a safe part of regular expressions.

The index has one engine for regular expressions and Arrow another; only what means the same in both is let through, and
`\d`, `\w`, `\s` (ASCII, as in RE2) are written out. An expression always describes the whole token or value.

>>> check_regex(r"web-\d+")
'web-[0-9]+'
>>> wildcard_regex(r"w?b\*-*")
'w(?s:.)b\\*-(?s:.)*'
"""

from __future__ import annotations

import functools
import re

from headwater.search.analysis import tokens

_META = frozenset("\\.+*?()|[]{}^$")
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": " \\x{9}-\\x{d}"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_ANY = "(?s:.)"
_ITEM = re.compile(
    r"""(?P<escape>\\.)|(?P<class>\[(?:\\.|[^\]\\])+\])|(?P<group>\(\?:|\()|(?P<close>\))|(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})"""
    r"""|(?P<or>\|)|(?P<dot>\.)|(?P<plain>[^\\\[\](){}*+?|.^$])""",
    re.DOTALL,
)
_CLASS_ITEM = re.compile(r"\\.|.", re.DOTALL)
_LAST_CHARACTER = chr(0x10FFFF)
MAX_REPEATS = 1000
MAX_BOUND_CHARACTERS = 16
"""The longest bound that the engine of the index has room for."""


class UnsupportedPatternError(ValueError):
    """A regular expression that is malformed, or that the two engines would not read alike."""


def check_regex(pattern: str, *, folded: bool = False) -> str:
    """Return the expression in the form that both engines understand, for a field in lower case if `folded`.

    Raises:
        UnsupportedPatternError: it cannot be used; the message says why.
    """
    return _Translator(pattern, folded).translate()


def wildcard_regex(pattern: str) -> str:
    """Return the regular expression of a pattern with `*` and `?`."""
    out = []
    for item in re.findall(r"\\.|.", pattern, flags=re.DOTALL):
        if item in ("*", "?"):
            out.append(_ANY + ("*" if item == "*" else ""))
        else:
            out.append(literal_regex(item[1:] if len(item) == 2 else item))
    return "".join(out)


def prefix_regex(prefix: str) -> str:
    return literal_regex(prefix) + _ANY + "*"


def text_bound(bound: str, inclusive: bool, *, is_lower: bool) -> tuple[str, bool]:
    """Return the regular expression of all texts above (or below) a bound, and whether it is exact.

    The bound must not be an exclusive upper bound of the empty text. UTF-8 sorts as code points do. A long bound is cut
    off, and then all texts with the same beginning match.

    >>> text_bound("b", inclusive=True, is_lower=False)[0]
    'b|[\\\\x{0}-a](?s:.)*|'
    """
    start, exact = bound[:MAX_BOUND_CHARACTERS], len(bound) <= MAX_BOUND_CHARACTERS
    forms = []
    if is_lower:
        forms.append(literal_regex(start) + _ANY + ("*" if inclusive or not exact else "+"))
    elif not exact:
        forms.append(literal_regex(start) + _ANY + "*")
    elif inclusive:
        forms.append(literal_regex(start))
    for at, character in enumerate(start):
        beyond = _above(character) if is_lower else _below(character)
        if beyond:
            forms.append(f"{literal_regex(start[:at])}{beyond}{_ANY}*")
        if not is_lower:
            forms.append(literal_regex(start[:at]))
    return "|".join(forms), exact


def _above(character: str) -> str:
    if character == _LAST_CHARACTER:
        return ""
    following = ord(character) + 1
    return f"[{_in_class(chr(0xE000 if 0xD800 <= following < 0xE000 else following))}-{_LAST_CHARACTER}]"


def _below(character: str) -> str:
    if character == "\0":
        return ""
    before = ord(character) - 1
    return f"[\\x{{0}}-{_in_class(chr(0xD7FF if 0xD800 <= before < 0xE000 else before))}]"


def literal_regex(text: str) -> str:
    """Return the regular expression of a text that means itself."""
    return "".join(f"\\{c}" if c in _META else c for c in text)


def fold_case(text: str) -> str:
    """Return lower case as the analysers make it: character by character."""
    return "".join(c.lower() for c in text)


@functools.cache
def folds_case(tokenizer: str) -> bool:
    """Say whether an analyser makes lower case of upper case."""
    return tokens(tokenizer, "A") == ["a"]


@functools.lru_cache(maxsize=100_000)
def is_separator(tokenizer: str, character: str) -> bool:
    """Say whether an analyser cuts text at this character."""
    return len(tokens(tokenizer, f"x{character}x")) != 1


class _Translator:
    """Translates an expression in one pass. With `folded`, every character of it becomes lower case."""

    def __init__(self, pattern: str, folded: bool) -> None:
        self._pattern = pattern
        self._folded = folded

    def translate(self) -> str:
        out: list[str] = []
        depth, at, repeatable = 0, 0, False
        while at < len(self._pattern):
            m = _ITEM.match(self._pattern, at)
            if m is None:
                raise UnsupportedPatternError(_reason(self._pattern[at]))
            item, kind = m[0], str(m.lastgroup)
            if item == "(" and self._pattern.startswith("?", m.end()):
                raise UnsupportedPatternError("of the groups with (? only (?:...) can be used")
            depth += (kind == "group") - (kind == "close")
            if depth < 0:
                raise UnsupportedPatternError("a ) closes nothing")
            if kind == "repeat":
                _check_repeat(item, repeatable)
            out.append(self._item(item, kind))
            repeatable = kind not in ("group", "or", "repeat")
            at = m.end()
        if depth:
            raise UnsupportedPatternError("a ( is not closed")
        return "".join(out)

    def _item(self, item: str, kind: str) -> str:
        if kind == "class":
            return self._class(item)
        if kind == "plain":
            return self._fold(item)
        if kind == "escape":
            character = item[1]
            if character in _CLASSES:
                return f"[{_CLASSES[character]}]"
            if character.lower() in _CLASSES:
                return f"[^{_CLASSES[character.lower()]}]"
            return literal_regex(self._single(item))
        return "(?:" if kind == "group" else item

    def _class(self, item: str) -> str:
        inside = item[1:-1]
        negated = inside.startswith("^")
        parts = _CLASS_ITEM.findall(inside[1:] if negated else inside)
        if not parts:
            raise UnsupportedPatternError("nothing is in [...]; write \\] for the bracket itself")
        out, at = [], 0
        while at < len(parts):
            if at + 2 < len(parts) and parts[at + 1] == "-":
                first, last = self._single(parts[at]), self._single(parts[at + 2])
                if first > last:
                    raise UnsupportedPatternError(f"in [{first}-{last}] the first character is after the last one")
                out.append(f"{_in_class(first)}-{_in_class(last)}")
                at += 3
            else:
                named = _CLASSES.get(parts[at][1]) if len(parts[at]) == 2 else None
                out.append(named if named is not None else _in_class(self._single(parts[at])))
                at += 1
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def _single(self, part: str) -> str:
        """Return the one character that a plain or escaped one stands for."""
        if len(part) == 1:
            if part == "[":
                raise UnsupportedPatternError("inside [...] write \\[ for the bracket itself")
            return self._fold(part)
        character = part[1]
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and character.isalnum():
            raise UnsupportedPatternError(f"\\{character} cannot be used here")
        return self._fold(character)

    def _fold(self, character: str) -> str:
        lower = character.lower()
        return lower if self._folded and len(lower) == 1 else character


def _in_class(character: str) -> str:
    return f"\\x{{{ord(character):x}}}" if character in "\\[]^-&~" or character < " " else character


def _reason(character: str) -> str:
    if character in "^$":
        return (
            f"{character} is not needed: the expression describes the whole word; \\{character} is the character itself"
        )
    if character == "[":
        return "a [ is not closed, or nothing is in it"
    if character == "\\":
        return "a backslash at the end means nothing"
    return f"{character} stands alone; write \\{character} for the character itself"


def _check_repeat(item: str, repeatable: bool) -> None:
    if not repeatable:
        raise UnsupportedPatternError(f"{item} has nothing to repeat (lazy and possessive forms cannot be used)")
    numbers = [int(n) for n in re.findall(r"\d+", item)]
    if any(n > MAX_REPEATS for n in numbers):
        raise UnsupportedPatternError(f"{item}: more than {MAX_REPEATS} repetitions cannot be asked for")
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        raise UnsupportedPatternError(f"{item}: the first number is larger than the second")
