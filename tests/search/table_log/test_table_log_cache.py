"""The caches of a search table's log: what they save, when they forget, and that they never hide a commit."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.log.context import LogContext
from headwater.log.indextables.cache import LogCache
from headwater.log.snapshot import Snapshot
from headwater.search.table_log import (
    create_search_log,
    invalidate_cache,
    open_in,
    open_search_log,
    search_context,
    search_log,
    write_checkpoint,
)
from headwater.storage import open_store
from support.search.table_logs import SCHEMA, append, checkpoint_file, files, grown, live, log_files, version_file
from support.stores.faults import FaultyStore

NO_CACHE = {"spark.indextables.transaction.cache.enabled": "false"}


class Reader:
    """A process that opens a table again and again, with a clock of its own; it counts what it reads."""

    def __init__(self, path: Path, lifetime_s: float = 300.0, *, cached: bool = True) -> None:
        self.now_ms = 1_700_000_000_000
        self.store = FaultyStore(open_store(path))
        self.cache = LogCache(lifetime_s, lambda: self.now_ms) if cached else None
        self.ctx: LogContext = search_context(self.store, cache=self.cache)

    def open(self, **which: Any) -> Snapshot:
        self.store.calls.clear()
        return open_in(self.ctx, **which)

    @property
    def read(self) -> list[str]:
        """The log files that the last opening read, as `log_files` names them."""
        names = [call.key.rpartition("/")[2] for call in self.store.calls if call.operation in ("get", "get_many")]
        numbered = [name for name in names if name[0].isdigit()]
        return [f"{'c' if 'checkpoint' in name else ''}{int(name.partition('.')[0])}" for name in numbered]


def test_the_second_opening_reads_no_log_file(tmp_path: Path) -> None:
    grown(tmp_path, 4)
    reader = Reader(tmp_path)
    first = reader.open()
    assert reader.read == ["0", "1", "2", "3", "4"]
    assert reader.open() is first
    assert [call.operation for call in reader.store.calls] == ["list_from"]
    assert reader.cache is not None
    assert reader.cache.counts.has_newest
    assert reader.cache.counts.hits == 1


def test_a_commit_of_another_process_is_seen_at_once_and_only_it_is_read(tmp_path: Path) -> None:
    snapshot = grown(tmp_path, 4)
    reader = Reader(tmp_path)
    reader.open()
    append(snapshot, "05.split")
    assert live(reader.open()) == files(5)
    assert reader.read == ["5"]


def test_checkpoints_are_kept_too(tmp_path: Path) -> None:
    grown(tmp_path, 12)
    reader = Reader(tmp_path)
    reader.open()
    assert reader.read == ["11", "12", "c10", "0"]
    append(open_search_log(tmp_path), "13.split")
    assert live(reader.open()) == files(13)
    assert reader.read == ["13", "0"]


def test_versions_are_kept_for_time_travel(tmp_path: Path) -> None:
    grown(tmp_path, 5)
    reader = Reader(tmp_path)
    assert live(reader.open(version=3)) == files(3)
    assert reader.read == ["0", "1", "2", "3"]
    assert live(reader.open(version=4)) == files(4)
    assert reader.read == ["4"]
    assert live(reader.open(version=2)) == files(2)
    assert reader.read == []


def test_entries_expire(tmp_path: Path) -> None:
    grown(tmp_path, 3)
    reader = Reader(tmp_path, lifetime_s=60)
    reader.open()
    reader.now_ms += 59_999
    reader.open()
    assert reader.read == []
    reader.now_ms += 1
    reader.open()
    assert reader.read == ["0", "1", "2", "3"]


def test_a_lifetime_of_nothing_keeps_nothing(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    reader = Reader(tmp_path, lifetime_s=0)
    for _ in range(2):
        reader.open()
        assert reader.read == ["0", "1", "2"]


def test_a_clock_that_goes_back_does_not_keep_entries_for_ever(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    reader = Reader(tmp_path)
    reader.open()
    reader.now_ms -= 1
    reader.open()
    assert reader.read == ["0", "1", "2"]


def test_the_cache_can_be_switched_off(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    assert search_log(tmp_path, options=NO_CACHE).cache is None
    assert search_log(tmp_path).cache is not None
    reader = Reader(tmp_path, cached=False)
    for _ in range(2):
        reader.open()
        assert reader.read == ["0", "1", "2"]


def test_a_write_forgets_the_newest_version_and_a_checkpoint_everything(tmp_path: Path) -> None:
    grown(tmp_path, 3)
    reader = Reader(tmp_path)
    assert reader.cache is not None
    snapshot = append(reader.open(), "04.split")
    counts = reader.cache.counts
    assert (counts.has_newest, counts.versions) == (False, 4)
    assert live(reader.open()) == files(4)
    write_checkpoint(snapshot)
    counts = reader.cache.counts
    assert (counts.has_newest, counts.versions, counts.checkpoints) == (False, 0, 0)
    assert live(reader.open()) == files(4)
    assert reader.read == ["c4", "0"]


def test_a_cache_can_be_told_to_forget(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    first = open_search_log(tmp_path)
    assert open_search_log(tmp_path) is first
    invalidate_cache(tmp_path)
    second = open_search_log(tmp_path)
    assert second is not first
    invalidate_cache(str(tmp_path) + "-another")
    assert open_search_log(tmp_path) is second
    invalidate_cache()
    assert open_search_log(tmp_path) is not second


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    old = grown(path, 1)
    reader = Reader(path)
    reader.open()
    shutil.rmtree(path)
    create_search_log(path, SCHEMA, name="new")
    append(open_search_log(path), "other.split")
    os.utime(version_file(path, 1), (1, 1))
    snapshot = reader.open()
    assert (snapshot.metadata.name, live(snapshot)) == ("new", ["other.split"])
    assert snapshot.metadata.id != old.metadata.id


def test_a_damaged_checkpoint_is_not_hidden_by_its_cached_content(tmp_path: Path) -> None:
    grown(tmp_path, 11)
    reader = Reader(tmp_path)
    reader.open()
    append(open_search_log(tmp_path), "12.split")
    checkpoint_file(tmp_path, 10).write_text("{")
    snapshot = reader.open()
    assert (snapshot.segment.checkpoint, live(snapshot)) == (None, files(12))


def test_tables_that_are_opened_with_other_options_do_not_share_a_cache(tmp_path: Path) -> None:
    one = search_log(tmp_path, options={"spark.indextables.checkpoint.interval": "5"})
    other = search_log(tmp_path)
    assert one.cache is not other.cache
    assert other.cache is search_log(tmp_path).cache
    assert one.options.checkpoint_interval == 5


def test_a_gap_is_looked_at_every_time(tmp_path: Path) -> None:
    grown(tmp_path, 3)
    lost = version_file(tmp_path, 2).read_bytes()
    version_file(tmp_path, 2).unlink()
    reader = Reader(tmp_path)
    reader.ctx = replace(reader.ctx, sleep=lambda _: None)
    assert reader.open().version == 1
    version_file(tmp_path, 2).write_bytes(lost)
    assert reader.open().version == 3
    assert log_files(tmp_path) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("size", [1, 3])
def test_the_least_recently_used_versions_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("headwater.log.indextables.cache.MOST_VERSIONS", size)
    grown(tmp_path, 4)
    reader = Reader(tmp_path)
    reader.open()
    assert reader.cache is not None
    assert reader.cache.counts.versions == size
