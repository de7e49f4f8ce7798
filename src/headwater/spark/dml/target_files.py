"""The files of a table that a command looks at: numbered, with what the log knows of their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.log.columns import int64s
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.vector_writer import inline_vector
from headwater.spark.deletion_vectors import VectorReader, descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyroaring import BitMap64

    from headwater.log.actions import DeletionVector
    from headwater.log.snapshot import Snapshot


@dataclass(frozen=True)
class TargetFiles:
    """Live files of the table; a file's number is its place here.

    Attributes:
        snapshot: the version that they are of.
        table: the files with all columns that the log has of them.
        storage_options: options of the object store.
    """

    snapshot: Snapshot
    table: pa.Table
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def paths(self) -> list[str]:
        """As the log has them."""
        found: list[str] = self.table.column("path").to_pylist()
        return found

    @cached_property
    def vectors(self) -> list[DeletionVector | None]:
        """The deletion vectors that the files have."""
        return [descriptor(value) for value in self.table.column("deletionVector").to_pylist()]

    @cached_property
    def physical_rows(self) -> list[int | None]:
        """How many rows each file has, deleted ones included, where the statistics say so."""
        from headwater.features.file_statistics import row_counts

        return row_counts(self.table.column("stats").to_pylist())

    def live_rows(self, number: int) -> int | None:
        """How many rows of a file are not deleted, where the log says so."""
        physical, vector = self.physical_rows[number], self.vectors[number]
        return None if physical is None else physical - (0 if vector is None else vector.cardinality)

    def counted_rows(self, number: int) -> int:
        """How many rows a file has, deleted ones included; read from the file itself if the log does not say it."""
        from headwater.spark.data_files import DataFiles
        from headwater.spark.file_rows import file_uris

        known = self.physical_rows[number]
        if known is not None:
            return known
        [uri] = file_uris(self.table.column("path").slice(number, 1), self.snapshot.uri).to_pylist()
        size = self.table.column("size")[number].as_py()
        return int(DataFiles(self.snapshot.uri, self.storage_options).open(uri, size).metadata.num_rows)

    def take(self, numbers: Iterable[int]) -> pa.Table:
        """What the log has of some of the files."""
        return self.table.take(int64s(list(numbers)))

    def deleted_rows(self, numbers: Iterable[int]) -> dict[int, BitMap64]:
        """The rows that are deleted already, of those of the files that have such."""
        vectors = {number: vector for number in numbers if (vector := self.vectors[number]) is not None}
        reader = VectorReader(self.snapshot.ctx.store, self.storage_options)
        read = reader.read(list(vectors.values()))
        return {number: to_bitmap(data) for number, data in zip(vectors, read, strict=True)}

    def vectors_for(
        self, numbers: Iterable[int], only: Mapping[int, BitMap64], without: Mapping[int, BitMap64]
    ) -> dict[str, DeletionVector]:
        """Deletion vectors that leave just the wanted rows of files, by path.

        Args:
            numbers: of the files that are read.
            only: of files that are named here, just these rows are wanted.
            without: of files that are named here, all rows but these and those that are deleted already.
        """
        from pyroaring import BitMap64

        chosen = [number for number in numbers if number in only or number in without]
        found = {
            self.paths[number]: inline_vector(BitMap64(range(self.counted_rows(number))) - only[number])
            for number in chosen
            if number in only
        }
        rest = [number for number in chosen if number not in only]
        deleted = self.deleted_rows(rest)
        for number in rest:
            rows = without[number] | deleted[number] if number in deleted else without[number]
            found[self.paths[number]] = inline_vector(rows)
        return found
