"""Search tables by their log: created, opened, found out by `headwater.open_log` and shown by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.cli.main import main
from headwater.errors import TableNotFoundError, VersionNotFoundError, WriteOptionError
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.indextables.actions import MergeSkip
from headwater.log.indextables.options import LogOptions, LogSettings
from headwater.search.table_log import (
    create_search_log,
    invalidate_cache,
    is_search_table,
    open_search_log,
    write_checkpoint,
)
from support.search.table_logs import (
    DAY_MS,
    SCHEMA,
    append,
    checkpoint_file,
    files,
    grown,
    live,
    make_older,
    split,
    version_file,
)

# --- creation ------------------------------------------------------------------------------------------------


def test_creating_a_table_twice_changes_nothing(tmp_path: Path) -> None:
    created = create_search_log(
        tmp_path, SCHEMA, partition_columns=["YEAR"], configuration={"a": "b"}, name="logs", description="all of them"
    )
    first = version_file(tmp_path, 0).read_bytes()
    assert created
    assert not create_search_log(tmp_path, SCHEMA, name="other")
    assert version_file(tmp_path, 0).read_bytes() == first
    snapshot = open_search_log(tmp_path)
    assert snapshot.schema == SCHEMA
    assert (snapshot.partition_columns, snapshot.properties) == (["year"], {"a": "b"})
    assert (snapshot.metadata.name, snapshot.metadata.description) == ("logs", "all of them")
    assert snapshot.metadata.created_time is not None


def test_a_location_without_a_table_says_so(tmp_path: Path) -> None:
    assert not is_search_table(tmp_path)
    with pytest.raises(TableNotFoundError, match="No transaction log found"):
        open_search_log(tmp_path)
    with pytest.raises(TableNotFoundError, match="not a Delta table"):
        hw.open_log(tmp_path)


# --- hw.open_log ----------------------------------------------------------------------------------------------


def test_open_log_finds_out_which_kind_of_table_there_is(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    snapshot = hw.open_log(tmp_path)
    assert (snapshot.version, live(snapshot), snapshot.ctx.dialect.name) == (2, files(2), "indextables")
    assert hw.open_log(tmp_path, version=1).num_files == 1
    assert is_search_table(tmp_path)
    with pytest.raises(VersionNotFoundError, match="versions 0 to 2"):
        hw.open_log(tmp_path, version=7)


def test_a_delta_table_is_opened_as_such_even_beside_another_log(tmp_path: Path) -> None:
    from headwater.features.context import TableRef
    from headwater.log.actions.model import Metadata, Protocol

    grown(tmp_path, 1)
    transaction = Transaction(TableRef(tmp_path).context(), None)
    transaction.set_protocol(Protocol(1, 2))
    transaction.set_metadata(Metadata("1", SCHEMA.to_json()))
    transaction.commit(Operation("CREATE TABLE"))
    assert hw.open_log(tmp_path).ctx.dialect.name == "delta"


def test_time_travel_by_timestamp(tmp_path: Path) -> None:
    grown(tmp_path, 12)
    for version in range(13):
        make_older(version_file(tmp_path, version), (20 - version) * DAY_MS)
    now_ms = version_file(tmp_path, 12).stat().st_mtime_ns // 1_000_000 + 8 * DAY_MS
    for version in (0, 3, 9, 10, 11):
        found = hw.open_log(tmp_path, timestamp=now_ms - (20 - version) * DAY_MS + 1_000)
        assert (found.version, live(found)) == (version, files(version))
    with pytest.raises(VersionNotFoundError, match="before the first"):
        hw.open_log(tmp_path, timestamp=now_ms - 40 * DAY_MS)


def test_a_snapshot_is_refreshed_across_checkpoints(tmp_path: Path) -> None:
    first = grown(tmp_path, 1)
    snapshot = first
    for number in range(2, 24):
        snapshot = append(snapshot, f"{number:02}.split")
    assert live(first.refresh()) == files(23)
    assert live(first) == files(1)
    assert first.refresh().version == 23


# --- options ---------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_specification() -> None:
    settings = LogOptions().over({})
    assert settings == LogSettings(
        log_retention_ms=2592000000,
        checkpoint_retention_ms=7200000,
        cleanup_failure_policy="continue",
        cleanup_dry_run=False,
        cache_expiration_s=300,
        cache_enabled=True,
        read_parallelism=8,
        read_timeout_s=60,
        checkpoint_interval=10,
    )


def test_options_count_before_the_tables_configuration_and_names_have_any_case() -> None:
    configuration = {
        "spark.indextables.checkpoint.interval": "50",
        "spark.indextables.logRetention.duration": "1000",
        "spark.indextables.checkpoint.somethingNew": "1",
        "spark.indextables.indexing.typemap.message": "text",
    }
    options = LogOptions.parse({"SPARK.INDEXTABLES.CHECKPOINT.INTERVAL": "20", "spark.sql.shuffle.partitions": "3"})
    settings = options.over(configuration)
    assert (settings.checkpoint_interval, settings.log_retention_ms) == (20, 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint.interval", "0"),
        ("checkpoint.interval", "ten"),
        ("checkpoint.parallelism", "-1"),
        ("checkpoint.read.timeoutSeconds", "inf"),
        ("checkpoint.read.timeoutSeconds", "0"),
        ("cleanup.dryRun", "perhaps"),
        ("cleanup.failurePolicy", "ignore"),
        ("logRetention.duration", "30 days"),
        ("transaction.cache.expirationSeconds", "-1"),
        ("transaction.cache.enabled", "1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(WriteOptionError, match=name):
        open_search_log(tmp_path, options={f"spark.indextables.{name}": value})


def test_a_name_that_does_not_exist_is_refused_with_the_one_that_does() -> None:
    with pytest.raises(WriteOptionError, match=r"Did you mean spark\.indextables\.checkpoint\.interval"):
        LogOptions.parse({"spark.indextables.checkpoint.intervall": "5"})


def test_the_checkpoint_interval_may_stand_in_the_table(tmp_path: Path) -> None:
    create_search_log(tmp_path, SCHEMA, configuration={"spark.indextables.checkpoint.interval": "2"})
    snapshot = open_search_log(tmp_path)
    for number in range(4):
        snapshot = append(snapshot, f"{number}.split")
    assert checkpoint_file(tmp_path, 2).exists()
    assert checkpoint_file(tmp_path, 4).exists()


def test_a_checkpoint_may_be_written_by_hand(tmp_path: Path) -> None:
    snapshot = write_checkpoint(grown(tmp_path, 3))
    assert snapshot.segment.checkpoint is not None
    assert json.loads(checkpoint_file(tmp_path, 3).read_text())["add"][0]["path"] == "01.split"
    assert write_checkpoint(snapshot) is snapshot


# --- the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A partitioned table with two splits, one of which a merge had to skip."""
    create_search_log(tmp_path, SCHEMA, partition_columns=["year"], name="logs")
    snapshot = append(open_search_log(tmp_path), "2.split", partition_values={"year": "2"}, max_values={"id": "7"})
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add(
        [split("10.split", partition_values={"year": "10"}, min_values={"id": "8"}, max_values={"id": "9"})]
    )
    transaction.skip_merge([MergeSkip("2.split", 5, "corrupted", "merge", skip_count=3)])
    transaction.commit(Operation("MERGE SPLITS"))
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(args) == 0
    return json.loads(capsys.readouterr().out)


