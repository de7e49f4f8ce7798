"""What a VACUUM may delete: objects that are old enough and that no retained version of the table needs.

FULL looks at what is in the store, or at an inventory of it with the columns that delta-spark asks for: `path`,
`length`, `isDir` and `modificationTime` (milliseconds). LITE looks only at what the log says was removed since the last
VACUUM, which `_delta_log/_last_vacuum_info` records. Both keep everything that a live file, or one removed after the
cut-off, stands for. That snapshot is read before the listing, so what is committed meanwhile is too young to be
touched.

Hidden names (`_`, `.`) belong to somebody else, except change data, indexes, partition directories of columns with such
names, and the directories of interrupted writes (`incomplete-<uuid>`). Tables in directories below this one, and a
search table in the same place, keep their files. FULL also cleans up the table's search index, which other engines
leave alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.commands.table_keys import (
    behind_links,
    keys_below,
    needed_by_other_log,
    needed_files,
    nested_roots,
    nested_tables,
    parents,
    removed_in,
    vector_keys,
    with_parents,
)
from headwater.errors import InvalidCommitError, ObjectNotFoundError, SchemaError
from headwater.log.commit.history import newest_commit_at
from headwater.log.delta import names
from headwater.log.delta.cleanup import abandoned_before_ms
from headwater.log.files.arrow import bools
from headwater.log.files.chunks import REMOVE_COLUMNS, MemoryChunk
from headwater.log.files.listing import INCOMPLETE, TREE_SCHEMA, Tree, list_tree
from headwater.log.schema import physical_path
from headwater.log.segment import list_log
from headwater.search.delta_index import DIRECTORY, SUFFIX, existing_splits, fingerprint_of, split_keys, unneeded_splits
from headwater.storage.local import LocalStore
from headwater.storage.uri import LOG_KEY

if TYPE_CHECKING:
    from headwater.commands.progress import Progress
    from headwater.commands.table_keys import NeededFiles
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


VacuumMode: TypeAlias = Literal["FULL", "LITE"]

_CHECKSUM_FILE = r"^((?s:.*)/)?\.([^/]+)\.crc$"
"""What Hadoop puts beside every file on a local disk."""


@dataclass(frozen=True)
class VacuumPlan:
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
        return int(pc.sum(self.objects.column("size_bytes")).as_py() or 0)


def plan_full(snapshot: Snapshot, cutoff_ms: int, progress: Progress, inventory: pa.Table | None = None) -> VacuumPlan:
    """Plan by a listing, or by an inventory instead of one.

    Args:
        snapshot: the newest version.
        cutoff_ms: what is not older than this stays.
        progress: told about the listing.
        inventory: what is there, instead of a listing.
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
    """Plan by the log alone: files that commits before the cut-off have removed, since the last VACUUM."""
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
    """Return what the table needs, and a search table in the same place."""
    needed = needed_files(snapshot, cutoff_ms)
    others = needed_by_other_log(snapshot.ctx, cutoff_ms)
    return needed if others is None else needed | others


def _own(snapshot: Snapshot, objects: pa.Table, closed: tuple[str, ...] | None = None) -> pa.Table:
    """Return the objects that are the table's own: in directories below its root, not behind links, in no other table.

    `closed` are the hidden directories of a listing; without a listing, links and tables are looked for.
    """
    if closed is None:
        objects = objects.filter(pc.invert(behind_links(objects.column("key"), snapshot.uri)))
    return objects.filter(pc.invert(nested_tables(snapshot.ctx.store, objects.column("key"), closed)))


def _removed(snapshot: Snapshot, versions: list[int], cutoff_ms: int) -> pa.Table:
    """Return what commits have removed before the cut-off, and their change data files; null keys are elsewhere."""
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
        {"key": pa.chunked_array(keys, pa.binary()), "size_bytes": pc.fill_null(pa.chunked_array(sizes, pa.int64()), 0)}
    )


def _nothing(last: int | None) -> VacuumPlan:
    empty = TREE_SCHEMA.empty_table().select(["key", "size_bytes"])
    return VacuumPlan(empty, pa.array([], pa.binary()), (), 1, last)


def _vacuumed_version(snapshot: Snapshot, cutoff_ms: int) -> int | None:
    ctx = snapshot.ctx
    return newest_commit_at(ctx, list_log(ctx), cutoff_ms, snapshot.configuration)


def _companions(objects: pa.Table, doomed: pa.ChunkedArray) -> pa.Table:
    """Return Hadoop's checksum files of objects that will be deleted."""
    checksums = objects.filter(pc.match_substring_regex(objects.column("key"), _CHECKSUM_FILE))
    owners = pc.replace_substring_regex(checksums.column("key"), pattern=_CHECKSUM_FILE, replacement=r"\1\2")
    return checksums.filter(pc.is_in(owners, value_set=doomed.combine_chunks()))


