"""The live files of a snapshot as a source for Spark's scan: typed partition values, and hidden ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.log.expressions import And
from headwater.log.numbered_part import FILE_COLUMN, NumberedPart
from headwater.log.schema import TIMESTAMP
from headwater.log.snapshot_part import SnapshotPart
from headwater.spark.columns import ScanColumns, spark_fields
from headwater.spark.deletion_vectors import VECTOR_COLUMN, NumbersVectors
from headwater.spark.explain import shortened
from headwater.spark.failures import remember_files
from headwater.spark.file_rows import MODIFIED, PATH, SIZE, file_uris, hadoop_root, has_nulls, partition_values
from headwater.spark.jvm import exact_key
from headwater.spark.row_tracking import HIDDEN_COLUMNS as ROW_TRACKING_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log.expressions import Column, Expression
    from headwater.log.schema import StructField
    from headwater.log.snapshot import Snapshot

_MAX_LISTED = 20_000
"""Files that are kept on the JVM: about a kilobyte each, as Spark's own file index keeps them."""

_MAX_LISTED_AT_ONCE = 2_000
"""More files than this are listed when a query needs them."""


@dataclass(frozen=True)
class SnapshotFiles:
    """A `headwater.spark.file_index.FileSource`."""

    snapshot: Snapshot
    columns: ScanColumns
    deleted: NumbersVectors | None
    """The deletion vectors, if any file has one."""
    row_tracking: bool
    selection: Expression | None = None
    """What every query asks for: files that it rules out are never listed."""

    @cached_property
    def name(self) -> str:
        """Table, version, and what is special about the scan."""
        tracked = ", row tracking" if self.row_tracking else ""
        vectors = f", deletion vectors {id(self.deleted):x}" if self.deleted is not None else ""
        part = f", files {hash(self.snapshot.paths):x}" if isinstance(self.snapshot, SnapshotPart) else ""
        part += f", numbers {hash(self.snapshot.numbers):x}" if isinstance(self.snapshot, NumberedPart) else ""
        selected = "" if self.selection is None else f", where {shortened(self.selection)}"
        instants = any(field.type == TIMESTAMP for field in self.columns.partition_fields)
        zone = f", zone {self.snapshot.ctx.time_zone}" if instants else ""
        return (
            f"Headwater({self.root}, version {self.snapshot.version}, table {self.snapshot.metadata.id}"
            f"{part}{tracked}{vectors}{zone}{selected})"
        )

    @cached_property
    def key(self) -> str:
        """Another scan of the same version lists the same files, except for the numbers of vectors."""
        table = (self.root, self.snapshot.version, self.snapshot.metadata.id)
        part = self.snapshot.paths if isinstance(self.snapshot, SnapshotPart) else None
        numbers = self.snapshot.numbers if isinstance(self.snapshot, NumberedPart) else None
        vectors = None if self.deleted is None else id(self.deleted)
        return exact_key(table, part, numbers, self.row_tracking, vectors, self.snapshot.ctx.time_zone, self.selection)

    @cached_property
    def root(self) -> str:
        """The table's location."""
        return hadoop_root(self.snapshot.uri)

    @cached_property
    def _root_uri(self) -> str:
        """The table's location, spelled as the URIs of its files."""
        import pyarrow as pa

        return str(file_uris(pa.chunked_array([["f"]]), self.snapshot.uri)[0].as_py()).removesuffix("/f")

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The table's partition columns, then the hidden ones."""
        hidden = [(VECTOR_COLUMN, "integer")] if self.deleted is not None else []
        if self.row_tracking:
            hidden += [(name, "long") for name in ROW_TRACKING_COLUMNS]
        if isinstance(self.snapshot, NumberedPart):
            hidden.append((FILE_COLUMN, "integer"))
        return [
            *spark_fields(self._partition_fields),
            *({"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in hidden),
        ]

    @property
    def _partition_fields(self) -> list[StructField]:
        """The partition columns, which may be null if some value is.

        Writers have put empty text, which is null, into columns that are NOT NULL, and Spark's code for columns without
        nulls fails when it meets one.
        """
        fields = self.columns.partition_fields
        if all(field.nullable for field in fields):
            return fields
        maps = self.snapshot.files(columns=["partitionValues"]).column("partitionValues")
        keys = map(self.columns.partition_key, self.columns.partition_columns)
        return [
            f if f.nullable else replace(f, nullable=has_nulls(maps, key)) for f, key in zip(fields, keys, strict=True)
        ]

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.snapshot.version

    @property
    def has_vectors(self) -> bool:
        """Whether any live file has a deletion vector."""
        return self.deleted is not None

    @property
    def size_bytes(self) -> int:
        """The size of all live files."""
        return self.snapshot.size_bytes

    @property
    def num_files(self) -> int:
        """The number of all live files."""
        return self.snapshot.num_files

    @property
    def lists_at_once(self) -> bool:
        """For a whole table of few files, as Spark's own file index does."""
        is_whole = self.selection is None and not isinstance(self.snapshot, SnapshotPart)
        return is_whole and self.may_list_all and self.num_files <= _MAX_LISTED_AT_ONCE

    @property
    def may_list_all(self) -> bool:
        """Not with deletion vectors, for all of them would be fetched; nor where the list would be large."""
        return self.deleted is None and self.num_files <= _MAX_LISTED

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """The table's column for a physical one."""
        return self.columns.resolve(path)

    def rows(self, where: Expression) -> pa.Table:
        """The files that may match."""
        import pyarrow as pa

        partitioned = ["partitionValues"] if self.columns.partition_columns else []
        vectors = ["deletionVector"] if self.deleted is not None else []
        tracking = list(ROW_TRACKING_COLUMNS.values()) if self.row_tracking else []
        where = where if self.selection is None else And((self.selection, where))
        files = self.snapshot.files(where, ["path", "size", "modificationTime", *partitioned, *vectors, *tracking])
        found: dict[str, pa.ChunkedArray | pa.Array] = {}
        for name, scanned in zip(self.columns.partition_columns, self.columns.partition_fields, strict=True):
            key, field = self.columns.partition_key(name), self.columns.table.field(name)
            texts = files.column("partitionValues")
            found[scanned.name] = partition_values(texts, field, key, self.snapshot.ctx.time_zone)
        if self.deleted is not None:
            found[VECTOR_COLUMN] = self.deleted.numbers(files.column("deletionVector"))
        if self.row_tracking:
            found |= {name: files.column(source) for name, source in ROW_TRACKING_COLUMNS.items()}
        if isinstance(self.snapshot, NumberedPart):
            found[FILE_COLUMN] = self.snapshot.numbers_of(files.column("path"))
        found[PATH] = file_uris(files.column("path"), self.snapshot.uri)
        remember_files(found[PATH], self._root_uri, self.snapshot.version)
        found[SIZE] = files.column("size")
        found[MODIFIED] = files.column("modificationTime")
        return pa.table(found)
