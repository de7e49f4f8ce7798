"""The process of the `headwater` command: it turns every way a command can end into an exit code.

Nothing heavy is imported until `run` has begun, so that even an early Ctrl-C ends quietly.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def run() -> None:
    """The entry point: run the command line of this process and exit."""
    sys.exit(main(sys.argv[1:]))


def main(args: Sequence[str]) -> int:
    """Run a command line.

    Args:
        args: the arguments, without the name of the program.

    Returns:
        The exit code.
    """
    try:
        return _invoke(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        return _ended_by(error, as_json="--json" in args)


def _invoke(args: Sequence[str]) -> int:
    if sys.stdout is None:  # started with stdout closed: there is nobody to tell
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it stays open as long as the process
    from headwater.cli.app import app
    from headwater.cli.output import flush

    code = app(args=list(args), prog_name="headwater", standalone_mode=False)
    flush()
    return code if isinstance(code, int) else 0


def _ended_by(error: Exception, *, as_json: bool) -> int:
    import typer

    from headwater.cli.errors import report
    from headwater.cli.output import OutputClosedError

    if isinstance(error, typer.Abort):  # what some versions of typer make of Ctrl-C
        return EXIT_INTERRUPTED
    if isinstance(error, OutputClosedError):
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    return EXIT_ERROR if report(error, as_json=as_json) else EXIT_BUG


def _forget_stdout() -> None:
    """Point stdout to nowhere: what is still in its buffer would fail again at exit, with a traceback."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
