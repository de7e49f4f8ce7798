"""Where output goes: text for people through rich, JSON for programs as bytes, a spinner while someone waits.

All of it is written here, so that a closed pipe is noticed in one place. JSON needs no rich, and is always
UTF-8. A pipe or a file gets plain text, as wide as it has to be: nothing that could be searched is cut.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

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
    """Whoever read our output has stopped reading. No `OSError`: typer would handle that by itself."""


def console() -> Console:
    """The console for stdout: as wide as the terminal, or as COLUMNS says, or else as wide as it takes."""
    fits = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    out = _console(width=None if fits else _UNBOUNDED)
    out.width = max(out.width, _NARROWEST)
    return out


def error_console() -> Console:
    """The console for stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Styles on a terminal only, and none at all where NO_COLOR is set: rich alone would keep bold and dim."""
    from rich.console import Console

    styles: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, width=width, color_system=styles, highlight=False, emoji=False, markup=False)


def is_narrow(out: Console) -> bool:
    """Whether there is only room for what matters most, as in 80 columns."""
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
    """Write text to stdout, characters that it cannot show as escapes."""
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
    """Write out what is buffered, now, while a failure can still be told."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Show a spinner on stderr if the block takes long, and if there is a terminal to show it on."""
    if sys.stderr is None or not sys.stderr.isatty():
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
