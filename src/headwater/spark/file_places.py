"""Where a Python worker puts data files: on a shared disk in place, or on an object store by an upload.

Either way Parquet is written to a path on a disk, so that no file is ever in memory as a whole. An upload is one
request, or a multipart upload that appears when it is complete, and is repeated as a whole when it fails.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.storage.failures import from_obstore_error, from_os_error, shown_cause
from headwater.storage.keys import check_data_key
from headwater.storage.options import options_for
from headwater.storage.retry import RetryPolicy
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.storage.uri import StoreUri


_ATTEMPTS = 10


class Stored(NamedTuple):
    """A file that is complete, and in its place."""

    size_bytes: int
    modified_ms: int


class Places(Protocol):
    """Where files go."""

    def path(self, key: str) -> str:
        """The path on this machine to write a new, empty file to, which is there now. Raises `StorageError`."""

    def finish(self, key: str, path: str) -> Stored:
        """The file is complete: bring it to its place."""

    def remove(self, key: str) -> None:
        """Remove a file that is in its place, as far as that is possible: no log names it."""


def open_places(uri: str, storage_options: Mapping[str, str] | None) -> Places:
    """The places below a table's location."""
    location = parse_uri(uri)
    return LocalPlaces(location.path) if location.kind == "local" else RemotePlaces(location, storage_options)


class LocalPlaces:
    """Files below a directory that all machines share."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    def path(self, key: str) -> str:
        """The final path."""
        path = f"{self._root}/{check_data_key(key)}"
        try:
            for attempts_left in reversed(range(_ATTEMPTS)):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                try:
                    # Fails if there is such a file: none is ever overwritten.
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
                    break
                except FileNotFoundError:  # VACUUM has removed the directory while it was empty
                    if not attempts_left:
                        raise
        except OSError as error:
            raise from_os_error(error, "create", path, writing=True) from error
        return path

    def finish(self, key: str, path: str) -> Stored:
        """It is in its place already."""
        assert path == f"{self._root}/{key}", path
        try:
            status = os.stat(path)
        except OSError as error:
            raise from_os_error(error, "look up", path, writing=True) from error
        return Stored(status.st_size, status.st_mtime_ns // 1_000_000)

    def remove(self, key: str) -> None:
        """Remove a file."""
        with contextlib.suppress(OSError):
            os.unlink(f"{self._root}/{check_data_key(key)}")


class RemotePlaces:
    """Objects below a prefix of a bucket or container."""

    def __init__(self, location: StoreUri, storage_options: Mapping[str, str] | None) -> None:
        from headwater.storage.backends import open_backend

        self._options = options_for(location, storage_options)
        self._backend = open_backend(location, self._options)
        self._uri = location.uri
        self._base = f"{location.path}/" if location.path else ""

    def path(self, key: str) -> str:
        """A temporary file."""
        check_data_key(key)
        try:
            descriptor, path = tempfile.mkstemp(prefix="headwater-", suffix=key.rpartition("/")[2][:100])
        except OSError as error:
            raise from_os_error(error, "create a temporary file for", key, writing=True) from error
        os.close(descriptor)
        return path

    def finish(self, key: str, path: str) -> Stored:
        """Upload the file."""
        import obstore
        from obstore.exceptions import BaseError

        def upload() -> None:
            try:
                obstore.put(self._backend, self._base + key, Path(path))
                return
            except (BaseError, OSError, ValueError) as error:
                failure = from_obstore_error(error, "write", f"{self._uri}/{key}", self._options)
                cause = shown_cause(error, self._options)
            raise failure from cause

        try:
            size_bytes = os.path.getsize(path)
        except OSError as error:
            raise from_os_error(error, "read", path, writing=True) from error
        RetryPolicy().run(upload)
        with contextlib.suppress(OSError):  # it is where it belongs; what is left here is a temporary file
            os.unlink(path)
        return Stored(size_bytes, time.time_ns() // 1_000_000)

    def remove(self, key: str) -> None:
        """Remove an object."""
        import obstore

        with contextlib.suppress(Exception):  # whatever goes wrong, the file is garbage and no more
            obstore.delete(self._backend, self._base + check_data_key(key))
