"""Some files of a snapshot, with numbers, and perhaps only some of their rows: what a rewrite of rows reads.

A scan of such a part tells of every row its file's number and its position in the file. Which rows count may differ
from what the log says: without some that a rewrite deletes, or nothing but those that it changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.log.schema.lookup import hidden
from headwater.log.snapshot import Snapshot
from headwater.log.snapshot_part import SnapshotPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headwater.log.actions import DeletionVector
    from headwater.log.expressions import Expression

FILE_COLUMN = hidden("file")
"""The number of a row's file, as a scan of a numbered part shows it."""
ROW_COLUMN = hidden("row")
"""The position of a row in its file, deleted rows counted."""


@dataclass(frozen=True)
class NumberedPart(SnapshotPart):
    """A part of a snapshot whose files have numbers."""

    numbers: tuple[int, ...] = ()
    """Of the files in `paths`."""
    vectors: Mapping[str, DeletionVector] = field(default_factory=dict, compare=False)
    """Deletion vectors that count instead of the log's, by path as the log has it."""

    @classmethod
    def numbered(
        cls,
        snapshot: Snapshot,
        paths: Sequence[str],
        numbers: Sequence[int],
        vectors: Mapping[str, DeletionVector] | None = None,
    ) -> NumberedPart:
        """The part of a snapshot that is in these files."""
        assert len(paths) == len(numbers), "every file has a number"
        own = {f.name: getattr(snapshot, f.name) for f in fields(Snapshot)}
        return cls(**own, paths=tuple(paths), numbers=tuple(numbers), vectors=vectors or {})

    @cached_property
    def _number_array(self) -> pa.Array:
        from headwater.log.columns import int32s

        return int32s(list(self.numbers))

    def numbers_of(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """The numbers of files, by their paths."""
        import pyarrow.compute as pc

        return self._number_array.take(pc.index_in(paths, value_set=self._path_set).combine_chunks())

    def files(self, where: str | Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The files of this part that may match, with the deletion vectors that count here."""
        name = "deletionVector"
        if not self.vectors or (columns is not None and name not in columns):
            return super().files(where, columns)
        wanted = None if columns is None else list(dict.fromkeys([*columns, "path"]))
        found = super().files(where, wanted)
        place = found.schema.get_field_index(name)
        found = found.set_column(place, found.schema.field(place), self._replaced(found))
        return found if columns is None else found.select(list(columns))

    def _replaced(self, files: pa.Table) -> pa.Array:
        import pyarrow as pa

        rows = []
        logged_vectors = files.column("deletionVector").to_pylist()
        for path, logged in zip(files.column("path").to_pylist(), logged_vectors, strict=True):
            own = self.vectors.get(path)
            rows.append(logged if own is None else _fields(own))
        return pa.array(rows, files.schema.field("deletionVector").type)


def _fields(vector: DeletionVector) -> dict[str, object]:
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
