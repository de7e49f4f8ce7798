"""Listing a whole table: all stores give the same tree, and directories that are not entered stay unknown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import StorageError
from headwater.log.files.listing import list_tree
from headwater.storage import ObjectStore, open_store
from support.stores.faults import Fault, FaultyStore, RaiseBefore, script

KEYS = ["a", "d/b c", "d/e/ä", "d/e/f/x", "_log/y", "d/_z/w"]


@pytest.fixture(params=["disk", "memory", "listing only"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    opened = open_store(tmp_path) if request.param == "disk" else open_store(f"memory://tree/{tmp_path.name}")
    for key in KEYS:
        opened.put(key, b"1234")
    return FaultyStore(opened) if request.param == "listing only" else opened


def visible(prefix: str) -> bool:
    return not prefix.rstrip("/").rpartition("/")[2].startswith("_")


def test_the_tree_has_every_object_of_every_directory_that_is_entered(store: ObjectStore) -> None:
    seen: list[int] = []

    tree = list_tree(store, visible, seen.append)

    found = {
        key.decode(): size for key, size in zip(*(tree.objects.column(i).to_pylist() for i in (0, 1)), strict=True)
    }
    assert found == dict.fromkeys(["a", "d/b c", "d/e/ä", "d/e/f/x"], 4)
    assert tree.directories == ("", "d/", "d/e/", "d/e/f/")
    assert tree.closed == ("_log/", "d/_z/")
    assert sum(seen) == 4
    assert min(tree.objects.column("modified_ms").to_pylist()) > 1_600_000_000_000


def test_an_empty_place_has_an_empty_tree(tmp_path: Path) -> None:
    tree = list_tree(open_store(tmp_path / "nothing"), visible)
    assert (tree.objects.num_rows, tree.directories) == (0, ("",))


def test_names_that_are_no_text_are_kept_as_they_are(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.parquet")).write_text("")
    assert list_tree(open_store(tmp_path), visible).objects.column("key").to_pylist() == [b"\xff.parquet"]


def test_a_directory_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    store = FaultyStore(open_store(tmp_path), script(Fault(RaiseBefore(StorageError("no")), "list_from")))
    with pytest.raises(StorageError):
        list_tree(store, visible)
