"""Checking a snapshot against its version checksum (spec: "State Validation").

Also reports what a commit does against the protocol without making its meaning unclear.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.log import names
from headwater.log.checksum import Discrepancy, VersionChecksum, read_checksum
from headwater.log.commit import file_key
from headwater.log.paths import canonical
from headwater.log.replay import illegal_actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.actions import Metadata, Protocol
    from headwater.log.snapshot import Snapshot

_Pair = tuple[str, Any, Any]
"""A field, what the log says, what the checksum says."""

_DELETED_BIN_STARTS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2_147_483_647)


def verify(snapshot: Snapshot) -> list[Discrepancy]:
    """Every discrepancy between the log and its checksum, and every illegal action after the checkpoint."""
    found = [
        Discrepancy(commit.key, "actions", "at most one add and one remove for a path", text)
        for commit in snapshot.commits
        if commit.version == commit.end_version
        for text in illegal_actions(commit)
    ]
    checksum = read_checksum(snapshot.ctx.store, snapshot.version)
    if isinstance(checksum, Discrepancy):
        return [checksum, *found]
    if checksum is not None:
        key = names.checksum_key(snapshot.version)
        pairs = [*_required(snapshot, checksum), *_optional(snapshot, checksum)]
        # A field that the writer left out (old ones had few) contradicts nothing.
        found = [Discrepancy(key, name, log, crc) for name, log, crc in pairs if crc is not None and log != crc] + found
    return found


def _required(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    yield "numFiles", snapshot.num_files, checksum.num_files
    yield "tableSizeBytes", snapshot.size_bytes, checksum.table_size_bytes
    yield "numMetadata", 1, checksum.num_metadata
    yield "numProtocol", 1, checksum.num_protocol
    yield "metadata", _comparable(snapshot.metadata), _comparable(checksum.metadata)
    yield "protocol", _comparable(snapshot.protocol), _comparable(checksum.protocol)


def _optional(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    recorded = snapshot.timestamp if snapshot.has_in_commit_timestamps else None
    yield "inCommitTimestampOpt", recorded, checksum.in_commit_timestamp_opt
    if checksum.set_transactions is not None:
        transactions = {t.app_id: t.version for t in checksum.set_transactions}
        yield "setTransactions", snapshot.app_transactions, transactions
    if checksum.domain_metadata is not None:
        domains = {d.domain: d.configuration for d in checksum.domain_metadata if not d.removed}
        yield "domainMetadata", snapshot.domain_metadata, domains
    if checksum.file_size_histogram is not None:
        yield from _size_histogram(snapshot, checksum)
    yield from _deletions(snapshot, checksum)
    if checksum.all_files is not None:
        recorded_files = sorted((*file_key(add), add.size) for add in checksum.all_files)
        yield (
            "allFiles",
            _live_keys(snapshot),
            [(path, vector or "", size) for path, vector, size in recorded_files],
        )


def _size_histogram(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    histogram = checksum.file_size_histogram
    assert histogram is not None
    starts = histogram.sorted_bin_boundaries
    counts, sizes = [0] * len(starts), [0] * len(starts)
    for size in snapshot.file_sizes():
        index = bisect_right(starts, size) - 1
        counts[index] += 1
        sizes[index] += size
    yield "fileSizeHistogram.fileCounts", counts, histogram.file_counts
    yield "fileSizeHistogram.totalBytes", sizes, histogram.total_bytes


def _deletions(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    recorded = checksum.deleted_record_counts_histogram_opt
    if checksum.num_deletion_vectors_opt is None and checksum.num_deleted_records_opt is None and recorded is None:
        return
    vectors = snapshot.files(columns=["deletionVector"]).column("deletionVector").drop_null().to_pylist()
    cardinalities = [vector["cardinality"] for vector in vectors]
    if checksum.num_deletion_vectors_opt is not None:
        yield "numDeletionVectorsOpt", len(cardinalities), checksum.num_deletion_vectors_opt
    if checksum.num_deleted_records_opt is not None:
        yield "numDeletedRecordsOpt", sum(cardinalities), checksum.num_deleted_records_opt
    if recorded is not None:
        counts = [0] * len(_DELETED_BIN_STARTS)
        counts[0] = snapshot.num_files - len(cardinalities)
        for cardinality in cardinalities:
            counts[bisect_right(_DELETED_BIN_STARTS, cardinality) - 1] += 1
        yield "deletedRecordCountsHistogramOpt", counts, recorded.deleted_record_counts


def _live_keys(snapshot: Snapshot) -> list[tuple[str, str, int]]:
    """The live files as (canonical path, deletion vector id, size), sorted."""
    from headwater.log.file_chunks import unique_ids

    files = snapshot.files(columns=["path", "deletionVector", "size"])
    paths = [canonical(path) for path in files.column("path").to_pylist()]
    vectors = unique_ids(files.column("deletionVector")).to_pylist()
    return sorted(zip(paths, vectors, files.column("size").to_pylist(), strict=True))


def _comparable(action: Metadata | Protocol | None) -> Any:
    """An action as plain values: the order of features says nothing, nor does white space in the schema."""
    if action is None:
        return None
    value = msgspec.to_builtins(action)
    for name in ("readerFeatures", "writerFeatures"):
        if value.get(name) is not None:
            value[name] = sorted(value[name])
    with suppress(msgspec.DecodeError):
        value["schemaString"] = msgspec.json.decode(value.get("schemaString", ""))
    return value
