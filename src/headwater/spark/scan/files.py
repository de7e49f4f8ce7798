"""The files of a request as a source for Spark's scan: typed partition values, absolute paths, sizes.

One Arrow table, one row a file, made with column operations only. Columns that are not partition values have names that
no column of a table has. Partition values are the log's (spec: "Partition Value Serialization"), whatever directories
are called. Paths are decoded, as Hadoop's `Path` wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.actions.paths import file_uris, hadoop_root
from headwater.log.files.chunks import values_of_key
from headwater.log.filters.expressions import and_
from headwater.log.schema import INTEGER, LONG, TIMESTAMP, StructField
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.types import is_string
from headwater.log.stats.values import typed_values
from headwater.parquet.read import MODIFIED, PATH, SIZE
from headwater.spark.errors import remember_files
from headwater.spark.jvm import exact_key
from headwater.spark.scan.columns import FILE_COLUMN, ScanColumns, spark_fields
from headwater.spark.scan.columns import HIDDEN_COLUMNS as ROW_TRACKING_COLUMNS
from headwater.spark.scan.deletion_vectors import VECTOR_COLUMN, NumbersVectors
from headwater.spark.scan.explain import shortened

if TYPE_CHECKING:
    from headwater.log.filters.expressions import Column, Expression
    from headwater.spark.scan.request import ScanRequest


_MAX_LISTED = 20_000
"""Files that are kept on the JVM: about a kilobyte each, as Spark's own file index keeps them."""

_MAX_LISTED_AT_ONCE = 2_000
"""More files than this are listed when a query needs them."""


