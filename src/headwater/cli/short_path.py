"""Paths that are cut where there is no room: first the folders, then the middle of the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.measure import Measurement
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_SHORTEST = 24


class ShortPath:
    """A renderable path on one line."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text = text
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(
            shorten(self._text, options.max_width, ascii_only=options.ascii_only),
            style=self._style,
            no_wrap=True,
        )

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        length = cell_len(self._text)
        return Measurement(min(length, _SHORTEST), length).with_maximum(options.max_width)


def shorten(path: str, width: int, *, ascii_only: bool = False) -> str:
    """The path in at most `width` cells.

    >>> path = "date=2024-01-31/part-00000-4c1f.snappy.parquet"
    >>> shorten(path, 40), shorten(path, 20)
    ('…/part-00000-4c1f.snappy.parquet', '…/part-000…y.parquet')
    """
    mark = "..." if ascii_only else "…"
    if cell_len(path) > width and "/" in path:
        path = f"{mark}/{path.rpartition('/')[2]}"
    if cell_len(path) <= width:
        return path
    room = max(width - len(mark), 0)
    head = set_cell_size(path, room - room // 2).rstrip()
    tail = set_cell_size(path[::-1], room // 2)[::-1].lstrip()
    return head + mark + tail
