"""A store in front of which some objects lie ready: fetched together, used one by one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headwater.errors import StorageError
from headwater.storage.passing_store import PassingStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.storage.base import ObjectStore


class FetchedStore(PassingStore):
    """Another store, of which some objects have been fetched in one call. Each is handed out once.

    If that call fails, nothing lies ready: whoever asks for an object then learns what is wrong with that one.
    """

    def __init__(self, inner: ObjectStore, keys: Sequence[str]) -> None:
        super().__init__(inner)
        self._ready: dict[str, bytes] = {}
        with contextlib.suppress(StorageError):
            self._ready = dict(zip(keys, inner.get_many(keys), strict=True))

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
