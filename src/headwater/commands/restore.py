"""RESTORE: make the table what it was at an earlier version, in a new commit.

Files that the old version has and the newest has not are added again, the others removed; deletion vectors tell two
states of one data file apart. metaData is that of the old version, while the protocol, the highest column id and the
marks of identity columns never go down: what readers were once promised stays true.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.commands.table_keys import keys_below, vector_keys
from headwater.errors import InvalidCommitError, MissingFilesError, ObjectNotFoundError
from headwater.features import clustering
from headwater.features.identity_columns import merged_marks
from headwater.features.protocols import at_least, with_features
from headwater.features.registry import supported_features
from headwater.features.row_tracking import with_last_row_ids
from headwater.log.actions.model import DomainMetadata
from headwater.log.actions.paths import absolute_paths, canonical_array
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration.properties import MAX_COLUMN_ID
from headwater.log.files.chunks import unique_ids
from headwater.log.files.listing import list_tree
from headwater.log.files.live import additions, removals
from headwater.log.opening import open_snapshot

if TYPE_CHECKING:
    from datetime import date, datetime

    from headwater.features.context import TableRef
    from headwater.log.actions.model import Metadata, Protocol
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


_SHOWN = 5
NO_CLUSTERING = '{"clusteringColumns":[],"domainName":"delta.clustering"}'


@dataclass(frozen=True, slots=True)
class Restored:
    """The metrics of a restore, and the version that it made."""

    version: int
    """The new version."""
    restored_version: int
    """The old version whose state it has."""
    table_size_after_restore: int
    num_of_files_after_restore: int
    num_removed_files: int
    num_restored_files: int
    removed_files_size: int
    restored_files_size: int


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore: an older version, or the one of a point in time.

    `ignore_missing_files` restores although files are missing; reading them will fail.
    """

    table: TableRef
    version: int | None = None
    timestamp: str | datetime | date | int | None = None
    ignore_missing_files: bool = False

    def __post_init__(self) -> None:
        if (self.version is None) == (self.timestamp is None):
            raise ValueError("say what to restore to: a version or a timestamp")


def restore(request: RestoreRequest) -> Restored:
    """Restore a table to an older version.

    Raises:
        VersionNotFoundError: there is no such version (any more).
        InvalidCommitError: it is the newest version already, or the table only allows appends.
        MissingFilesError: VACUUM, or somebody else, has deleted files of that version.
        DeltaConcurrentModificationException: somebody else changed the table meanwhile.
    """
    ctx = request.table.context()
    newest = open_snapshot(ctx)
    wanted = open_snapshot(ctx, version=request.version, timestamp=request.timestamp)
    if wanted.version >= newest.version:
        raise InvalidCommitError(
            f"{ctx.uri} cannot be restored to version {wanted.version}, which is its newest version already."
        )
    transaction = Transaction(ctx, newest)
    transaction.reads_whole_table()
    back, gone = _difference(wanted, newest)
    if not request.ignore_missing_files:
        _check_files(wanted, back)
    _set_table(transaction, wanted, newest)
    transaction.add(with_last_row_ids(additions(back, data_change=True), newest, wanted.version))
    transaction.remove(removals(gone, ctx.clock_ms(), data_change=True))
    metrics = {
        "tableSizeAfterRestore": wanted.size_bytes,
        "numOfFilesAfterRestore": wanted.num_files,
        "numRemovedFiles": gone.num_rows,
        "numRestoredFiles": back.num_rows,
        "removedFilesSize": _size(gone),
        "restoredFilesSize": _size(back),
    }
    by_version = request.timestamp is None
    parameters = {"version": request.version} if by_version else {"timestamp": str(request.timestamp)}
    done = transaction.commit(Operation("RESTORE", parameters, metrics), "Serializable")
    return Restored(done.version, wanted.version, *metrics.values())


def _difference(wanted: Snapshot, newest: Snapshot) -> tuple[pa.Table, pa.Table]:
    """Return the files to add again, and those to remove."""
    old, new = wanted.files(), newest.files()
    old_keys, new_keys = file_keys(old), file_keys(new)
    back = old.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))
    gone = new.filter(pc.invert(pc.is_in(new_keys, value_set=old_keys)))
    return back, gone


def file_keys(files: pa.Table) -> pa.Array:
    """Return one value for each logical file: its canonical path and its deletion vector."""
    paths = [canonical_array(chunk).cast(pa.binary()) for chunk in files.column("path").chunks]
    vectors = unique_ids(files.column("deletionVector")).cast(pa.binary())
    return pc.binary_join_element_wise(pa.chunked_array(paths, pa.binary()), vectors, b"\0").combine_chunks()


def _size(files: pa.Table) -> int:
    return int(pc.sum(files.column("size")).as_py() or 0)


def _check_files(wanted: Snapshot, files: pa.Table) -> None:
    missing = missing_files(wanted, files)
    if not missing:
        return
    shown = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
    raise MissingFilesError(
        f"{wanted.uri} cannot be restored to version {wanted.version}: files of it are not there any more, deleted by "
        f"VACUUM or by hand: {shown}. Restore a newer version; or, to restore what is left, set "
        "spark.sql.files.ignoreMissingFiles to true (--ignore-missing-files).",
        tuple(missing),
    )


def _set_table(transaction: Transaction, wanted: Snapshot, newest: Snapshot) -> None:
    protocol = _protocol(wanted.protocol, newest.protocol)
    if protocol != newest.protocol:
        transaction.set_protocol(protocol)
    metadata = _metadata(wanted, newest)
    if metadata != newest.metadata:
        transaction.set_metadata(metadata)
    before = clustering.clustering_columns(newest.domain_metadata)
    if clustering.clustering_columns(wanted.domain_metadata) != before:
        configuration = wanted.domain_metadata.get(clustering.DOMAIN, NO_CLUSTERING)
        transaction.set_domain(DomainMetadata(clustering.DOMAIN, configuration))


def _protocol(wanted: Protocol, newest: Protocol) -> Protocol:
    merged = with_features(newest, sorted(supported_features(wanted)))
    return at_least(merged, wanted.min_reader_version, wanted.min_writer_version)


def _metadata(wanted: Snapshot, newest: Snapshot) -> Metadata:
    """Return the old metaData, with the newest marks of column ids and identity columns."""
    metadata = wanted.metadata
    configuration = dict(metadata.configuration)
    ids = [int(MAX_COLUMN_ID.read(m.configuration) or "0") for m in (metadata, newest.metadata)]
    if MAX_COLUMN_ID.name in configuration:
        configuration[MAX_COLUMN_ID.name] = str(max(ids))
    schema = merged_marks(wanted.schema, newest.schema)
    text = metadata.schema_string if schema == wanted.schema else schema.to_json()
    return msgspec.structs.replace(metadata, configuration=configuration, schema_string=text)


_FEW = 1_000
"""So many files are looked up one by one; more are found in a listing."""
_PARALLEL = 32


def missing_files(snapshot: Snapshot, files: pa.Table) -> list[str]:
    """Return the files that are not in the store: keys of the table, or absolute paths of files outside it."""
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