def test_show_describes_a_search_table(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = said(capsys, "show", str(shown), "--json")
    assert (described["format"], described["version"], described["num_files"]) == ("indextables", 2, 2)
    assert described["partition_columns"] == ["year"]
    assert (described["checksum"], described["merge_skips"][0]["skipCount"]) == ("not applicable", 3)
    assert main(["show", str(shown)]) == 0
    page = capsys.readouterr().out
    assert "search table" in page
    assert "reader version 1, writer version 2" in page
    assert "left out of merges" in page
    assert "implied" not in page
    assert "checksum" not in page


def test_history_shows_a_search_table(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits = said(capsys, "history", str(shown), "--json")
    assert [(commit["version"], commit["operation"]) for commit in commits] == [
        (2, "MERGE SPLITS"),
        (1, "WRITE"),
        (0, "CREATE TABLE"),
    ]
    assert main(["history", str(shown)]) == 0
    assert "CREATE TABLE" in capsys.readouterr().out


def test_files_shows_the_splits_that_a_query_has_to_read(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "files", str(shown), "--json", "--where", "year < 10")
    assert [(file["path"], file["partition"], file["rows"]) for file in found] == [("2.split", {"year": "2"}, 10)]
    assert found[0]["maxValues"] == {"id": "7"}
    assert said(capsys, "files", str(shown), "--json", "--where", "id = 8")[-1]["path"] == "10.split"
    assert main(["files", str(shown)]) == 0
    page = capsys.readouterr().out
    assert "kept 2 of 2 files" in page
    assert "DV" not in page


def test_verify_tells_a_gap_by_its_exit_code(
    shown: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # names are not broken
    assert main(["verify", str(shown)]) == 0
    assert "is sound" in capsys.readouterr().out
    version_file(shown, 1).unlink()
    invalidate_cache(shown)  # each command has a process of its own
    assert main(["verify", str(shown)]) == 1
    assert "00000000000000000001.json" in capsys.readouterr().out
    assert main(["verify", str(shown), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_verify_tells_a_version_file_that_is_gone_since_the_table_was_opened(shown: Path) -> None:
    snapshot = hw.open_log(shown)
    version_file(shown, 1).unlink()
    (found,) = snapshot.verify()
    assert (found.source.endswith("01.json"), found.actual) == (True, "missing: it was there before")


def test_a_lost_version_0_is_told_without_a_traceback(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version_file(shown, 0).unlink()
    invalidate_cache(shown)
    assert main(["show", str(shown)]) == 2
    assert "No transaction log found" in " ".join(capsys.readouterr().err.split())
