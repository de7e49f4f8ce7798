"""The process of the `headwater` command: exit codes, signals, pipes, and errors as one message on stderr.

Nothing heavy is imported until `run` has begun, so that even an early Ctrl-C ends quietly. With `--json` an error is an
object on one line: `{"error": {"type": ..., "message": ...}}`. Only a bug shows a traceback.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from headwater.cli.output import EXIT_BUG, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, clean
from headwater.errors import HeadwaterError
from headwater.storage.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Sequence


def run() -> None:
    """Run the command line of this process and exit."""
    sys.exit(main(sys.argv[1:]))


def main(args: Sequence[str]) -> int:
    """Run a command line (without the name of the program) and return its exit code."""
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

    from headwater.cli.output import OutputClosedError

    if isinstance(error, typer.Abort):  # what some versions of typer make of Ctrl-C
        return EXIT_INTERRUPTED
    if isinstance(error, OutputClosedError):
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    return EXIT_ERROR if report(error, as_json=as_json) else EXIT_BUG


def _forget_stdout() -> None:
    """Point stdout to /dev/null: flushing its buffer at exit would fail again, with a traceback."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


_USAGE_ERROR = typer.BadParameter.__mro__[1]
"""The class of all errors in a command line. Typer has it by no public name that is the same in all versions."""

_BUG = "This is a bug in Headwater. Please report it, with the lines above."


def report(error: Exception, *, as_json: bool) -> bool:
    """Tell the user what ended the command; return whether it is a known error, and not a bug in Headwater."""
    kind, message = _explained(error)
    known = kind is not None
    if as_json:
        _write_json(kind or type(error).__name__, message)
    elif known:
        _write_text(message)
    else:
        import traceback

        _write(redacted("".join(traceback.format_exception(error))) + _BUG + "\n")
    return known


def _explained(error: Exception) -> tuple[str | None, str]:
    """Return the name of the error and its message; no name for a bug."""
    if isinstance(error, HeadwaterError):
        return type(error).__name__, str(error)
    if isinstance(error, _USAGE_ERROR):
        return "UsageError", _usage_message(error)
    if isinstance(error, OSError):  # storage errors have become ours long ago: this is about the output
        return "OutputError", f"could not write the output: {error.strerror or error}"
    return None, redacted(str(error))


def _usage_message(error: Exception) -> str:
    formatted = getattr(error, "format_message", None)
    message = str(formatted() if formatted is not None else error).strip()
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "headwater"
    return f"{message.rstrip('.')}. See '{command} --help'."


def _write_json(kind: str, message: str) -> None:
    import msgspec

    _write(msgspec.json.encode({"error": {"type": kind, "message": message}}).decode() + "\n")


def _write_text(message: str) -> None:
    # Messages are one line, but a bad filter is shown with a mark below the place: those lines stay lines.
    text = "\n".join(clean(line).rstrip() for line in message.split("\n"))
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.text import Text

        from headwater.cli.output import error_console

        error_console().print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
    else:
        _write(f"error: {text}\n")


def _write(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)  # stderr escapes what it cannot encode
        sys.stderr.flush()
