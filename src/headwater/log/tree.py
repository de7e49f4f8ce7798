"""Everything below a table's root as columns: what VACUUM and the conversion of Parquet directories look through.

Directories are listed in parallel, each into columns of its own, so that a million files are a few arrays and not a
million objects. Which names belong to a table is the caller's business: hidden directories are not even entered.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.columns import binaries, int64s
from headwater.storage.base import Directory, DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore

TREE_SCHEMA = pa.schema([("key", pa.binary()), ("size_bytes", pa.int64()), ("modified_ms", pa.int64())])
"""Keys are bytes: a disk may have names that are no text."""
_LOCAL_PARALLEL = 4
_REMOTE_PARALLEL = 32


@dataclass(frozen=True, slots=True)
class Tree:
    """What is below a store's root."""

    objects: pa.Table
    """Of `TREE_SCHEMA`."""
    directories: tuple[str, ...]
    """The prefixes of the directories that were looked into, the root's (an empty text) included."""
    closed: tuple[str, ...]
    """The prefixes of those that were not; what is below them is not known."""


def list_tree(store: ObjectStore, enters: Callable[[str], bool], seen: Callable[[int], None] | None = None) -> Tree:
    """List everything below the root.

    Args:
        store: the store.
        enters: whether to look into the directory with a prefix (it ends with `/`).
        seen: told how many more objects were found, now and then.

    Raises:
        StorageError: a directory could not be listed.
    """
    if not isinstance(store, DirectoryStore):
        return _tree_of(store.list_from("", recursive=True), enters, seen)
    parallel = _LOCAL_PARALLEL if store.uri.startswith("file:") else _REMOTE_PARALLEL
    tables: list[pa.Table] = []
    directories: list[str] = []
    closed: list[str] = []
    with ThreadPoolExecutor(parallel, "headwater-listing") as pool:
        waiting: dict[Future[Directory], str] = {pool.submit(store.list_directory, ""): ""}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    directories.append(waiting.pop(future))
                    found = future.result()
                    tables.append(columns_of(found.objects))
                    if seen is not None:
                        seen(len(found.objects))
                    entered = {d for d in found.directories if enters(d)}
                    closed += [d for d in found.directories if d not in entered]
                    waiting |= {pool.submit(store.list_directory, d): d for d in entered}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return Tree(pa.concat_tables(tables), tuple(sorted(directories)), tuple(sorted(closed)))


def columns_of(metas: Sequence[ObjectMeta]) -> pa.Table:
    """Objects as columns of `TREE_SCHEMA`."""
    if not metas:
        return TREE_SCHEMA.empty_table()
    keys, sizes, times = zip(*metas, strict=True)
    encoded = [key.encode("utf-8", "surrogateescape") for key in keys]
    return pa.table([binaries(encoded).cast(pa.binary()), int64s(sizes), int64s(times)], schema=TREE_SCHEMA)


def _tree_of(metas: list[ObjectMeta], enters: Callable[[str], bool], seen: Callable[[int], None] | None) -> Tree:
    """The tree of a store that lists all or nothing."""
    known: dict[str, bool] = {"": True}

    def is_entered(prefix: str) -> bool:
        if prefix not in known:
            parent = prefix[: prefix.rstrip("/").rfind("/") + 1]
            known[prefix] = is_entered(parent) and enters(prefix)
        return known[prefix]

    kept = [meta for meta in metas if is_entered(meta.key[: meta.key.rfind("/") + 1])]
    if seen is not None:
        seen(len(kept))
    entered = tuple(sorted(prefix for prefix, is_open in known.items() if is_open))
    return Tree(columns_of(kept), entered, tuple(sorted(known.keys() - set(entered))))
