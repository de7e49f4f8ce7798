"""What only a local disk can do wrong: flushing, temporary files, system errors, links and permissions."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater
from headwater.errors import (
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageRefusedError,
    WriteNotDurableError,
)
from headwater.storage import LocalStore, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

WRITES = [LocalStore.put, LocalStore.put_if_absent]


def names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def open_files(directory: Path) -> list[str]:
    """What this process has open below a directory or is that: other files are the business of other threads."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed by now
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in found if target.startswith(str(directory))]


def failing(number: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


# --- durability -----------------------------------------------------------------------------------------


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """The calls that matter for durability, in order: what was flushed (by inode), linked, renamed, made."""
    recorded: list[tuple[str, object]] = []

    def record(name: str, describe: Callable[..., object]) -> None:
        real = getattr(os, name)

        def wrapper(*args: object, **kwargs: object) -> object:
            recorded.append((name, describe(*args)))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, wrapper)

    record("fsync", lambda descriptor: os.fstat(descriptor).st_ino)
    record("link", lambda source, target: (os.stat(source).st_ino, target))
    record("rename", lambda source, target: (os.stat(source).st_ino, target))
    record("mkdir", lambda path, *_: path)
    return recorded


def test_created_object_is_flushed_before_it_is_linked_and_its_directory_after(
    tmp_path: Path, events: list[tuple[str, object]]
) -> None:
    LocalStore(tmp_path).put_if_absent("x", b"data")
    file, directory = (tmp_path / "x").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("fsync", file), ("link", (file, str(tmp_path / "x"))), ("fsync", directory)]


def test_replaced_object_is_flushed_before_it_is_renamed_and_its_directory_after(
    tmp_path: Path, events: list[tuple[str, object]]
) -> None:
    LocalStore(tmp_path).put("x", b"data")
    file, directory = (tmp_path / "x").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("fsync", file), ("rename", (file, str(tmp_path / "x"))), ("fsync", directory)]


def test_new_directories_are_flushed_into_their_parents(tmp_path: Path, events: list[tuple[str, object]]) -> None:
    LocalStore(tmp_path / "t").put("a/b/x", b"data")
    made = [path for name, path in events if name == "mkdir"]
    flushed = [inode for name, inode in events if name == "fsync"]
    assert {str(tmp_path / "t"), str(tmp_path / "t/a"), str(tmp_path / "t/a/b")} <= set(made)
    for parent in (tmp_path, tmp_path / "t", tmp_path / "t/a", tmp_path / "t/a/b"):
        assert parent.stat().st_ino in flushed
    # The directories are there for good before the object gets its name in them.
    assert [name for name, _ in events][-2:] == ["rename", "fsync"]


def test_directory_that_cannot_be_flushed_is_said_to_be_visible_but_not_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail_on_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_directories)
    for write in WRITES:
        with pytest.raises(StorageError, match=r"visible, but .* may not survive") as caught:
            write(LocalStore(tmp_path), write.__name__, b"data")
        assert type(caught.value) is WriteNotDurableError
        assert LocalStore(tmp_path).get(write.__name__) == b"data"
    assert open_files(tmp_path) == []


def test_directory_whose_own_flush_failed_is_flushed_again_before_anything_is_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, object]]
) -> None:
    """The second attempt finds the directory there, and must not take that for durable."""
    table, recorded = tmp_path / "t", os.fsync
    table.mkdir()
    root = table.stat().st_ino

    def fail_on_the_root(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == root:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        recorded(descriptor)

    store = LocalStore(table)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_on_the_root)
        for _ in range(2):
            with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
                store.put_if_absent("log/x", b"data")
    events.clear()
    store.put_if_absent("log/x", b"data")
    flushed_before = [what for name, what in events[: [name for name, _ in events].index("link")]]
    assert root in flushed_before


def test_directory_that_another_program_made_is_flushed_before_the_first_write_to_it(
    tmp_path: Path, events: list[tuple[str, object]]
) -> None:
    directory = tmp_path / "t/log"
    directory.mkdir(parents=True)
    events.clear()
    store = LocalStore(tmp_path / "t")
    store.put_if_absent("log/x", b"data")
    flushed = [what for name, what in events if name == "fsync"]
    for above in (tmp_path / "t", tmp_path):
        assert above.stat().st_ino in flushed
    events.clear()
    store.put_if_absent("log/y", b"data")
    assert [name for name, _ in events] == ["fsync", "link", "fsync"]


