"""`headwater files`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from typer.testing import CliRunner

from headwater.cli.app import app
from support.tables.cli_tables import PROTOCOL, add, field, metadata, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from conftest import Ended

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


def test_files_lists_the_live_files(events: Path) -> None:
    result = CliRunner().invoke(app, ["files", str(events)])

    listed = [line.split()[0] for line in result.output.splitlines() if "part-" in line]
    assert sorted(listed) == sorted(DeltaTable(events).get_add_actions(flatten=True).column("path").to_pylist())


def test_a_filter_keeps_only_files_that_may_match(run: Callable[..., Ended], events: Path) -> None:
    adds = DeltaTable(events).get_add_actions(flatten=True).to_struct_array().to_pylist()
    may_match = [a for a in adds if str(a["partition.date"]) == "2024-01-02" and a["max.id"] > 600]

    ended = run("files", events, "--where", "date = '2024-01-02' and id > 600")

    assert f"kept {len(may_match)} of {len(adds)} files (" in ended.out
    assert [row[0] for row in ended.lines[1 : 1 + len(may_match)]] == [a["path"] for a in may_match]
    assert 0 < len(may_match) < len(adds)


def test_the_last_line_sums_up_what_was_kept(run: Callable[..., Ended], tmp_path: Path) -> None:
    mib = 1024 * 1024
    day = metadata(field("id"), field("day", "string"), partitionColumns=["day"])
    adds = [add(f"{i}.parquet", 11 * mib, partitionValues={"day": str(i % 4)}) for i in range(8)]
    table = write_log(tmp_path / "t", [PROTOCOL, day, *adds])

    assert run("files", table, "--where", "day = '3'").out.splitlines()[-1] == "kept 2 of 8 files (22 MiB of 88 MiB)"
    assert run("files", table, "--where", "day = '9'").out == "kept 0 of 8 files (0 B of 88 MiB)\n"


def test_a_file_is_shown_with_partition_size_rows_and_deletion_vector(
    run: Callable[..., Ended], tmp_path: Path
) -> None:
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    }
    schema = metadata(field("id"), field("day", "string"), partitionColumns=["day"])
    kept = add("kept.parquet", 2048, rows=1200, partitionValues={"day": "mon"})
    cut = add("cut.parquet", 999, rows=10, partitionValues={"day": ""}, deletionVector=VECTOR)
    unknown = add("unknown.parquet", 5, partitionValues={"day": None}, stats="not JSON")
    table = write_log(tmp_path / "t", [protocol, schema, kept, cut, unknown])

    ended = run("files", table)

    assert ended.lines[:4] == [
        ["path", "partition", "size", "rows", "DV"],
        ["kept.parquet", "day=mon", "2.0", "KiB", "1,200"],
        ["cut.parquet", "day=null", "999", "B", "4", "-6"],  # numRecords counts the deleted rows, too
        ["unknown.parquet", "day=null", "5", "B", "?"],
    ]


def test_json_is_an_array_of_add_actions_with_two_keys_more(run: Callable[..., Ended], tmp_path: Path) -> None:
    schema = metadata(field("id"), field("day", "string"), partitionColumns=["day"])
    action = add("a%20b.parquet", 7, rows=3, partitionValues={"day": "mo\x1bn"}, tags={"k": "v"})
    table = write_log(tmp_path / "t", [PROTOCOL, schema, action])

    ended = run("files", table, "--json")

    assert ended.json == [
        {
            "path": "a%20b.parquet",
            "partitionValues": {"day": "mo\x1bn"},
            "size": 7,
            "modificationTime": action["add"]["modificationTime"],
            "dataChange": True,
            "stats": '{"numRecords": 3}',
            "tags": {"k": "v"},
            "deletionVector": None,
            "baseRowId": None,
            "defaultRowCommitVersion": None,
            "clusteringProvider": None,
            "partition": {"day": "mo\x1bn"},
            "rows": 3,
        }
    ]
    assert len(ended.out.splitlines()) == 3


def test_json_without_a_match_is_an_empty_array(run: Callable[..., Ended], events: Path) -> None:
    assert run("files", events, "--where", "id > 99999", "--json").out == "[]\n"


def test_json_has_all_files_and_people_see_fifty(run: Callable[..., Ended], tmp_path: Path) -> None:
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(), *(add(f"{i}.parquet") for i in range(5000))])

    shown = run("files", table).out.splitlines()
    listed = run("files", table, "--json")

    assert sum(line.split()[:1] == [f"{i}.parquet"] for i, line in enumerate(shown[1:51])) == 50
    assert shown[-2:] == [
        "kept 5,000 of 5,000 files (4.8 MiB of 4.8 MiB)",
        "The first 50 are shown: --limit N shows more.",
    ]
    assert [file["path"] for file in listed.json] == [f"{i}.parquet" for i in range(5000)]
    assert all(json.loads(line.rstrip(",")) for line in listed.out.splitlines()[1:-1])


def test_limit_says_how_many_are_shown(run: Callable[..., Ended], events: Path) -> None:
    assert len(run("files", events, "--limit", 2, "--json").json) == 2
    assert "The first 2 are shown" in run("files", events, "--limit", 2).out
    assert "are shown" not in run("files", events, "--limit", 500).out


def test_files_of_an_older_version(run: Callable[..., Ended], events: Path) -> None:
    first = DeltaTable(events, version=0).get_add_actions(flatten=True).column("path").to_pylist()

    assert sorted(f["path"] for f in run("files", events, "--version", 0, "--json").json) == sorted(first)


def test_partition_columns_are_shown_by_their_logical_names(run: Callable[..., Ended], tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-5f2a"}
    schema = metadata(
        field("day", "string", **mapped), partitionColumns=["day"], configuration={"delta.columnMapping.mode": "name"}
    )
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    table = write_log(tmp_path / "t", [protocol, schema, add("a.parquet", partitionValues={"col-5f2a": "mon"})])

    (file,) = run("files", table, "--json").json

    assert file["partitionValues"] == {"col-5f2a": "mon"}
    assert file["partition"] == {"day": "mon"}
    assert "day=mon" in run("files", table).out


def test_in_a_pipe_no_path_is_cut(run: Callable[..., Ended], tmp_path: Path) -> None:
    path = "x" * 300 + ".parquet"
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(), add(path)])

    assert run("files", table).out.splitlines()[1].startswith(path + " ")


def test_where_there_is_little_room_paths_are_cut_and_numbers_are_not(
    run: Callable[..., Ended], events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    lines = run("files", events).out.splitlines()

    assert max(map(len, lines)) <= 80
    assert len({line.rstrip().rindex("100") for line in lines if line.endswith("100")}) == 1  # aligned
    assert all("…" in line and "date=2024-01-0" in line and "KiB" in line for line in lines[1:-2])
    starts = [line.partition("…/")[2][:19] for line in lines[1:-2]]
    assert len(set(starts)) == len(starts)  # still enough to tell them apart