def _abandoned(snapshot: Snapshot, tree: Tree, cutoff_ms: int) -> pa.Array:
    """Return temporary files of killed writers: never those of the last day, whatever the retention is."""
    old = pc.less(tree.temporary.column("modified_ms"), min(cutoff_ms, abandoned_before_ms(snapshot.ctx)))
    return tree.temporary.column("key").filter(old).combine_chunks()


def _emptied(snapshot: Snapshot, tree: Tree, left: pa.ChunkedArray, cutoff_ms: int) -> tuple[str, ...]:
    """Return directories without an object that stays; one changed after the cut-off may be about to get one."""
    store = snapshot.ctx.store
    if not isinstance(store, LocalStore):
        return ()
    closed = (prefix[: prefix.rstrip("/").rfind("/") + 1] for prefix in tree.closed)
    young = (prefix for prefix in tree.directories if prefix and not _is_old(store, prefix, cutoff_ms))
    needed = {"", *_with_ancestors(left), *(each for prefix in (*closed, *young) for each in with_parents(prefix))}
    nested = nested_roots(tree.closed)
    emptied = (p for p in tree.directories if p not in needed and nested.isdisjoint(with_parents(p)))
    return tuple(sorted(emptied, key=lambda prefix: (-prefix.count("/"), prefix)))


def _is_old(store: LocalStore, prefix: str, cutoff_ms: int) -> bool:
    try:
        return store.directory_modified_ms(prefix) < cutoff_ms
    except ObjectNotFoundError:
        return False


COLUMNS = {"path": pa.string(), "length": pa.int64(), "isDir": pa.bool_(), "modificationTime": pa.int64()}

_ABNORMAL = r"[^:/]//|^//|/\.\.?(?:/|$)"
"""A path with an empty segment behind its scheme, or with one that is `.` or `..`."""


def checked_inventory(inventory: pa.Table) -> pa.Table:
    try:
        return pa.table({name: inventory.column(name).cast(type_) for name, type_ in COLUMNS.items()})
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wanted = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        raise SchemaError(f"an inventory needs the columns {wanted}: {error}") from error


def tree_of_inventory(inventory: pa.Table, uri: str) -> Tree:
    """Return what the inventory says is below a table. Of an object that is there twice, the newest counts."""
    checked = checked_inventory(inventory)
    paths = checked.column("path")
    keys = keys_below(_as_log_paths(paths), uri)
    # A key such as `d//f` is another object than `d/f` on an object store, whose age is not known then.
    keys = pc.if_else(pc.match_substring_regex(paths, _ABNORMAL), pa.scalar(None, pa.binary()), keys)
    below = checked.append_column("key", keys).filter(keys.is_valid())
    directories = below.filter(below.column("isDir")).num_rows
    objects = below.filter(pc.invert(below.column("isDir")))
    newest = objects.group_by("key").aggregate([("length", "max"), ("modificationTime", "max")])
    columns = [newest.column("key"), newest.column("length_max"), newest.column("modificationTime_max")]
    # Only their number is known: directories of an inventory are not removed.
    return Tree(pa.table(columns, schema=TREE_SCHEMA), ("",) * (directories + 1), ())


def _as_log_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Escape percent signs: inventories do not, and the log does."""
    return pc.replace_substring(paths, pattern="%", replacement="%25")


@dataclass(frozen=True)
class DoomedSplits:
    """What to delete of the search index."""

    objects: pa.Table
    """Columns `key` (bytes) and `size_bytes`."""
    directories: tuple[str, ...] = ()
    """Prefixes of directories that are empty then, the deepest first; only on disks."""


def doomed_splits(snapshot: Snapshot, cutoff_ms: int, tree: Tree, *, is_inventory: bool) -> DoomedSplits:
    """Return the splits of data files that no retained version needs, and of definitions that are not in force.

    Args:
        snapshot: the newest version.
        cutoff_ms: what is not older than this stays, and so does what versions since then need.
        tree: what is below the table, without hidden directories.
        is_inventory: the tree is an inventory, which has everything.
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
    doomed = unneeded_splits(there, _needed_splits(snapshot, cutoff_ms), cutoff_ms)
    # A data file may be called what a log directory is called.
    doomed = doomed.filter(pc.invert(pc.match_substring_regex(doomed.column("key"), LOG_KEY)))
    store = snapshot.ctx.store
    if is_inventory or not isinstance(store, LocalStore):
        return DoomedSplits(doomed.select(["key", "size_bytes"]))
    emptied = _emptied_directories(there.column("key"), doomed.column("key"))
    # One that was changed after the cut-off may be about to get another split.
    old = tuple(prefix for prefix in emptied if _is_old(store, prefix, cutoff_ms))
    return DoomedSplits(doomed.select(["key", "size_bytes"]), old)


