"""What every store promises, checked on a local disk, in memory, on S3 and on Azure alike."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError, StorageError
from headwater.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.stores.storage_servers import Endpoint

# From the traps of real tables: what Spark, Hive and people put into paths.
SPECIAL_KEYS = [
    "a b.parquet",
    "a%20b.parquet",
    "a%2520b.parquet",
    "100%.parquet",
    "a+b&c=d.parquet",
    "ts=2024-01-01 00%3A00%3A00/part.parquet",
    "x=🙂/é ü.parquet",
    "q?x#y.parquet",
    "a:b;c,d@e!f$g'h(i)*j~k[l].parquet",
    ".hidden",
    "_delta_log/_last_checkpoint",
]
BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/../b", "a/.", "a\0b", "a/\ud800"]


def keys(store: ObjectStore, prefix: str = "", start_after: str = "", *, recursive: bool = False) -> list[str]:
    return [meta.key for meta in store.list_from(prefix, start_after, recursive=recursive)]


def test_store_has_the_interface(store: ObjectStore) -> None:
    assert isinstance(store, ObjectStore)


@pytest.mark.parametrize("data", [b"", b"{}\n", bytes(range(256)) * 30_000], ids=["empty", "small", "7 MB"])
def test_put_then_get_gives_the_same_bytes(store: ObjectStore, data: bytes) -> None:
    store.put("d/x", data)
    assert store.get("d/x") == data
    assert store.head("d/x").size_bytes == len(data)


def test_put_replaces_the_earlier_object(store: ObjectStore) -> None:
    store.put("x", b"the first one, which is longer")
    store.put("x", b"second")
    assert store.get("x") == b"second"


def test_missing_object_is_reported_by_name(store: ObjectStore) -> None:
    store.put("_delta_log/0.json", b"")
    for missing in ("nothing.json", "_delta_log/1.json", "_delta_log", "_delta_log/0.json/below"):
        for read in (
            store.get,
            store.head,
            lambda key: store.get_range(key, 0, 1),
            lambda k: store.get_many([k]),
        ):
            with pytest.raises(ObjectNotFoundError, match=missing):
                read(missing)


def test_get_many_keeps_the_order_of_keys(store: ObjectStore) -> None:
    names = [f"k{number:02}" for number in range(40)]
    for name in names:
        store.put(name, name.encode())
    asked = [*names[::-1], "k07", "k07"]
    assert store.get_many(asked) == [name.encode() for name in asked]
    assert store.get_many([]) == []


def test_get_many_raises_when_one_is_missing(store: ObjectStore) -> None:
    store.put("a", b"1")
    with pytest.raises(ObjectNotFoundError, match="gone"):
        store.get_many(["a", "gone", "a"])


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 10, b"0123456789"),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, 5, b""),
        (99, 5, b""),
        (4, 0, b""),
        (0, 1 << 40, b"0123456789"),
    ],
)
def test_range_is_short_only_at_the_end(store: ObjectStore, start: int, length: int, expected: bytes) -> None:
    store.put("x", b"0123456789")
    assert store.get_range("x", start, length) == expected


def test_range_of_an_empty_object_is_empty(store: ObjectStore) -> None:
    store.put("x", b"")
    assert store.get_range("x", 0, 5) == b""


def test_range_of_nothing_of_a_missing_object_is_an_error(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.get_range("x", 0, 0)


def test_negative_range_is_refused(store: ObjectStore) -> None:
    store.put("x", b"0123")
    for start, length in ((-1, 2), (0, -2)):
        with pytest.raises(StorageError, match="'x'"):
            store.get_range("x", start, length)


def test_listing_and_head_agree(store: ObjectStore) -> None:
    store.put("d/x", b"12345")
    (listed,) = store.list_from("d/")
    assert listed == store.head("d/x")
    assert (listed.key, listed.size_bytes) == ("d/x", 5)
    # An hour of slack for clocks; a mistake in the unit is off by a factor of 1000.
    assert abs(listed.modified_ms - time.time() * 1000) < 3_600_000


def test_listing_is_one_directory_unless_recursive(store: ObjectStore) -> None:
    for key in ("top", "d/1", "d/2", "d/e/3", "d/e/f/4", "dd/5", "d-/6"):
        store.put(key, b"")
    assert keys(store) == ["top"]
    assert keys(store, "d/") == ["d/1", "d/2"]
    assert keys(store, "d/", recursive=True) == ["d/1", "d/2", "d/e/3", "d/e/f/4"]
    assert keys(store, recursive=True) == ["d-/6", "d/1", "d/2", "d/e/3", "d/e/f/4", "dd/5", "top"]
    assert keys(store, "d/", "d/1") == ["d/2"]
    assert keys(store, "d/", "d/e/3", recursive=True) == ["d/e/f/4"]
    assert keys(store, "d/", "a") == ["d/1", "d/2"]
    assert keys(store, "d/", "z") == []
    assert keys(store, "", "e") == ["top"]


def test_listing_starts_after_a_key_that_need_not_exist(store: ObjectStore) -> None:
    names = [f"_delta_log/{version:020}.json" for version in (0, 1, 2, 10, 11)]
    for name in reversed(names):
        store.put(name, b"")
    store.put("_delta_log/_last_checkpoint", b"")
    store.put("_delta_log/_sidecars/1.parquet", b"")
    assert keys(store, "_delta_log/", names[1]) == [*names[2:], "_delta_log/_last_checkpoint"]
    assert keys(store, "_delta_log/", f"_delta_log/{5:020}") == [*names[3:], "_delta_log/_last_checkpoint"]
    assert keys(store, "_delta_log/", "_delta_log/~") == []


def test_directory_that_does_not_exist_is_empty(store: ObjectStore) -> None:
    assert store.list_from("") == []
    assert store.list_from("nowhere/", recursive=True) == []
    assert store.list_from("nowhere/", "nowhere/1") == []


def test_prefix_has_to_be_a_directory(store: ObjectStore) -> None:
    for prefix in ("_delta", "/", "../", "a//"):
        with pytest.raises(StorageError):
            store.list_from(prefix)


def test_put_if_absent_keeps_the_first_object(store: ObjectStore) -> None:
    store.put_if_absent("_delta_log/0.json", b"first")
    with pytest.raises(ObjectAlreadyExistsError, match=r"0\.json"):
        store.put_if_absent("_delta_log/0.json", b"second")
    assert store.get("_delta_log/0.json") == b"first"


def test_put_if_absent_works_again_after_delete(store: ObjectStore) -> None:
    store.put_if_absent("x", b"first")
    store.delete_many(["x"])
    store.put_if_absent("x", b"second")
    assert store.get("x") == b"second"


def test_delete_many_ignores_what_is_not_there(store: ObjectStore) -> None:
    for key in ("a", "d/b", "d/c"):
        store.put(key, b"")
    store.delete_many(["nothing", "a", "d/nothing", "d/b", "a/below", "d"])
    store.delete_many(["nothing"])
    store.delete_many(iter([]))
    assert keys(store, recursive=True) == ["d/c"]


def test_delete_many_goes_beyond_one_batch_of_the_store(store: ObjectStore) -> None:
    # Azure takes 256 deletions in a request and stops at the first missing object.
    names = [f"d/{number:03}" for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    store.delete_many(["d/absent", *names[:-1]])
    assert keys(store, "d/") == names[-1:]


@pytest.mark.parametrize("key", SPECIAL_KEYS)
def test_special_characters_are_kept(store: ObjectStore, place: Endpoint, key: str) -> None:
    store.put_if_absent(key, key.encode())
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent(key, b"")
    assert keys(store, recursive=True) == [key]
    assert open_store(place.root, place.options).get_many([key]) == [key.encode()]
    assert store.head(key).key == key
    directory = key.rpartition("/")[0]
    assert keys(store, f"{directory}/" if directory else "", key[:-1]) == [key]
    store.delete_many([key])
    assert keys(store, recursive=True) == []


@pytest.mark.parametrize("key", BAD_KEYS)
def test_what_is_not_a_key_is_refused(store: ObjectStore, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.get_many([key]),
        lambda: store.get_range(key, 0, 1),
        lambda: store.head(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.delete_many([key]),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="is not a key"):
            call()


def test_uri_opens_the_same_store(store: ObjectStore, place: Endpoint) -> None:
    store.put("x", b"1")
    again = open_store(store.uri, place.options)
    assert again.uri == store.uri
    assert again.get("x") == b"1"


def test_stores_see_nothing_outside_their_root(place: Endpoint) -> None:
    parent = open_store(place.root, place.options)
    store = open_store(f"{place.root}/t 1%25", place.options)
    parent.put("t 1%25x/a", b"sibling")
    store.put("a", b"own")
    assert keys(store, recursive=True) == ["a"]
    on_disk = place.root.startswith("/")
    assert keys(parent, recursive=True) == sorted(["t 1%25x/a", "t 1%25/a" if on_disk else "t 1%/a"])


# --- against a model ------------------------------------------------------------------------------------

SEGMENT = st.text("ab0_-% +é.", min_size=1, max_size=3).filter(lambda text: not text.endswith("."))
KEY = st.lists(SEGMENT, min_size=1, max_size=3).map("/".join)


def without_conflicts(names: set[str]) -> set[str]:
    """A disk cannot hold `a` and `a/b` both; the longer ones stay."""
    return {name for name in names if not any(other.startswith(f"{name}/") for other in names)}


def check_listing_against_model(store: ObjectStore, data: st.DataObject) -> None:
    names = without_conflicts(data.draw(st.sets(KEY, max_size=8), label="names"))
    for name in names:
        store.put(name, b"")
    prefixes = {name[: end + 1] for name in names for end, char in enumerate(name) if char == "/"}
    for _ in range(4):
        prefix = data.draw(st.sampled_from(["", "nowhere/", *sorted(prefixes)]), label="prefix")
        start = data.draw(st.one_of(st.just(""), KEY, st.sampled_from(sorted(names) or [""])), label="start")
        recursive = data.draw(st.booleans(), label="recursive")
        expected = [
            name
            for name in sorted(names)
            if name.startswith(prefix) and name > start and (recursive or "/" not in name[len(prefix) :])
        ]
        assert keys(store, prefix, start, recursive=recursive) == expected


def check_with_examples(new_place: Callable[[], Endpoint], max_examples: int) -> None:
    @settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        place = new_place()
        check_listing_against_model(open_store(place.root, place.options), data)

    run()


def test_listing_equals_a_sorted_list(kind: str, new_place: Callable[[], Endpoint]) -> None:
    check_with_examples(new_place, {"local": 40, "memory": 40}.get(kind, 8))
