"""`headwater vacuum` and `headwater restore`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.tables.cli_tables import write_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ended

OLD_S = 1_700_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five versions; three of its data files have been replaced."""
    path = write_events(tmp_path / "events")
    for file in path.rglob("*.parquet"):
        os.utime(file, (OLD_S, OLD_S))
    return path


def files(table: Path) -> int:
    return len([file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts])


def test_a_dry_run_shows_what_would_be_deleted(run: Callable[..., Ended], table: Path) -> None:
    before = files(table)
    options = ("--retention-hours", 0, "--no-retention-check", "--dry-run")

    ended = run("vacuum", table, *options)

    assert (ended.code, ended.err) == (0, "")
    assert [line for line in ended.out.splitlines() if line.endswith(".parquet")]
    assert "2 files and directories" in ended.out
    assert "would be deleted" in ended.out
    told = run("vacuum", table, *options, "--json").json
    assert (told["num_files"], told["dry_run"], told["mode"]) == (2, True, "FULL")
    assert told["size_bytes"] > 0
    assert all(path.startswith(f"file:{table}/date=") for path in told["paths"])
    assert "The first 1 are shown" in run("vacuum", table, *options, "--limit", 1).out
    assert files(table) == before


@pytest.mark.parametrize("mode", ["--full", "--lite"])
def test_what_nobody_needs_is_deleted(run: Callable[..., Ended], table: Path, mode: str) -> None:
    before = files(table)

    ended = run("vacuum", table, "--retention-hours", 0, "--no-retention-check", mode)

    assert ended.code == 0
    assert "2 files and directories" in ended.out
    assert "deleted: nothing since" in ended.out
    assert files(table) == before - 2
    assert "Nothing to delete" in run("vacuum", table, "--retention-hours", 0, "--no-retention-check").out
    assert run("history", table, "--json").json[0]["operation"] == "VACUUM END"


def test_too_short_a_retention_is_an_error(run: Callable[..., Ended], table: Path) -> None:
    ended = run("vacuum", table, "--retention-hours", 1, "--json")

    assert ended.code == 2
    assert ended.error["type"] == "RetentionError"
    assert "--no-retention-check" in ended.error["message"]


def test_a_table_goes_back_to_what_it_was(run: Callable[..., Ended], table: Path) -> None:
    ended = run("restore", table, "--version", 2)

    assert ended.code == 0
    assert f"Version 5 of file://{table} is what version 2 was." in ended.out
    told = run("restore", table, "--version", 4, "--json").json
    assert told["version"] == 6
    assert (told["num_removed_files"], told["num_restored_files"]) == (2, 2)


def test_restore_wants_to_know_where_to(run: Callable[..., Ended], table: Path) -> None:
    assert run("restore", table).code == 2
    assert run("restore", table, "--version", 1, "--timestamp", "2024-01-01").code == 2
    assert "newest version already" in run("restore", table, "--version", 4).err
    assert run("restore", table, "--version", 77, "--json").error["type"] == "VersionNotFoundError"


def test_missing_files_are_an_error_unless_they_are_ignored(run: Callable[..., Ended], table: Path) -> None:
    run("vacuum", table, "--retention-hours", 0, "--no-retention-check")

    assert run("restore", table, "--version", 2, "--json").error["type"] == "MissingFilesError"
    assert run("restore", table, "--version", 2, "--ignore-missing-files").code == 0