@dataclass(frozen=True)
class RequestedFiles:
    """The files of a request: a `headwater.spark.scan.file_index.FileSource`."""

    request: ScanRequest
    columns: ScanColumns
    deleted: NumbersVectors | None
    """The deletion vectors, if any file has one."""
    where: Expression | None = None
    """What every query asks for: files that it rules out are never listed."""

    @cached_property
    def name(self) -> str:
        """Return a text for people: table, version, and what is special about the scan."""
        request, snapshot = self.request, self.request.snapshot
        given = f", files {self._files_key[:12]}" if self._files_key is not None else ""
        tracked = ", row tracking" if request.row_tracking else ""
        vectors = f", deletion vectors {id(self.deleted):x}" if self.deleted is not None else ""
        where = "" if self.where is None else f", where {shortened(self.where)}"
        instants = any(field.type == TIMESTAMP for field in self.columns.partition_fields)
        zone = f", zone {snapshot.ctx.time_zone}" if instants else ""
        return (
            f"Headwater({self.root}, version {snapshot.version}, table {snapshot.metadata.id}"
            f"{given}{tracked}{vectors}{zone}{where})"
        )

    @cached_property
    def key(self) -> str:
        """Return a text that is equal for scans that list the same files, with the same numbers of vectors."""
        request, snapshot = self.request, self.request.snapshot
        table = (self.root, snapshot.version, snapshot.metadata.id, snapshot.ctx.time_zone)
        vectors = None if self.deleted is None else id(self.deleted)
        return exact_key(table, self._files_key, request.row_tracking, request.locate_rows, vectors, self.where)

    @cached_property
    def _files_key(self) -> str | None:
        """A text for the files that are given, and their numbers; None for all live files."""
        files = self.request.files
        if files is None:
            return None
        numbers = files.column(FILE_COLUMN).to_pylist() if self.request.locate_rows else None
        return exact_key(repr(files.column("path").to_pylist()), repr(numbers))

    @cached_property
    def root(self) -> str:
        return hadoop_root(self.request.snapshot.uri)

    @cached_property
    def _root_uri(self) -> str:
        """The table's location, spelled as the URIs of its files."""
        return str(file_uris(pa.chunked_array([["f"]]), self.request.snapshot.uri)[0].as_py()).removesuffix("/f")

    @cached_property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The table's partition columns, then the hidden ones."""
        hidden = [StructField(VECTOR_COLUMN, INTEGER)] if self.deleted is not None else []
        if self.request.row_tracking:
            hidden += [StructField(name, LONG) for name in ROW_TRACKING_COLUMNS]
        if self.request.locate_rows:
            hidden.append(StructField(FILE_COLUMN, INTEGER))
        return spark_fields([*self._partition_fields, *hidden])

    @property
    def _partition_fields(self) -> list[StructField]:
        """The partition columns, which may be null if some value is.

        Writers have put empty text, which is null, into columns that are NOT NULL, and Spark's code for columns without
        nulls fails when it meets one.
        """
        fields = self.columns.partition_fields
        if all(field.nullable for field in fields):
            return fields
        maps = self.request.list_files(None, ["partitionValues"]).column("partitionValues")
        keys = map(self.columns.partition_key, self.columns.partition_columns)
        return [
            f if f.nullable else replace(f, nullable=has_nulls(maps, key)) for f, key in zip(fields, keys, strict=True)
        ]

    @property
    def version(self) -> int:
        return self.request.snapshot.version

    @property
    def has_vectors(self) -> bool:
        return self.deleted is not None

    @property
    def size_bytes(self) -> int:
        return self.request.size_bytes

    @property
    def num_files(self) -> int:
        return self.request.num_files

    @property
    def lists_at_once(self) -> bool:
        """Whether this is a whole table of few files: Spark's own file index lists those at once too."""
        is_whole = self.where is None and self.request.files is None
        return is_whole and self.may_list_all and self.num_files <= _MAX_LISTED_AT_ONCE

    @property
    def may_list_all(self) -> bool:
        """Not with deletion vectors, for all of them would be fetched; nor where the list would be large."""
        return self.deleted is None and self.num_files <= _MAX_LISTED

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        return self.columns.resolve(path)

    def rows(self, where: Expression) -> pa.Table:
        snapshot, columns = self.request.snapshot, self.columns
        logged = ["path", "size", "modificationTime"]
        logged += ["partitionValues"] if columns.partition_columns else []
        logged += ["deletionVector"] if self.deleted is not None else []
        logged += list(ROW_TRACKING_COLUMNS.values()) if self.request.row_tracking else []
        logged += [FILE_COLUMN] if self.request.locate_rows else []
        files = self.request.list_files(where if self.where is None else and_(self.where, where), logged)
        found: dict[str, pa.ChunkedArray | pa.Array] = {}
        for name, scanned in zip(columns.partition_columns, columns.partition_fields, strict=True):
            key, field = columns.partition_key(name), columns.table.field(name)
            texts = files.column("partitionValues")
            found[scanned.name] = partition_values(texts, field, key, snapshot.ctx.time_zone)
        if self.deleted is not None:
            found[VECTOR_COLUMN] = self.deleted.numbers(files.column("deletionVector"))
        if self.request.row_tracking:
            found |= {name: files.column(source) for name, source in ROW_TRACKING_COLUMNS.items()}
        if self.request.locate_rows:
            found[FILE_COLUMN] = files.column(FILE_COLUMN)
        found[PATH] = file_uris(files.column("path"), snapshot.uri)
        remember_files(found[PATH], self._root_uri, snapshot.version)
        found[SIZE] = files.column("size")
        found[MODIFIED] = files.column("modificationTime")
        return pa.table(found)


def partition_values(
    maps: pa.ChunkedArray, field: StructField, physical: str, time_zone: str = "UTC"
) -> pa.ChunkedArray:
    """Return the typed values of one partition column.

    Args:
        maps: the `partitionValues` of the files.
        field: the column in the table's schema.
        physical: its key in the maps.
        time_zone: of timestamps that do not name theirs: the session's, as in delta-spark.

    Raises:
        CorruptLogError: a value is not of the column's type.
    """
    texts = pa.chunked_array([values_of_key(chunk, physical) for chunk in maps.chunks], pa.string()).combine_chunks()
    target = pa.string() if is_string(field.type) else type_to_arrow(field.type)
    return pa.chunked_array([typed_values(texts, field, target, time_zone)])


def has_nulls(maps: pa.ChunkedArray, physical: str) -> bool:
    """Say whether a partition column is null in some file: it has no text, or an empty one."""
    texts = [values_of_key(chunk, physical) for chunk in maps.chunks]
    return any(text.null_count or pc.any(pc.equal(text, "")).as_py() for text in texts)
