"""Read and write version checksums (spec: "Version Checksum File", "File Size Histogram Schema").

The log always counts more than a checksum (`headwater.log.delta.verify` compares the two); a missing or damaged one
breaks nothing, and an existing one is never overwritten.

Each checksum follows from the one before and the files that the commits since then touch, so an append costs the same
in a table of ten files and of a million. Other files are looked up in the state before, as other writers may add a
file that is live or remove one that is not. All live files are counted only when no earlier checksum is known.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError
from headwater.log.actions.decode import commit_files, replay_files
from headwater.log.actions.encode import domain_fields, metadata_fields, protocol_fields
from headwater.log.actions.model import Add, DomainMetadata, Long, Metadata, Protocol, Txn
from headwater.log.delta import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headwater.log.actions.decode import CommitActions, FileKey
    from headwater.log.actions.model import Remove
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


DELETED_RECORD_BIN_STARTS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2_147_483_647)
"""Where the bins of `deletedRecordCountsHistogramOpt` start."""


class FileSizeHistogram(msgspec.Struct, rename="camel", frozen=True):
    """Files and bytes by size."""

    sorted_bin_boundaries: list[Long]
    file_counts: list[Long]
    total_bytes: list[Long]


class DeletedRecordCountsHistogram(msgspec.Struct, rename="camel", frozen=True):
    """Files by the number of rows that deletion vectors remove from them."""

    deleted_record_counts: list[Long]


class VersionChecksum(msgspec.Struct, rename="camel", frozen=True):
    """The content of a `.crc` file."""

    table_size_bytes: Long | None = None
    num_files: Long | None = None
    num_metadata: Long | None = None
    num_protocol: Long | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txn_id: str | None = None
    in_commit_timestamp_opt: Long | None = None
    set_transactions: list[Txn] | None = None
    domain_metadata: list[DomainMetadata] | None = None
    file_size_histogram: FileSizeHistogram | None = None
    all_files: list[Add] | None = None
    num_deleted_records_opt: Long | None = None
    num_deletion_vectors_opt: Long | None = None
    deleted_record_counts_histogram_opt: DeletedRecordCountsHistogram | None = None


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that the log says and its checksum (or the protocol) contradicts."""

    source: str
    """The log file that is contradicted by the log."""
    field: str
    expected: Any
    """What the log says."""
    actual: Any
    """What the source says."""

    def __str__(self) -> str:
        return f"{self.source}: {self.field} is {self.actual!r}, the log says {self.expected!r}"


_CHECKSUM = msgspec.json.Decoder(VersionChecksum)


def read_checksum(store: ObjectStore, version: int) -> VersionChecksum | Discrepancy | None:
    """Return the checksum of a version; None when there is none, a discrepancy when it cannot be decoded."""
    key = names.checksum_key(version)
    try:
        data = store.get(key)
    except ObjectNotFoundError:
        return None
    try:
        return _CHECKSUM.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Discrepancy(key, "content", "a JSON object as specified", str(error))


_Named = TypeVar("_Named")

_KNOWN = "_known_checksum"
_LOOK_BACK = 8
"""How many versions back a checksum is looked for before the files are counted."""
_MOST_LISTED = 100
"""A longer list of transactions or domains is left out: it would be written again with every commit."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A checksum that this process has worked out, or found to belong to its commit."""

    version: int
    checksum: VersionChecksum


def write_checksum(snapshot: Snapshot, before: Snapshot | None) -> None:
    """Write the checksum of a version that has just been committed.

    Raises:
        StorageError: the store could not write it.
    """
    checksum = _with_state(snapshot, _counted(snapshot, before))
    vars(snapshot)[_KNOWN] = _Known(snapshot.version, checksum)
    with contextlib.suppress(ObjectAlreadyExistsError):
        snapshot.ctx.store.put_if_absent(names.checksum_key(snapshot.version), encode_checksum(checksum))


def carry_over(snapshot: Snapshot, to: Snapshot) -> Snapshot:
    """Hand on what is known of a version's checksum to another snapshot of that version."""
    if _KNOWN in vars(snapshot):
        vars(to)[_KNOWN] = vars(snapshot)[_KNOWN]
    return to


