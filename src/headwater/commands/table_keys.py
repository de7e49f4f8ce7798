"""Identify files: which objects below a table's root its log names, however it spells their paths.

A path in the log is relative or absolute, percent-encoded, and one of many spellings of its file. `keys_below` returns
the key that a path certainly stands for, or null where it is not certainly below the root; whoever deletes or copies
what a log names uses it. `NeededFiles` serves whoever deletes what a log does *not* name: it knows a file under every
name that it can have, and in doubt the file stays. Links, mounts and disks that ignore case are looked up; a root in
another spelling is recognised by the end of a path.
"""

from __future__ import annotations

import os
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import TableNotFoundError
from headwater.log.actions.decode import CommitActions
from headwater.log.actions.deletion_vectors import vector_path
from headwater.log.actions.model import DeletionVector
from headwater.log.actions.paths import canonical_array
from headwater.log.files.arrow import binaries, bools, int64s, strings
from headwater.log.opening import open_snapshot
from headwater.storage.copying import real_directory
from headwater.storage.uri import LOG_DIRECTORIES, LOG_KEY, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headwater.log.actions.model import AddCdcFile, Remove
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore
    from headwater.storage.uri import StoreUri


_SCHEME = r"^[A-Za-z][A-Za-z0-9+.\-]+:/"
_SAME_STORE = {
    "s3": ("s3", "s3a", "s3n"),
    "azure": ("az", "azure", "abfs", "abfss", "wasb", "wasbs"),
    "gcs": ("gs", "gcs"),
    "memory": ("memory",),
}
_PARALLEL = 32
_NO_KEY = pa.scalar(None, pa.binary())


