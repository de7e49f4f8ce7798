"""What a VACUUM may delete: objects that are old enough and that no retained version of the table needs.

FULL looks at what is in the store (or at an inventory of it), LITE only at what the log says was removed. Both keep
everything that a live file, or one removed after the cut-off, stands for; that snapshot is read before anything is
listed, so what is committed meanwhile is too young to be touched. Tables in directories below this one, and a search
table in the same place, keep what is theirs. FULL also cleans up the table's search index. All of it is set arithmetic
on columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidCommitError, ObjectNotFoundError
from headwater.log.cleanup import abandoned_before_ms
from headwater.log.file_chunks import REMOVE_COLUMNS, MemoryChunk
from headwater.log.segment import list_log
from headwater.log.timeline import newest_commit_at
from headwater.log.tree import TREE_SCHEMA, list_tree
from headwater.maintenance.inventory import tree_of_inventory
from headwater.maintenance.last_vacuum import last_vacuumed_version
from headwater.maintenance.removed_files import removed_in
from headwater.maintenance.search_splits import doomed_splits
from headwater.maintenance.table_keys import (
    behind_links,
    keys_below,
    needed_by_other_log,
    needed_files,
    nested_roots,
    nested_tables,
    vector_keys,
    with_parents,
)
from headwater.maintenance.visible_files import VisibleFiles, parents
from headwater.storage.local import LocalStore

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
    from headwater.log.tree import Tree
    from headwater.maintenance.progress import Progress
    from headwater.maintenance.table_keys import NeededFiles

VacuumMode: TypeAlias = Literal["FULL", "LITE"]

_CHECKSUM_FILE = r"^((?s:.*)/)?\.([^/]+)\.crc$"
"""What Hadoop puts beside every file on a local disk."""


@dataclass(frozen=True)
class VacuumPlan:
    """What will be deleted."""

    objects: pa.Table
    """Columns `key` (bytes) and `size_bytes`."""
    companions: pa.Array
    """Keys of Hadoop's checksum files that go with them, and of what killed writers left behind."""
    directories: tuple[str, ...] = ()
    """Prefixes of directories that are empty then, the deepest first; only on disks."""
    directory_count: int = 0
    """How many directories were looked through."""
    vacuumed_version: int | None = None
    """The newest commit whose removed files are all gone afterwards."""

    @property
    def size_bytes(self) -> int:
        """How much the objects take."""
        return int(pc.sum(self.objects.column("size_bytes")).as_py() or 0)


def plan_full(snapshot: Snapshot, cutoff_ms: int, progress: Progress, inventory: pa.Table | None = None) -> VacuumPlan:
    """Plan by looking at what is there.

    Args:
        snapshot: the newest version.
        cutoff_ms: what is not older than this stays.
        progress: told about the listing.
        inventory: what is there, instead of a listing (see `headwater.maintenance.inventory`).
    """
    needed = _needed(snapshot, cutoff_ms)
    visible = VisibleFiles.of(snapshot)
    if inventory is None:
        progress.begin("Listing files")
        tree = list_tree(snapshot.ctx.store, visible.enters, progress.advance)
        shown = visible.mask(tree.objects.column("key"))
    else:
        tree = tree_of_inventory(inventory, snapshot.uri)
        shown = visible.mask_all(tree.objects.column("key"))
    keys = tree.objects.column("key")
    old = pc.less(tree.objects.column("modified_ms"), cutoff_ms)
    doomed = needed.unneeded(tree.objects.filter(pc.and_(shown, old)))
    doomed = _own(snapshot, doomed, None if inventory is not None else tree.closed)
    companions = needed.unneeded(_companions(tree.objects, doomed.column("key"))).column("key").combine_chunks()
    companions = pa.concat_arrays([companions, _abandoned(snapshot, tree, cutoff_ms)])
    gone = pa.chunked_array([*doomed.column("key").chunks, companions], pa.binary()).combine_chunks()
    left = keys.filter(pc.invert(pc.is_in(keys, value_set=gone)))
    splits = doomed_splits(snapshot, cutoff_ms, tree, is_inventory=inventory is not None)
    emptied = () if inventory is not None else _emptied(snapshot, tree, left, cutoff_ms)
    return VacuumPlan(
        pa.concat_tables([doomed.select(["key", "size_bytes"]), splits.objects]),
        companions,
        (*emptied, *splits.directories),
        max(len(tree.directories), 1),
        _vacuumed_version(snapshot, cutoff_ms) if inventory is None else None,
    )


def plan_lite(snapshot: Snapshot, cutoff_ms: int) -> VacuumPlan:
    """Plan by the log alone: files that commits before the cut-off have removed, since the last VACUUM.

    Raises:
        InvalidCommitError: commits that the last VACUUM has not seen were cleaned up.
    """
    listing = list_log(snapshot.ctx)
    end = _vacuumed_version(snapshot, cutoff_ms)
    last = last_vacuumed_version(snapshot.ctx.store)
    first = min(listing.commits, default=0)
    if end is None:
        return _nothing(last)
    if first != 0 and (last is None or last + 1 < first):
        raise InvalidCommitError(
            f"VACUUM LITE cannot delete all eligible files of {snapshot.uri}: the log begins with version {first}, and "
            f"{'no VACUUM has been recorded' if last is None else f'the last VACUUM came to version {last}'}, so files "
            "that were removed in between are not in it any more. Run VACUUM FULL once."
        )
    start = first if last is None else last + 1
    found = _removed(snapshot, [v for v in sorted(listing.commits) if start <= v <= end], cutoff_ms)
    found = found.filter(found.column("key").is_valid())
    once = found.group_by("key").aggregate([("size_bytes", "max")]).rename_columns(["key", "size_bytes"])
    # A `remove` may name whatever it likes: only what FULL would look at too is deleted.
    once = once.filter(VisibleFiles.of(snapshot).mask_all(once.column("key")))
    once = _own(snapshot, _needed(snapshot, cutoff_ms).unneeded(once))
    return VacuumPlan(once, pa.array([], pa.binary()), (), 1, end)


