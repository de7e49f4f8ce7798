"""The files of a table as keys of its store: which objects below the table's root its log still speaks of.

A path in the log may be relative or absolute, and is percent-encoded. Files outside the root (shallow clones have them)
belong to somebody else, and have no key here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.actions import DeletionVector
from headwater.log.columns import binaries
from headwater.log.deletion_vectors import vector_path
from headwater.log.paths import canonical_array
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

_SCHEME = r"^[A-Za-z][A-Za-z0-9+.\-]+:/"
_SAME_STORE = {"s3": ("s3", "s3a", "s3n"), "azure": ("az", "abfs", "abfss"), "gcs": ("gs",), "memory": ("memory",)}


def keys_below(paths: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """The keys of data files, as bytes; null for files outside the table.

    Args:
        paths: as the log has them.
        uri: the table's location.
    """
    return pa.chunked_array([_keys(chunk, uri) for chunk in paths.chunks], pa.binary())


def _keys(paths: pa.Array, uri: str) -> pa.Array:
    keys = canonical_array(paths).cast(pa.binary())
    elsewhere = pc.or_(pc.match_substring_regex(paths, _SCHEME), pc.starts_with(keys, "/"))
    if not pc.any(elsewhere).as_py():
        return keys
    for root in _roots(uri):
        below = pc.and_(elsewhere, pc.starts_with(keys, root))
        stripped = pc.replace_substring(keys.filter(below), pattern=root, replacement="", max_replacements=1)
        keys = pc.replace_with_mask(keys, below, stripped)
        elsewhere = pc.and_(elsewhere, pc.invert(below))
    return pc.if_else(elsewhere, pa.scalar(None, pa.binary()), keys)


def _roots(uri: str) -> list[str]:
    """The spellings of the table's location in absolute paths, decoded, with a slash at the end."""
    location = parse_uri(uri)
    if location.kind == "local":
        return [location.path.rstrip("/") + "/"]
    host = f"{location.bucket}@{location.account_host}" if location.account_host else location.bucket
    path = f"{location.path}/" if location.path else ""
    return [f"{scheme}://{host}/{path}" for scheme in _SAME_STORE[location.kind]] + [f"/{path}"]


def vector_keys(vectors: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """The keys of the files that deletion vectors are in, each once; inline vectors are in none.

    Args:
        vectors: the column `deletionVector`.
        uri: the table's location.
    """
    vectors = vectors.drop_null()
    kinds = pc.struct_field(vectors, ["storageType"])
    texts = pc.struct_field(vectors, ["pathOrInlineDv"])
    relative = texts.filter(pc.equal(kinds, "u")).unique().to_pylist()
    own = [vector_path(DeletionVector("u", text, 0, 0)) for text in relative]
    named = binaries([path.encode("utf-8", "surrogateescape") for path in own])
    absolute = texts.filter(pc.equal(kinds, "p")).unique()
    below = keys_below(pa.chunked_array([absolute]), uri).drop_null()
    return pa.chunked_array([named.cast(pa.binary()), *below.chunks], pa.binary())


def referenced_keys(snapshot: Snapshot, cutoff_ms: int) -> pa.Array:
    """The keys that readers may still need: live files, files removed at `cutoff_ms` or later, and their vectors."""
    live = snapshot.files(columns=["path", "deletionVector"])
    removed = snapshot.tombstones(include_expired=True)
    removed = removed.filter(pc.greater_equal(pc.fill_null(removed.column("deletionTimestamp"), 0), cutoff_ms))
    chunks: list[pa.Array] = []
    for files in (live, removed):
        chunks += keys_below(files.column("path"), snapshot.uri).drop_null().chunks
        chunks += vector_keys(files.column("deletionVector"), snapshot.uri).chunks
    return pa.chunked_array(chunks, pa.binary()).combine_chunks()