def keys_below(paths: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """Return the keys of paths of a log, as bytes; null for what is not certainly a file below the table's root."""
    root = parse_uri(uri)
    return pa.chunked_array([_possible(_located(chunk, root)[0]) for chunk in paths.chunks], pa.binary())


def _located(paths: pa.Array, root: StoreUri) -> tuple[pa.Array, pa.Array]:
    """Return the keys of paths below a root, null for others; and the canonical paths that may be anywhere."""
    plain = canonical_array(paths).cast(pa.binary())
    if pc.any(pc.ends_with(plain, "/")).as_py():
        plain = pc.replace_substring_regex(plain, pattern="/+$", replacement="")
    absolute = pc.or_(pc.match_substring_regex(paths, _SCHEME), pc.starts_with(plain, "/"))
    climbing = pc.starts_with(plain, "../")
    if pc.any(climbing).as_py():
        plain = pc.replace_with_mask(plain, climbing, _climbed(plain.filter(climbing), root))
        absolute = pc.or_(absolute, climbing)
    if not pc.any(absolute).as_py():
        return plain, plain.slice(0, 0)
    keys = pc.if_else(absolute, _NO_KEY, plain)
    known = pc.invert(absolute)
    # On a remote store a path of the local disk is none of its own, though it may be a mount of the same files.
    is_disk = root.kind == "local"
    foreign = pc.and_(pc.starts_with(paths, "file:", ignore_case=True), pa.scalar(not is_disk))
    prefix = root.path.strip("/").encode("utf-8", "surrogateescape")
    prefix += b"/" if prefix else b""
    for place in _places(root):
        here = pc.and_not(pc.starts_with(plain, place, ignore_case=True), pc.or_(known, foreign))
        if not pc.any(here).as_py():
            continue
        pattern = f"(?i)^{re.escape(place)}"
        inside = pc.replace_substring_regex(plain.filter(here), pattern=pattern, replacement="")
        begins = pc.starts_with(inside, prefix)
        below = pc.replace_with_mask(here, here, begins)
        stripped = inside.filter(begins)
        if prefix:
            stripped = pc.replace_substring(stripped, pattern=prefix, replacement="", max_replacements=1)
        keys = pc.replace_with_mask(keys, below, stripped)
        known = pc.or_(known, below if is_disk else here)
    return keys, plain.filter(pc.invert(known))


def _possible(keys: pa.Array) -> pa.Array:
    """Replace keys that no object can have by null."""
    impossible = pc.match_substring_regex(keys, r"^\.?$|\x00")
    return pc.if_else(impossible, _NO_KEY, keys) if pc.any(impossible).as_py() else keys


def _places(root: StoreUri) -> list[str]:
    """Return the beginnings of absolute paths in the same bucket, or on the same disk."""
    if root.kind == "local":
        return ["/"]
    hosts = [root.bucket]
    if root.account_host:
        account, _, domain = root.account_host.partition(".")
        other = domain.replace("dfs.", "blob.", 1) if domain.startswith("dfs.") else domain.replace("blob.", "dfs.", 1)
        hosts = [f"{root.bucket}@{account}.{d}" for d in (domain, other)]
    return [f"{scheme}://{host}/" for scheme in _SAME_STORE[root.kind] for host in hosts] + ["/"]


def _climbed(paths: pa.Array, root: StoreUri) -> pa.Array:
    """Resolve relative paths that begin with `..` to absolute ones, one by one: there are few."""
    base = f"/{root.path.lstrip('/')}/".encode("utf-8", "surrogateescape")
    return binaries([posixpath.normpath(base + path) for path in paths.to_pylist()]).cast(pa.binary())


def vector_keys(vectors: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """Return the keys of the files that deletion vectors are in, each once; inline vectors are in none."""
    return keys_below(pa.chunked_array([_vector_paths(vectors)]), uri).drop_null()


def _vector_paths(vectors: pa.ChunkedArray) -> pa.Array:
    """Return the paths of the files that deletion vectors are in, as the log spells paths."""
    vectors = vectors.drop_null()
    kinds = pc.struct_field(vectors, ["storageType"])
    texts = pc.struct_field(vectors, ["pathOrInlineDv"])
    relative = texts.filter(pc.equal(kinds, "u")).unique().to_pylist()
    own = [vector_path(DeletionVector("u", text, 0, 0)).replace("%", "%25") for text in relative]
    absolute = texts.filter(pc.equal(kinds, "p")).unique().to_pylist()
    return strings([*own, *absolute]).cast(pa.string())


# --- what must stay -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeededFiles:
    """The files that readers of a table may still need."""

    uri: str
    keys: pa.Array
    """Of those below the root, in every reading of their paths; as bytes."""
    elsewhere: pa.Array
    """The canonical paths of those that are outside by their spelling, and may be inside for all that."""

    def __or__(self, other: NeededFiles) -> NeededFiles:
        assert self.uri == other.uri, "the files of two logs in one place"
        keys, elsewhere = ((a, b) for a, b in ((self.keys, other.keys), (self.elsewhere, other.elsewhere)))
        return NeededFiles(self.uri, pa.concat_arrays(keys), pa.concat_arrays(elsewhere))

    def unneeded(self, objects: pa.Table) -> pa.Table:
        """Return the objects (a table with `key` as bytes) that are none of these files and not part of a log."""
        keys = objects.column("key")
        needed = pc.is_in(keys, value_set=self.keys)
        left = objects.filter(pc.invert(pc.or_(needed, pc.match_substring_regex(keys, LOG_KEY))))
        if not left.num_rows:
            return left
        elsewhere = self.elsewhere
        if parse_uri(self.uri).kind == "local":
            spared, elsewhere = _spared_on_disk(self, left.column("key").combine_chunks())
            left = left.filter(pc.invert(pc.is_in(left.column("key"), value_set=spared)))
        if not len(elsewhere) or not left.num_rows:
            return left
        return left.filter(pc.invert(_is_tail(left.column("key"), elsewhere)))


def needed_files(snapshot: Snapshot, cutoff_ms: int) -> NeededFiles:
    """Return what readers may still need: live files, files removed since `cutoff_ms`, and their vectors."""
    paths = [*_needed_paths(snapshot, cutoff_ms)]
    root = parse_uri(snapshot.uri)
    keys: list[pa.Array] = []
    elsewhere: list[pa.Array] = []
    for chunk in paths:
        for reading in _readings(chunk):
            own, other = _located(reading, root)
            keys.append(own.drop_null())
            elsewhere.append(other)
    return NeededFiles(snapshot.uri, *(pa.chunked_array(a, pa.binary()).combine_chunks() for a in (keys, elsewhere)))


def _needed_paths(snapshot: Snapshot, cutoff_ms: int) -> Iterator[pa.Array]:
    columns = [name for name in ("path", "deletionVector") if name in snapshot.ctx.dialect.file_columns]
    live = snapshot.files(columns=columns)
    gone = snapshot.ctx.dialect.removed_files(snapshot)
    gone = gone.filter(pc.greater_equal(pc.fill_null(gone.column("deletionTimestamp"), 0), cutoff_ms))
    for files in (live, gone):
        yield from files.column("path").chunks
        if "deletionVector" in files.column_names:
            yield _vector_paths(files.column("deletionVector"))


def _readings(paths: pa.Array) -> Iterator[pa.Array]:
    """Return paths as they are, and as a writer means them that does not escape them at all, or twice."""
    yield paths
    escaped = paths.filter(pc.match_substring(paths, "%"))
    if not len(escaped):
        return
    yield pc.replace_substring(escaped, pattern="%", replacement="%25")
    once = canonical_array(escaped).cast(pa.binary())
    once = once.filter(pc.match_substring(once, "%"))
    texts = (path.decode("utf-8", "surrogateescape") for path in once.to_pylist())
    yield strings([text for text in texts if not _holds_surrogates(text)]).cast(pa.string())


def _holds_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _is_tail(keys: pa.ChunkedArray, paths: pa.Array) -> pa.ChunkedArray:
    """Return which keys are the end of an absolute path, whose beginning may be another spelling of the root.

    The same bucket has many names (endpoints, access points, mounts), and none of them can be ruled out.
    """
    found = pc.is_null(keys)
    depths = pc.count_substring(keys, "/")
    for depth in depths.unique().to_pylist():
        tail = rf"^(?s:.*)/((?:[^/]*/){{{depth}}}[^/]*)$"
        long = paths.filter(pc.match_substring_regex(paths, tail))
        tails = pc.replace_substring_regex(long, pattern=tail, replacement=r"\1")
        found = pc.or_(found, pc.and_(pc.equal(depths, depth), pc.is_in(keys, value_set=tails)))
    return found


# --- other names on a disk ----------------------------------------------------------------------------


class _Inode(NamedTuple):
    """The identity of a file or directory on a disk, whatever its path."""

    device: int
    number: int


def _spared_on_disk(needed: NeededFiles, doomed: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return doomed keys that are needed files under another name, and the paths that cannot be looked up.

    Directories are compared by their inodes, which sees through links, mounts and the case of letters. Links to files
    and names that differ in case only are looked up one by one. The cost is one look at every directory, not at every
    file.
    """
    base = _base(needed.uri)
    local = pc.starts_with(needed.elsewhere, "/")
    own = pc.binary_join_element_wise(base, needed.keys, b"")
    paths = pa.concat_arrays([own, needed.elsewhere.filter(local)])
    # All of them are absolute, so there are a directory and a name.
    halves = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    holders = pc.list_element(halves, 0).dictionary_encode()
    directories: list[bytes] = [directory + b"/" for directory in holders.dictionary.to_pylist()]
    inodes = [_inode(directory) for directory in directories]
    there = bools([inode is not None for inode in inodes])
    prefix_by_inode = {
        inode: prefix for prefix in parents(doomed).unique().to_pylist() if (inode := _inode(base + prefix))
    }
    # For files that are in the directory of a doomed object by another name of it, the prefix of that directory.
    prefixes = [None if inode is None else prefix_by_inode.get(inode) for inode in inodes]
    others = [
        None if prefix is None or base + prefix == directory else prefix
        for prefix, directory in zip(prefixes, directories, strict=True)
    ]
    other = binaries(others).cast(pa.binary()).take(holders.indices)
    aliased = other.is_valid()
    names = pc.list_element(halves.filter(aliased), 1)
    aliases = pc.binary_join_element_wise(other.filter(aliased), names, b"")
    linked = _links([d for d, inode in zip(directories, inodes, strict=True) if inode is not None], paths)
    spared = [
        aliases,
        _same_objects(base, doomed, linked),
        _other_case(base, doomed, pa.concat_arrays([needed.keys, aliases])),
    ]
    # A directory that is not there may be the root as it is called on another machine.
    unknown = paths.filter(pc.invert(there.take(holders.indices)))
    unknown = unknown.filter(pc.invert(pc.starts_with(unknown, base)))
    remote = needed.elsewhere.filter(pc.invert(local))
    return pa.concat_arrays(spared), pa.concat_arrays([unknown, remote])


def _base(uri: str) -> bytes:
    return (parse_uri(uri).path.rstrip("/") + "/").encode("utf-8", "surrogateescape")


def parents(keys: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the prefix of the directory that each object is in."""
    return pc.replace_substring_regex(keys, pattern="[^/]*$", replacement="")


def _inode(path: bytes) -> _Inode | None:
    """Return the identity of a file or directory, through links; None if it cannot be looked at."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _Inode(status.st_dev, status.st_ino)


def _links(directories: Iterable[bytes], paths: pa.Array) -> list[bytes]:
    """Return the paths that are links to files."""
    found: list[bytes] = []
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                # A listing says what is a link without a further look; `filter` asks it without a step of Python each.
                found += [directory + entry.name for entry in filter(os.DirEntry.is_symlink, entries)]
        except OSError:
            continue  # no link that could be followed either
    if not found:
        return []
    links = binaries(found).cast(pa.binary())
    linked: list[bytes] = links.filter(pc.is_in(links, value_set=paths)).to_pylist()
    return linked


def _same_objects(base: bytes, doomed: pa.Array, paths: Iterable[bytes]) -> pa.Array:
    """Return the doomed objects that are the same as one of some files."""
    wanted = {inode for path in paths if (inode := _inode(path))}
    if not wanted:
        return doomed.slice(0, 0)
    return binaries([key for key in doomed.to_pylist() if _inode(base + key) in wanted]).cast(pa.binary())


def _other_case(base: bytes, doomed: pa.Array, keys: pa.Array) -> pa.Array:
    """Those of the doomed objects whose keys differ from needed ones in case or in the form of letters, and that are
    the same object, or take the place of one that is not there."""
    folded = _folded(doomed)
    wanted = _folded(keys)
    again = pc.is_in(wanted, value_set=folded)
    if not pc.any(again).as_py():
        return doomed.slice(0, 0)
    spared: list[bytes] = []
    needed: dict[bytes, list[bytes]] = {}
    for fold, key in zip(wanted.filter(again).to_pylist(), keys.filter(again).to_pylist(), strict=True):
        needed.setdefault(fold, []).append(key)
    alike = pc.is_in(folded, value_set=wanted.filter(again))
    for fold, key in zip(folded.filter(alike).to_pylist(), doomed.filter(alike).to_pylist(), strict=True):
        inodes = {_inode(base + other) for other in needed[fold]}
        if None in inodes or _inode(base + key) in inodes:
            spared.append(key)
    return binaries(spared).cast(pa.binary())


def _folded(keys: pa.Array) -> pa.Array:
    """Return keys as a disk compares them that ignores case and the form of letters."""
    try:
        text = pc.utf8_normalize(keys.cast(pa.string()), form="NFKC")
    except pa.ArrowInvalid:  # a name that is no text
        text = pc.cast(keys, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
        return pc.ascii_lower(text).cast(pa.binary())
    return pc.utf8_lower(text).cast(pa.binary())


def behind_links(keys: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """Return which keys are in a directory that is reached by a link: what is there may belong to anybody."""
    holders = parents(keys.combine_chunks()).dictionary_encode()
    prefixes = (prefix.decode("utf-8", "surrogateescape").rstrip("/") for prefix in holders.dictionary.to_pylist())
    linked = bools([real_directory(uri, prefix) != prefix for prefix in prefixes])
    return pa.chunked_array([linked.take(holders.indices)], pa.bool_())


# --- other tables in the same place -------------------------------------------------------------------


def nested_tables(store: ObjectStore, keys: pa.ChunkedArray, closed: Iterable[str] | None = None) -> pa.ChunkedArray:
    """Return which keys are below another table, one that has its log in a directory below this table's root.

    `closed` are the prefixes of all hidden directories, if they are known: logs are among them. Otherwise the
    directories on the way to the keys are searched for a log, except those of partitions.
    """
    holders = parents(keys.combine_chunks()).dictionary_encode()
    prefixes = [prefix.decode("utf-8", "surrogateescape") for prefix in holders.dictionary.to_pylist()]
    chains = {prefix: tuple(with_parents(prefix)) for prefix in prefixes}
    if closed is None:
        roots = _logs_in(store, {directory for chain in chains.values() for directory in chain})
    else:
        roots = nested_roots(closed)
    inside = bools([not roots.isdisjoint(chains[prefix]) for prefix in prefixes])
    return pa.chunked_array([inside.take(holders.indices)], pa.bool_())


def nested_roots(closed: Iterable[str]) -> frozenset[str]:
    """Return the prefixes of tables below a root, by those of its hidden directories."""
    found = (prefix.rstrip("/").rpartition("/") for prefix in closed)
    return frozenset(f"{parent}/" for parent, _, name in found if parent and name.lower() in LOG_DIRECTORIES)


def with_parents(prefix: str) -> Iterator[str]:
    """Return a prefix and those of the directories around it, below the root."""
    while prefix:
        yield prefix
        prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]


def _logs_in(store: ObjectStore, prefixes: Iterable[str]) -> frozenset[str]:
    """Return the directories that have a log."""
    is_disk = parse_uri(store.uri).kind == "local"
    # Partitions are many, and a listing of each on an object store would cost more than the rest of a VACUUM.
    asked = [prefix for prefix in prefixes if is_disk or "=" not in prefix.rstrip("/").rpartition("/")[2]]

    def has_log(prefix: str) -> bool:
        return any(store.list_from(f"{prefix}{name}/") for name in LOG_DIRECTORIES)

    with ThreadPoolExecutor(_PARALLEL, "headwater-nested") as pool:
        return frozenset(prefix for prefix, found in zip(asked, pool.map(has_log, asked), strict=True) if found)


def needed_by_other_log(ctx: LogContext, cutoff_ms: int) -> NeededFiles | None:
    """Return what the other log in the same place needs: of a search table beside a Delta table, or the reverse.

    None if there is no other table. Two tables are never created in one place today, but they may have been.

    Raises:
        HeadwaterError: there is one, and it cannot be read, so that it is not known what it needs.
    """
    from headwater.features.registry import check_readable
    from headwater.log.context import LogContext as Context
    from headwater.search.table_log import search_context

    both = search_context(ctx.store, clock_ms=ctx.clock_ms), Context(ctx.store, check_readable, clock_ms=ctx.clock_ms)
    other = next(found for found in both if found.dialect is not ctx.dialect)
    if not ctx.store.list_from(other.dialect.directory):
        return None
    try:
        return needed_files(open_snapshot(other), cutoff_ms)
    except TableNotFoundError:
        return None


_BATCH = 256
"""Commits fetched together."""


def removed_in(ctx: LogContext, versions: Sequence[int]) -> tuple[list[Remove], pa.Table]:
    """Return the `remove` actions of some commits, and their `cdc` actions as columns `path` and `size`."""
    removes: list[Remove] = []
    changes: list[AddCdcFile] = []
    for start in range(0, len(versions), _BATCH):
        batch = versions[start : start + _BATCH]
        for version, data in zip(batch, ctx.store.get_many([ctx.dialect.commit_key(v) for v in batch]), strict=True):
            lines = CommitActions.of(version, data, ctx.dialect).file_lines()
            removes += [line.remove for line in lines if line.remove is not None]
            changes += [line.cdc for line in lines if line.cdc is not None]
    columns = {
        "path": strings([change.path for change in changes]).cast(pa.string()),
        "size": int64s([change.size for change in changes]),
    }
    return removes, pa.table(columns)
