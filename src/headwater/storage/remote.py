"""A table on an object store (S3, Azure, GCS, or in memory), through `obstore`.

Put-if-absent is a conditional put: `If-None-Match: *` on S3, the same precondition on Azure and GCS, so
exactly one of many writers wins. Every failure is mapped once, and repeated as the `RetryPolicy` says.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from headwater.errors import (
    InvalidUriError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageThrottledError,
    WriteStateUnknownError,
)
from headwater.storage.base import Directory, ObjectMeta
from headwater.storage.errors import RetryPolicy, from_obstore_error, from_setup_error, shown_cause
from headwater.storage.options import obstore_config, refuse_options
from headwater.storage.uri import check_key, check_prefix, check_range, check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from obstore.store import ObjectStore as Backend
    from obstore.store import RetryConfig

    from headwater.storage.uri import StoreUri


T = TypeVar("T")

_FOREIGN: Final = (BaseError, OSError, ValueError, NotImplementedError)
_LIST_CHUNK: Final = 1000
_DELETE_CHUNK: Final = 1000
_MAX_PARALLEL: Final = 32
_DOWNLOAD_BYTES: Final = 8 * 2**20


class RemoteStore:
    """The objects below one prefix of a bucket, container or memory store.

    Made by `headwater.storage.open_store`. It can be shared between threads, not across a fork. It knows the options
    that the backend was opened with, to keep their secrets out of messages.
    """

    def __init__(
        self,
        backend: Backend,
        location: StoreUri,
        retry: RetryPolicy | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._backend = backend
        self._uri = location.uri
        self._place = location.kind, location.bucket, location.account_host
        self._base = f"{location.path}/" if location.path else ""
        self._retry = retry or RetryPolicy()
        self._options = options

    def __repr__(self) -> str:
        return f"RemoteStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """The root as a URI, with the scheme that the user gave, percent-encoded."""
        return self._uri

    # --- reading --------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        path = self._path(key)

        def read() -> bytes:
            found = obstore.get(self._backend, path)
            check_size(f"{self._uri}/{key}", found.meta["size"])
            return found.bytes().to_bytes()

        return self._run("read", key, read)

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """Return the whole objects, in the order of `keys`, at most 32 at a time. The first failure is raised."""
        return self._in_parallel(self.get, keys)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        path = self._path(key)
        try:
            if length == 0:
                self.head(key)  # a range of nothing cannot be asked for, but a missing object is still missing
                return b""
            return self._run(
                "read",
                key,
                lambda: obstore.get_range(self._backend, path, start=start, length=length).to_bytes(),
            )
        except (ObjectNotFoundError, StorageThrottledError):
            raise
        except StorageError:
            # Each store has its own error for a range that starts at or behind the end; for us it is empty.
            if self.head(key).size_bytes <= start:
                return b""
            raise

    def head(self, key: str) -> ObjectMeta:
        path = self._path(key)
        return self._meta(self._run("look up", key, lambda: obstore.head(self._backend, path)))

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """Return the objects in the directory `prefix` whose key sorts after `start_after`, in lexicographic order.

        Not every store heeds the offset or returns names in order: they are filtered and sorted here again.
        """
        check_prefix(prefix)
        if recursive or (prefix and start_after > prefix):
            # Skipping the old commits of a long log saves more than it costs to see its subdirectories.
            found = self._list_recursively(prefix, start_after)
        else:
            found = self._list_directory(prefix)
        return sorted(
            meta
            for meta in map(self._meta, found)
            if meta.key > start_after and (recursive or "/" not in meta.key[len(prefix) :])
        )

    def list_directory(self, prefix: str) -> Directory:
        """Return the objects in the directory `prefix` and the directories below it."""
        directory = (self._base + check_prefix(prefix)).rstrip("/") or None
        found = self._run("list", prefix, lambda: obstore.list_with_delimiter(self._backend, directory))
        below = [path.removeprefix(self._base).rstrip("/") + "/" for path in found["common_prefixes"]]
        return Directory([self._meta(meta) for meta in found["objects"]], below)

    def _list_directory(self, prefix: str) -> Sequence[obstore.ObjectMeta]:
        directory = (self._base + prefix).rstrip("/") or None
        return self._run("list", prefix, lambda: obstore.list_with_delimiter(self._backend, directory)["objects"])

    def _list_recursively(self, prefix: str, start_after: str) -> Iterable[obstore.ObjectMeta]:
        """Return all objects below a directory. After a failed page it goes on from there if names come in order."""
        directory = (self._base + prefix).rstrip("/") or None
        found: dict[str, obstore.ObjectMeta] = {}
        last = self._base + start_after if start_after else ""
        in_order = True

        def attempt() -> None:
            nonlocal last, in_order
            offset = last if in_order else None
            for chunk in obstore.list(self._backend, directory, offset=offset or None, chunk_size=_LIST_CHUNK):
                for meta in chunk:
                    in_order = in_order and meta["path"] > last
                    last = meta["path"]
                    found[last] = meta

        self._run("list", prefix, attempt)
        return found.values()

    # --- writing --------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        self._run("write", key, lambda: obstore.put(self._backend, path, data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Write the object only if there is none: atomic, mutually exclusive, durable before it returns.

        Success is reported only when the store said that *this* request created the object. What the caller
        learns otherwise:

        - `ObjectAlreadyExistsError` at the first attempt: another writer's object is there.
        - `ObjectAlreadyExistsError` after an attempt without a clear answer: the object is there, and may be
          the caller's own; the message says so. The bytes alone cannot tell, as two writers may write the
          same; the transaction layer recognises its own commit by the transaction id in it.
        - `StorageThrottledError`, and `WriteStateUnknownError` (a refusal after an attempt without a clear answer):
          whether the object was written is unknown.
        - any other `StorageError`: the store refused the first attempt, or did not take it.
        """
        path = self._path(key)
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            obstore.put(self._backend, path, data, mode="create")

        try:
            self._run("create", key, attempt)
        except ObjectAlreadyExistsError as error:
            if attempts > 1:
                raise ObjectAlreadyExistsError(
                    f"{error}. An earlier attempt of this write got no clear answer, so the object may be "
                    "this writer's own: compare it before treating it as a conflict"
                ) from error
            raise
        except StorageThrottledError as error:
            raise StorageThrottledError(
                f"{error}. It is not known whether the object was written: read it before writing again"
            ) from error
        except StorageError as error:
            if attempts == 1:
                raise
            # Credentials that expire in between refuse the second attempt, and say nothing of the first.
            raise WriteStateUnknownError(
                f"{error}. An earlier attempt of this write got no clear answer, so the object may have been written: "
                "read it before writing again"
            ) from error

    def delete_many(self, keys: Iterable[str]) -> None:
        checked = [check_key(key) for key in keys]
        for first in range(0, len(checked), _DELETE_CHUNK):
            chunk = checked[first : first + _DELETE_CHUNK]
            try:
                self._delete(chunk)
            except ObjectNotFoundError:
                # Azure and GCS stop at a missing object, and do not say how far they came: delete one by one.
                self._in_parallel(self._delete_one, chunk)

    # --- whole files ----------------------------------------------------------------------------------

    def upload(self, key: str, path: str) -> None:
        """Write a file of this machine as an object: one request, or a multipart upload that appears complete."""
        target = self._path(key)
        self._run("write", key, lambda: obstore.put(self._backend, target, Path(path)))

    def download(self, key: str, path: str) -> None:
        """Write an object to a file of this machine, piece by piece."""
        source = self._path(key)

        def fetch() -> None:
            with open(path, "wb") as file:
                for piece in obstore.get(self._backend, source).stream(min_chunk_size=_DOWNLOAD_BYTES):
                    file.write(piece)

        self._run("read", key, fetch)

    def shares_backend(self, other: RemoteStore) -> bool:
        """Tell whether objects can be copied between the two without passing through this machine."""
        return self._place == other._place and self._backend == other._backend

    def copy_from(self, other: RemoteStore, source_key: str, key: str) -> None:
        """Let the store itself copy an object of another prefix; see `shares_backend`."""
        source, target = other._path(source_key), self._path(key)
        self._run("copy to", key, lambda: obstore.copy(self._backend, source, target))

    def _delete(self, keys: list[str]) -> None:
        paths = [self._base + key for key in keys]
        what = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        self._run("delete", what, lambda: obstore.delete(self._backend, paths))

    def _delete_one(self, key: str) -> None:
        try:
            self._delete([key])
        except ObjectNotFoundError:
            return

    # --- requests -------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return self._base + check_key(key)

    def _meta(self, meta: obstore.ObjectMeta) -> ObjectMeta:
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return ObjectMeta(meta["path"].removeprefix(self._base), meta["size"], modified_ms)

    def _run(self, doing: str, key: str, request: Callable[[], T]) -> T:
        """Make a request, with its failures mapped and, where they may pass, repeated."""

        def attempt() -> T:
            try:
                return request()
            except _FOREIGN as error:
                failure = from_obstore_error(error, doing, f"{self._uri}/{key}", self._options)
                cause = shown_cause(error, self._options)
            raise failure from cause

        return self._retry.run(attempt)

    def _in_parallel(self, function: Callable[[str], T], keys: Sequence[str]) -> list[T]:
        if len(keys) < 2:
            return [function(key) for key in keys]
        with ThreadPoolExecutor(min(_MAX_PARALLEL, len(keys)), "headwater-storage") as pool:
            return list(pool.map(function, keys))


