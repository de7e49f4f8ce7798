"""`headwater show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from headwater.cli.app import app
from support.tables.cli_tables import (
    COMMITTED_MS,
    PROTOCOL,
    add,
    field,
    metadata,
    write_checksum,
    write_events,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ended


def line_of(ended: Ended, first_word: str) -> str:
    (found,) = (line for line in ended.out.splitlines() if line.split()[:1] == [first_word])
    return found


def test_show_says_what_the_table_is(events: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(events)])

    assert result.exit_code == 0
    text = result.output
    assert text.startswith(f"events\nfile://{events}\n")
    assert "partitioned by  date" in text
    assert "reader version 1, writer version 2" in text
    assert "5 commits, no checkpoint" in text


def test_show_counts_files_and_bytes_as_delta_rs_does(run: Callable[..., Ended], events: Path) -> None:
    sizes = DeltaTable(events).get_add_actions(flatten=True).column("size_bytes").to_pylist()

    shown = run("show", events, "--json").json

    assert shown["num_files"] == len(sizes)
    assert shown["size_bytes"] == sum(sizes)
    assert sum(bin_["num_files"] for bin_ in shown["file_sizes"]) == len(sizes)
    assert f"in {len(sizes)} files" in run("show", events).out


def test_json_is_one_object_by_the_names_of_the_python_api(run: Callable[..., Ended], tiny: Path) -> None:
    ended = run("show", tiny, "--json")

    assert ended.out.count("\n") == 1
    assert ended.json == {
        "uri": f"file://{tiny}",
        "id": "b1e2",
        "name": None,
        "description": None,
        "created_time": COMMITTED_MS,
        "version": 1,
        "timestamp": COMMITTED_MS + 60_000,
        "protocol": {
            "min_reader_version": 1,
            "min_writer_version": 2,
            "reader_features": None,
            "writer_features": None,
        },
        "schema": {
            "type": "struct",
            "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
        },
        "partition_columns": [],
        "properties": {},
        "num_files": 2,
        "size_bytes": 4000,
        "file_sizes": [
            {"from_bytes": 0, "to_bytes": 1024, "num_files": 1},
            {"from_bytes": 1024, "to_bytes": 4096, "num_files": 1},
        ],
        "app_transactions": {},
        "domain_metadata": {},
        "log": {"checkpoint_version": None, "checkpoint_kind": None, "num_commits": 2},
        "checksum": "missing",
    }


def test_the_schema_is_a_tree_with_partitions_and_comments_marked(run: Callable[..., Ended], tmp_path: Path) -> None:
    address = {"type": "struct", "fields": [field("city", "string", comment="where mail goes")]}
    schema = [field("id", nullable=False), field("address", address), field("day", "date")]
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(*schema, partitionColumns=["day"])])

    ended = run("show", table)

    assert [line for line in ended.out.splitlines() if "──" in line] == [
        "├── id        long    not null",
        "├── address   struct",
        "│   └── city  string  # where mail goes",
        "└── day       date    partition",
    ]


def test_an_older_version_is_shown_by_number_or_by_time(run: Callable[..., Ended], tiny: Path) -> None:
    by_version = run("show", tiny, "--version", 0, "--json").json
    by_text = run("show", tiny, "--timestamp", "2024-01-01 00:00:30", "--json").json
    by_ms = run("show", tiny, "--timestamp", COMMITTED_MS, "--json").json

    assert by_version["version"] == 0
    assert by_version["num_files"] == 1
    assert by_text == by_version
    assert by_ms == by_version


def test_features_that_are_listed_and_features_that_are_implied(run: Callable[..., Ended], tmp_path: Path) -> None:
    listed = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "appendOnly"],
        }
    }
    modern = run("show", write_log(tmp_path / "modern", [listed, metadata()]))
    legacy = run("show", write_log(tmp_path / "legacy", [PROTOCOL, metadata()]))

    assert line_of(modern, "features").split()[1:] == ["deletionVectors"]
    assert line_of(modern, "writer").split()[2:] == ["appendOnly"]
    # spec: writer version 2 implies these two.
    assert line_of(legacy, "features").split()[1:] == ["appendOnly,", "invariants", "(implied)"]


def test_properties_transactions_and_domains_are_shown_when_there_are_any(
    run: Callable[..., Ended], tmp_path: Path
) -> None:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}}
    described = metadata(
        name="orders", description="all of them", configuration={"delta.appendOnly": "true", "team": "blue"}
    )
    txn = {"txn": {"appId": "stream-1", "version": 42}}
    domain = {"domainMetadata": {"domain": "my.domain", "configuration": '{"a":1}', "removed": False}}
    table = write_log(tmp_path / "t", [protocol, described, txn, domain])

    ended = run("show", table)

    assert ended.out.startswith(f"orders\nfile://{table}\nall of them\n")
    assert ["delta.appendOnly", "true"] in ended.lines
    assert ["team", "blue"] in ended.lines
    assert ["stream-1", "version", "42"] in ended.lines
    assert ["my.domain", '{"a":1}'] in ended.lines


def test_an_empty_table_has_no_sections_without_content(run: Callable[..., Ended], tmp_path: Path) -> None:
    ended = run("show", write_log(tmp_path / "t", [PROTOCOL, metadata()]))

    assert ["size", "0", "B", "in", "0", "files"] in ended.lines
    for heading in ("properties", "file sizes", "application transactions", "domains"):
        assert heading not in ended.out.splitlines()


def test_a_checkpoint_is_named_and_changes_nothing_else(run: Callable[..., Ended], tmp_path: Path) -> None:
    table = write_events(tmp_path / "t")
    before = run("show", table, "--json").json
    DeltaTable(table).create_checkpoint()

    after = run("show", table, "--json").json

    assert after["log"] == {"checkpoint_version": 4, "checkpoint_kind": "classic", "num_commits": 0}
    assert "checkpoint of version 4 (one file), 0 commits after it" in run("show", table).out
    assert {**after, "log": None} == {**before, "log": None}


@pytest.mark.parametrize(
    ("content", "state", "word"),
    [(None, "missing", "none"), ({"numFiles": 2, "tableSizeBytes": 4000}, "found", "found")],
)
def test_whether_there_is_a_checksum(
    run: Callable[..., Ended], tiny: Path, content: dict[str, int] | None, state: str, word: str
) -> None:
    if content is not None:
        write_checksum(tiny, 1, **content)

    assert run("show", tiny, "--json").json["checksum"] == state
    assert line_of(run("show", tiny), "checksum").split() == ["checksum", word]


def test_a_damaged_checksum_does_not_hide_the_table(run: Callable[..., Ended], tiny: Path) -> None:
    (tiny / "_delta_log" / f"{1:020}.crc").write_text("{")

    ended = run("show", tiny)

    assert ended.code == 0
    assert "damaged" in line_of(ended, "checksum")
    assert run("show", tiny, "--json").json["checksum"] == "damaged"


def test_the_newest_commits_come_last_and_in_short(run: Callable[..., Ended], events: Path) -> None:
    text = run("show", events).out.partition("newest commits\n")[2]

    versions = [line.split()[0] for line in text.splitlines()[1:]]
    assert versions == ["4", "3", "2", "1", "0"]


def test_a_log_that_plays_tricks_is_shown_but_not_obeyed(run: Callable[..., Ended], tmp_path: Path) -> None:
    named = metadata(field("[red]x\x1b[2J", comment="\x07"), name="[bold]n\x1b]0;t\x07", description="a\nb")
    table = write_log(tmp_path / "t", [PROTOCOL, named, add("a\x1b[31m.parquet")])

    shown, listed = run("show", table).out, run("files", table).out

    assert not {"\x1b", "\x07"} & {*shown, *listed}
    assert r"[bold]n\x1b]0;t\x07" in shown
    assert r"[red]x\x1b[2J" in shown
    assert r"a\x1b[31m.parquet" in listed


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_long_name_does_not_push_its_value_off_the_page(
    run: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(configuration={"n" * 90: "v" * 30})])
    monkeypatch.setenv("COLUMNS", str(width))

    text = run("show", table).out.partition("properties")[2].partition("newest commits")[0]

    assert (text.count("n"), text.count("v")) == (90, 30)
