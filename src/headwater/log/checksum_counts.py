"""Counting files for the version checksum (spec: "File Size Histogram Schema" and the one after it).

Either onwards from an earlier checksum, by the files that were live then and are live now, or once over all live files.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.log.checksum import (
    DELETED_RECORD_BIN_STARTS,
    DeletedRecordCountsHistogram,
    FileSizeHistogram,
    VersionChecksum,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headwater.log.actions import Add
    from headwater.log.commit import FileKey
    from headwater.log.snapshot import Snapshot

_SIZE_BIN_STARTS = [0, *(8_192 << n for n in range(26))]
"""Of the file size histogram: powers of two from 8 KiB to 256 GiB."""


class CountedFile(NamedTuple):
    """What is counted of a live file."""

    size: int
    cardinality: int | None
    """Of its deletion vector, if it has one."""

    @classmethod
    def of(cls, add: Add) -> CountedFile:
        """What an `add` action says."""
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
        """The checksum with these numbers; None if they are impossible, so what they started from was wrong."""
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
    """The checksum of a table without anything."""
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
    """Count the live files."""
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
    """Of some logical files, those that the checkpoint of a snapshot has."""
    if snapshot.base.checkpoint is None or not keys:
        return {}
    from headwater.log.file_chunks import unique_ids
    from headwater.log.live_files import LiveFiles
    from headwater.log.paths import canonical

    files = LiveFiles(snapshot.base, {}, snapshot.shape, snapshot.ctx.format)
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

    from headwater.log.columns import int64s

    counts, sums = [len(values)], [pc.sum(values).as_py() or 0]
    for start in int64s(starts[1:]):
        values = values.filter(pc.greater_equal(values, start))
        counts.append(len(values))
        sums.append(pc.sum(values).as_py() or 0)
    return [a - b for a, b in pairwise([*counts, 0])], [a - b for a, b in pairwise([*sums, 0])]


def _cardinalities(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """How many rows each deletion vector of the table removes."""
    import pyarrow.compute as pc

    from headwater.log.columns import int64s

    return pc.fill_null(pc.struct_field(vectors.drop_null(), ["cardinality"]), int64s([0])[0])
