"""Values as people read them: sizes, counts, points in time, and text that plays no tricks on a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AGES_S = (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))

# Control characters (escape sequences begin with one), and those that reverse the direction of text.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""The text, with what a terminal would obey instead of show as escapes: a log is not to be trusted.

    >>> clean("red \x1b[31m")
    'red \\x1b[31m'
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def size(size_bytes: int) -> str:
    """A number of bytes.

    >>> size(812), size(3_250_586), size(92_274_688), size(1_048_575)
    ('812 B', '3.1 MiB', '88 MiB', '1.0 MiB')
    """
    value, unit = float(size_bytes), 0
    while abs(value) >= 1023.5 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = 1 if unit and abs(value) < 9.95 else 0
    return f"{value:,.{digits}f} {_UNITS[unit]}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things.

    >>> count(1, "file"), count(1234, "file"), count(2, "entry", "entries")
    ('1 file', '1,234 files', '2 entries')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def moment(timestamp_ms: int) -> str:
    """A point in time, to the second.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20 UTC'
    """
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # a writer's mistake: microseconds, for example
        return f"{timestamp_ms} ms"


def ago(timestamp_ms: int, now_ms: int) -> str:
    """How long ago something was, roughly.

    >>> ago(0, 7_300_000), ago(0, 59_000), ago(5_000, 0)
    ('2 hours ago', 'just now', 'in the future')
    """
    age_s = (now_ms - timestamp_ms) // 1000
    if age_s < -1:
        return "in the future"
    for unit, length_s in _AGES_S:
        if age_s >= length_s:
            return f"{count(age_s // length_s, unit)} ago"
    return "just now"


def plain(value: Any) -> str:
    """A value of JSON on one line; text without quotes.

    >>> plain("a b"), plain({"a": [1, None]}), plain(True)
    ('a b', '{"a":[1,null]}', 'true')
    """
    if isinstance(value, str):
        return clean(value)
    import msgspec

    return clean(msgspec.json.encode(value).decode())


def cut(text: str, width: int) -> str:
    """The text, cut at its end to at most `width` characters.

    >>> cut("headwater", 6)
    'headw…'
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