def encode_checksum(checksum: VersionChecksum) -> bytes:
    """Return the content of a `.crc` file; optional fields that are not known are left out."""
    fields: dict[str, Any] = {
        name: value
        for field, name in zip(VersionChecksum.__struct_fields__, VersionChecksum.__struct_encode_fields__, strict=True)
        if (value := getattr(checksum, field)) is not None
    }
    if checksum.metadata is not None:
        fields["metadata"] = metadata_fields(checksum.metadata)
    if checksum.protocol is not None:
        fields["protocol"] = protocol_fields(checksum.protocol)
    if checksum.domain_metadata is not None:
        fields["domainMetadata"] = [domain_fields(domain) for domain in checksum.domain_metadata]
    return msgspec.json.encode(fields)


# --- the checksum before, and the commits since --------------------------------------------------------


def _counted(snapshot: Snapshot, before: Snapshot | None) -> VersionChecksum:
    """Return the numbers of a version; everything else is as it was in the checksum before."""
    if before is None:
        start = _Known(snapshot.version - 1, nothing())
        return _after(start, snapshot, before) or count_files(snapshot)
    known = vars(snapshot).get(_KNOWN)
    if known is not None and (found := _after(known, snapshot, before)) is not None:
        return found
    oldest = before.version - _LOOK_BACK if known is None else known.version
    for version in range(before.version, max(oldest, -1), -1):
        if not _has_commits(snapshot, version + 1):
            break
        read = read_checksum(snapshot.ctx.store, version)
        if isinstance(read, VersionChecksum) and _belongs(read, snapshot, version):
            found = _after(_Known(version, read), snapshot, before)
            if found is not None:
                return found
    return count_files(snapshot)


def _has_commits(snapshot: Snapshot, first: int) -> bool:
    """Tell whether all commits from a version on are at hand, one by one."""
    since = [commit for commit in snapshot.commits if commit.end_version >= first]
    return [commit.version for commit in since] == list(range(first, snapshot.version + 1)) and all(
        commit.version == commit.end_version for commit in since
    )


def _belongs(checksum: VersionChecksum, snapshot: Snapshot, version: int) -> bool:
    """Tell whether a checksum that was found was written by the transaction that made its version, and says enough."""
    if checksum.num_files is None or checksum.table_size_bytes is None:
        return False
    commit = next((c for c in snapshot.commits if c.version == c.end_version == version), None)
    # Behind a checkpoint the commit itself is not at hand: then the id cannot be compared.
    return commit is None or (commit.commit_info or {}).get("txnId") == checksum.txn_id


def _after(known: _Known, snapshot: Snapshot, before: Snapshot | None) -> VersionChecksum | None:
    """Return the checksum of the snapshot, from that of an earlier version; None if that one was wrong."""
    if not _has_commits(snapshot, known.version + 1):
        return None
    since = [commit for commit in snapshot.commits if commit.version > known.version]
    now = replay_files(since)
    counts = Counts(known.checksum)
    # What the actions of a commit do depends on what was there: others may add a file that is live, or remove one that
    # is not, and may say another size than the log did.
    for file in _live_before(snapshot, known.version, before, _touched(now, since)).values():
        counts.count(file, -1)
    for action in now.values():
        if isinstance(action, Add):
            counts.count(CountedFile.of(action), 1)
    txns, domains = known.checksum.set_transactions, known.checksum.domain_metadata
    for commit in since:
        txns = _updated(txns, commit.table_actions.txns, attrgetter("app_id"))
        domains = _updated(domains, commit.table_actions.domains, attrgetter("domain"))
    return counts.into(msgspec.structs.replace(known.checksum, set_transactions=txns, domain_metadata=domains))


def _touched(now: dict[FileKey, Add | Remove], since: list[CommitActions]) -> set[FileKey]:
    """The files that may have been live before some commits: not those that only the last of them, which is ours, adds
    with new rows, as their names are unique.
    """
    by_others = {key for commit in since[:-1] for key in commit_files(commit)}
    return {
        key for key, action in now.items() if key in by_others or not isinstance(action, Add) or not action.data_change
    }


def _live_before(
    snapshot: Snapshot, version: int, before: Snapshot | None, keys: set[FileKey]
) -> dict[FileKey, CountedFile]:
    """Return those of some files that were live at a version from which on all commits are at hand."""
    if before is None or not keys:
        return {}
    tail = (
        before._tail
        if before.version == version
        else replay_files(commit for commit in snapshot.commits if commit.version <= version)
    )
    found = {key: CountedFile.of(action) for key in keys if isinstance(action := tail.get(key), Add)}
    return found | live_in_checkpoint(snapshot, keys - tail.keys())


