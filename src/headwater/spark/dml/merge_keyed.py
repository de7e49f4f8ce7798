"""Upserts by keys, without a join: Python workers look the table's keys up among those of the source.

This serves conditions that are nothing but `t.a = s.a AND ...`, over types whose values are equal for Arrow where they
are for Spark, and sources whose keys are few enough for every worker. The driver gets the keys, as it does for a
broadcast. What is found is which row of the table each row of the source matches, so that rows of the source can be
sent to the files of the rows that they match.

The source is read twice: its keys first, then its rows. What is cheap to read is not materialised for that; the second
reading is compared with the first (`CHECK`), and what differs is not committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headwater.log.expressions import Constant
from headwater.log.numbered_part import ROW_COLUMN
from headwater.log.schema import DATE, STRING
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.lookup import hidden
from headwater.spark.arrow_rows import UnreadableInPythonError
from headwater.spark.columns import quoted
from headwater.spark.dml.column_job import HEAVY_ROW_BYTES
from headwater.spark.dml.key_lookup import FOUND_SCHEMA, NO_PAIRS, lookup_of, pairs_of_found
from headwater.spark.dml.merge_matches import Fate, Matches
from headwater.spark.dml.merge_source import FEW_VALUES, INTEGRAL, SOURCE_ROW, SourceFacts, key_bounds
from headwater.spark.dml.positions import united
from headwater.spark.dml.row_packs import PACKS_SCHEMA, Sum, gathered
from headwater.spark.failures import explained_failures
from headwater.spark.file_copies import can_copy
from headwater.spark.functions import functions
from headwater.spark.python_reader import read_splits
from headwater.spark.python_scan import dealt_splits, planned_read
from headwater.spark.read_filter import Selection, Wanted
from headwater.spark.task_writer import task_number
from headwater.spark.workers import in_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from pyspark.sql import DataFrame

    from headwater.log.expressions import Expression
    from headwater.log.schema import DataType, StructType
    from headwater.spark.dml.column_job import ColumnJob
    from headwater.spark.dml.key_lookup import Pairs
    from headwater.spark.dml.merge_condition import Key
    from headwater.spark.dml.merge_source import Source
    from headwater.spark.dml.target import DmlTarget
    from headwater.spark.dml.target_files import TargetFiles

    Numbers = np.ndarray[tuple[int], np.dtype[Any]]

CHECK = hidden("check")
"""A hash of a row's number and keys, by which two readings of a source are compared."""
_HEAVY_ROW = "__headwater_heavy_row"
_FIXED_SIZE = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
_TEXTS = (StringType, BinaryType)


def can_look_up(target: DmlTarget, source: Source, keys: Sequence[Key]) -> bool:
    """Whether Python workers can say which rows are equal in these keys."""
    is_plain = 0 < len({key.target for key in keys}) == len(keys)
    return can_copy(target.snapshot) and is_plain and all(is_exact(target, source, key) for key in keys)


def is_exact(target: DmlTarget, source: Source, key: Key) -> bool:
    """Whether values of both sides that Spark takes for equal are the same to the last bit."""
    schema = target.snapshot.schema
    is_known = len(key.target) == 1 and source.is_comparable(key, schema)
    return is_known and _key_type(schema.field(key.target[0]).type) is not None


@dataclass(frozen=True)
class SourceKeys:
    """What the first reading of a source has given.

    Attributes:
        keys: by the names of the table's columns.
        sources: the numbers of the rows.
        check: of all rows.
    """

    keys: pa.Table
    sources: Numbers
    check: Sum

    @classmethod
    def read(cls, source: Source, keys: Sequence[Key], target: StructType) -> SourceKeys:
        """Read the keys of a source, for which `can_look_up` holds. One Spark job."""
        fields = [target.field(key.target[0]) for key in keys]
        columns = [source.column(key.source).alias(f"k{number}") for number, key in enumerate(keys)]
        found = checked(source, keys).select(*columns, SOURCE_ROW, CHECK).toArrow()
        arrays = [found.column(n).cast(_key_type(field.type)) for n, field in enumerate(fields)]
        table = pa.table(dict(zip((field.name for field in fields), arrays, strict=True)))
        return cls(table, found.column(SOURCE_ROW).to_numpy(), Sum.of(found.column(CHECK).to_numpy()))

    def facts(self, row_bytes: int) -> SourceFacts:
        """What is known of the source by its keys.

        Args:
            row_bytes: how large its rows are, roughly.
        """
        bounds = [_bounds(name, column) for name, column in zip(self.keys.column_names, self.keys.columns, strict=True)]
        return SourceFacts(self.check.count, row_bytes, self.keys.nbytes, tuple(bounds))


