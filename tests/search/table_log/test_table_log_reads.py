"""Log files are read by some threads and within a time limit (spec 002: "Parallel I/O")."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.errors import ObjectNotFoundError, StorageError, StorageTimeoutError
from headwater.log.opening import open_snapshot
from headwater.search.table_log import ParallelReads, parallel_reads, search_context, search_log
from headwater.storage import open_store
from headwater.storage.base import DirectoryStore, ObjectStore
from support.search.table_logs import files, grown, live
from support.stores.faults import Fault, FaultyStore, RaiseBefore, script


class Gate:
    """Lets a number of readers in only when all of them are there."""

    def __init__(self, readers: int) -> None:
        self._barrier = threading.Barrier(readers)

    def get(self, key: str) -> bytes:
        self._barrier.wait(timeout=30)
        return key.encode()


class Closed:
    """Answers some keys never (until the test is over)."""

    uri = "memory://closed"

    def __init__(self, *keys: str) -> None:
        self._keys = keys
        self.over = threading.Event()

    def get(self, key: str) -> bytes:
        if key in self._keys:
            self.over.wait(timeout=30)
        return key.encode()


def test_as_many_objects_are_read_at_a_time_as_the_option_says() -> None:
    store = ParallelReads(Gate(4), parallelism=4, timeout_s=60)  # type: ignore[arg-type]
    keys = [str(number) for number in range(8)]
    assert store.get_many(keys) == [key.encode() for key in keys]


def test_the_time_limit_is_for_all_of_them_together() -> None:
    inner = Closed("b", "c")
    store = ParallelReads(inner, parallelism=2, timeout_s=0.05)  # type: ignore[arg-type]
    try:
        with pytest.raises(StorageTimeoutError, match=r"took longer than 0\.05 s; 2 are missing, such as b"):
            store.get_many(["a", "b", "c", "d"][:3])
        with pytest.raises(StorageTimeoutError, match="timeoutSeconds"):
            store.get("b")
        assert store.get("a") == b"a"
    finally:
        inner.over.set()


def test_the_first_error_is_raised_as_it_is() -> None:
    store = parallel_reads(open_store("memory://parallel-errors"), 3, 10)
    store.put("a", b"1")
    with pytest.raises(ObjectNotFoundError):
        store.get_many(["a", "b"])
    assert store.get_many([]) == []


def test_the_store_can_do_what_the_one_behind_it_can(tmp_path: Path) -> None:
    store = parallel_reads(open_store(tmp_path), 3, 10)
    assert isinstance(store, ObjectStore)
    assert isinstance(store, DirectoryStore)
    assert not isinstance(parallel_reads(FaultyStore(open_store(tmp_path)), 3, 10), DirectoryStore)
    store.put_if_absent("a/b", b"12")
    assert (store.get_range("a/b", 1, 1), store.head("a/b").size_bytes) == (b"2", 2)
    assert [meta.key for meta in store.list_from("a/")] == ["a/b"]
    store.delete_many(["a/b"])
    assert store.list_from("a/") == []


def test_options_reach_the_store_of_a_table(tmp_path: Path) -> None:
    options = {
        "spark.indextables.checkpoint.parallelism": "3",
        "spark.indextables.checkpoint.read.timeoutSeconds": "1.5",
    }
    store = search_log(tmp_path, options=options).store
    assert isinstance(store, ParallelReads)
    assert (store._parallelism, store._timeout_s) == (3, 1.5)


def test_a_checkpoint_that_takes_too_long_is_passed_over(tmp_path: Path) -> None:
    grown(tmp_path, 12)
    error = StorageTimeoutError("too slow")
    slow = FaultyStore(open_store(tmp_path), script(Fault(RaiseBefore(error), "get*", "*.checkpoint.json")))
    snapshot = open_snapshot(search_context(slow))
    assert (snapshot.segment.checkpoint, live(snapshot)) == (None, files(12))


def test_a_version_file_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    error = StorageTimeoutError("too slow")
    slow = FaultyStore(open_store(tmp_path), script(Fault(RaiseBefore(error), "get_many", "*1.json")))
    with pytest.raises(StorageError, match="too slow"):
        open_snapshot(search_context(slow))