def _needed_splits(snapshot: Snapshot, cutoff_ms: int) -> pa.ChunkedArray:
    """Return the keys of the splits of all data files that readers may still need."""
    fingerprint = fingerprint_of(snapshot)
    if fingerprint is None:
        return pa.chunked_array([], pa.binary())
    removed = snapshot.tombstones(include_expired=True)
    removed = removed.filter(pc.greater_equal(pc.fill_null(removed.column("deletionTimestamp"), 0), cutoff_ms))
    chunks: list[pa.Array] = []
    for files in (snapshot.files(columns=["path", "size"]), removed.select(["path", "size"])):
        chunks += split_keys(files, fingerprint).chunks
    return pa.chunked_array(chunks, pa.binary())


def _emptied_directories(keys: pa.ChunkedArray, doomed: pa.ChunkedArray) -> tuple[str, ...]:
    """Return the directories that held splits and will hold none."""
    left = keys.filter(pc.invert(pc.is_in(keys, value_set=doomed.combine_chunks())))
    before, after = _with_ancestors(keys), _with_ancestors(left)
    return tuple(sorted(before - after, key=lambda prefix: (-prefix.count("/"), prefix)))


def _with_ancestors(keys: pa.ChunkedArray) -> set[str]:
    holders = (holder.decode("utf-8", "surrogateescape") for holder in parents(keys).unique().to_pylist())
    return {prefix for holder in holders for prefix in with_parents(holder)}


LAST_VACUUM_KEY = names.LOG_DIR + "_last_vacuum_info"


class _Info(msgspec.Struct):
    latestCommitVersionOutsideOfRetentionWindow: int | None = None


def last_vacuumed_version(store: ObjectStore) -> int | None:
    """Return the newest commit whose removed files the last VACUUM has deleted; None if it is not known."""
    try:
        found = msgspec.json.decode(store.get(LAST_VACUUM_KEY), type=_Info)
    except (ObjectNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.latestCommitVersionOutsideOfRetentionWindow


def record_vacuumed_version(store: ObjectStore, version: int | None) -> None:
    if version is not None:
        store.put(LAST_VACUUM_KEY, msgspec.json.encode(_Info(version)) + b"\n")


_INCOMPLETE = rf"(?:^|/){INCOMPLETE}/"
_OWN = ("_change_data", "_delta_index")
_ICEBERG_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class VisibleFiles:
    """Which files below a table's root VACUUM may look at: all but hidden ones."""

    prefixes: tuple[str, ...]
    """Names that start with one of these are not hidden."""
    hidden: frozenset[str] = frozenset()
    """Further names that are."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> VisibleFiles:
        names = list(snapshot.partition_columns)
        names += [physical_path(snapshot.schema, [name], snapshot.mapping_mode)[0] for name in names]
        formats = snapshot.properties.get("delta.universalFormat.enabledFormats", "")
        other = frozenset({_ICEBERG_METADATA}) if "iceberg" in formats.lower() else frozenset[str]()
        return cls((*_OWN, *(f"{name}=" for name in dict.fromkeys(names))), other)

    def enters(self, prefix: str) -> bool:
        """Return whether to look into a directory, given that the one around it is entered."""
        if re.search(_INCOMPLETE, prefix):
            return True
        name = prefix.rstrip("/").rpartition("/")[2]
        return name not in self.hidden and (not name.startswith(("_", ".")) or name.startswith(self.prefixes))

    def mask(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which objects are visible by their own names; all are in directories that are entered."""
        names = pc.replace_substring_regex(keys, pattern="^(?s:.*)/", replacement="")
        visible = pc.invert(pc.match_substring_regex(names, "^[_.]"))
        for prefix in self.prefixes:
            visible = pc.or_(visible, pc.starts_with(names, prefix))
        for name in self.hidden:
            visible = pc.and_(visible, pc.not_equal(names, name.encode()))
        return pc.or_(visible, pc.match_substring_regex(keys, _INCOMPLETE))

    def mask_all(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which objects are visible, wherever they are."""
        encoded = parents(keys).combine_chunks().dictionary_encode()
        known = [
            self._is_entered(prefix.decode("utf-8", "surrogateescape")) for prefix in encoded.dictionary.to_pylist()
        ]
        return pc.and_(self.mask(keys), pa.chunked_array([bools(known).take(encoded.indices)]))

    def _is_entered(self, prefix: str) -> bool:
        parts = prefix.split("/")[:-1]
        return all(self.enters("/".join(parts[: i + 1]) + "/") for i in range(len(parts)))
