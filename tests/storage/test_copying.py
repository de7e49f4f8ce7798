"""Copies between stores: complete, of the right size, or an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import ObjectNotFoundError, StorageError
from headwater.storage import LocalStore, ObjectStore, open_store
from headwater.storage.copying import copy_object
from support.stores.faults import FaultyStore


def stores(tmp_path: Path) -> dict[str, ObjectStore]:
    name = tmp_path.name
    return {
        "disk": open_store(tmp_path / "one"),
        "other disk": open_store(tmp_path / "two"),
        "memory": open_store(f"memory://copies-a/{name}"),
        "same memory": open_store(f"memory://copies-a/{name}-2"),
        "other memory": open_store(f"memory://copies-b/{name}"),
    }


@pytest.mark.parametrize("source", ["disk", "memory"])
@pytest.mark.parametrize("target", ["other disk", "same memory", "other memory"])
def test_an_object_is_copied_whatever_the_two_stores_are(source: str, target: str, tmp_path: Path) -> None:
    found = stores(tmp_path)
    found[source].put("a b", b"x" * 1_000)
    found[target].put("d/c", b"an older object")

    copied = copy_object(found[source], "a b", found[target], "d/c", 1_000)

    assert (copied.key, copied.size_bytes) == ("d/c", 1_000)
    assert found[target].get("d/c") == b"x" * 1_000


def test_a_copy_of_another_size_is_an_error(tmp_path: Path) -> None:
    found = stores(tmp_path)
    found["disk"].put("a", b"12")
    with pytest.raises(StorageError, match="has 2 bytes, and the log says 3"):
        copy_object(found["disk"], "a", found["memory"], "a", 3)


@pytest.mark.parametrize("source", ["disk", "memory"])
def test_a_missing_object_is_not_found(source: str, tmp_path: Path) -> None:
    found = stores(tmp_path)
    with pytest.raises(ObjectNotFoundError):
        copy_object(found[source], "nothing", found["other disk"], "a")
    assert not (tmp_path / "two").exists() or os.listdir(tmp_path / "two") == []


def test_a_store_that_cannot_copy_says_so(tmp_path: Path) -> None:
    found = stores(tmp_path)
    found["memory"].put("a", b"1")
    with pytest.raises(StorageError, match="cannot copy"):
        copy_object(found["memory"], "a", FaultyStore(found["memory"]), "b")


def test_a_directory_is_removed_only_when_it_is_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("d/a", b"1")
    assert not store.remove_directory("d/")
    store.delete_many(["d/a"])
    assert store.directory_modified_ms("d/") > 1_600_000_000_000
    assert store.remove_directory("d/")
    assert not store.remove_directory("d/")
    with pytest.raises(ObjectNotFoundError):
        store.directory_modified_ms("d/")
