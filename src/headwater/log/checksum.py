"""The version checksum: what a writer recorded about a version (spec: "Version Checksum File").

A checksum is never believed over the log (`headwater.log.verification` compares the two); a missing or damaged one
breaks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import ObjectNotFoundError
from headwater.log import names
from headwater.log.actions import Add, DomainMetadata, Long, Metadata, Protocol, Txn

if TYPE_CHECKING:
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
    """The checksum of a version; None when there is none, a discrepancy when it cannot be decoded."""
    key = names.checksum_key(version)
    try:
        data = store.get(key)
    except ObjectNotFoundError:
        return None
    try:
        return _CHECKSUM.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Discrepancy(key, "content", "a JSON object as specified", str(error))
