"""`headwater history`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.cli.history import files_changed, parameters, rows_changed
from support.tables.cli_tables import COMMITTED_MS, PROTOCOL, add, metadata, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from conftest import Ended


def test_history_shows_the_commits_newest_first(events: Path) -> None:
    result = CliRunner().invoke(app, ["history", str(events)])

    rows = [line.split() for line in result.output.splitlines()[1:]]
    assert [(row[0], row[3]) for row in rows] == [
        ("4", "UPDATE"),
        ("3", "DELETE"),
        ("2", "WRITE"),
        ("1", "WRITE"),
        ("0", "WRITE"),
    ]


def test_history_tells_what_changed(run: Callable[..., Ended], events: Path) -> None:
    update, delete, append, *_ = run("history", events).out.splitlines()[1:]

    assert "+1 -1  ~1" in update
    assert "+1 -1  -1" in delete
    assert "predicate=id = 5" in delete
    assert "+3     +300" in append
    assert "mode=Append partitionBy=date" in append


def test_json_is_an_array_with_one_commit_a_line(run: Callable[..., Ended], events: Path) -> None:
    ended = run("history", events, "--json")

    commits = ended.json
    assert [commit["operation"] for commit in commits] == [c["operation"] for c in DeltaTable(events).history()]
    assert [commit["version"] for commit in commits] == [4, 3, 2, 1, 0]
    opening, *lines, closing = ended.out.splitlines()
    assert (opening, closing) == ("[", "]")
    assert [json.loads(line.removesuffix(",")) for line in lines] == commits


def test_a_commit_in_json_has_everything_the_commit_says(run: Callable[..., Ended], tmp_path: Path) -> None:
    info = {
        "timestamp": 1,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "operationMetrics": {"numFiles": "1"},
        "userName": "ada",
        "engineInfo": "engine 1",
        "readVersion": 3,
        "isBlindAppend": True,
        "ours": {"nested": [1, 2**70]},
    }
    table = write_log(tmp_path / "t", [{"commitInfo": info}, PROTOCOL, metadata()])

    (commit,) = run("history", table, "--json").json

    assert commit == {
        "version": 0,
        "timestamp": COMMITTED_MS,
        "operation": "WRITE",
        "operation_parameters": {"mode": "Append"},
        "operation_metrics": {"numFiles": "1"},
        "user_id": None,
        "user_name": "ada",
        "engine_info": "engine 1",
        "user_metadata": None,
        "read_version": 3,
        "isolation_level": None,
        "is_blind_append": True,
        "txn_id": None,
        "commit_info": info,
    }


def test_limit_keeps_the_newest(run: Callable[..., Ended], events: Path) -> None:
    assert [c["version"] for c in run("history", events, "--limit", 2, "--json").json] == [4, 3]
    assert len(run("history", events, "--limit", 2).out.splitlines()) == 1 + 2


def test_people_see_twenty_commits_and_how_to_see_more(run: Callable[..., Ended], tmp_path: Path) -> None:
    appends = [[add(f"{i}.parquet")] for i in range(24)]
    table = write_log(tmp_path / "t", [PROTOCOL, metadata()], *appends)

    lines = run("history", table).out.splitlines()

    assert [line.split()[0] for line in lines[1:21]] == [str(v) for v in range(24, 4, -1)]
    assert "--limit" in lines[-1]
    assert len(run("history", table, "--json").json) == 25
    assert "--limit" not in run("history", table, "--limit", 25).out


def test_a_commit_without_provenance_is_shown_all_the_same(run: Callable[..., Ended], tiny: Path) -> None:
    assert [row[:4] for row in run("history", tiny).lines[1:]] == [
        ["1", "2024-01-01", "00:01:00", "?"],
        ["0", "2024-01-01", "00:00:00", "?"],
    ]


def test_a_log_of_only_checkpoints_has_no_commits_to_show(run: Callable[..., Ended], tmp_path: Path) -> None:
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(), add("a.parquet")])
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{0:020}.json").unlink()

    assert run("history", table, "--json").out == "[]\n"
    assert "checkpoint" in run("history", table).out


def test_who_made_a_commit_is_shown_where_there_is_room(
    run: Callable[..., Ended], events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "delta-rs" in run("history", events).out

    monkeypatch.setenv("COLUMNS", "80")

    assert "delta-rs" not in run("history", events).out


def test_metrics_of_delta_spark_and_of_delta_rs_read_the_same() -> None:
    spark = {"numTargetFilesAdded": "2", "numTargetFilesRemoved": "1", "numTargetRowsInserted": "7"}
    spark |= {"numTargetRowsDeleted": "0", "numTargetRowsUpdated": "1234", "numOutputRows": "99999"}
    delta_rs = {"num_target_files_added": 2, "num_target_files_removed": 1, "num_target_rows_inserted": 7}
    delta_rs |= {"num_target_rows_deleted": 0, "num_target_rows_updated": 1234, "num_output_rows": 99999}

    assert files_changed(spark) == files_changed(delta_rs) == "+2 -1"
    assert rows_changed(spark) == rows_changed(delta_rs) == "+7 ~1,234"


def test_metrics_that_are_no_numbers_are_not_told() -> None:
    assert rows_changed({"numOutputRows": "many", "numDeletedRows": None, "numUpdatedRows": [1]}) == ""


def test_parameters_that_say_nothing_are_not_told() -> None:
    given = {"mode": "Append", "partitionBy": "[]", "properties": "{}", "isManaged": "false", "description": None}

    assert parameters(given) == "mode=Append"


def test_parameters_may_be_anything() -> None:
    given = {"a": 1, "b": {"c": [True]}, "d": '["x","y"]', "e": '["broken'}

    assert parameters(given) == 'a=1 b={"c":[true]} d=x,y e=["broken'
