"""A store in a dictionary for tests of the log: it counts calls, may lag behind, and has the times one gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError
from headwater.features.registry import check_readable
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.log.snapshot import Snapshot

NOW_MS = 1_700_000_000_000


class DictStore:
    """An `ObjectStore` without a disk. `unlisted` keys exist but no listing shows them; `absent_for` hides a
    key altogether until it has been asked for that often."""

    uri = "memory://test-table"

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = dict(objects or {})
        self.modified_ms: dict[str, int] = {}
        self.unlisted: set[str] = set()
        self.absent_for: dict[str, int] = {}
        self.calls: list[tuple[str, str]] = []

    def get(self, key: str) -> bytes:
        self.calls.append(("get", key))
        return self._find(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        self.calls += [("get", key) for key in keys]
        return [self._find(key) for key in keys]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        assert start >= 0
        assert length >= 0
        self.calls.append(("get_range", key))
        return self._find(key)[start : start + length]

    def head(self, key: str) -> ObjectMeta:
        self.calls.append(("head", key))
        return self._meta(key, self._find(key))

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        self.calls.append(("list_from", prefix))
        return [
            self._meta(key, self.objects[key])
            for key in sorted(self.objects)
            if key.startswith(prefix)
            and key > start_after
            and key not in self.unlisted
            and not self.absent_for.get(key, 0)
            and (recursive or "/" not in key.removeprefix(prefix))
        ]

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def put_if_absent(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise ObjectAlreadyExistsError(key)
        self.objects[key] = data

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def _find(self, key: str) -> bytes:
        left = self.absent_for.get(key, 0)
        if left:
            self.absent_for[key] = left - 1
        if left or key not in self.objects:
            raise ObjectNotFoundError(f"no object {key}")
        return self.objects[key]

    def _meta(self, key: str, data: bytes) -> ObjectMeta:
        return ObjectMeta(key, len(data), self.modified_ms.get(key, NOW_MS))


class Sleeper:
    """Stands for `time.sleep` and remembers how long it was asked to wait."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waits_s.append(seconds)


def context(store: DictStore, sleeper: Sleeper | None = None) -> LogContext:
    """The context of a table in a store, with a clock that stands still and waits that take no time."""
    return LogContext(store, check_readable, clock_ms=lambda: NOW_MS, sleep=sleeper or Sleeper())


def open_table(
    store: DictStore,
    version: int | None = None,
    timestamp: str | int | None = None,
    sleeper: Sleeper | None = None,
) -> Snapshot:
    """Open the table in a store."""
    return open_snapshot(context(store, sleeper), version=version, timestamp=timestamp)
