"""The cache of splits: unpacked once, checked, bounded, shared by processes, and trusted no more than the digests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from headwater.errors import CorruptSplitError, HeadwaterError, ObjectNotFoundError, StorageError
from headwater.log.schema import LONG, STRING
from headwater.search.split import cache as split_cache
from headwater.search.split.build import BuiltSplit
from headwater.search.split.cache import SplitCache, default_cache
from headwater.search.split.reader import Split, open_split
from headwater.storage import LocalStore, open_store
from support.search.built_splits import build, opened, rows_with, schema_of

SCHEMA = schema_of(id=LONG, message=STRING)
ROWS = [{"id": n, "message": f"message {n}"} for n in range(1000)]


@pytest.fixture
def built(tmp_path: Path) -> BuiltSplit:
    return build(tmp_path, SCHEMA, ROWS, types={"message": "text"})


def at(built: BuiltSplit, cache: SplitCache) -> Split:
    directory, key = os.path.split(built.path)
    return Split.open(LocalStore(directory), key, cache=cache)


def names(cache: SplitCache) -> list[str]:
    return sorted(name.rpartition(".")[2] for name in os.listdir(cache.directory) if not name.startswith("."))


def test_an_index_is_unpacked_once_for_all_who_open_it(built: BuiltSplit, tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"))
    assert rows_with(at(built, cache), "id", 7) == [7]
    (entry,) = Path(cache.directory).glob("*.index")
    before = entry.stat().st_ino

    assert rows_with(at(built, cache), "id", 8) == [8]

    assert entry.stat().st_ino == before
    assert names(cache) == ["index"]


def test_reading_rows_unpacks_no_index_and_copies_nothing_from_a_local_disk(built: BuiltSplit, tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"))

    assert at(built, cache).rows().num_rows == 1000

    assert names(cache) == ["checked"]


def test_a_split_in_an_object_store_is_fetched_once(built: BuiltSplit, tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"))
    store = open_store(f"memory://splits-{os.path.basename(built.path)}")
    store.put("t/a.split", Path(built.path).read_bytes())
    footer = built.footer.footer_start
    split = Split.open(store, "t/a.split", size_bytes=built.size_bytes, footer_start=footer, cache=cache)
    assert split.rows().to_pylist() == ROWS
    assert rows_with(split, "id", 3) == [3]

    again = Split.open(store, "t/a.split", size_bytes=built.size_bytes, footer_start=footer, cache=cache)
    store.delete_many(["t/a.split"])

    assert again.rows().to_pylist() == ROWS
    assert rows_with(again, "message", "999") == [999]
    assert names(cache) == ["index", "rows"]


def test_a_split_that_is_not_there_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        Split.open(LocalStore(tmp_path), "nope.split")


@pytest.mark.parametrize("remote", [False, True])
def test_damage_is_noticed_before_anything_is_answered(built: BuiltSplit, tmp_path: Path, remote: bool) -> None:
    data = bytearray(Path(built.path).read_bytes())
    store = open_store(f"memory://damaged-{os.path.basename(built.path)}") if remote else LocalStore(tmp_path)
    for number, part in enumerate(built.footer.parts.values()):
        if part.size_bytes:
            data[part.start + part.size_bytes // 2] ^= 1
            key = f"{number}.split"
            store.put(key, bytes(data))
            data[part.start + part.size_bytes // 2] ^= 1
            split = Split.open(store, key, cache=SplitCache(str(tmp_path / "cache")))
            with pytest.raises(CorruptSplitError, match=rf"{number}\.split.*{part.name}") as raised:
                _ = split.rows() if part.name == "rows.arrow" else split.searcher
            assert raised.value.path.endswith(key)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_changes_after_it_was_checked_is_checked_again(built: BuiltSplit, tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"))
    assert at(built, cache).rows().num_rows == 1000
    data = bytearray(Path(built.path).read_bytes())
    data[built.footer.parts["rows.arrow"].size_bytes // 2] ^= 1
    Path(built.path).write_bytes(data)

    with pytest.raises(CorruptSplitError, match=r"rows\.arrow"):
        at(built, cache).rows()


def test_cut_off_splits_are_noticed(built: BuiltSplit, tmp_path: Path) -> None:
    data = Path(built.path).read_bytes()
    for length in (0, 1, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.split").write_bytes(data[:length])
        with pytest.raises(CorruptSplitError, match=r"cut\.split"):
            Split.open(LocalStore(tmp_path), "cut.split")
        with pytest.raises(HeadwaterError, match=r"cut\.split"):
            Split.open(LocalStore(tmp_path), "cut.split", size_bytes=len(data), footer_start=built.footer.footer_start)


def test_what_was_not_used_for_longest_leaves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_cache, "_SPARED_S", -1.0)
    cache = SplitCache(str(tmp_path / "cache"), max_bytes=1 << 40)
    splits = [at(build(tmp_path, SCHEMA, ROWS), cache) for _ in range(3)]
    for age, split in enumerate(splits):
        _ = split.searcher
        (entry,) = Path(cache.directory).glob(f"{split.footer.digest}.index")
        os.utime(entry, (1_000_000 + age, 1_000_000 + age))
    size = sum(file.stat().st_size for file in entry.iterdir())
    os.utime(next(Path(cache.directory).glob(f"{splits[0].footer.digest}.index")))  # used again

    small = SplitCache(cache.directory, max_bytes=size * 3 + size // 2)
    newest = at(build(tmp_path, SCHEMA, ROWS), small)
    _ = newest.searcher

    left = {name.partition(".")[0] for name in os.listdir(cache.directory) if name.endswith(".index")}
    assert left == {split.footer.digest for split in (splits[0], splits[2], newest)}
    assert rows_with(splits[1], "id", 5) == [5]  # it is open: its files live on


def test_what_another_process_is_making_stays_for_a_day(tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"), max_bytes=0)
    for name, age_s in ((".making-slow", 3_600), (".making-lost", 100_000)):
        entry = Path(cache.directory) / name
        entry.mkdir()
        (entry / "x.idx").write_bytes(b"x")
        os.utime(entry, (time.time() - age_s,) * 2)

    _ = at(build(tmp_path, SCHEMA, ROWS[:1]), cache).searcher

    assert [path.name for path in Path(cache.directory).glob(".making-*")] == [".making-slow"]


def test_an_entry_that_has_left_is_made_again(built: BuiltSplit, tmp_path: Path) -> None:
    cache = SplitCache(str(tmp_path / "cache"))
    assert rows_with(at(built, cache), "id", 5) == [5]
    (entry,) = Path(cache.directory).glob("*.index")
    for file in entry.iterdir():
        file.unlink()
    entry.rmdir()

    assert rows_with(at(built, cache), "id", 6) == [6]


def test_processes_that_open_a_split_at_once_agree(built: BuiltSplit, tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, sys
        from headwater.search.split.reader import Split
        from headwater.search.split.cache import SplitCache
        from headwater.storage import LocalStore
        directory, key = os.path.split(sys.argv[1])
        split = Split.open(LocalStore(directory), key, cache=SplitCache(sys.argv[2]))
        print(split.searcher.num_docs, split.rows().num_rows)
        """
    )
    command = [sys.executable, "-c", program, built.path, str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]

    assert [process.communicate()[0] for process in processes] == ["1000 1000\n"] * 4
    assert names(SplitCache(str(tmp_path / "cache"))) == ["checked", "index"]
    assert not list((tmp_path / "cache").glob(".making-*"))


def test_an_open_split_is_opened_once_in_a_process(built: BuiltSplit) -> None:
    directory, key = os.path.split(built.path)

    one = open_split(LocalStore(directory), key, size_bytes=built.size_bytes)

    assert open_split(LocalStore(directory), key, size_bytes=built.size_bytes) is one


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_SPLIT_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("HEADWATER_SPLIT_CACHE_BYTES", "1000")
    default_cache.cache_clear()
    try:
        cache = default_cache()
        assert (cache.directory, cache.max_bytes) == (str(tmp_path / "here"), 1000)
        assert (tmp_path / "here").stat().st_mode & 0o077 == 0
        default_cache.cache_clear()
        monkeypatch.setenv("HEADWATER_SPLIT_CACHE_BYTES", "lots")
        with pytest.raises(StorageError, match="HEADWATER_SPLIT_CACHE_BYTES"):
            default_cache()
    finally:
        default_cache.cache_clear()


def test_an_index_with_foreign_rows_is_damaged(built: BuiltSplit) -> None:
    with pytest.raises(CorruptSplitError, match="rows that the split does not"):
        opened(built).row_numbers_of([5])
