"""Replacing the rows that match a condition (`replace_where`): new rows in, matching old rows out, in one commit.

A condition on partition columns removes whole files, and reads none. Any other condition is looked for in the files
that may hold matching rows by the log's statistics; those that do are removed, and the rows in them that do not match
are written again, with their row ids where the table tracks them. Where the table records changes, so are they.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from headwater.errors import WriteOptionError
from headwater.features.activation import is_active
from headwater.log.actions import Add, AddCdcFile
from headwater.log.filter_sql import parse_filter
from headwater.log.schema import LONG, STRING, StructField, StructType
from headwater.log.snapshot_part import SnapshotPart
from headwater.spark.columns import quoted
from headwater.spark.data_writer import write_files
from headwater.spark.file_rows import file_uris, partition_values
from headwater.spark.functions import functions
from headwater.spark.overwrite import removals
from headwater.spark.read_filter import Selection
from headwater.spark.roads import choose_road
from headwater.spark.row_tracking import materialized_columns
from headwater.spark.scan import scan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.actions import Remove
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Transaction
    from headwater.spark.write_target import WriteTarget

CHANGE_TYPE = "_change_type"
_NUMBER = "__headwater_number"


@dataclass(frozen=True)
class Replacement:
    """What a condition makes of the files that are there."""

    removes: list[Remove]
    copies: list[Add]
    """Files with the rows that stay."""
    changes: list[AddCdcFile]
    """The deleted rows; the inserted ones come with the new rows."""
    keeps_row_ids: bool
    """Whether the rows that stay keep their ids."""


def check_condition(where: str, schema: StructType) -> None:
    """Raise unless the text is a condition on columns of the table.

    Raises:
        FilterError: it is no condition.
        ColumnNotFoundError: the table has no such column.
    """
    parse_filter(where)
    for name in _columns(where):
        schema.field(name)


def replaced(
    spark: SparkSession, transaction: Transaction, where: str, target: WriteTarget, *, data_change: bool
) -> Replacement:
    """Take the matching rows out of the table.

    Args:
        spark: the session.
        transaction: of the write; what is read is noted in it.
        where: the condition.
        target: how files of the table are written.
        data_change: False when the new rows are the old ones in another arrangement.
    """
    snapshot = transaction.snapshot
    assert snapshot is not None, "a table that does not exist has no rows to replace"
    candidates = transaction.read_files(Selection(where).pruning(spark, snapshot.schema))
    now_ms = transaction.ctx.clock_ms()
    partitions = {name.lower() for name in snapshot.partition_columns}
    if all(name.lower() in partitions for name in _columns(where)):
        matching = _matching_partitions(spark, transaction, candidates, where)
        return Replacement(removals(matching, now_ms, data_change=data_change), [], [], True)
    return _Rewrite(spark, transaction, where, target, data_change).run(candidates, now_ms)


def inserted(spark: SparkSession, transaction: Transaction, adds: list[Add], target: WriteTarget) -> list[AddCdcFile]:
    """The change data files for new rows, read back from the files that hold them: a DataFrame may not say it twice."""
    from headwater.log.commit import CommitActions
    from headwater.log.draft import Attempt, Draft, Operation
    from headwater.log.encoding import encode_commit
    from headwater.log.opening import extend

    if not adds:
        return []
    snapshot = _as_it_will_be(transaction)
    attempt = Attempt(snapshot.version + 1, snapshot, snapshot.protocol, snapshot.metadata, 0)
    data = encode_commit(Draft(Operation("WRITE"), adds=tuple(adds)), attempt, "", {})
    ahead = extend(snapshot, CommitActions.of(attempt.version, data))
    frame = scan(spark, SnapshotPart.of(ahead, [add.path for add in adds]), storage_options=target.storage_options)
    return _change_files(frame, "insert", target)


@dataclass(frozen=True)
class _Rewrite:
    """Copy-on-write of the files with matching rows."""

    spark: SparkSession
    transaction: Transaction
    where: str
    target: WriteTarget
    data_change: bool

    def run(self, candidates: pa.Table, now_ms: int) -> Replacement:
        snapshot = self.transaction.snapshot
        assert snapshot is not None
        touched = self._touched(candidates)
        removes = removals(touched, now_ms, data_change=self.data_change)
        if not removes:
            return Replacement([], [], [], True)
        part = SnapshotPart.of(_as_it_will_be(self.transaction), [remove.path for remove in removes])
        # In mode `id` Spark finds columns by ids, which the hidden columns do not have.
        tracked = is_active("rowTracking", snapshot.protocol, snapshot.metadata) and snapshot.mapping_mode != "id"
        options = self.target.storage_options
        rest = scan(self.spark, part, row_tracking=tracked, storage_options=options).where(~self._matches())
        copies = self._copies(rest, materialized_columns(part) if tracked else {})
        changes: list[AddCdcFile] = []
        if self.data_change and is_active("changeDataFeed", snapshot.protocol, snapshot.metadata):
            gone = scan(self.spark, part, storage_options=options).where(self._matches())
            changes = _change_files(gone, "delete", self.target)
        return Replacement(removes, copies, changes, tracked)

    def _matches(self) -> Column:
        sf = functions()
        matches: Column = sf.coalesce(sf.expr(self.where).cast("boolean"), sf.lit(False))
        return matches

    def _touched(self, candidates: pa.Table) -> pa.Table:
        """The files with a matching row."""
        import pyarrow.compute as pc

        snapshot = self.transaction.snapshot
        assert snapshot is not None
        if candidates.num_rows == 0 or choose_road(self.spark, snapshot) == "python":
            return candidates  # read in Python, rows do not know their file: all that may match are written again
        part = SnapshotPart.of(_as_it_will_be(self.transaction), candidates.column("path").to_pylist())
        frame = scan(self.spark, part, storage_options=self.target.storage_options).where(self._matches())
        found = frame.select(functions().input_file_name().alias("file")).distinct().collect()
        names = {_plain(row["file"]) for row in found}
        uris = file_uris(candidates.column("path"), snapshot.uri).to_pylist()
        numbers = [number for number, uri in enumerate(uris) if _plain(uri) in names]
        if len(numbers) != len(names):
            raise WriteOptionError(f"{snapshot.uri}: replace_where met rows of files that the log does not name.")
        return candidates.take(pc.cast(numbers, "int64") if numbers else [])

    def _copies(self, rest: DataFrame, materialized: dict[str, str | None]) -> list[Add]:
        sf = functions()
        hidden = {column: name for column, name in materialized.items() if name}
        extra = [
            StructField(name, LONG, metadata={"delta.columnMapping.physicalName": name}) for name in hidden.values()
        ]
        columns: list[Any] = [quoted(field.name) for field in self.target.schema.fields]
        columns += [sf.col(quoted(column)).alias(name) for column, name in hidden.items()]
        schema = StructType([*self.target.schema.fields, *extra])
        adds = write_files(rest.select(*columns), replace(self.target, schema=schema))
        return [_without_statistics(add, set(hidden.values())) for add in adds]


def _as_it_will_be(transaction: Transaction) -> Snapshot:
    """The files that are there, under the schema that the table will have: old rows may get new columns."""
    snapshot, protocol, metadata = transaction.snapshot, transaction.protocol, transaction.metadata
    assert snapshot is not None
    assert protocol is not None
    assert metadata is not None
    return replace(snapshot, protocol=protocol, metadata=metadata)


def _without_statistics(add: Add, hidden: set[str]) -> Add:
    """Statistics are about the table's columns only."""
    if not hidden or add.stats is None:
        return add
    stats: dict[str, Any] = msgspec.json.decode(add.stats)
    kept = {
        kind: {name: v for name, v in values.items() if name not in hidden} if isinstance(values, dict) else values
        for kind, values in stats.items()
    }
    return msgspec.structs.replace(add, stats=msgspec.json.encode(kept).decode())


