"""RESTORE: make the table what it was at an earlier version, in a commit of its own.

The files that the old version had and the newest has not are added again, the others removed; deletion vectors tell
two states of one data file apart. metaData is that of the old version, while the protocol, the highest column id
and the marks of identity columns only ever go up: what was once promised to readers stays true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidCommitError, MissingFilesError
from headwater.features import clustering
from headwater.features.activation import supported_features
from headwater.features.identity_columns import merged_marks
from headwater.features.properties import MAX_COLUMN_ID
from headwater.features.protocols import at_least, with_features
from headwater.features.row_tracking import with_last_row_ids
from headwater.log.actions import DomainMetadata
from headwater.log.draft import Operation
from headwater.log.file_actions import additions, removals
from headwater.log.file_chunks import unique_ids
from headwater.log.opening import open_snapshot
from headwater.log.paths import canonical_array
from headwater.log.transaction import Transaction
from headwater.maintenance.missing_files import missing_files

if TYPE_CHECKING:
    from datetime import date, datetime

    from headwater.log.actions import Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

_SHOWN = 5
NO_CLUSTERING = '{"clusteringColumns":[],"domainName":"delta.clustering"}'


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done."""

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


def restore(
    ctx: LogContext,
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    *,
    ignore_missing_files: bool = False,
) -> Restored:
    """Restore the table to a version, or to what it was at a point in time.

    Args:
        ctx: the table's log.
        version: an older version than the newest.
        timestamp: or a point in time.
        ignore_missing_files: restore although files are missing; reading them will fail.

    Raises:
        VersionNotFoundError: there is no such version (any more).
        InvalidCommitError: it is the newest version already, or the table only allows appends.
        MissingFilesError: VACUUM, or somebody else, has deleted files of that version.
        DeltaConcurrentModificationException: somebody else changed the table meanwhile.
    """
    if (version is None) == (timestamp is None):
        raise ValueError("say what to restore to: a version or a timestamp")
    newest = open_snapshot(ctx)
    wanted = open_snapshot(ctx, version=version, timestamp=timestamp)
    if wanted.version >= newest.version:
        raise InvalidCommitError(
            f"{ctx.uri} cannot be restored to version {wanted.version}, which is its newest version already."
        )
    transaction = Transaction(ctx, newest)
    transaction.reads_whole_table()
    back, gone = _difference(wanted, newest)
    if not ignore_missing_files:
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
    parameters = {"version": version} if timestamp is None else {"timestamp": str(timestamp)}
    done = transaction.commit(Operation("RESTORE", parameters, metrics), "Serializable")
    return Restored(done.version, wanted.version, *metrics.values())


def _difference(wanted: Snapshot, newest: Snapshot) -> tuple[pa.Table, pa.Table]:
    """The files to add again, and those to remove: by path and deletion vector."""
    old, new = wanted.files(), newest.files()
    old_keys, new_keys = file_keys(old), file_keys(new)
    back = old.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))
    gone = new.filter(pc.invert(pc.is_in(new_keys, value_set=old_keys)))
    return back, gone


def file_keys(files: pa.Table) -> pa.Array:
    """One value for each logical file: its canonical path and its deletion vector."""
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
    """The old metaData; column ids and identity values that were given since then stay given."""
    metadata = wanted.metadata
    configuration = dict(metadata.configuration)
    ids = [int(m.configuration.get(MAX_COLUMN_ID, "0")) for m in (metadata, newest.metadata)]
    if MAX_COLUMN_ID in configuration:
        configuration[MAX_COLUMN_ID] = str(max(ids))
    schema = merged_marks(wanted.schema, newest.schema)
    text = metadata.schema_string if schema == wanted.schema else schema.to_json()
    return msgspec.structs.replace(metadata, configuration=configuration, schema_string=text)
