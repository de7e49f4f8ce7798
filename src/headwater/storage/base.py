"""Bytes by key: the small interface that everything above storage is written against.

Keys are relative to the store's root, use `/` as separator and carry no scheme and no percent-encoding.
Every implementation maps its own exceptions to `headwater.errors.StorageError` and its kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class ObjectMeta(NamedTuple):
    """What a listing says about one object."""

    key: str
    size_bytes: int
    modified_ms: int
    """Last modification, in milliseconds since the Unix epoch."""


class Directory(NamedTuple):
    """What is right below a directory."""

    objects: list[ObjectMeta]
    directories: list[str]
    """Their prefixes, each with a `/` at its end."""
    temporary: tuple[ObjectMeta, ...] = ()
    """What writers are writing right now, or were when they were killed: no objects, and listed nowhere else."""


@runtime_checkable
class ObjectStore(Protocol):
    """One table's root on some store."""

    @property
    def uri(self) -> str:
        """The root as a URI, for messages and for data files: `file:///data/events`, `s3://bucket/events`."""

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises `ObjectNotFoundError`."""

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """Return the whole objects, in the order of `keys`, fetched in parallel where that helps."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from offset `start` (fewer only at the end of the object)."""

    def head(self, key: str) -> ObjectMeta:
        """Size and modification time. Raises `ObjectNotFoundError`."""

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """Return the objects in the directory `prefix` whose key sorts after `start_after`, in lexicographic order.

        `prefix` ends with `/` or is empty; `start_after` is a full key (need not exist). Objects deeper
        than one level are returned only when `recursive`. A directory that does not exist is empty.
        """

    def put(self, key: str, data: bytes) -> None:
        """Write the object atomically, replacing any earlier one; durable before it returns."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Write the object only if there is none: atomic, mutually exclusive, durable before it returns.

        Raises `ObjectAlreadyExistsError` when there is one.
        """

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the objects; missing ones are ignored."""


@runtime_checkable
class DirectoryStore(ObjectStore, Protocol):
    """A store that can be looked through directory by directory: many of them can be listed in parallel."""

    def list_directory(self, prefix: str) -> Directory:
        """Return the objects in the directory `prefix` and the directories below it, neither in any order."""


class ForwardingStore:
    """A store in front of another one. Methods are those of `ObjectStore`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        return self._inner.uri

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        return self._inner.get_many(keys)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectMeta:
        return self._inner.head(key)

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        return self._inner.list_from(prefix, start_after, recursive=recursive)

    def temporary_files(self, prefix: str) -> list[ObjectMeta]:
        """As `LocalStore.temporary_files`; none where the store behind has no such thing."""
        ask: Callable[[str], list[ObjectMeta]] | None = getattr(self._inner, "temporary_files", None)
        return [] if ask is None else ask(prefix)

    def put(self, key: str, data: bytes) -> None:
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        self._inner.put_if_absent(key, data)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._inner.delete_many(keys)