def _matching_partitions(spark: SparkSession, transaction: Transaction, files: pa.Table, where: str) -> pa.Table:
    """The files of partitions that match: Spark itself evaluates the condition, on the values of each partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    snapshot = transaction.snapshot
    assert snapshot is not None
    if files.num_rows == 0:
        return files
    values: dict[str, pa.Array] = {}
    for name in snapshot.partition_columns:
        field = snapshot.schema.field(name)
        key = field.name if snapshot.mapping_mode == "none" else str(field.metadata["delta.columnMapping.physicalName"])
        values[name] = partition_values(files.column("partitionValues"), field, key).combine_chunks()
    table = pa.table(values)
    names = list(values)
    distinct = table.group_by(names).aggregate([]).select(names)
    numbered = distinct.append_column(_NUMBER, pa.array(range(distinct.num_rows), pa.int64()))
    fields = [snapshot.schema.field(name) for name in names]
    schema = StructType([*(StructField(f.name, f.type) for f in fields), StructField(_NUMBER, LONG)])
    frame = spark.createDataFrame(numbered, schema=schema.to_spark())
    kept = [row[_NUMBER] for row in frame.where(where).select(_NUMBER).collect()]
    from headwater.spark.overwrite import partition_texts

    wanted = partition_texts([distinct.column(name) for name in names], distinct.num_rows).take(
        pa.array(kept, pa.int64())
    )
    own = partition_texts([pa.chunked_array([values[name]]) for name in names], files.num_rows)
    return files.filter(pc.is_in(own, value_set=wanted.combine_chunks()))


def _change_files(rows: DataFrame, change: str, target: WriteTarget) -> list[AddCdcFile]:
    sf = functions()
    field = StructField(CHANGE_TYPE, STRING, metadata={"delta.columnMapping.physicalName": CHANGE_TYPE})
    columns: list[Any] = [quoted(f.name) for f in target.schema.fields]
    files = write_files(
        rows.select(*columns, sf.lit(change).alias(CHANGE_TYPE)),
        replace(target, schema=StructType([*target.schema.fields, field]), directory="_change_data", statistics=False),
    )
    return [AddCdcFile(path=f.path, partition_values=f.partition_values, size=f.size) for f in files]


def _columns(where: str) -> list[str]:
    """The top-level names of the columns in a condition."""
    from sqlglot import exp, parse_one

    tree = parse_one(where, dialect="spark")
    return sorted({column.parts[0].name for column in tree.find_all(exp.Column)})


def _plain(uri: str) -> str:
    return unquote(re.sub("^file:/+", "file:/", uri))