def _updated(known: list[_Named] | None, new: dict[str, _Named], name: Callable[[_Named], str]) -> list[_Named] | None:
    """Return a list of `txn` or `domainMetadata` actions after those of a commit."""
    return None if known is None else list({**{name(action): action for action in known}, **new}.values())


# --- everything that is not counted ---------------------------------------------------------------------


def _with_state(snapshot: Snapshot, counted: VersionChecksum) -> VersionChecksum:
    """Return the checksum with protocol, metaData, the transaction and what the table records beside files."""
    commit = snapshot.commits[-1]
    transaction = (commit.commit_info or {}).get("txnId")
    txns: list[Txn] | None = counted.set_transactions
    domains: list[DomainMetadata] | None = counted.domain_metadata
    if "_table_state" in vars(snapshot) or snapshot.base.checkpoint is None:
        state = snapshot._table_state
        txns, domains = list(state.txns.values()), list(state.domains.values())
    if domains is not None:
        domains = [domain for domain in domains if not domain.removed]
    return msgspec.structs.replace(
        counted,
        num_metadata=1,
        num_protocol=1,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        txn_id=transaction if isinstance(transaction, str) else None,
        in_commit_timestamp_opt=commit.in_commit_timestamp if snapshot.configuration.has_in_commit_timestamps else None,
        set_transactions=txns if txns is None or len(txns) <= _MOST_LISTED else None,
        domain_metadata=domains if domains is None or len(domains) <= _MOST_LISTED else None,
        all_files=None,
    )


_SIZE_BIN_STARTS = [0, *(8_192 << n for n in range(26))]
"""Of the file size histogram: powers of two from 8 KiB to 256 GiB."""


class CountedFile(NamedTuple):
    """What is counted of a live file."""

    size: int
    cardinality: int | None
    """Of its deletion vector, if it has one."""

    @classmethod
    def of(cls, add: Add) -> CountedFile:
        vector = add.deletion_vector
        return cls(add.size, None if vector is None else vector.cardinality)


class Counts:
    """The numbers of a checksum while file actions are counted. Histograms keep the bins that they have."""

    def __init__(self, checksum: VersionChecksum) -> None:
        sizes = _sound_sizes(checksum.file_size_histogram)
        deletions = _sound_deletions(checksum.deleted_record_counts_histogram_opt)
        self.files = checksum.num_files or 0
        self.bytes = checksum.table_size_bytes or 0
        self.starts = [] if sizes is None else sizes.sorted_bin_boundaries
        self.file_counts = [] if sizes is None else list(sizes.file_counts)
        self.total_bytes = [] if sizes is None else list(sizes.total_bytes)
        self.vectors = checksum.num_deletion_vectors_opt
        self.deleted = checksum.num_deleted_records_opt
        self.by_deleted = [] if deletions is None else list(deletions.deleted_record_counts)

    def count(self, file: CountedFile, sign: int) -> None:
        """Count a file that has come (1) or gone (-1)."""
        size, cardinality = file
        self.files += sign
        self.bytes += sign * size
        if self.starts:
            bin_number = bisect_right(self.starts, size) - 1
            self.file_counts[bin_number] += sign
            self.total_bytes[bin_number] += sign * size
        deleted = cardinality or 0
        if self.vectors is not None:
            self.vectors += sign * (cardinality is not None)
        if self.deleted is not None:
            self.deleted += sign * deleted
        if self.by_deleted:
            self.by_deleted[bisect_right(DELETED_RECORD_BIN_STARTS, deleted) - 1] += sign

    def into(self, checksum: VersionChecksum) -> VersionChecksum | None:
        """Return the checksum with these numbers; None if they are impossible, so what they started from was wrong."""
        numbers = (self.files, self.bytes, self.vectors or 0, self.deleted or 0)
        if min(*numbers, *self.file_counts, *self.total_bytes, *self.by_deleted) < 0:
            return None
        sizes = FileSizeHistogram(self.starts, self.file_counts, self.total_bytes) if self.starts else None
        deletions = DeletedRecordCountsHistogram(self.by_deleted) if self.by_deleted else None
        return msgspec.structs.replace(
            checksum,
            num_files=self.files,
            table_size_bytes=self.bytes,
            file_size_histogram=sizes,
            num_deletion_vectors_opt=self.vectors,
            num_deleted_records_opt=self.deleted,
            deleted_record_counts_histogram_opt=deletions,
        )


