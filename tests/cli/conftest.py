"""Fixtures for the tests of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headwater.cli.main import main
from support.tables.cli_tables import PROTOCOL, add, metadata, write_events, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.err == ""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        assert self.out == ""
        found: dict[str, str] = json.loads(self.err)["error"]
        return found

    @property
    def lines(self) -> list[list[str]]:
        """The words of every line."""
        return [line.split() for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests must not decide how output looks."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command line in this process."""

    def run(*args: object) -> Ended:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table by delta-rs, partitioned by date. Not to be changed by a test."""
    return write_events(tmp_path_factory.mktemp("tables") / "events")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two commits by hand, two files."""
    first = [PROTOCOL, metadata(), add("a.parquet", 1000, rows=10)]
    return write_log(tmp_path / "tiny", first, [add("b.parquet", 3000, rows=20)])
