"""A store that reads log files with some threads, and not for longer than a time limit (spec 002: "Parallel I/O").

The threads are daemons: a store that never answers holds up neither the caller after the limit nor the end of the
process.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, cast

from headwater.errors import StorageTimeoutError
from headwater.storage.passing_store import PassingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.storage.base import Directory, DirectoryStore, ObjectStore

    _Result = tuple[int, bytes | BaseException]


class ParallelReads(PassingStore):
    """A store in front of another one.

    Args:
        inner: the store.
        parallelism: how many objects are read at a time.
        timeout_s: how long one call may take to read its objects.

    >>> from headwater.storage import open_store
    >>> store = ParallelReads(open_store("memory://parallel-example"), parallelism=2, timeout_s=10)
    >>> store.put("a", b"1")
    >>> store.get_many(["a", "a", "a"])
    [b'1', b'1', b'1']
    """

    def __init__(self, inner: ObjectStore, parallelism: int, timeout_s: float) -> None:
        super().__init__(inner)
        self._parallelism = parallelism
        self._timeout_s = timeout_s

    def get(self, key: str) -> bytes:
        """As `ObjectStore.get`; raises `StorageTimeoutError` after the time limit."""
        return self._read([key])[0]

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """As `ObjectStore.get_many`, all of them within the time limit."""
        return self._read(list(keys))

    def _read(self, keys: list[str]) -> list[bytes]:
        if not keys:
            return []
        results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        todo: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for item in enumerate(keys):
            todo.put(item)
        given_up = threading.Event()
        for number in range(min(self._parallelism, len(keys))):
            work = _worker(self._inner.get, todo, results, given_up)
            threading.Thread(target=work, name=f"headwater-log-read-{number}", daemon=True).start()
        try:
            return self._collect(keys, results)
        finally:
            given_up.set()

    def _collect(self, keys: list[str], results: queue.SimpleQueue[_Result]) -> list[bytes]:
        deadline = time.monotonic() + self._timeout_s
        found: dict[int, bytes] = {}
        while len(found) < len(keys):
            try:
                number, result = results.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = next(key for number, key in enumerate(keys) if number not in found)
                raise StorageTimeoutError(
                    f"{self.uri}: reading {len(keys)} log files took longer than {self._timeout_s:g} s; "
                    f"{len(keys) - len(found)} are missing, such as {missing}. The limit is "
                    "spark.indextables.checkpoint.read.timeoutSeconds."
                ) from None
            if isinstance(result, BaseException):
                raise result
            found[number] = result
        return [found[number] for number in range(len(keys))]


class ParallelDirectoryReads(ParallelReads):
    """The same for a store that can be looked through directory by directory."""

    def __init__(self, inner: DirectoryStore, parallelism: int, timeout_s: float) -> None:
        super().__init__(inner, parallelism, timeout_s)
        self._directories = inner

    def list_directory(self, prefix: str) -> Directory:
        """As `DirectoryStore.list_directory`."""
        return self._directories.list_directory(prefix)


def parallel_reads(inner: ObjectStore, parallelism: int, timeout_s: float) -> ParallelReads:
    """The store in front of another one, which can do whatever that one can."""
    if hasattr(inner, "list_directory"):  # a protocol would be asked method by method, for each opening of a table
        return ParallelDirectoryReads(cast("DirectoryStore", inner), parallelism, timeout_s)
    return ParallelReads(inner, parallelism, timeout_s)


def _worker(
    get: Callable[[str], bytes],
    todo: queue.SimpleQueue[tuple[int, str]],
    results: queue.SimpleQueue[_Result],
    given_up: threading.Event,
) -> Callable[[], None]:
    def work() -> None:
        while not given_up.is_set():
            try:
                number, key = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results.put((number, get(key)))
            except BaseException as error:
                results.put((number, error))
                return

    return work
