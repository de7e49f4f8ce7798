"""Write output: text for people through rich, JSON for programs as bytes, a spinner while somebody waits.

All output passes through here, so that a closed pipe is noticed in one place. JSON needs no rich, and is always UTF-8.
A pipe or a file gets plain text, as wide as it needs to be. Text from a log is cleaned before a terminal shows it.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console, RenderableType


_UNBOUNDED = 100_000
"""The width where there is no terminal to fit into."""
_NARROWEST = 60
"""A table squeezed into less is no table any more: the terminal may break its lines instead."""
_PATIENCE_S = 0.4
"""Who waits less long than this needs no spinner."""


class OutputClosedError(Exception):
    """The reader of the output closed the pipe. Not an `OSError`, which typer would handle by itself."""


def console() -> Console:
    """Return the console for stdout: as wide as the terminal or COLUMNS says, or else without a limit."""
    fits = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    out = _console(width=None if fits else _UNBOUNDED)
    out.width = max(out.width, _NARROWEST)
    return out


def error_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console with styles on a terminal only, and none at all if NO_COLOR is set (rich keeps bold and dim)."""
    from rich.console import Console

    styles: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, width=width, color_system=styles, highlight=False, emoji=False, markup=False)


def is_narrow(out: Console) -> bool:
    """Return whether only the most important columns fit, as in 80 columns."""
    return out.width < 120


def show(out: Console, *parts: RenderableType) -> None:
    """Write renderables, each on lines of its own, without blanks at the ends of lines."""
    with out.capture() as captured:
        out.print(*parts, sep="\n")
    text = captured.get()
    if not out.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    write(text)


def write(text: str) -> None:
    """Write text to stdout, with escapes for characters that it cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def write_json(value: object) -> None:
    """Write one JSON value and a newline."""
    import msgspec

    _write_bytes(msgspec.json.encode(value) + b"\n")


def write_json_array(values: Iterable[object]) -> None:
    """Write a JSON array with one element a line, as the elements come."""
    import msgspec

    encoder = msgspec.json.Encoder()
    separator = b"[\n"
    lines: list[bytes] = []
    for value in values:
        lines.append(separator + encoder.encode(value))
        separator = b",\n"
        if len(lines) == 1024:
            _write_bytes(b"".join(lines))
            lines.clear()
    lines.append(b"[]\n" if separator == b"[\n" else b"\n]\n")
    _write_bytes(b"".join(lines))


def _write_bytes(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def flush() -> None:
    """Write out what is buffered, while a failure can still be reported."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Show a spinner on stderr while a block takes long, if stderr is a terminal; with NO_COLOR output stays plain."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield
        return
    done = Event()
    spinner = Thread(target=_spin, args=(doing, done), daemon=True)
    spinner.start()
    try:
        yield
    finally:
        done.set()
        spinner.join()


def _spin(doing: str, done: Event) -> None:
    if done.wait(_PATIENCE_S):
        return
    from rich.text import Text

    err = error_console()
    if err.is_interactive:
        with err.status(Text(doing, style="dim")):
            done.wait()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AGES_S = (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))

# Control characters (escape sequences begin with one), and those that reverse the direction of text.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Escape what a terminal would interpret instead of show: a log is not to be trusted.

    >>> clean("red \x1b[31m")
    'red \\x1b[31m'
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def size(size_bytes: int) -> str:
    """Format a number of bytes.

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
    """Format a number of things.

    >>> count(1, "file"), count(1234, "file"), count(2, "entry", "entries")
    ('1 file', '1,234 files', '2 entries')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def moment(timestamp_ms: int) -> str:
    """Format a point in time, to the second.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20 UTC'
    """
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # a writer's mistake: microseconds, for example
        return f"{timestamp_ms} ms"


def ago(timestamp_ms: int, now_ms: int) -> str:
    """Say roughly how long ago something was.

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
    """Format a value of JSON on one line; text without quotes.

    >>> plain("a b"), plain({"a": [1, None]}), plain(True)
    ('a b', '{"a":[1,null]}', 'true')
    """
    if isinstance(value, str):
        return clean(value)
    import msgspec

    return clean(msgspec.json.encode(value).decode())


def cut(text: str, width: int) -> str:
    """Cut a text at its end to at most `width` characters.

    >>> cut("headwater", 6)
    'headw…'
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


EXIT_DISCREPANCIES = 1
"""`verify` has found something."""
EXIT_ERROR = 2
"""A `HeadwaterError`, or a command line that makes no sense."""
EXIT_BUG = 70
"""An exception that should never have come this far."""
EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 and the number of the signal, as shells have it."""
EXIT_PIPE_CLOSED = 141
"""The reader of our output went away (`| head`): what shells show for any tool that this happens to."""
