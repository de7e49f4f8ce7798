"""Which data files (and files of deletion vectors) are not in the store any more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ObjectNotFoundError
from headwater.log.file_uris import absolute_paths
from headwater.log.tree import list_tree
from headwater.maintenance.table_keys import keys_below, vector_keys

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore

_FEW = 1_000
"""So many files are looked up one by one; more are found in a listing."""
_PARALLEL = 32


def missing_files(snapshot: Snapshot, files: pa.Table) -> list[str]:
    """The files that are not there: keys of the table, or absolute paths of files outside it.

    Args:
        snapshot: of the table.
        files: with the columns `path` and `deletionVector`.
    """
    keys = keys_below(files.column("path"), snapshot.uri)
    own = [*keys.drop_null().chunks, *vector_keys(files.column("deletionVector"), snapshot.uri).chunks]
    wanted = pa.chunked_array(own, pa.binary()).unique()
    outside = files.column("path").filter(keys.is_null()).combine_chunks()
    paths = absolute_paths(outside, snapshot.uri).to_pylist() if len(outside) else []
    return _missing_keys(snapshot.ctx.store, wanted) + _missing_paths(snapshot, paths)


def _missing_keys(store: ObjectStore, wanted: pa.Array) -> list[str]:
    if len(wanted) > _FEW:
        there = list_tree(store, lambda prefix: prefix != "_delta_log/").objects.column("key").combine_chunks()
        # A listing does not follow links, nor does it know a file by another case of its letters.
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=there)))
    keys = [key.decode("utf-8", "surrogateescape") for key in wanted.to_pylist()]
    with ThreadPoolExecutor(_PARALLEL, "headwater-heads") as pool:
        there_flags = list(pool.map(lambda key: _is_there(store, key), keys))
    return [key for key, is_there in zip(keys, there_flags, strict=True) if not is_there]


def _missing_paths(snapshot: Snapshot, paths: list[str]) -> list[str]:
    with ThreadPoolExecutor(_PARALLEL, "headwater-heads") as pool:
        # A path on a disk is taken as it is, where a URI would be decoded once more.
        places = [snapshot.ctx.open_absolute(path.removeprefix("file:")) for path in paths]
        flags = list(pool.map(lambda place: _is_there(*place), places))
    return [path for path, is_there in zip(paths, flags, strict=True) if not is_there]


def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True