_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def open_backend(location: StoreUri, options: Mapping[str, object] | None) -> Backend:
    """Return the backend that serves a location; no request is made yet.

    Raises:
        InvalidUriError: an option is unknown, or the options make no store.
    """
    if location.kind == "memory":
        refuse_options(location.uri, options)
        return _memory_store(location.bucket)
    config = obstore_config(location.kind, options)
    if location.kind == "azure":
        config = _with_account(location, config)
    try:
        if location.kind == "s3":
            return S3Store(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
        if location.kind == "gcs":
            return GCSStore(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
        return AzureStore(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        failure, cause = from_setup_error(error, location.uri, config), shown_cause(error, config)
    raise failure from cause


def _memory_store(name: str) -> MemoryStore:
    """One store per name in this process: who opens the same name sees the same objects."""
    with _memory_lock:
        return _memory_stores.setdefault(name, MemoryStore())


def _with_account(location: StoreUri, config: dict[str, Any]) -> dict[str, Any]:
    """Return the account and endpoint that an `abfs(s)` URI names, which the options may not contradict."""
    if not location.account:
        return config
    if config.setdefault("account_name", location.account) != location.account:
        raise InvalidUriError(
            f"{location.uri} names the account {location.account!r}, "
            f"but the storage options name {config['account_name']!r}"
        )
    # Blob requests go to the blob host of the same cloud, whichever of the two hosts the URI names.
    cloud = location.account_host.split(".", 2)[2]
    config.setdefault("endpoint", f"https://{location.account}.blob.{cloud}")
    return config
