"""A store that passes every call on to another one: the base of those that do something of their own with a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore


class PassingStore:
    """A store in front of another one. Methods are those of `ObjectStore`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        """The root of the store behind."""
        return self._inner.uri

    def get(self, key: str) -> bytes:
        """As `ObjectStore.get`."""
        return self._inner.get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """As `ObjectStore.get_many`."""
        return self._inner.get_many(keys)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As `ObjectStore.get_range`."""
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectMeta:
        """As `ObjectStore.head`."""
        return self._inner.head(key)

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """As `ObjectStore.list_from`."""
        return self._inner.list_from(prefix, start_after, recursive=recursive)

    def temporary_files(self, prefix: str) -> list[ObjectMeta]:
        """As `LocalStore.temporary_files`; none where the store behind has no such thing."""
        ask: Callable[[str], list[ObjectMeta]] | None = getattr(self._inner, "temporary_files", None)
        return [] if ask is None else ask(prefix)

    def put(self, key: str, data: bytes) -> None:
        """As `ObjectStore.put`."""
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """As `ObjectStore.put_if_absent`."""
        self._inner.put_if_absent(key, data)

    def delete_many(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete_many`."""
        self._inner.delete_many(keys)