def test_link_that_may_have_happened_is_flushed_before_it_is_said_to_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, object]]
) -> None:
    """The caller will find its own bytes there: then they must stay."""
    store, real = LocalStore(tmp_path), os.link
    directory = tmp_path.stat().st_ino

    def link_and_fail(source: str, target: str) -> None:
        real(source, target)
        os.unlink(source)  # nor can it be seen that the two are one file
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link_and_fail)
        with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
            store.put_if_absent("x", b"data")
    events.clear()
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent("x", b"data")
    assert ("fsync", directory) in events


def test_full_disk_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    for write in WRITES:
        with pytest.raises(StorageRefusedError, match="free some space"):
            write(LocalStore(tmp_path), "x", b"data")


def test_file_system_without_directory_flushes_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def refuse_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_directories)
    LocalStore(tmp_path).put_if_absent("a/x", b"data")
    assert LocalStore(tmp_path).get("a/x") == b"data"


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "call", "number"),
    [
        *[(write, "open", errno.EMFILE) for write in WRITES],
        *[(write, "write", errno.ENOSPC) for write in WRITES],
        *[(write, "write", errno.EDQUOT) for write in WRITES],
        *[(write, "fsync", errno.EIO) for write in WRITES],
        *[(write, "close", errno.EIO) for write in WRITES],
        (LocalStore.put_if_absent, "link", errno.ENOSPC),
        (LocalStore.put, "rename", errno.ENOSPC),
    ],
)
def test_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], call: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        if call == "close":
            real = os.close
            patch.setattr(os, "close", lambda descriptor: (real(descriptor), failing(number)())[0])
        else:
            patch.setattr(os, call, failing(number))
        with pytest.raises(StorageError, match=os.strerror(number)) as caught:
            write(LocalStore(tmp_path), "x", b"data")
    assert not isinstance(caught.value, ObjectAlreadyExistsError | ObjectNotFoundError)
    assert str(tmp_path / "x") in str(caught.value)
    assert names_in(tmp_path) == []
    assert open_files(tmp_path) == []


def test_disk_that_fills_up_in_the_middle_keeps_the_earlier_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("x", b"earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        for write, key in ((store.put, "x"), (store.put_if_absent, "y")):
            with pytest.raises(StorageError, match="too large"):
                write(key, b"z" * 4_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.get("x") == b"earlier"
    assert names_in(tmp_path) == ["x"]


def test_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    for write in WRITES:
        with pytest.raises(KeyboardInterrupt):
            write(LocalStore(tmp_path), "x", b"data")
    assert names_in(tmp_path) == []
    assert open_files(tmp_path) == []


def test_conflict_and_missing_object_leak_no_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("x", b"")
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent("x", b"")
    for read in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(ObjectNotFoundError):
            read("y")
    assert open_files(tmp_path) == []
    assert names_in(tmp_path) == ["x"]


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data[:7])))
    data = bytes(range(200))
    LocalStore(tmp_path).put("x", data)
    assert (tmp_path / "x").read_bytes() == data


def test_refused_access_is_a_permission_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.put("d/x", b"")
    for call in ("stat", "scandir", "unlink"):
        monkeypatch.setattr(os, call, failing(errno.EACCES))
    for act in (lambda: store.head("d/x"), lambda: store.list_from("d/"), lambda: store.delete_many(["d/x"])):
        with pytest.raises(StoragePermissionError, match="Permission denied"):
            act()


def test_one_failed_deletion_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    for key in ("a", "b", "c"):
        store.put(key, b"")
    real = os.unlink

    def refuse_b(path: str) -> None:
        failing(errno.EPERM)() if path.endswith("/b") else real(path)

    monkeypatch.setattr(os, "unlink", refuse_b)
    with pytest.raises(StoragePermissionError, match="/b"):
        store.delete_many(["a", "b", "c"])
    assert names_in(tmp_path) == ["b"]


@pytest.mark.parametrize("write", WRITES)
def test_file_in_place_of_a_directory_is_an_error_and_no_conflict(tmp_path: Path, write: Callable[..., None]) -> None:
    store = LocalStore(tmp_path)
    store.put("file", b"")
    store.put("directory/x", b"")
    for key in ("file/below", "file/far/below", "directory"):
        with pytest.raises(StorageError, match=key) as caught:
            write(store, key, b"")
        assert type(caught.value) is StorageRefusedError
    assert names_in(tmp_path) == ["directory", "file"]
    assert names_in(tmp_path / "directory") == ["x"]


# --- exclusive creation ---------------------------------------------------------------------------------


def test_link_whose_answer_was_lost_is_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Over NFS a repeated call finds the name that the first call made.
    real = os.link

    def link_twice(source: str, target: str) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    LocalStore(tmp_path).put_if_absent("x", b"data")
    assert (tmp_path / "x").read_bytes() == b"data"
    assert names_in(tmp_path) == ["x"]


