"""What VACUUM deletes of a table's search index: splits of data files that no retained version needs.

The index lives in a hidden directory of the table (`headwater.search.delta_index`), which other engines' VACUUM leaves
alone and so never cleans up. A split whose definition is not in force any more is garbage as well, once it is old
enough that nobody who started with that definition can still be at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ObjectNotFoundError
from headwater.maintenance.visible_files import parents
from headwater.search.delta_definition import fingerprint_of
from headwater.search.delta_index import DIRECTORY, SUFFIX, existing_splits, split_keys, unneeded_splits
from headwater.storage.keys import LOG_KEY
from headwater.storage.local import LocalStore

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
    from headwater.log.tree import Tree


@dataclass(frozen=True)
class DoomedSplits:
    """What goes of the index."""

    objects: pa.Table
    """Columns `key` (bytes) and `size_bytes`."""
    directories: tuple[str, ...] = ()
    """Prefixes of directories that are empty then, the deepest first; only on disks."""


def doomed_splits(snapshot: Snapshot, cutoff_ms: int, tree: Tree, *, is_inventory: bool) -> DoomedSplits:
    """The splits that may be deleted.

    Args:
        snapshot: the newest version.
        cutoff_ms: what is not older than this stays, and so does what versions since then need.
        tree: what is below the table, hidden directories not looked into.
        is_inventory: the tree is somebody else's list, which has everything.
    """
    if is_inventory:
        keys = tree.objects.column("key")
        inside = pc.and_(pc.starts_with(keys, DIRECTORY.encode()), pc.ends_with(keys, SUFFIX.encode()))
        there = tree.objects.filter(inside)
    elif DIRECTORY in tree.closed:
        there = existing_splits(snapshot.ctx.store)
    else:
        there = tree.objects.slice(0, 0)
    if not there.num_rows:
        return DoomedSplits(there.select(["key", "size_bytes"]))
    doomed = unneeded_splits(there, _needed(snapshot, cutoff_ms), cutoff_ms)
    # A data file may be called what a log directory is called.
    doomed = doomed.filter(pc.invert(pc.match_substring_regex(doomed.column("key"), LOG_KEY)))
    store = snapshot.ctx.store
    if is_inventory or not isinstance(store, LocalStore):
        return DoomedSplits(doomed.select(["key", "size_bytes"]))
    emptied = _emptied(there.column("key"), doomed.column("key"))
    # One that was changed after the cut-off may be about to get another split.
    old = tuple(prefix for prefix in emptied if _is_old(store, prefix, cutoff_ms))
    return DoomedSplits(doomed.select(["key", "size_bytes"]), old)


def _needed(snapshot: Snapshot, cutoff_ms: int) -> pa.ChunkedArray:
    """Keys of the splits of all data files that readers may still need."""
    fingerprint = fingerprint_of(snapshot)
    if fingerprint is None:
        return pa.chunked_array([], pa.binary())
    removed = snapshot.tombstones(include_expired=True)
    removed = removed.filter(pc.greater_equal(pc.fill_null(removed.column("deletionTimestamp"), 0), cutoff_ms))
    chunks: list[pa.Array] = []
    for files in (snapshot.files(columns=["path", "size"]), removed.select(["path", "size"])):
        chunks += split_keys(files, fingerprint).chunks
    return pa.chunked_array(chunks, pa.binary())


def _is_old(store: LocalStore, prefix: str, cutoff_ms: int) -> bool:
    try:
        return store.directory_modified_ms(prefix) < cutoff_ms
    except ObjectNotFoundError:
        return False


def _emptied(keys: pa.ChunkedArray, doomed: pa.ChunkedArray) -> tuple[str, ...]:
    """The directories that held splits and will hold none."""
    left = keys.filter(pc.invert(pc.is_in(keys, value_set=doomed.combine_chunks())))
    before, after = _with_ancestors(keys), _with_ancestors(left)
    return tuple(sorted(before - after, key=lambda prefix: (-prefix.count("/"), prefix)))


def _with_ancestors(keys: pa.ChunkedArray) -> set[str]:
    found: set[str] = set()
    for holder in parents(keys).unique().to_pylist():
        prefix = holder.decode("utf-8", "surrogateescape")
        while prefix and prefix not in found:
            found.add(prefix)
            prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]
    return found
