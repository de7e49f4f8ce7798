"""Manifests of a table's data files for engines that know symlinks and not Delta (Presto, Athena, Hive).

Below `_symlink_format_manifest` each partition has a file `manifest` with the locations of its data files, one a line.
With the table property `delta.compatibility.symlinkFormatManifest.enabled` every commit brings them up to date.
Readers of manifests know neither deletion vectors nor column mapping, so such tables are refused.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.basic_rules import DELETION_VECTORS
from headwater.log.actions.decode import file_actions
from headwater.log.actions.paths import partition_directory
from headwater.log.configuration.properties import SYMLINK_MANIFESTS
from headwater.storage.copying import delete_data

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.snapshot import Snapshot

MANIFESTS = "_symlink_format_manifest/"
_NAME = "manifest"
_PARALLEL = 16
_ROUNDS = 10
"""How often manifests are written again because another commit came in between."""


def symlink_manifest_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Tables that keep manifests have no deletion vectors and no column mapping."""
    if not attempt.configuration[SYMLINK_MANIFESTS]:
        return draft
    refused = f"{SYMLINK_MANIFESTS.name} cannot be true"
    if DELETION_VECTORS.is_enabled(attempt.configuration):
        raise InvalidCommitError(
            f"{refused} while delta.enableDeletionVectors is: who reads manifests does not see which rows are deleted."
        )
    if attempt.configuration.mapping_mode != "none":
        raise InvalidCommitError(f"{refused} on a table with column mapping: who reads manifests goes by column names.")
    bad = next((add.path for add in draft.adds if add.deletion_vector is not None), None)
    if bad is None and draft.metadata is not None and attempt.snapshot is not None:
        bad = file_with_vector(attempt.snapshot)
    if bad is not None:
        raise InvalidCommitError(
            f"{refused}: {bad!r} has a deletion vector, which who reads manifests does not see. Purge the deletion "
            "vectors first (reorg().executePurge())."
        )
    return draft


def file_with_vector(snapshot: Snapshot) -> str | None:
    """Return a live file that has a deletion vector, if there is one."""
    if not snapshot.protocol.supports("deletionVectors"):
        return None
    files = snapshot.files(columns=["path", "deletionVector"])
    found = files.column("path").filter(files.column("deletionVector").is_valid())
    return str(found[0].as_py()) if len(found) else None


def write_manifests(snapshot: Snapshot) -> None:
    """Write the manifests of all partitions, and delete those of partitions that are gone.

    Raises:
        InvalidCommitError: the table has deletion vectors or column mapping.
    """
    if snapshot.mapping_mode != "none":
        raise InvalidCommitError(
            f"no manifests can be generated for {snapshot.uri}: it has column mapping, and who reads manifests goes by "
            "column names."
        )
    bad = file_with_vector(snapshot)
    if bad is not None:
        raise InvalidCommitError(
            f"no manifests can be generated for {snapshot.uri}: {bad!r} has a deletion vector, which who reads "
            "manifests does not see. Purge the deletion vectors first (reorg().executePurge())."
        )
    written = _write(snapshot, None)
    there = [meta.key for meta in snapshot.ctx.store.list_from(MANIFESTS, recursive=True)]
    delete_data(snapshot.ctx.store, [key for key in there if key.endswith(f"/{_NAME}") and key not in written])


def update_manifests(snapshot: Snapshot) -> None:
    """Bring the manifests up to date after a commit: those of the partitions that it has touched.

    Two commits may do this at the same time; the later one sees a newer version, and does it again.
    """
    for _ in range(_ROUNDS):
        touched = _touched(snapshot)
        if touched is None or not snapshot.ctx.store.list_from(MANIFESTS, recursive=True):
            write_manifests(snapshot)
        else:
            written = _write(snapshot, touched)
            delete_data(snapshot.ctx.store, [_key(d) for d in touched if _key(d) not in written])
        newest = snapshot.refresh()
        if newest is snapshot:
            return
        snapshot = newest


def _touched(snapshot: Snapshot) -> set[str] | None:
    """Return the directories of the partitions that the newest commit has changed; None if that cannot be told."""
    if not snapshot.commits or snapshot.commits[-1].version != snapshot.version:
        return None
    commit = snapshot.commits[-1]
    if commit.table_actions.metadata is not None:
        return None
    found: set[str] = set()
    for action in file_actions(commit):
        if action.partition_values is None:
            return None
        found.add(_directory(snapshot, action.partition_values))
    return found


def _directory(snapshot: Snapshot, values: dict[str, str | None]) -> str:
    found = partition_directory({name: values.get(name) or None for name in snapshot.partition_columns})
    if found is None:
        raise InvalidCommitError(f"a partition of {snapshot.uri} has too long a name for a manifest: {values}.")
    return found


def _key(directory: str) -> str:
    return "/".join(part for part in (MANIFESTS.rstrip("/"), directory, _NAME) if part)


def _write(snapshot: Snapshot, wanted: Collection[str] | None) -> set[str]:
    """Write the manifests of some partitions (of all if None); their keys."""
    manifests: dict[str, pa.Array] = {}
    for directory, paths in _files_by_directory(snapshot).items():
        if wanted is None or directory in wanted:
            manifests[_key(directory)] = paths
    store = snapshot.ctx.store

    def put(item: tuple[str, pa.Array]) -> None:
        key, paths = item
        store.put(key, "".join(f"{path}\n" for path in paths.to_pylist()).encode("utf-8", "surrogateescape"))

    with ThreadPoolExecutor(_PARALLEL, "headwater-manifests") as pool:
        list(pool.map(put, manifests.items()))
    return set(manifests)


def _files_by_directory(snapshot: Snapshot) -> dict[str, pa.Array]:
    """Return the locations of the live files, by the directory of their partition."""
    import pyarrow as pa

    from headwater.log.actions.paths import absolute_paths
    from headwater.log.files.chunks import values_of_key

    files = snapshot.files(columns=["path", "partitionValues"])
    located = pa.chunked_array([absolute_paths(c, snapshot.uri) for c in files.column("path").chunks], pa.string())
    names = snapshot.partition_columns
    if not names:
        return {"": located.combine_chunks()}
    maps = files.column("partitionValues").chunks
    columns = {f"{i}": pa.chunked_array([values_of_key(m, n) for m in maps], pa.string()) for i, n in enumerate(names)}
    grouped = pa.table({**columns, "path": located}).group_by(list(columns)).aggregate([("path", "list")])
    found: dict[str, pa.Array] = {}
    for number, values in enumerate(zip(*(grouped.column(c).to_pylist() for c in columns), strict=True)):
        directory = _directory(snapshot, dict(zip(names, values, strict=True)))
        paths = grouped.column("path_list")[number].values
        # An empty text is a null as well: two groups may be one partition.
        found[directory] = paths if directory not in found else pa.concat_arrays([found[directory], paths])
    return found
