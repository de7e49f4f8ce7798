"""How an error reaches the user: one message on stderr, never a traceback for what is not our own mistake.

With `--json` it is an object, `{"error": {"type": ..., "message": ...}}`, on one line.
"""

from __future__ import annotations

import sys

import typer

from headwater.cli.formats import clean
from headwater.errors import HeadwaterError
from headwater.storage.redaction import redacted

_USAGE_ERROR = typer.BadParameter.__mro__[1]
"""The class of all errors in a command line. Typer has it by no public name that is the same in all versions."""

_BUG = "This is a mistake in Headwater, not in your command. Please report it, with the lines above."


def report(error: Exception, *, as_json: bool) -> bool:
    """Tell the user.

    Args:
        error: what ended the command.
        as_json: tell it as JSON.

    Returns:
        Whether it is an error that we know of; False means a bug in Headwater.
    """
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
    """The name of the error and its message; no name for what should not happen."""
    if isinstance(error, HeadwaterError):
        return type(error).__name__, str(error)
    if isinstance(error, _USAGE_ERROR):
        return "UsageError", _usage_message(error)
    if isinstance(error, OSError):  # storage errors have become ours long ago: this is about the output
        return "OutputError", f"could not write the output: {error.strerror or error}"
    return None, redacted(str(error))


def _usage_message(error: Exception) -> str:
    """What is wrong with the command line, and where help is."""
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
