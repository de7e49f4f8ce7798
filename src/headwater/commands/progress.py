"""Show the progress of a long command: one line on stderr, only on a terminal, which is removed at the end."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    def begin(self, doing: str, total: int | None = None) -> None:
        """Begin a step; `total` is the number of things to do, if it is known."""

    def advance(self, count: int = 1) -> None:
        """Count things that are done."""


class Silence:
    """Show nothing."""

    def begin(self, doing: str, total: int | None = None) -> None:
        """Show nothing."""

    def advance(self, count: int = 1) -> None:
        """Show nothing."""


class _Line:
    def __init__(self, shown: RichProgress) -> None:
        self._shown = shown
        self._task: TaskID | None = None

    def begin(self, doing: str, total: int | None = None) -> None:
        if self._task is not None:
            self._shown.remove_task(self._task)
        self._task = self._shown.add_task(doing, total=total)

    def advance(self, count: int = 1) -> None:
        if self._task is not None:
            self._shown.advance(self._task, count)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Report to the terminal, if there is one."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Silence()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _Line(shown)
