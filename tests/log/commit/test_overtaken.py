"""Transactions that are older than the log: what was cleaned up is not written again."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ConcurrentWriteException
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.storage.base import ObjectMeta
from support.log.commit_tables import WRITE, add, append, commit_lines, create, table, writer
from support.log.deletions import deletes, vector_table, vector_writer_of
from support.log.log_tables import put_classic
from support.stores.log_store import NOW_MS, DictStore

DAY_MS = 86_400_000


def cleaned_up(store: DictStore, ctx: LogContext, read: Any, later: int) -> None:
    """Further commits, a checkpoint at the last, and nothing before it."""
    now = read
    for number in range(later):
        now = append(ctx, now, add(f"w{number}")).snapshot
    actions = [line for v in range(now.version + 1) for line in commit_lines(store, v) if "commitInfo" not in line]
    put_classic(store, now.version, actions)
    for version in range(now.version):
        del store.objects[f"_delta_log/{version:020d}.json"]


def test_a_transaction_that_is_older_than_the_log_does_not_write_into_the_past() -> None:
    store, ctx, read = table()
    cleaned_up(store, ctx, read, later=3)
    late = Transaction(writer(store, clock_ms=lambda: NOW_MS + 31 * DAY_MS), read)
    late.add([add("late")])

    with pytest.raises(ConcurrentWriteException, match="cleaned up"):
        late.commit(WRITE)
    assert f"_delta_log/{1:020d}.json" not in store.objects
    assert open_snapshot(ctx).num_files == 3


def test_an_old_version_of_a_cleaned_log_that_still_loads_is_no_base_for_a_commit() -> None:
    store, ctx, read = table()
    put_classic(store, 0, [line for line in commit_lines(store, 0) if "commitInfo" not in line])
    cleaned_up(store, ctx, read, later=3)
    late_ctx = writer(store, clock_ms=lambda: NOW_MS + 31 * DAY_MS)
    late = Transaction(late_ctx, open_snapshot(late_ctx, version=0))
    with pytest.raises(ConcurrentWriteException, match="cleaned up"):
        late.commit(WRITE)


def test_an_old_transaction_on_a_quiet_table_commits() -> None:
    store, _, read = table()
    late = Transaction(writer(store, clock_ms=lambda: NOW_MS + 31 * DAY_MS), read)
    late.add([add("late")])
    assert late.commit(WRITE).version == 1


def test_an_old_transaction_goes_on_after_winners_whose_commits_are_there() -> None:
    store, ctx, read = table()
    append(ctx, read, add("w"))
    late = Transaction(writer(store, clock_ms=lambda: NOW_MS + 31 * DAY_MS), read)
    late.add([add("late")])
    assert late.commit(WRITE).version == 2


def test_a_version_that_is_cleaned_up_right_after_it_was_seen_is_not_written_again() -> None:
    store, ctx, read = table()
    append(ctx, read, add("w"))
    taken = f"_delta_log/{1:020d}.json"

    class CleanedUpMeanwhile(DictStore):
        def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
            listed = super().list_from(prefix, start_after, recursive=recursive)
            self.objects.pop(taken, None)
            return listed

    late_store = CleanedUpMeanwhile(store.objects)
    late = Transaction(writer(late_store, clock_ms=lambda: NOW_MS + 31 * DAY_MS), read)
    late.add([add("late")])
    with pytest.raises(ConcurrentWriteException, match="cleaned up"):
        late.commit(WRITE)
    assert taken not in late_store.objects


def test_what_delays_a_commit_comes_before_the_look_at_the_log() -> None:
    """Between the look and the commit nothing is read or written: the log could be cleaned up meanwhile."""
    store, _, read = vector_table(add("f", rows=200_000))
    late_ctx = vector_writer_of(store, clock_ms=lambda: NOW_MS + 31 * DAY_MS)
    late = Transaction(late_ctx, read)
    late.delete_rows([deletes("f", *range(0, 100_000, 7))])
    listed: list[list[str]] = []
    look = store.list_from

    def list_from(prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        listed.append([key for key in store.objects if key.endswith(".bin")])
        return look(prefix, start_after, recursive=recursive)

    store.list_from = list_from  # type: ignore[method-assign]
    assert late.commit(WRITE).version == 1
    assert len(listed[0]) == 1, "the vector was there already"


def test_a_table_whose_first_commit_was_cleaned_up_is_not_created_again() -> None:
    store, ctx, read = table()
    cleaned_up(store, ctx, read, later=3)
    with pytest.raises(ConcurrentWriteException, match="cannot be created"):
        create(ctx)
