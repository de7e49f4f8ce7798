"""What people see while a long command runs: a line on stderr, only on a terminal, gone when it is done."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """Where a command reports to."""

    def begin(self, doing: str, total: int | None = None) -> None:
        """Another step begins: what it does and, if that is known, to how many things."""

    def advance(self, count: int = 1) -> None:
        """So many more things are done."""


class Silence:
    """Nobody is looking."""

    def begin(self, doing: str, total: int | None = None) -> None:
        """Nothing is shown."""

    def advance(self, count: int = 1) -> None:
        """Nothing is shown."""


class _Line:
    """A line with a bar."""

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
    """Progress on the terminal, if there is one."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Silence()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _Line(shown)
