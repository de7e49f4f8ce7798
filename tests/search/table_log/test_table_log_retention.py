"""Cleanup of a search table's log: the safety gates and options of spec 002, "File Retention"."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import LogCleanupError, StorageError, VersionNotFoundError
from headwater.search.table_log import clean_up, open_search_log, search_context, write_checkpoint
from headwater.storage import open_store
from support.search.table_logs import (
    DAY_MS,
    append,
    checkpoint_file,
    files,
    grown,
    live,
    log_files,
    make_older,
    version_file,
)
from support.stores.faults import Fault, FaultyStore, RaiseBefore, script

EVERY_5 = {"spark.indextables.checkpoint.interval": "5"}
DRY = {**EVERY_5, "spark.indextables.cleanup.dryRun": "true"}
FAIL = {**EVERY_5, "spark.indextables.cleanup.failurePolicy": "fail"}
HOUR_MS = 3_600_000


def aged(path: Path, versions: int, days: int = 31, options: dict[str, str] | None = None) -> None:
    """A table with a checkpoint every 5 versions, all of its log so old."""
    grown(path, versions, options or EVERY_5)
    for file in (path / "_transaction_log").iterdir():
        make_older(file, days * DAY_MS)


def test_old_versions_before_the_checkpoint_go_and_version_0_stays(tmp_path: Path) -> None:
    aged(tmp_path, 12)
    result = clean_up(open_search_log(tmp_path))
    assert log_files(tmp_path) == ["0", "10", "c10", "11", "12"]
    assert len(result.deleted) == 10
    assert not result.failed
    assert live(open_search_log(tmp_path)) == files(12)
    assert live(open_search_log(tmp_path, version=11)) == files(11)


def test_versions_stay_until_the_retention_is_over(tmp_path: Path) -> None:
    aged(tmp_path, 12, days=29)
    assert all("checkpoint" in key for key in clean_up(open_search_log(tmp_path)).deleted)
    assert log_files(tmp_path) == [str(n) for n in range(11)] + ["c10", "11", "12"]


def test_only_the_files_that_are_old_go(tmp_path: Path) -> None:
    grown(tmp_path, 6, EVERY_5)
    for version in (0, 1, 2):
        make_older(version_file(tmp_path, version), 31 * DAY_MS)
    clean_up(open_search_log(tmp_path))
    assert log_files(tmp_path) == ["0", "3", "4", "5", "c5", "6"]
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        open_search_log(tmp_path, version=4)


def test_versions_that_no_checkpoint_covers_stay_however_old_they_are(tmp_path: Path) -> None:
    aged(tmp_path, 4)
    assert clean_up(open_search_log(tmp_path)).deleted == ()
    assert log_files(tmp_path) == ["0", "1", "2", "3", "4"]


def test_the_current_version_stays(tmp_path: Path) -> None:
    aged(tmp_path, 5)
    clean_up(open_search_log(tmp_path))
    assert log_files(tmp_path) == ["0", "5", "c5"]


def test_a_checkpoint_that_cannot_be_read_covers_nothing(tmp_path: Path) -> None:
    aged(tmp_path, 12)
    checkpoint_file(tmp_path, 10).write_text("{")
    clean_up(open_search_log(tmp_path))
    assert log_files(tmp_path) == ["0", "5", "c5", "6", "7", "8", "9", "10", "c10", "11", "12"]


def test_two_checkpoints_that_cannot_be_read_cover_nothing_either(tmp_path: Path) -> None:
    aged(tmp_path, 12)
    for version in (5, 10):
        checkpoint_file(tmp_path, version).write_text("{")
    assert clean_up(open_search_log(tmp_path)).deleted == ()
    assert live(open_search_log(tmp_path)) == files(12)


def test_older_checkpoints_stay_for_two_hours(tmp_path: Path) -> None:
    grown(tmp_path, 16, EVERY_5)
    make_older(checkpoint_file(tmp_path, 5), 3 * HOUR_MS)
    make_older(checkpoint_file(tmp_path, 10), HOUR_MS)
    make_older(checkpoint_file(tmp_path, 15), 3 * HOUR_MS)
    deleted = clean_up(open_search_log(tmp_path)).deleted
    assert deleted == ("_transaction_log/00000000000000000005.checkpoint.json",)


def test_durations_are_options(tmp_path: Path) -> None:
    options = {
        **EVERY_5,
        "spark.indextables.logRetention.duration": str(HOUR_MS),
        "spark.indextables.checkpointRetention.duration": str(30 * DAY_MS),
    }
    grown(tmp_path, 12, options)
    for file in (tmp_path / "_transaction_log").iterdir():
        make_older(file, 2 * HOUR_MS)
    clean_up(open_search_log(tmp_path, options=options))
    assert log_files(tmp_path) == ["0", "c5", "10", "c10", "11", "12"]


def test_the_next_checkpoint_cleans_up_by_itself(tmp_path: Path) -> None:
    aged(tmp_path, 4)
    snapshot = append(open_search_log(tmp_path, options=EVERY_5), "05.split")
    assert log_files(tmp_path) == ["0", "5", "c5"]
    assert live(snapshot) == live(open_search_log(tmp_path)) == files(5)


def test_a_dry_run_only_says_what_would_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    aged(tmp_path, 12)
    before = log_files(tmp_path)
    with caplog.at_level(logging.INFO, "headwater.log"):
        result = clean_up(open_search_log(tmp_path, options=DRY))
    assert result.dry_run
    assert len(result.deleted) == 10
    assert "would delete 10 log files" in caplog.text
    assert log_files(tmp_path) == before
    assert clean_up(open_search_log(tmp_path)).deleted == result.deleted


def test_a_file_that_cannot_be_deleted_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    aged(tmp_path, 12)
    snapshot = _stubborn(tmp_path, EVERY_5)
    with caplog.at_level(logging.WARNING, "headwater.log"):
        result = clean_up(snapshot)
    assert result.failed == ("_transaction_log/00000000000000000003.json",)
    assert "00000000000000000003.json could not be deleted" in caplog.text
    assert log_files(tmp_path) == ["0", "3", "10", "c10", "11", "12"]
    assert live(open_search_log(tmp_path)) == files(12)


def test_or_an_error_if_the_policy_says_so(tmp_path: Path) -> None:
    aged(tmp_path, 14)
    snapshot = _stubborn(tmp_path, FAIL)
    with pytest.raises(LogCleanupError, match=r"00000000000000000003\.json"):
        clean_up(snapshot)
    with pytest.raises(LogCleanupError, match="version 15"):
        append(snapshot, "15.split")
    assert live(open_search_log(tmp_path)) == files(15), "the commit has happened all the same"


def test_a_store_that_fails_altogether_does_not_fail_the_commit(tmp_path: Path) -> None:
    aged(tmp_path, 4)
    store = FaultyStore(open_store(tmp_path), script(Fault(RaiseBefore(StorageError("no")), "delete_many")))
    from headwater.log.opening import open_snapshot

    snapshot = append(open_snapshot(search_context(store, EVERY_5)), "05.split")
    assert snapshot.version == 5
    assert "1" in log_files(tmp_path)


def test_data_stays_readable_whenever_cleanup_is_cut_short(tmp_path: Path) -> None:
    aged(tmp_path, 12)
    doomed = clean_up(open_search_log(tmp_path, options=DRY)).deleted
    for key in doomed:
        (tmp_path / key).unlink()
        assert live(open_search_log(tmp_path)) == files(12)


def test_a_checkpoint_by_hand_makes_room(tmp_path: Path) -> None:
    aged(tmp_path, 4)
    clean_up(write_checkpoint(open_search_log(tmp_path)))
    assert log_files(tmp_path) == ["0", "4", "c4"]


def _stubborn(path: Path, options: dict[str, str]):  # type: ignore[no-untyped-def]
    """The newest version, in a store that does not delete version 3."""
    snapshot = open_search_log(path, options=options)
    faults = script(Fault(RaiseBefore(StorageError("in use")), "delete_many", "*3.json"))
    store = FaultyStore(open_store(path), faults)
    return replace(snapshot, ctx=replace(snapshot.ctx, store=store))
