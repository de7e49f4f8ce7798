"""The page about the command line names everything that a program may rely on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.cli import main
from support.tables.cli_tables import write_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Ended

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["show", "history", "files", "verify", "vacuum"])
def test_every_key_of_the_json_is_in_the_documents(run: Callable[..., Ended], tiny: Path, command: str) -> None:
    write_checksum(tiny, 1, numFiles=7)

    printed = run(command, tiny, "--json").json

    assert [key for key in keys(printed) if f"`{key}`" not in PAGE] == []


def keys(value: Any) -> list[str]:
    """The keys of an object, and of those that are objects or lists of objects with keys of ours."""
    if isinstance(value, list):
        return [key for each in value for key in keys(each)]
    if not isinstance(value, dict):
        return []
    ours = ("protocol", "log", "file_sizes", "discrepancies")
    return [*value, *(key for name in ours for key in keys(value.get(name)))]


@pytest.mark.parametrize("name", [name for name in dir(main) if name.startswith("EXIT_")])
def test_every_exit_code_is_in_the_documents(name: str) -> None:
    assert f"\n| {getattr(main, name)} | " in PAGE
