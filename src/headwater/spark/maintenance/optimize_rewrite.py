"""Rewriting one group of files: read them as a table, put their rows in order, write new files.

The rows are the same, with the ids that they have; deleted ones are gone. A group lies in one partition, so its files
are written as those of a table without partitions, which needs no sorting, and get the partition's values as the log
spells them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import msgspec

from headwater.features.activation import is_active
from headwater.features.table_changes import TableDefinition
from headwater.log.expressions import And, Constant
from headwater.log.partition_directories import partition_directory
from headwater.log.schema import StructType
from headwater.log.snapshot import Snapshot
from headwater.log.snapshot_part import SnapshotPart
from headwater.spark.dml.row_files import RowFiles, write_target
from headwater.spark.file_copies import Copies
from headwater.spark.file_plan import TARGET_SIZE_PROPERTY
from headwater.spark.maintenance.optimize_layout import laid_out
from headwater.spark.maintenance.optimize_plan import CLUSTERED_BY_TAG, PROVIDER
from headwater.spark.scan import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions import Add
    from headwater.log.expressions import Expression
    from headwater.spark.maintenance.optimize_plan import FileGroup, Layout
    from headwater.spark.write_target import WriteTarget

_RANDOMIZE = "delta.randomizeFilePrefixes"
_MANY_FILES = 200
_TINY_BYTES = 2**20


@dataclass(frozen=True)
class GroupPart(SnapshotPart):
    """A part of a snapshot whose files are at hand: nobody looks through all files of the table for each group."""

    table: pa.Table = field(default=None, compare=False)

    @classmethod
    def of_files(cls, snapshot: Snapshot, files: pa.Table) -> GroupPart:
        """The part of a snapshot that is in these files, given as the log lists them."""
        own = {f.name: getattr(snapshot, f.name) for f in fields(Snapshot)}
        return cls(**own, paths=tuple(files.column("path").to_pylist()), table=files)

    def files(self, where: str | Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The files of this part that may match; see `Snapshot.files`."""
        if not _is_true(where):
            return super().files(where, columns)
        return self.table if columns is None else self.table.select(list(columns))


@dataclass(frozen=True)
class GroupRewriter:
    """Rewrites groups of files of one version of a table."""

    spark: SparkSession
    snapshot: Snapshot
    layout: Layout
    storage_options: Mapping[str, str] | None = field(repr=False)

    def rewrite(self, group: FileGroup) -> list[Add]:
        """Write the rows of a group to new files; the `add` actions for them."""
        snapshot, target = self.snapshot, self._target(group)
        part = GroupPart.of_files(snapshot, group.files)
        tracked = is_active("rowTracking", snapshot.protocol, snapshot.metadata)

        def by_spark() -> list[Add]:
            frame = scan(self.spark, part, row_tracking=tracked, storage_options=self.storage_options)
            return RowFiles(target).write_rows(self._in_order(frame, group))

        copies = Copies(self.spark, part, target, tracked, self.storage_options)
        is_plain = group.num_files == 1 and group.cells_per_file == 1
        if is_plain and _is_dust(group):
            adds = copies.gather(by_spark)
        elif _is_dust(group):
            adds = copies.read(lambda frame: RowFiles(target).write_rows(self._in_order(frame, group)), by_spark)
        elif is_plain:
            adds = copies.write(by_spark, num_tasks=1)
        else:
            adds = by_spark()
        return [self._marked(add, group) for add in adds]

    def _in_order(self, frame: DataFrame, group: FileGroup) -> DataFrame:
        """The rows of a group, each file's in a task of its own."""
        if group.num_files > 1 or group.cells_per_file > 1:
            return laid_out(frame, self.layout.columns, group.num_files, group.cells_per_file, group.num_rows)
        return frame.repartition(1) if _is_dust(group) else frame.coalesce(1)

    def _target(self, group: FileGroup) -> WriteTarget:
        snapshot = self.snapshot
        definition = TableDefinition(snapshot.protocol, snapshot.metadata)
        target = write_target(snapshot.uri, definition, snapshot.domain_metadata, self.storage_options)
        # A task has the rows of one file, whatever comes of its size.
        properties = {name: value for name, value in target.properties.items() if name != TARGET_SIZE_PROPERTY}
        target = replace(target, properties=properties, optimize_write=False)
        if not snapshot.partition_columns or target.materialize_partition_columns:
            return target
        names = set(snapshot.partition_columns)
        schema = StructType([f for f in target.schema.fields if f.name not in names])
        return replace(target, schema=schema, partition_columns=(), directory=self._directory(group))

    def _directory(self, group: FileGroup) -> str:
        """Where files of the group's partition are, unless they are spread at random."""
        snapshot = self.snapshot
        if snapshot.mapping_mode != "none" or snapshot.properties.get(_RANDOMIZE, "false").lower() == "true":
            return ""
        return (
            partition_directory({name: group.partition_values.get(name) for name in snapshot.partition_columns}) or ""
        )

    def _marked(self, add: Add, group: FileGroup) -> Add:
        clustered = self.layout.clustered_by
        return msgspec.structs.replace(
            add,
            data_change=False,
            partition_values=dict(group.partition_values),
            clustering_provider=None if clustered is None else PROVIDER,
            tags=None if clustered is None else {CLUSTERED_BY_TAG: clustered},
        )


def _is_dust(group: FileGroup) -> bool:
    """Whether a group has many tiny files: to open them takes longer than to shuffle their rows, so all cores read."""
    count = int(group.files.num_rows)
    return count >= _MANY_FILES and group.size_bytes < count * _TINY_BYTES


def _is_true(where: str | Expression | None) -> bool:
    match where:
        case None | Constant(value=True):
            return True
        case And(operands=parts):
            return all(_is_true(part) for part in parts)
    return False
