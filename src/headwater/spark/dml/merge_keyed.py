"""The first pass of an upsert by keys: Python workers look the table's keys up among those of the source.

It serves conditions that are nothing but `t.a = s.a AND ...`, over types whose values are equal for Arrow where they
are for Spark, and sources whose keys are few enough for every worker. The driver gets the keys, as it does for a
broadcast. No row of the table passes through Spark, which takes a third of the CPU of its join.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import int32s
from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import DATE, STRING
from headwater.log.schema.arrow import type_to_arrow
from headwater.spark.arrow_rows import UnreadableInPythonError
from headwater.spark.dml.merge_matches import SOURCE_NUMBER, Fate, Matches
from headwater.spark.dml.merge_source import INTEGRAL, SOURCE_ROW
from headwater.spark.dml.positions import BITMAP_SCHEMA, add_positions, bitmap_batch, united
from headwater.spark.failures import explained_failures
from headwater.spark.file_copies import can_copy
from headwater.spark.python_reader import read_splits
from headwater.spark.python_scan import dealt_splits, planned_read
from headwater.spark.read_filter import Selection, Wanted
from headwater.spark.workers import in_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyroaring import BitMap64

    from headwater.log.schema import DataType
    from headwater.spark.dml.merge_condition import Key
    from headwater.spark.dml.merge_source import Source
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.dml.target_files import TargetFiles

_LOOKED_UP_ROWS = 2**20
"""Rows of the table that are looked up at a time, at least: each time the keys of the source are hashed again."""


def can_look_up(target: DmlTarget, source: Source, keys: Sequence[Key]) -> bool:
    """Whether Python workers can say which rows are equal in these keys."""
    schema = target.snapshot.schema
    return (
        can_copy(target.snapshot)
        and 0 < len({key.target for key in keys}) == len(keys)
        and all(len(key.target) == 1 and source.is_comparable(key, schema) for key in keys)
        and all(_key_type(schema.field(key.target[0]).type) is not None for key in keys)
    )


def look_up(target: DmlTarget, files: TargetFiles, source: Source, keys: Sequence[Key]) -> Matches | None:
    """The rows of files whose keys the source has, all of them to be updated. One Spark job, and one for the keys.

    Args:
        target: the table.
        files: candidates.
        source: its rows are read twice.
        keys: for which `can_look_up` holds.

    Returns:
        None if that is not how to find them: the source has a key twice, or a file needs Spark's reader.
    """
    lookup = _lookup(target, source, keys)
    if lookup is None:
        return None
    part = target.part(files, range(len(files)))
    wanted = Wanted(Selection(columns=lookup.columns), True, False, {}, target.storage_options)
    plan, _, rows = planned_read(target.spark, part, wanted)

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield bitmap_batch(lookup.found(read_splits(plan, batches)))

    try:
        with explained_failures():
            splits = dealt_splits(target.spark, rows, private=True)
            found = united(in_workers(splits, find, BITMAP_SCHEMA).collect())
    except UnreadableInPythonError:
        return None
    source_rows = len(found.pop(SOURCE_NUMBER, ()))
    return Matches({Fate.UPDATED: found} if found else {}, sum(map(len, found.values())), source_rows)


@dataclass(frozen=True)
class _Lookup:
    """The keys of the source; no two rows are equal."""

    columns: tuple[str, ...]
    """The columns of the table that they equal."""
    keys: pa.Table
    """By the names of these columns, and the number of each row."""

    def found(self, batches: Iterator[pa.RecordBatch]) -> dict[int, BitMap64]:
        """The positions of rows that have one of the keys, by the number of their file; and these rows of the source.

        Args:
            batches: rows of the table: the columns, file and position.
        """
        found: dict[int, BitMap64] = {}
        for rows in _gathered(batches, max(_LOOKED_UP_ROWS, self.keys.num_rows)):
            both = self._typed(rows).join(self.keys, list(self.columns), join_type="inner", use_threads=False)
            add_positions(found, both.column(FILE_COLUMN), both.column(ROW_COLUMN))
            add_positions(found, pa.repeat(SOURCE_NUMBER, both.num_rows), both.column(SOURCE_ROW))
        return found

    def _typed(self, rows: pa.Table) -> pa.Table:
        """The rows with keys of the types that the source's have here."""
        types = {name: self.keys.schema.field(name).type for name in self.columns}
        return rows.cast(pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in rows.schema]))


def _lookup(target: DmlTarget, source: Source, keys: Sequence[Key]) -> _Lookup | None:
    """The keys of the source, without those that equal nothing; None if rows are alike."""
    schema = target.snapshot.schema
    columns = tuple(schema.field(key.target[0]).name for key in keys)
    found = source.frame.select(*(source.column(key.source).alias(f"k{n}") for n, key in enumerate(keys))).toArrow()
    types = [_key_type(schema.field(name).type) for name in columns]
    arrays: list[Any] = [found.column(n).cast(type_) for n, type_ in enumerate(types)]
    table = pa.table(dict(zip(columns, arrays, strict=True)))
    table = table.filter(reduce(pc.and_, [pc.is_valid(array) for array in arrays]))
    if table.group_by(list(columns)).aggregate([]).num_rows < table.num_rows:
        return None
    return _Lookup(columns, table.append_column(SOURCE_ROW, int32s(range(table.num_rows))))


def _key_type(type_: DataType) -> pa.DataType | None:
    """The Arrow type in which keys of a type are compared; None if Arrow does not compare them as Spark does."""
    if type_ in INTEGRAL:
        return pa.int64()
    return type_to_arrow(type_) if type_ in (STRING, DATE) else None


def _gathered(batches: Iterator[pa.RecordBatch], min_rows: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= min_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