def _sound_sizes(histogram: FileSizeHistogram | None) -> FileSizeHistogram | None:
    """Another writer's histogram, unless it cannot be gone on with."""
    if histogram is None:
        return None
    starts = histogram.sorted_bin_boundaries
    is_sound = (
        starts[:1] == [0]
        and all(start < end for start, end in pairwise(starts))
        and len(histogram.file_counts) == len(histogram.total_bytes) == len(starts)
    )
    return histogram if is_sound else None


def _sound_deletions(histogram: DeletedRecordCountsHistogram | None) -> DeletedRecordCountsHistogram | None:
    if histogram is None or len(histogram.deleted_record_counts) != len(DELETED_RECORD_BIN_STARTS):
        return None
    return histogram


def nothing() -> VersionChecksum:
    """Return the checksum of a table without anything."""
    return VersionChecksum(
        table_size_bytes=0,
        num_files=0,
        set_transactions=[],
        domain_metadata=[],
        file_size_histogram=FileSizeHistogram(
            _SIZE_BIN_STARTS, [0] * len(_SIZE_BIN_STARTS), [0] * len(_SIZE_BIN_STARTS)
        ),
        num_deleted_records_opt=0,
        num_deletion_vectors_opt=0,
        deleted_record_counts_histogram_opt=DeletedRecordCountsHistogram([0] * len(DELETED_RECORD_BIN_STARTS)),
    )


def count_files(snapshot: Snapshot) -> VersionChecksum:
    has_vectors = snapshot.protocol.supports("deletionVectors")
    files = snapshot.files(columns=["size", "deletionVector"] if has_vectors else ["size"])
    file_counts, total_bytes = _histogram(files.column("size"), _SIZE_BIN_STARTS)
    vectors, deleted, by_deleted = 0, 0, [0] * len(DELETED_RECORD_BIN_STARTS)
    if has_vectors:
        cardinalities = _cardinalities(files.column("deletionVector"))
        by_deleted, deleted_by_bin = _histogram(cardinalities, DELETED_RECORD_BIN_STARTS)
        vectors, deleted = len(cardinalities), sum(deleted_by_bin)
    by_deleted[0] += files.num_rows - vectors
    return VersionChecksum(
        table_size_bytes=sum(total_bytes),
        num_files=files.num_rows,
        file_size_histogram=FileSizeHistogram(_SIZE_BIN_STARTS, file_counts, total_bytes),
        num_deleted_records_opt=deleted,
        num_deletion_vectors_opt=vectors,
        deleted_record_counts_histogram_opt=DeletedRecordCountsHistogram(by_deleted),
    )


def live_in_checkpoint(snapshot: Snapshot, keys: set[FileKey]) -> dict[FileKey, CountedFile]:
    """Return those of some logical files that the checkpoint of a snapshot has."""
    if snapshot.base.checkpoint is None or not keys:
        return {}
    from headwater.log.actions.paths import canonical
    from headwater.log.files.chunks import unique_ids
    from headwater.log.files.live import LiveFiles

    files = LiveFiles(snapshot.base, {}, snapshot.shape, snapshot.ctx.dialect)
    rows = files.named({path for path, _ in keys}, ["path", "size", "deletionVector"])
    vectors = rows.column("deletionVector")
    paths, sizes = rows.column("path").to_pylist(), rows.column("size").to_pylist()
    found: dict[FileKey, CountedFile] = {}
    for path, size, vector, unique_id in zip(
        paths, sizes, vectors.to_pylist(), unique_ids(vectors).to_pylist(), strict=True
    ):
        key = canonical(path), unique_id or None
        if key in keys:
            found[key] = CountedFile(size, None if vector is None else vector["cardinality"] or 0)
    return found


def _histogram(values: pa.ChunkedArray, starts: Sequence[int]) -> tuple[list[int], list[int]]:
    """How many values are in each bin, and their sums."""
    import pyarrow.compute as pc

    from headwater.log.files.arrow import int64s

    counts, sums = [len(values)], [pc.sum(values).as_py() or 0]
    for start in int64s(starts[1:]):
        values = values.filter(pc.greater_equal(values, start))
        counts.append(len(values))
        sums.append(pc.sum(values).as_py() or 0)
    return [a - b for a, b in pairwise([*counts, 0])], [a - b for a, b in pairwise([*sums, 0])]


def _cardinalities(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """How many rows each deletion vector of the table removes."""
    import pyarrow.compute as pc

    from headwater.log.files.arrow import int64s

    return pc.fill_null(pc.struct_field(vectors.drop_null(), ["cardinality"]), int64s([0])[0])
