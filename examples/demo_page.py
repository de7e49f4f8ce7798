"""How the examples look: headings, remarks, a Python prompt and a shell prompt that really do it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import headwater as hw
from headwater.cli.main import main as headwater

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType


class Page:
    """What is shown, from top to bottom, with one empty line between any two things.

    Attributes:
        console: where it is shown.
        names: the variables of the Python prompt.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.console = Console(highlight=False, emoji=False, markup=False)
        self.names = names
        self._last = ""
        os.environ["COLUMNS"] = str(self.console.width)  # so that the command draws as wide as this page

    def heading(self, text: str) -> None:
        """A title, and a line across the page."""
        self._gap("heading")
        self.console.print(Rule(Text(text, style="bold cyan"), align="left", style="cyan"))

    def say(self, text: str) -> None:
        """A remark."""
        self._gap("remark")
        self.console.print(Text(text, style="italic"))

    def draw(self, content: RenderableType) -> None:
        """Anything else."""
        self._gap("drawing")
        self.console.print(content)

    def do(self, statement: str) -> None:
        """Run a Python statement and say how long it took."""
        self._prompt(">>> ", statement)
        started = time.perf_counter()
        exec(statement, self.names)
        self.console.print(Text(f"{(time.perf_counter() - started) * 1000:.1f} ms", style="dim italic"))

    def ask(self, expression: str) -> None:
        """Evaluate a Python expression and show its value, as Python does."""
        self._prompt(">>> ", expression)
        self.console.print(Text(repr(eval(expression, self.names)), style="cyan"))

    def rows(self, expression: str) -> None:
        """Evaluate an expression that gives a small DataFrame, and show its rows."""
        self._prompt(">>> ", expression)
        frame = eval(expression, self.names)
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for name, kind in frame.dtypes:
            table.add_column(name, justify="left" if kind in ("string", "date", "timestamp") else "right")
        for row in frame.collect():
            table.add_row(*("" if value is None else str(value) for value in row))
        self.console.print(table)

    def steps(self, commands: dict[str, str]) -> None:
        """What to try next: commands, and what they do."""
        steps = Table.grid(padding=(0, 2, 0, 0))
        steps.add_column(style="bold", no_wrap=True)
        steps.add_column(style="dim")
        for command, what in commands.items():
            steps.add_row(Text(command), what)
        self.draw(steps)

    def command(self, *arguments: str) -> None:
        """Run a command line, as it would be typed into a shell."""
        typed = " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
        self._prompt("$ ", f"headwater {typed}")
        with redirect_stderr(sys.stdout):
            headwater(arguments)

    def _prompt(self, mark: str, typed: str) -> None:
        self._gap(mark)
        self.console.print(Text.assemble((mark, "green"), (typed, "bold")))

    def _gap(self, kind: str) -> None:
        """An empty line, but not after a heading, nor between two lines at the Python prompt."""
        if self._last != "heading" and not kind == self._last == ">>> ":
            self.console.print()
        self._last = kind


def play(script: Callable[[Page], None]) -> None:
    """Play a script on a page, in a directory that is gone afterwards."""
    page = Page({"hw": hw})
    started = time.perf_counter()
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as directory:
        os.chdir(directory)
        try:
            script(page)
        finally:
            os.chdir(home)
    page.say(f"That took {time.perf_counter() - started:.1f} s; everything is deleted again.")