def _bounds(name: str, values: pa.ChunkedArray) -> Expression:
    try:
        found = pc.min_max(values).as_py()
        distinct = None
        if len(values) <= FEW_VALUES:
            distinct = [value for value in pc.unique(values).to_pylist() if value is not None]
    except (ValueError, OverflowError):
        return Constant(True)  # beyond Python's calendar
    return key_bounds((name,), found["min"], found["max"], distinct)


def checked(source: Source, keys: Sequence[Key]) -> DataFrame:
    """The rows of a source with `CHECK`."""
    sf = functions()
    return source.frame.withColumn(CHECK, sf.xxhash64(SOURCE_ROW, *(source.column(key.source) for key in keys)))


class LookedUp(NamedTuple):
    """What was found."""

    matches: Matches
    pairs: Pairs


def look_up(target: DmlTarget, files: TargetFiles, keys: SourceKeys) -> LookedUp | None:
    """The rows of files whose keys the source has, all of them to be updated. One Spark job.

    Args:
        target: the table.
        files: candidates.
        keys: for which `can_look_up` holds.

    Returns:
        None if that is not how to find them: a key is in the source twice or in the table twice, or a file needs
        Spark's reader.
    """
    lookup = lookup_of(keys.keys, keys.sources)
    if lookup is None:
        return None
    if not len(files) or not len(lookup.places):
        return LookedUp(Matches({}, 0, 0), NO_PAIRS)
    part = target.part(files, range(len(files)))
    wanted = Wanted(Selection(columns=tuple(keys.keys.column_names)), True, False, {}, target.storage_options)
    plan, _, rows = planned_read(target.spark, part, wanted)
    values = lookup.keys

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield values.found(read_splits(plan, batches))

    try:
        with explained_failures():
            splits = dealt_splits(target.spark, rows, private=True)
            found = in_workers(splits, find, FOUND_SCHEMA).collect()
    except UnreadableInPythonError:
        return None
    pairs = pairs_of_found(found, lookup)
    if pairs is None:
        return None
    positions = united(found)
    count = pairs.count
    return LookedUp(Matches({Fate.UPDATED: positions} if positions else {}, count, count), pairs)


def routed(job: ColumnJob, rows: DataFrame, pairs: Pairs) -> DataFrame:
    """Rows of an upsert, packed for a job: those that match, with the places of the rows that they match, and new ones.

    Args:
        job: for which they are packed.
        rows: the table's columns, `SOURCE_ROW` and `CHECK`.
        pairs: which of the rows match; without any, all of them are new.

    Spark's tasks fail at a row that is large if the job takes only light ones (`tells_of_heavy_row`).
    """
    dealer, columns = job.dealer, list(job.columns)
    rows = _without_heavy_rows(rows) if job.is_light else rows

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = Sum()
        for hand, table in enumerate(gathered(batches), task_number()):
            total += Sum.of(table.column(CHECK).to_numpy())
            files, places = pairs.matched(table.column(SOURCE_ROW).to_numpy())
            is_match = files >= 0
            if is_match.any():
                values = table.select(columns).filter(pa.array(is_match))
                located = values.add_column(0, ROW_COLUMN, pa.array(places[is_match]))
                yield from dealer.packs(files[is_match], located)
            if not is_match.all():
                yield from dealer.new_packs(table.drop_columns([SOURCE_ROW, CHECK]).filter(pa.array(~is_match)), hand)
        yield dealer.sum_pack(total)

    return in_workers(rows, route, PACKS_SCHEMA)


def has_weighable_rows(rows: DataFrame) -> bool:
    """Whether Spark can tell at no cost how large a row is."""
    return all(isinstance(field.dataType, (*_FIXED_SIZE, *_TEXTS)) for field in rows.schema.fields)


def _without_heavy_rows(rows: DataFrame) -> DataFrame:
    """The same rows, for which `has_weighable_rows` holds; tasks fail if one is large."""
    sf = functions()
    texts = [quoted(field.name) for field in rows.schema.fields if isinstance(field.dataType, _TEXTS)]
    if not texts:
        return rows
    size = reduce(add, (sf.coalesce(sf.octet_length(name), sf.lit(0)).cast("long") for name in texts))
    failure = sf.raise_error(sf.lit(_HEAVY_ROW)).cast("long")
    return rows.withColumn(CHECK, sf.when(size > HEAVY_ROW_BYTES, failure).otherwise(sf.col(CHECK)))


def tells_of_heavy_row(error: Exception) -> bool:
    """Whether a job failed because of a row that is large."""
    return _HEAVY_ROW in str(error)


def _key_type(type_: DataType) -> pa.DataType | None:
    """The Arrow type in which keys of a type are compared; None if Arrow does not compare them as Spark does."""
    if type_ in INTEGRAL:
        return pa.int64()
    return type_to_arrow(type_) if type_ in (STRING, DATE) else None
