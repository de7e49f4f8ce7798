"""The machine's cache of splits: indexes unpacked and rows fetched, once for all processes, up to a size.

Entries are named after the digest of the split's content, appear complete by a rename, and are checked while they are
made. What was not used for longest leaves first. A process that has an entry open keeps it, as its files are mapped;
one that looks for an entry that has just left makes it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from headwater.errors import CorruptSplitError, StorageError
from headwater.search.split.build import ROWS_PART
from headwater.search.split.bundle import BundleFooter, Part, check_digest, link_files, part_blocks, write_managed
from headwater.search.types import open_index
from headwater.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import tantivy

    from headwater.storage.base import ObjectStore

    _Maker = Callable[["SplitSource", str], None]

_T = TypeVar("_T")

DIRECTORY_VARIABLE: Final = "HEADWATER_SPLIT_CACHE_DIR"
SIZE_VARIABLE: Final = "HEADWATER_SPLIT_CACHE_BYTES"
DEFAULT_MAX_BYTES: Final = 10 << 30
_SPARED_S: Final = 60.0
"""What was used so recently may be about to be opened by another process, and stays."""
_MAKING: Final = ".making-"
_ABANDONED_S: Final = 86_400.0
"""An entry that has been in the making for so long has lost its maker."""
_LACKING = re.compile("Too many open files|Cannot allocate memory|No space left on device")
"""What this machine lacks, and not the split."""
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class SplitSource:
    """A split in a store, with its footer read."""

    store: ObjectStore
    key: str
    footer: BundleFooter
    path: str

    def read(self, start: int, length: int) -> bytes:
        return self.store.get_range(self.key, start, length)

    def part(self, name: str) -> Part:
        """Return a part that every split has."""
        try:
            return self.footer.parts[name]
        except KeyError:
            raise CorruptSplitError(f"the split {self.path} has no part {name!r}", self.path) from None


class SplitCache:
    """A cache of splits in a directory for this user only, which many processes may share.

    Entries in use may exceed `max_bytes`.
    """

    def __init__(self, directory: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        _own_directory(directory)

    def open_index(self, source: SplitSource) -> tuple[tantivy.Index, tantivy.Searcher]:
        """Return the index of a split and a searcher on it."""

        def use(directory: str) -> tuple[tantivy.Index, tantivy.Searcher] | None:
            try:
                index = open_index(directory)
                return index, index.searcher()
            except Exception as error:  # tantivy raises ValueError for all; only a vanished entry is worth another try
                if _LACKING.search(str(error)):
                    raise StorageError(f"the index of the split {source.path} could not be opened: {error}") from error
                if os.path.exists(os.path.join(directory, "meta.json")):
                    raise CorruptSplitError(
                        f"the index of the split {source.path} is damaged: {error}", source.path
                    ) from error
                return None

        return self._used(source, "index", self._unpack_index, use)

    def link_index(self, source: SplitSource, target: str) -> None:
        """Link the files of a split's index into a directory of the caller's.

        Raises:
            CorruptSplitError: the index is damaged.
        """

        def use(directory: str) -> bool | None:
            try:
                link_files(directory, target)
                return True
            except FileNotFoundError:
                shutil.rmtree(target, ignore_errors=True)
                return None

        self._used(source, "index", self._unpack_index, use)

    def rows_buffer(self, source: SplitSource) -> pa.Buffer:
        """Return the rows part of a split as a memory map: of the bundle itself where it is on a local disk."""
        part = source.part(ROWS_PART)
        if isinstance(source.store, LocalStore):
            path = source.store.local_path(source.key)
            whole = _mapped(path, source.path)
            if whole.size < part.end:
                raise CorruptSplitError(f"the split {source.path} is cut off: it has {whole.size} bytes", source.path)
            buffer = whole.slice(part.start, part.size_bytes)
            # The entry says that this very file was checked: one that was replaced or written to is checked again.
            status = _status(path, source.path)
            state = f"{status.st_ino:x}-{status.st_mtime_ns:x}.checked"
            self._entry(source, state, functools.partial(_check_rows, buffer))
            return buffer

        def use(directory: str) -> pa.Buffer | None:
            with contextlib.suppress(StorageError):
                return _mapped(os.path.join(directory, ROWS_PART), source.path)
            return None

        return self._used(source, "rows", _fetch_rows, use)

    # --- entries ------------------------------------------------------------------------------------------

    def _used(self, source: SplitSource, kind: str, make: _Maker, use: Callable[[str], _T | None]) -> _T:
        """Use the directory of an entry; if `use` gives None, the entry has left meanwhile and is made again."""
        for _ in range(_ATTEMPTS):
            found = use(self._entry(source, kind, make))
            if found is not None:
                return found
        raise StorageError(f"the cache of splits {self.directory} loses entries while they are opened: make it larger")

    def _entry(self, source: SplitSource, kind: str, make: _Maker) -> str:
        """Return the directory of an entry; `make` fills a new one if there is none."""
        entry = os.path.join(self.directory, f"{source.footer.digest}.{kind}")
        try:
            os.utime(entry)
            return entry
        except OSError:
            pass
        work = ""
        try:
            work = tempfile.mkdtemp(prefix=_MAKING, dir=self.directory)
            make(source, work)
            try:
                os.rename(work, entry)
            except OSError:
                if not os.path.isdir(entry):  # another process was faster: its entry has the same content
                    raise
        except OSError as error:
            raise StorageError(
                f"could not keep the split {source.path} in {self.directory}: {error.strerror}"
            ) from error
        finally:
            if work:
                shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):  # a cache that is too large is no reason to fail
            self._shrink(spared=entry)
        return entry

    @staticmethod
    def _unpack_index(source: SplitSource, work: str) -> None:
        for part in source.footer.parts.values():
            if part.name != ROWS_PART:
                _write_part(source, part, work)
        write_managed(work)

    def _shrink(self, spared: str) -> None:
        """Remove the entries that were not used for longest, until the others fit."""
        with self._lock():
            now = time.time()
            entries = sorted(self._entries())
            total = sum(size for _, size, _ in entries)
            for used_s, size, path in entries:
                if total <= self.max_bytes:
                    return
                spare_s = _ABANDONED_S if os.path.basename(path).startswith(_MAKING) else _SPARED_S
                if path != spared and now - used_s > spare_s:
                    shutil.rmtree(path, ignore_errors=True)
                    total -= size

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """Yield when each entry was last used, its size and its path."""
        with os.scandir(self.directory) as found:
            for entry in found:
                with contextlib.suppress(OSError):  # it may be leaving
                    if entry.is_dir(follow_symlinks=False):
                        sizes = [file.stat().st_size for file in os.scandir(entry.path)]
                        yield entry.stat().st_mtime, sum(sizes), entry.path

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        descriptor = os.open(os.path.join(self.directory, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


@functools.cache
def default_cache() -> SplitCache:
    """Return the cache of this user on this machine.

    Its directory is HEADWATER_SPLIT_CACHE_DIR, or one in the directory of temporary files; its size is
    HEADWATER_SPLIT_CACHE_BYTES, or 10 GiB.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    size = os.environ.get(SIZE_VARIABLE, str(DEFAULT_MAX_BYTES))
    if not size.isdecimal():
        raise StorageError(f"the environment variable {SIZE_VARIABLE} must be a number of bytes, not {size!r}")
    return SplitCache(directory or os.path.join(tempfile.gettempdir(), f"headwater-splits-{os.getuid()}"), int(size))


def _own_directory(directory: str) -> None:
    """Make a directory that only this user can write to, because its content is trusted."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory, follow_symlinks=False)
    except OSError as error:
        raise StorageError(f"could not make the cache of splits {directory}: {error.strerror}") from error
    if status.st_uid != os.getuid():
        raise StorageError(f"the cache of splits {directory} belongs to another user: set {DIRECTORY_VARIABLE}")


def _check_rows(buffer: pa.Buffer, source: SplitSource, _work: str) -> None:
    check_digest(hashlib.sha256(buffer).hexdigest(), source.part(ROWS_PART), source.path)


def _fetch_rows(source: SplitSource, work: str) -> None:
    _write_part(source, source.part(ROWS_PART), work)


def _write_part(source: SplitSource, part: Part, work: str) -> None:
    with open(os.path.join(work, part.name), "xb") as file:
        for block in part_blocks(source.read, part, source.path):
            file.write(block)


def _status(path: str, split: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise StorageError(f"could not look up the split {split}: {error}") from error


def _mapped(path: str, split: str) -> pa.Buffer:
    try:
        with pa.memory_map(path) as file:
            return file.read_buffer()
    except OSError as error:
        raise StorageError(f"could not read the split {split}: {error}") from error
