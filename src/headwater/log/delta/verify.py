"""Check a snapshot against its version checksum, and commits against the protocol (spec: "State Validation").

Illegal actions whose meaning is clear are reported only; actions of one commit that contradict each other also raise
when the commit is replayed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import CorruptLogError
from headwater.log.actions.decode import CommitActions, decode_lines, file_actions, file_key
from headwater.log.actions.model import Add, CheckpointOnlyLine, Remove
from headwater.log.actions.paths import canonical
from headwater.log.delta import names
from headwater.log.delta.checksum import DELETED_RECORD_BIN_STARTS, Discrepancy, VersionChecksum, read_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headwater.log.actions.model import Metadata, Protocol
    from headwater.log.delta.checksum import FileSizeHistogram
    from headwater.log.snapshot import Snapshot


_Pair = tuple[str, Any, Any]
"""A field, what the log says, what the checksum says."""

_File = tuple[str, str | None, int, int | None, list[tuple[str, str]]]
"""Canonical path, deletion vector id, size, modification time and partition values."""


def verify(snapshot: Snapshot) -> list[Discrepancy]:
    """Return every discrepancy between the log and its checksum, and every illegal action after the checkpoint."""
    illegal = [
        Discrepancy(commit.key, "actions", "what the protocol allows in one commit", text)
        for commit in snapshot.commits
        if commit.version == commit.end_version
        for text in illegal_actions(commit)
    ]
    checksum = read_checksum(snapshot.ctx.store, snapshot.version)
    if checksum is None:
        return illegal
    if isinstance(checksum, Discrepancy):
        return [checksum, *illegal]
    key = names.checksum_key(snapshot.version)
    try:
        pairs = [*_required(snapshot, checksum), *_optional(snapshot, checksum)]
    except CorruptLogError:
        if illegal:  # the log contradicts itself, as was found above: there is nothing to compare with
            return illegal
        raise
    # A field that the writer left out (old ones had few) contradicts nothing.
    return [Discrepancy(key, name, log, crc) for name, log, crc in pairs if crc is not None and log != crc] + illegal


def _required(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    yield "numFiles", snapshot.num_files, checksum.num_files
    yield "tableSizeBytes", snapshot.size_bytes, checksum.table_size_bytes
    yield "numMetadata", 1, checksum.num_metadata
    yield "numProtocol", 1, checksum.num_protocol
    yield "metadata", _comparable(snapshot.metadata), _comparable(checksum.metadata)
    yield "protocol", _comparable(snapshot.protocol), _comparable(checksum.protocol)


def _optional(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    if snapshot.segment.commit_meta is not None:  # otherwise nothing in the log still tells it
        recorded = snapshot.timestamp if snapshot.configuration.has_in_commit_timestamps else None
        yield "inCommitTimestampOpt", recorded, checksum.in_commit_timestamp_opt
    transaction = _transaction_id(snapshot)
    if transaction is not None:
        yield "txnId", transaction, checksum.txn_id
    if checksum.set_transactions is not None:
        transactions = {t.app_id: t.version for t in checksum.set_transactions}
        yield "setTransactions", snapshot.app_transactions, transactions
    if checksum.domain_metadata is not None:
        domains = {d.domain: d.configuration for d in checksum.domain_metadata if not d.removed}
        yield "domainMetadata", snapshot.domain_metadata, domains
    if checksum.file_size_histogram is not None:
        yield from _size_histogram(snapshot, checksum.file_size_histogram)
    yield from _deletions(snapshot, checksum)
    if checksum.all_files is not None:
        recorded_files = [
            (*file_key(add), add.size, add.modification_time, sorted(_present(add.partition_values.items())))
            for add in checksum.all_files
        ]
        yield "allFiles", _live_files(snapshot), _sorted_files(recorded_files)


def _transaction_id(snapshot: Snapshot) -> Any:
    """What the commit of this version says about the transaction that made it, if anything."""
    meta = snapshot.segment.commit_meta
    if meta is None:
        return None
    commit = CommitActions.of(snapshot.version, snapshot.ctx.store.get(meta.key), snapshot.ctx.dialect)
    return (commit.commit_info or {}).get("txnId")


def _size_histogram(snapshot: Snapshot, histogram: FileSizeHistogram) -> Iterator[_Pair]:
    starts = histogram.sorted_bin_boundaries
    if not starts or starts[0] != 0 or any(start >= end for start, end in pairwise(starts)):
        yield "fileSizeHistogram.sortedBinBoundaries", "ascending numbers from 0 on", starts
        return
    sizes = sorted(snapshot.file_sizes())
    bytes_before = [0, *accumulate(sizes)]
    positions = _positions(sizes, starts)
    yield "fileSizeHistogram.fileCounts", [end - start for start, end in pairwise(positions)], histogram.file_counts
    totals = [bytes_before[end] - bytes_before[start] for start, end in pairwise(positions)]
    yield "fileSizeHistogram.totalBytes", totals, histogram.total_bytes


def _positions(values: list[int], starts: Sequence[int]) -> list[int]:
    """Where the bins start among sorted values, and where the last one ends; nothing is before the first bin."""
    return [0, *(bisect_left(values, start) for start in starts[1:]), len(values)]


def _deletions(snapshot: Snapshot, checksum: VersionChecksum) -> Iterator[_Pair]:
    histogram = checksum.deleted_record_counts_histogram_opt
    if (checksum.num_deletion_vectors_opt, checksum.num_deleted_records_opt, histogram) == (None, None, None):
        return
    import pyarrow.compute as pc

    vectors = snapshot.files(columns=["deletionVector"]).column("deletionVector").drop_null()
    cardinalities = sorted(pc.fill_null(pc.struct_field(vectors, ["cardinality"]), 0).to_pylist())
    yield "numDeletionVectorsOpt", len(cardinalities), checksum.num_deletion_vectors_opt
    yield "numDeletedRecordsOpt", sum(cardinalities), checksum.num_deleted_records_opt
    if histogram is not None:
        positions = _positions(cardinalities, DELETED_RECORD_BIN_STARTS)
        counts = [end - start for start, end in pairwise(positions)]
        counts[0] += snapshot.num_files - len(cardinalities)
        yield "deletedRecordCountsHistogramOpt", counts, histogram.deleted_record_counts


def _live_files(snapshot: Snapshot) -> list[_File]:
    """Return the live files, as far as a checksum must agree with them. Only small tables have theirs in a checksum."""
    from headwater.log.files.chunks import unique_ids

    columns = ["path", "deletionVector", "size", "modificationTime", "partitionValues"]
    files = snapshot.files(columns=columns)
    return _sorted_files(
        (canonical(path), vector or None, size, modified, sorted(_present(values or ())))
        for path, vector, size, modified, values in zip(
            files.column("path").to_pylist(),
            unique_ids(files.column("deletionVector")).to_pylist(),
            *(files.column(name).to_pylist() for name in columns[2:]),
            strict=True,
        )
    )


def _present(values: Iterable[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """Partition values that are not null: whether the others are written or left out says nothing."""
    return [(name, value) for name, value in values if value is not None]


def _sorted_files(files: Iterable[_File]) -> list[_File]:
    return sorted(files, key=lambda file: (file[0], file[1] or "", str(file[2:])))


def _comparable(action: Metadata | Protocol | None) -> Any:
    """Return an action as plain values: the order of features says nothing, nor does white space in the schema."""
    if action is None:
        return None
    value = msgspec.to_builtins(action)
    for name in ("readerFeatures", "writerFeatures"):
        if value.get(name) is not None:
            value[name] = sorted(value[name])
    with suppress(msgspec.DecodeError, RecursionError):
        value["schemaString"] = msgspec.json.decode(value.get("schemaString", ""))
    return value


_CHECKPOINT_ONLY_LINE = msgspec.json.Decoder(CheckpointOnlyLine)


def illegal_actions(commit: CommitActions) -> list[str]:
    """What the commit does against the protocol, one phrase each."""
    files = list(file_actions(commit))
    seen = Counter([*_file_subjects(files), *_table_subjects(commit)])
    repeated = [f"{count} {what}" for what, count in seen.items() if count > 1]
    return repeated + _added_and_removed(files) + _misplaced(commit)


def _file_subjects(files: list[Add | Remove]) -> Iterator[str]:
    for action in files:
        yield f"{type(action).__name__.lower()} actions for the path {file_key(action)[0]!r}"


def _added_and_removed(files: list[Add | Remove]) -> list[str]:
    added = {file_key(action) for action in files if isinstance(action, Add)}
    removed = {file_key(action): action.path for action in files if isinstance(action, Remove)}
    return [f"both add and remove of the logical file {removed[key]!r}" for key in removed if key in added]


def _table_subjects(commit: CommitActions) -> Iterator[str]:
    for line in commit.table_lines():
        if line.protocol is not None:
            yield "protocol actions"
        if line.meta_data is not None:
            yield "metaData actions"
        if line.txn is not None:
            yield f"txn actions for {line.txn.app_id!r}"
        if line.domain_metadata is not None:
            yield f"domainMetadata actions for {line.domain_metadata.domain!r}"


def _misplaced(commit: CommitActions) -> list[str]:
    lines = decode_lines(_CHECKPOINT_ONLY_LINE, commit.data, commit.key)
    found = {
        "sidecar": any(line.sidecar is not None for line in lines),
        "checkpointMetadata": any(line.checkpoint_metadata is not None for line in lines),
    }
    return [f"a {name} action, which belongs in a checkpoint" for name, present in found.items() if present]
