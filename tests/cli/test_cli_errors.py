"""What goes wrong: one message on stderr, exit code 2, never a traceback; as JSON where JSON was asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import headwater.api.open
from headwater import CorruptLogError
from support.tables.cli_tables import metadata, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ended


def assert_error(ended: Ended, kind: str, *words: str) -> None:
    assert ended.code == 2
    assert ended.out == ""
    error = ended.error
    assert error["type"] == kind
    assert [word for word in words if word not in error["message"]] == []


@pytest.mark.parametrize("command", ["show", "history", "files", "verify"])
def test_a_folder_that_is_no_table(run: Callable[..., Ended], tmp_path: Path, command: str) -> None:
    assert_error(run(command, tmp_path, "--json"), "TableNotFoundError", str(tmp_path), "_delta_log")


def test_an_error_for_people_is_one_line(run: Callable[..., Ended], tmp_path: Path) -> None:
    ended = run("show", tmp_path)

    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "files", "verify"])
def test_a_version_that_does_not_exist(run: Callable[..., Ended], tiny: Path, command: str) -> None:
    ended = run(command, tiny, "--version", 7, "--json")

    assert_error(ended, "VersionNotFoundError", "version 7", "versions 0 to 1")


def test_a_timestamp_that_is_none(run: Callable[..., Ended], tiny: Path) -> None:
    assert_error(run("show", tiny, "--timestamp", "tomorrow", "--json"), "VersionNotFoundError", "'tomorrow'")


def test_a_timestamp_before_the_table(run: Callable[..., Ended], tiny: Path) -> None:
    ended = run("show", tiny, "--timestamp", "2001-01-01", "--json")

    assert_error(ended, "VersionNotFoundError", "before the first commit")


def test_a_filter_that_is_no_sql(run: Callable[..., Ended], tiny: Path) -> None:
    assert_error(run("files", tiny, "--where", "id = ", "--json"), "FilterError", "id =")


def test_a_filter_for_people_is_shown_with_a_mark_below_the_place(run: Callable[..., Ended], tiny: Path) -> None:
    lines = run("files", tiny, "--where", "id == == 3").err.splitlines()

    assert lines[0].startswith("error: ")
    assert lines[1:3] == ["  id == == 3", "        ^"]


def test_a_filter_on_an_unknown_column(run: Callable[..., Ended], tiny: Path) -> None:
    assert_error(run("files", tiny, "--where", "nope = 1", "--json"), "ColumnNotFoundError", "nope", "id")


def test_a_table_that_needs_an_unknown_feature(run: Callable[..., Ended], tmp_path: Path) -> None:
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timeMachine"],
            "writerFeatures": ["timeMachine"],
        }
    }
    table = write_log(tmp_path / "t", [protocol, metadata()])

    assert_error(run("show", table, "--json"), "UnsupportedProtocolError", "timeMachine")


def test_a_damaged_commit(run: Callable[..., Ended], tiny: Path) -> None:
    (tiny / "_delta_log" / f"{1:020}.json").write_text('{"add":')

    assert_error(run("show", tiny, "--json"), "CorruptLogError", f"{1:020}.json")


def test_a_damaged_checkpoint(run: Callable[..., Ended], tiny: Path) -> None:
    (tiny / "_delta_log" / f"{1:020}.checkpoint.parquet").write_bytes(b"PAR1 nothing more")

    assert_error(run("show", tiny, "--json"), "CorruptLogError", f"{1:020}.checkpoint.parquet")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read(run: Callable[..., Ended], tiny: Path) -> None:
    commit = tiny / "_delta_log" / f"{1:020}.json"
    commit.chmod(0)

    assert_error(run("show", tiny, "--json"), "StoragePermissionError", str(commit))


def test_a_location_that_may_not_be_read_is_told_as_such(
    run: Callable[..., Ended], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)

    ended = run("show", tiny, "--json")

    assert_error(ended, "StoragePermissionError", "Permission denied", str(tiny))


@pytest.mark.parametrize(
    ("location", "words"),
    [("s3x://bucket/table", ("'s3x'", "s3://")), ("", ("empty",)), ("s3://user:secret@bucket/t", ("credentials",))],
)
def test_a_location_that_makes_no_sense(run: Callable[..., Ended], location: str, words: tuple[str, ...]) -> None:
    ended = run("show", location, "--json")

    assert_error(ended, "InvalidUriError", *words)
    assert "user:secret" not in ended.err


def test_a_storage_option_that_is_unknown(run: Callable[..., Ended]) -> None:
    ended = run("show", "s3://bucket/table", "--option", "aws_regio=here", "--json")

    assert_error(ended, "InvalidUriError", "aws_regio", "aws_region")


def test_a_local_table_takes_no_storage_options(run: Callable[..., Ended], tiny: Path) -> None:
    assert_error(run("show", tiny, "--option", "aws_region=here", "--json"), "InvalidUriError", "aws_region")


@pytest.mark.parametrize("option", ["s3cr3t", "=s3cr3t"])
def test_a_storage_option_without_a_name_is_not_repeated(run: Callable[..., Ended], tiny: Path, option: str) -> None:
    ended = run("show", tiny, "--option", option, "--json")

    assert_error(ended, "UsageError", "KEY=VALUE")
    assert "s3cr3t" not in ended.err


def test_a_storage_option_that_is_given_twice(run: Callable[..., Ended], tiny: Path) -> None:
    ended = run("show", tiny, "--option", "key=s3cr3t", "--option", "key=other", "--json")

    assert_error(ended, "UsageError", "'key' is given twice")
    assert "s3cr3t" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show"], ("PATH", "headwater show --help")),
        (["shwo", "x"], ("shwo", "headwater --help")),
        (["show", "x", "--verison", "1"], ("--verison",)),
        (["show", "x", "--version", "new"], ("--version",)),
        (["show", "x", "--version", "-1"], ("--version",)),
        (["show", "x", "y"], ("y",)),
        (["show", "x", "--version", "1", "--timestamp", "2024-01-01"], ("not both",)),
        (["files", "x", "--limit", "0"], ("--limit",)),
        (["history", "x", "--limit", "-3"], ("--limit",)),
        (["files", "x", "--where"], ("--where",)),
    ],
)
def test_a_command_line_that_makes_no_sense(
    run: Callable[..., Ended], arguments: list[str], words: tuple[str, ...]
) -> None:
    ended = run(*arguments)

    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert [word for word in words if word not in ended.err] == []
    command, *others = arguments
    assert_error(run(command, "--json", *others), "UsageError", *words)


def test_a_message_cannot_play_tricks(run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise CorruptLogError("\x1b[31mred\r\x07")

    monkeypatch.setattr(headwater.api.open, "open_log", fail)

    assert run("show", "x").err == "error: \\x1b[31mred\\r\\x07\n"


def test_a_mistake_of_ours_is_not_passed_off_as_the_users(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(headwater.api.open, "open_log", fail)

    ended = run("show", "x")
    as_json = run("show", "x", "--json")

    assert ended.code == as_json.code == 70
    assert "Traceback" in ended.err
    assert "report it" in ended.err
    assert as_json.error == {"type": "KeyError", "message": "'oops'"}
