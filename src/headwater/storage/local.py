"""A table on a local disk: plain system calls, because a small read through them takes 10 microseconds.

Objects appear complete and durable or not at all (see `headwater.storage.durable`). Reads are sequential:
threads do not make a local disk faster.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from typing import TYPE_CHECKING

from headwater.errors import (
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
    WriteNotDurableError,
)
from headwater.storage.base import Directory, ObjectMeta
from headwater.storage.durable import (
    RESERVED_PREFIX,
    anchor,
    discard,
    is_temporary,
    publish_if_absent,
    stage,
    sync_directory,
    sync_file,
)
from headwater.storage.errors import from_os_error
from headwater.storage.uri import check_key, check_prefix, check_range, check_size, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class LocalStore:
    """The objects below one directory, which need not exist before the first write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = LocalStore(directory)
    ...     store.put_if_absent("_delta_log/00000000000000000000.json", b"{}")
    ...     [meta.key for meta in store.list_from("_delta_log/")]
    ['_delta_log/00000000000000000000.json']
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        location = parse_uri(root)
        if location.kind != "local":
            raise StorageError(f"{location.uri} is not on a local disk")
        self._uri = location.uri
        self._base = location.path.rstrip("/") + "/"
        self._unclear: set[str] = set()
        """Paths whose creation failed in a way that does not say whether they are there."""

    def __repr__(self) -> str:
        return f"LocalStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """The root as a `file://` URI, percent-encoded."""
        return self._uri

    # --- reading --------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            with _opened(path) as file:
                size_bytes = check_size(path, os.fstat(file.fileno()).st_size)
                return _read_at(file, 0, size_bytes)
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        except MemoryError as error:
            raise StorageError(f"could not read {path}: there is not enough memory for it") from error

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        path = self._path(key)
        try:
            with _opened(path) as file:
                available = os.fstat(file.fileno()).st_size - start
                return _read_at(file, start, min(length, available)) if available > 0 else b""
        except MemoryError as error:
            raise StorageError(f"could not read {length} bytes of {path}: there is not enough memory") from error
        except OSError as error:
            raise from_os_error(error, "read", path) from error

    def head(self, key: str) -> ObjectMeta:
        path = self._path(key)
        try:
            status = os.stat(path)
        except OSError as error:
            raise from_os_error(error, "look up", path) from error
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError(f"could not look up {path}: it is not a file")
        return _meta(key, status)

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """Return the objects in the directory `prefix` whose key sorts after `start_after`, in lexicographic order.

        Links to files are followed, links to directories are not: a cycle, or a directory outside the table,
        is not part of the table.
        """
        found: list[ObjectMeta] = []
        pending = [check_prefix(prefix)]
        while pending:
            directory = pending.pop()
            for entry in self._entries(directory):
                key = directory + entry.name
                if entry.is_dir(follow_symlinks=False):
                    # All keys below start with `key/`: if that sorts before, so do they, unless it is a
                    # prefix of `start_after`.
                    if recursive and (f"{key}/" > start_after or start_after.startswith(f"{key}/")):
                        pending.append(f"{key}/")
                elif key > start_after and (status := _status(entry)) is not None:
                    found.append(_meta(key, status))
        found.sort()
        return found

    def list_directory(self, prefix: str) -> Directory:
        """The files in the directory `prefix` and the directories below it. Links are treated as in `list_from`."""
        objects: list[ObjectMeta] = []
        directories: list[str] = []
        temporary: list[ObjectMeta] = []
        for entry in self._all_entries(check_prefix(prefix)):
            if entry.name.startswith(RESERVED_PREFIX):
                if is_temporary(entry.name) and (status := _status(entry)) is not None:
                    temporary.append(_meta(prefix + entry.name, status))
            elif entry.is_dir(follow_symlinks=False):
                directories.append(f"{prefix}{entry.name}/")
            elif (status := _status(entry)) is not None:
                objects.append(_meta(prefix + entry.name, status))
        return Directory(objects, directories, tuple(temporary))

    def temporary_files(self, prefix: str) -> list[ObjectMeta]:
        """Return the files in a directory that writers are writing right now, or were when they were killed."""
        names = [entry for entry in self._all_entries(check_prefix(prefix)) if is_temporary(entry.name)]
        return [_meta(prefix + entry.name, status) for entry in names if (status := _status(entry)) is not None]

    # --- writing --------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes) -> None:
        path = self._writable_path(key)
        directory = os.path.dirname(path)
        try:
            self._anchor(directory)
            temporary = stage(directory, data)
            try:
                os.rename(temporary, path)
            except BaseException:
                discard(temporary)
                raise
        except OSError as error:
            raise from_os_error(error, "write", path, writing=True) from error
        _flush_entry(directory, path)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Write the object only if there is none: atomic, mutually exclusive, durable before it returns.

        Raises:
            ObjectAlreadyExistsError: there is one, and it is not ours.
            WriteNotDurableError: the object is there, and readers may have seen it, but its directory could not be
                flushed.
            StorageError: nothing was written.
        """
        path = self._writable_path(key)
        directory = os.path.dirname(path)
        try:
            if os.path.lexists(path):  # the loser of an old race need not write and flush anything
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._anchor(directory)
            temporary = stage(directory, data)
            try:
                publish_if_absent(temporary, path)
            finally:
                discard(temporary)
        except FileExistsError as error:
            if os.path.lexists(path) and not os.path.isfile(path):
                what = "a directory" if os.path.isdir(path) else "something that is not a regular file"
                raise StorageRefusedError(f"could not create {path}: there is {what} of that name") from error
            if not os.path.isdir(directory):
                raise StorageRefusedError(f"could not create {path}: its parent is a file") from error
            if path in self._unclear:  # it may be what an earlier call made before it failed
                _flush_entry(directory, path)
            raise ObjectAlreadyExistsError(f"could not create {path}: it exists already") from error
        except OSError as error:
            self._unclear.add(path)
            raise from_os_error(error, "create", path, writing=True) from error
        _flush_entry(directory, path)

    def upload(self, key: str, path: str) -> None:
        """Write a copy of a file as an object: it appears complete and durable, replacing any earlier one."""
        target = self._writable_path(key)
        directory = os.path.dirname(target)
        try:
            self._anchor(directory)
            temporary = stage(directory, b"")
            try:
                shutil.copyfile(path, temporary)
                with open(temporary, "rb+") as copied:
                    sync_file(copied.fileno())
                os.rename(temporary, target)
            except BaseException:
                discard(temporary)
                raise
        except OSError as error:
            raise from_os_error(error, "write", target, writing=True) from error
        _flush_entry(directory, target)

    def local_path(self, key: str) -> str:
        """Return the path of an object on this machine's disk."""
        return self._path(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the objects; missing ones are ignored. One failure does not stop the others."""
        failed: StorageError | None = None
        for path in [self._path(key) for key in keys]:
            try:
                os.unlink(path)
            except OSError as error:
                mapped = from_os_error(error, "delete", path)
                if failed is None and not isinstance(mapped, ObjectNotFoundError) and not os.path.isdir(path):
                    failed = mapped
                    failed.__cause__ = error
        if failed is not None:
            raise failed

    # --- directories ----------------------------------------------------------------------------------

    def directory_modified_ms(self, prefix: str) -> int:
        """When something was last put into a directory, or taken out of it. Raises `ObjectNotFoundError`."""
        path = self._base + check_prefix(prefix)
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise from_os_error(error, "look up", path) from error

    def remove_directory(self, prefix: str) -> bool:
        """Remove a directory if it is empty; whether it was."""
        try:
            os.rmdir(self._base + check_prefix(prefix).rstrip("/"))
        except OSError:  # not empty, not ours, or gone: none of it is worth an error
            return False
        return True

    # --- paths ----------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return self._base + check_key(key)

    def _writable_path(self, key: str) -> str:
        if key.rpartition("/")[2].startswith(RESERVED_PREFIX):
            raise StorageError(f"cannot write {key!r}: names that start with {RESERVED_PREFIX!r} are reserved")
        return self._path(key)

    def _anchor(self, directory: str) -> None:
        """See that a directory of the table is there for good. The root's own files are flushed with the root."""
        if len(directory) >= len(self._base):
            anchor(directory)

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        """What is in a directory, without our temporary files; nothing if it does not exist."""
        return [entry for entry in self._all_entries(directory) if not entry.name.startswith(RESERVED_PREFIX)]

    def _all_entries(self, directory: str) -> list[os.DirEntry[str]]:
        path = self._base + directory
        try:
            with os.scandir(path) as entries:
                return list(entries)
        except OSError as error:
            mapped = from_os_error(error, "list", path)
            if isinstance(mapped, ObjectNotFoundError):
                return []
            raise mapped from error


def _flush_entry(directory: str, path: str) -> None:
    """Flush the directory entry. From here on the object is visible, so a failure cannot take it back."""
    try:
        sync_directory(directory)
    except OSError as error:
        raise WriteNotDurableError(
            f"{path} is written and visible, but its directory could not be flushed, so it may not survive "
            f"a power failure: {error.strerror}"
        ) from error


def _opened(path: str) -> io.FileIO:
    """Return a file for reading, if it is one: a pipe would be waited for, and a device may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ObjectNotFoundError(f"could not read {path}: it is not a regular file")
    return io.FileIO(descriptor)


def _read_at(file: io.FileIO, start: int, length: int) -> bytes:
    """`length` bytes from `start`: one read(2) may return fewer than asked for (2 GiB at most on Linux)."""
    file.seek(start)
    parts: list[bytes] = []
    while length > 0 and (part := file.read(length)):
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of a regular file (through a link); None for anything else, or if it has just vanished."""
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return None
        raise from_os_error(error, "look up", entry.path) from error
    return status if stat.S_ISREG(status.st_mode) else None


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)
