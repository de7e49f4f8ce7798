"""Durable, exclusive steps on a local file system: what a store of files is made of.

A file is complete and flushed before it gets its final name, and the directory is flushed before success is
reported, so that neither a killed process nor a lost power supply leaves half an object behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sys
from typing import Final

RESERVED_PREFIX: Final = ".headwater-"
"""Names that start so are ours (temporary files, the lock): never listed, never written as objects."""

_TEMPORARY_NAME: Final = re.compile(r"\.headwater-[0-9a-f]{24}\.tmp")
_LOCK_NAME: Final = f"{RESERVED_PREFIX}lock"
_NO_LINK: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_DIRECTORY_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def sync_file(descriptor: int) -> None:
    """Flush a file to the disk itself; macOS needs a stronger call than fsync for that."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_directory(directory: str) -> None:
    """Flush a directory's entries, on every file system that can (some network mounts cannot)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def make_directories(directory: str) -> None:
    """Create a directory and its missing parents, each flushed into the one above it.

    Losing the race to create one is fine; its parent is flushed all the same, as the winner may not have yet.
    """
    try:
        os.mkdir(directory)
    except FileNotFoundError:
        make_directories(os.path.dirname(directory))
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
    sync_directory(os.path.dirname(directory))


_anchored: set[str] = set()
"""Directories that this process knows to be flushed into those above them."""


def anchor(directory: str) -> None:
    """See that a directory is there for good, once in a process: an entry in a directory that a power failure takes
    away is not durable, however often it was flushed.

    Its creator may not have flushed the directory (Spark does not), or may have tried and failed. So all of them
    up to the mount point are flushed, but for those that this process may not open.
    """
    if directory in _anchored and os.path.isdir(directory):
        return
    if not os.path.isdir(directory):
        _anchored.discard(directory)
        make_directories(directory)
    above, walked = directory, [directory]
    while not os.path.ismount(above) and (above := os.path.dirname(above)) not in _anchored:
        with contextlib.suppress(PermissionError):
            sync_directory(above)
        walked.append(above)
    _anchored.update(walked)


def stage(directory: str, data: bytes) -> str:
    """Write `data` to a new temporary file in `directory` and flush it; the file's path.

    Nothing is left behind when writing fails. A writer that is killed leaves its temporary file: it has a
    reserved name that is never reused, so it does no harm until a cleanup finds it old.
    """
    temporary = f"{directory}/{RESERVED_PREFIX}{os.urandom(12).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        make_directories(directory)
        descriptor = os.open(temporary, flags, 0o666)
    try:
        try:
            _write_all(descriptor, data)
            sync_file(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        discard(temporary)
        raise
    return temporary


def publish_if_absent(temporary: str, path: str) -> None:
    """Give a staged file its final name, if that name is free: exactly one of many callers succeeds.

    link(2) is atomic and never replaces. Over NFS its answer may be lost and the repeated call then finds the
    file that the first one made; so an error counts only if the final name is not our own file.

    Raises:
        FileExistsError: the name is taken.
    """
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in _NO_LINK:
            _rename_if_absent(temporary, path)
        elif not _is_same_file(temporary, path):
            raise


def _rename_if_absent(temporary: str, path: str) -> None:
    """The same where the file system has no hard links (FAT, some FUSE and network mounts).

    Creating the final name exclusively and then filling it would show readers an empty or half-written
    object, and a killed writer would leave it there for ever. So the exclusive step is a lock that the system
    gives back when its holder dies, and the object still appears complete, by rename. This excludes all
    writers that see each other's flock(2) on that mount; where flock is unsupported too, it raises instead of
    guessing.
    """
    lock = os.open(f"{os.path.dirname(path)}/{_LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        os.rename(temporary, path)
    finally:
        os.close(lock)


def is_temporary(name: str) -> bool:
    """Tell whether a file has the name that `stage` gives.

    >>> is_temporary(".headwater-0123456789abcdef01234567.tmp"), is_temporary(".headwater-lock")
    (True, False)
    """
    return _TEMPORARY_NAME.fullmatch(name) is not None


def discard(temporary: str) -> None:
    """Remove a temporary file; one that cannot be removed is never listed, so that does not matter."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False