def _needed(snapshot: Snapshot, cutoff_ms: int) -> NeededFiles:
    """What the table needs, and a search table in the same place."""
    needed = needed_files(snapshot, cutoff_ms)
    others = needed_by_other_log(snapshot.ctx, cutoff_ms)
    return needed if others is None else needed | others


def _own(snapshot: Snapshot, objects: pa.Table, closed: tuple[str, ...] | None = None) -> pa.Table:
    """The objects that are the table's own: in directories below its root and not behind links, in no other table.

    Args:
        snapshot: of the table.
        objects: that may be deleted.
        closed: the hidden directories of a listing; without a listing, links and tables are looked for.
    """
    if closed is None:
        objects = objects.filter(pc.invert(behind_links(objects.column("key"), snapshot.uri)))
    return objects.filter(pc.invert(nested_tables(snapshot.ctx.store, objects.column("key"), closed)))


def _removed(snapshot: Snapshot, versions: list[int], cutoff_ms: int) -> pa.Table:
    """What some commits have removed before the cut-off, and their change data files; null keys are elsewhere."""
    removes, changes = removed_in(snapshot.ctx, versions)
    files = MemoryChunk(removes, REMOVE_COLUMNS)
    old = pc.less(pc.fill_null(files.column("deletionTimestamp"), 0), cutoff_ms)
    gone = pa.table({name: files.column(name).filter(old) for name in ("path", "size", "deletionVector")})
    vectors = vector_keys(gone.column("deletionVector"), snapshot.uri)
    keys = [
        *keys_below(gone.column("path"), snapshot.uri).chunks,
        *keys_below(changes.column("path"), snapshot.uri).chunks,
        *vectors.chunks,
    ]
    sizes = [*gone.column("size").chunks, *changes.column("size").chunks, pa.nulls(len(vectors), pa.int64())]
    return pa.table(
        {
            "key": pa.chunked_array(keys, pa.binary()),
            "size_bytes": pc.fill_null(pa.chunked_array(sizes, pa.int64()), 0),
        }
    )


def _nothing(last: int | None) -> VacuumPlan:
    empty = TREE_SCHEMA.empty_table().select(["key", "size_bytes"])
    return VacuumPlan(empty, pa.array([], pa.binary()), (), 1, last)


def _vacuumed_version(snapshot: Snapshot, cutoff_ms: int) -> int | None:
    """The newest commit at or before the cut-off."""
    ctx = snapshot.ctx
    return newest_commit_at(ctx, list_log(ctx), cutoff_ms, snapshot.protocol, snapshot.metadata)


def _companions(objects: pa.Table, doomed: pa.ChunkedArray) -> pa.Table:
    """Hadoop's checksum files of objects that will be deleted."""
    checksums = objects.filter(pc.match_substring_regex(objects.column("key"), _CHECKSUM_FILE))
    owners = pc.replace_substring_regex(checksums.column("key"), pattern=_CHECKSUM_FILE, replacement=r"\1\2")
    return checksums.filter(pc.is_in(owners, value_set=doomed.combine_chunks()))


def _abandoned(snapshot: Snapshot, tree: Tree, cutoff_ms: int) -> pa.Array:
    """Temporary files of writers that were killed: never those of the last day, whatever the retention is."""
    old = pc.less(tree.temporary.column("modified_ms"), min(cutoff_ms, abandoned_before_ms(snapshot.ctx)))
    return tree.temporary.column("key").filter(old).combine_chunks()


def _emptied(snapshot: Snapshot, tree: Tree, left: pa.ChunkedArray, cutoff_ms: int) -> tuple[str, ...]:
    """The directories without an object that stays; one that was changed after the cut-off may be about to get one."""
    store = snapshot.ctx.store
    if not isinstance(store, LocalStore):
        return ()
    needed: set[str] = {""}
    closed = (prefix[: prefix.rstrip("/").rfind("/") + 1] for prefix in tree.closed)
    holders = (prefix.decode("utf-8", "surrogateescape") for prefix in parents(left).unique().to_pylist())
    young = (prefix for prefix in tree.directories if prefix and not _is_old(store, prefix, cutoff_ms))
    for prefix in (*holders, *closed, *young):
        while prefix not in needed:
            needed.add(prefix)
            prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]
    nested = nested_roots(tree.closed)
    emptied = (p for p in tree.directories if p not in needed and nested.isdisjoint(with_parents(p)))
    return tuple(sorted(emptied, key=lambda prefix: (-prefix.count("/"), prefix)))


def _is_old(store: LocalStore, prefix: str, cutoff_ms: int) -> bool:
    try:
        return store.directory_modified_ms(prefix) < cutoff_ms
    except ObjectNotFoundError:
        return False