def test_link_that_loses_the_race_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def lose(source: str, target: str) -> None:
        Path(target).write_bytes(b"theirs")
        real(source, target)

    monkeypatch.setattr(os, "link", lose)
    with pytest.raises(ObjectAlreadyExistsError):
        LocalStore(tmp_path).put_if_absent("x", b"ours")
    assert (tmp_path / "x").read_bytes() == b"theirs"
    assert names_in(tmp_path) == ["x"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_file_system_without_links_still_has_one_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    # As if everybody looked before anybody wrote: the check under the lock has to decide.
    real, looked = os.path.lexists, threading.local()

    def lexists(path: str) -> bool:
        first_time = not hasattr(looked, "already")
        looked.already = True
        return not first_time and real(path)

    monkeypatch.setattr(os.path, "lexists", lexists)

    def write(name: bytes) -> bool:
        start.wait()  # so that each has a thread of its own
        try:
            LocalStore(tmp_path).put_if_absent("d/x", name)
        except ObjectAlreadyExistsError:
            return False
        return True

    names = [b"writer %d" % number for number in range(8)]
    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        won = [name for name, success in zip(names, pool.map(write, names), strict=True) if success]

    store = LocalStore(tmp_path)
    assert [store.get("d/x")] == won
    assert [meta.key for meta in store.list_from("d/")] == ["d/x"]
    assert not [name for name in names_in(tmp_path / "d") if name.endswith(".tmp")]


def test_file_system_without_links_and_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    monkeypatch.setattr("fcntl.flock", failing(errno.ENOLCK))
    store = LocalStore(tmp_path)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOLCK)):
        store.put_if_absent("x", b"data")
    assert store.list_from("") == []


# --- listings -------------------------------------------------------------------------------------------


def test_temporary_files_of_killed_writers_are_in_nobodys_way(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("d/x", b"data")
    (tmp_path / "d/.headwater-0123456789abcdef.tmp").write_bytes(b"half an obj")
    assert [meta.key for meta in store.list_from("", recursive=True)] == ["d/x"]
    store.put_if_absent("d/y", b"data")
    assert [meta.key for meta in store.list_from("d/")] == ["d/x", "d/y"]


def test_reserved_names_cannot_be_written(tmp_path: Path) -> None:
    for write in WRITES:
        with pytest.raises(StorageError, match="reserved"):
            write(LocalStore(tmp_path), "d/.headwater-x.tmp", b"")


def test_listing_follows_links_to_files_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    store.put("d/x", b"12345")
    (tmp_path / "t/file").symlink_to(tmp_path / "t/d/x")
    (tmp_path / "t/cycle").symlink_to(tmp_path / "t")
    (tmp_path / "t/broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "t/itself").symlink_to(tmp_path / "t/itself")
    os.mkfifo(tmp_path / "t/fifo")
    listed = store.list_from("", recursive=True)
    assert [(meta.key, meta.size_bytes) for meta in listed] == [("d/x", 5), ("file", 5)]


def test_file_that_vanishes_during_a_listing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"")
    store.put("b", b"")
    real = LocalStore._entries

    def delete_afterwards(self: LocalStore, directory: str) -> list[os.DirEntry[str]]:
        entries = real(self, directory)
        (tmp_path / "a").unlink()
        return entries

    monkeypatch.setattr(LocalStore, "_entries", delete_afterwards)
    assert [meta.key for meta in store.list_from("")] == ["b"]


def test_name_that_is_not_utf8_can_be_listed_and_read(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).write_bytes(b"data")
    store = open_store(tmp_path)
    (meta,) = store.list_from("")
    assert store.get(meta.key) == b"data"


def test_modification_time_is_the_files_in_milliseconds(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("x", b"")
    os.utime(tmp_path / "x", ns=(0, 1_700_000_000_123_999_999))
    assert store.head("x").modified_ms == 1_700_000_000_123


# --- opening --------------------------------------------------------------------------------------------


def test_root_of_the_file_system_is_a_store(tmp_path: Path) -> None:
    LocalStore(tmp_path).put("x", b"data")
    root = open_store("/")
    assert root.uri == "file:///"
    assert root.get(f"{tmp_path}/x".lstrip("/")) == b"data"


def test_new_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalStore(tmp_path).put("x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_opening_a_local_table_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from headwater.storage import open_store; open_store(sys.argv[1]).list_from('');"
        "heavy = ('obstore', 'pyarrow', 'pyspark', 'concurrent.futures');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(next(iter(headwater.__path__))).parent)},
    )
    assert done.stdout.strip() == "[]"
