"""A store in front of which some objects lie ready: fetched together, used one by one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headwater.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore


class FetchedStore:
    """Another store, of which some objects have been fetched in one call. Each is handed out once.

    If that call fails, nothing lies ready: whoever asks for an object then learns what is wrong with that one.
    """

    def __init__(self, inner: ObjectStore, keys: Sequence[str]) -> None:
        self._inner = inner
        self._ready: dict[str, bytes] = {}
        with contextlib.suppress(StorageError):
            self._ready = dict(zip(keys, inner.get_many(keys), strict=True))

    @property
    def uri(self) -> str:
        """The root of the store behind."""
        return self._inner.uri

    def get(self, key: str) -> bytes:
        """As `ObjectStore.get`."""
        ready = self._ready.pop(key, None)
        return self._inner.get(key) if ready is None else ready

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """As `ObjectStore.get_many`; what does not lie ready is fetched together."""
        ready = {key: self._ready.pop(key) for key in keys if key in self._ready}
        missing = [key for key in keys if key not in ready]
        if missing:
            ready |= zip(missing, self._inner.get_many(missing), strict=True)
        return [ready[key] for key in keys]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As `ObjectStore.get_range`."""
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectMeta:
        """As `ObjectStore.head`."""
        return self._inner.head(key)

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """As `ObjectStore.list_from`."""
        return self._inner.list_from(prefix, start_after, recursive=recursive)

    def put(self, key: str, data: bytes) -> None:
        """As `ObjectStore.put`."""
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """As `ObjectStore.put_if_absent`."""
        self._inner.put_if_absent(key, data)

    def delete_many(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete_many`."""
        self._inner.delete_many(keys)
