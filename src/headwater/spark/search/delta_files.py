"""The data files of a Delta snapshot as search tasks need them: where each is, its split if it has one, what is gone.

One Arrow table, one row a file. Partition values stand in columns of their own, called by their names in data files,
for both the rows of the table and the columns of the index are made with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.lookup import hidden
from headwater.search.delta_definition import bind
from headwater.search.delta_index import coverage, existing_splits, with_splits
from headwater.spark.arrow_rows import ReaderSettings
from headwater.spark.columns import ScanColumns
from headwater.spark.deletion_vectors import VECTOR_COLUMN
from headwater.spark.file_rows import END, PATH, SIZE, START, file_uris, partition_values
from headwater.spark.python_reader import ReadPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.expressions import Expression
    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot
    from headwater.search.delta_definition import BoundIndex, SearchDefinition
    from headwater.search.delta_index import SearchCoverage

SPLIT_COLUMN = hidden("split")
"""The key of a file's split in the table's store, as bytes; null where a file has none."""
SPLIT_BYTES_COLUMN = hidden("split_bytes")
_PARTITION_PREFIX = hidden("partition_")
_BEYOND_ALL_FILES = 2**62


@dataclass(frozen=True)
class DeltaFiles:
    """A snapshot with the search index of its table."""

    snapshot: Snapshot
    definition: SearchDefinition
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    settings: ReaderSettings = field(default_factory=ReaderSettings)
    """Of the session that reads."""

    @cached_property
    def bound(self) -> BoundIndex:
        """The definition with the schema of this version."""
        return bind(self.definition, self.snapshot)

    @cached_property
    def columns(self) -> ScanColumns:
        """How the table's columns are found in its files."""
        return ScanColumns(self.snapshot.schema, self.snapshot.mapping_mode, self.snapshot.metadata.partition_columns)

    @cached_property
    def splits(self) -> pa.Table:
        """The splits that are there; listed once."""
        return existing_splits(self.snapshot.ctx.store, self.bound.fingerprint)

    def covered(self, where: Expression | None = None) -> pa.Table:
        """Path (as the log has it), size and split of the files that may match."""
        found = self.snapshot.files(where, ["path", "size"])
        return with_splits(found, self.splits, self.bound.fingerprint)

    def coverage(self, where: Expression | None = None) -> SearchCoverage:
        """How much of the files that may match is indexed."""
        return coverage(self.snapshot.version, self.covered(where))

    @property
    def has_vectors(self) -> bool:
        """Whether any live file has a deletion vector."""
        vectors = self.snapshot.files(columns=["deletionVector"]).column("deletionVector")
        return bool(vectors.null_count < len(vectors))

    def rows(self, where: Expression | None = None) -> pa.Table:
        """The files that may match, one row each, for tasks."""
        partitioned = ["partitionValues"] if self.columns.partition_columns else []
        found = self.snapshot.files(where, ["path", "size", "deletionVector", *partitioned])
        files = with_splits(found, self.splits, self.bound.fingerprint)
        rows = {
            PATH: file_uris(files.column("path"), self.snapshot.uri),
            SIZE: files.column("size"),
            VECTOR_COLUMN: files.column("deletionVector"),
            SPLIT_COLUMN: files.column("split"),
            SPLIT_BYTES_COLUMN: files.column("split_bytes"),
        }
        for name in self.columns.partition_columns:
            key, field = self.columns.partition_key(name), self.columns.table.field(name)
            texts, zone = files.column("partitionValues"), self.snapshot.ctx.time_zone
            rows[_PARTITION_PREFIX + key] = partition_values(texts, field, key, zone)
        return pa.table(rows)

    def read_plan(self, schema: StructType, *, located: bool = False) -> ReadPlan:
        """How to read columns of the table, by the names of this version, from its files."""
        keys = {self.columns.table.field(n).name: self.columns.partition_key(n) for n in self._partitions}
        return self._read_plan(schema, {n: k for n, k in keys.items() if n in schema.names}, located)

    def index_plan(self) -> ReadPlan:
        """How to read what a split is made of."""
        keys = {self.columns.partition_key(name) for name in self._partitions}
        schema = self.bound.stored_schema
        return self._read_plan(schema, {key: key for key in keys if key in schema.names}, False)

    @property
    def _partitions(self) -> tuple[str, ...]:
        return tuple(self.columns.partition_columns)

    def _read_plan(self, schema: StructType, partitions: dict[str, str], located: bool) -> ReadPlan:
        return ReadPlan(
            uri=self.snapshot.uri,
            storage_options=None if self.storage_options is None else dict(self.storage_options),
            schema_json=schema.to_json(),
            mode=self.snapshot.mapping_mode,
            partition_columns={name: _PARTITION_PREFIX + key for name, key in partitions.items()},
            located=located,
            settings=self.settings,
        )


def whole_files(rows: pa.Table) -> pa.Table:
    """The files with the columns `START` and `END`, by which a reader knows that it shall read all of them."""
    ends = pa.repeat(pa.scalar(_BEYOND_ALL_FILES, pa.int64()), rows.num_rows)
    return rows.append_column(START, pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)).append_column(END, ends)
