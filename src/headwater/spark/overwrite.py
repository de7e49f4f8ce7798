"""Which files a write removes: all of them, or those of the partitions that it writes to (dynamic overwrite).

A removal is an entry in the log, made in the same commit that adds the new files; nothing is deleted from the store.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.expressions import And, Compare, Constant, Expression, In, IsNull, Literal, Or, Unknown, column
from headwater.log.file_actions import REMOVED_COLUMNS, removals
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    StructField,
    StructType,
    compares_as_is,
    is_string,
)
from headwater.log.schema.lookup import hidden
from headwater.spark.char_types import as_read, shows_padding
from headwater.spark.columns import quoted
from headwater.spark.file_rows import partition_values
from headwater.spark.functions import functions
from headwater.spark.partition_text import positive_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions import Add
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Transaction

__all__ = ["all_files", "files_of_partitions", "partition_texts", "removals"]

_COMPARABLE = (BYTE, SHORT, INTEGER, LONG, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)
_FAR = object()
PARTITION_NUMBER = hidden("number")
"""The place of a partition among some."""
_MANY_PARTITIONS = 500
"""Of more, the read set only remembers the values of each column, not how they go together."""


def all_files(transaction: Transaction) -> pa.Table:
    """All live files; from now on nobody else may add or remove rows."""
    return transaction.read_files(columns=REMOVED_COLUMNS)


def files_of_partitions(spark: SparkSession, transaction: Transaction, adds: Sequence[Add]) -> pa.Table:
    """The live files of the partitions that new files are in."""
    snapshot = transaction.snapshot
    assert snapshot is not None, "a table that does not exist has no partitions"
    written = build.string_maps([add.partition_values for add in adds])
    keys = [(snapshot.schema.field(name), partition_key(snapshot, name)) for name in snapshot.partition_columns]
    zone = snapshot.ctx.time_zone
    new = [partition_values(pa.chunked_array([written]), field, key, zone) for field, key in keys]
    expression = _written_partitions(keys, new)
    files = transaction.read_files(expression, REMOVED_COLUMNS)
    old = [partition_values(files.column("partitionValues"), field, key, zone) for field, key in keys]
    # The expression may keep too much: types that pruning cannot compare. Here values are compared as they are.
    replaced = partition_texts(new, len(adds)).unique()
    if files.num_rows and not all(compares_as_is([field]) for field, _ in keys):
        replaced = _equal_for_spark(spark, [field for field, _ in keys], old, new)
    return files.filter(pc.is_in(partition_texts(old, files.num_rows), value_set=replaced))


def _equal_for_spark(
    spark: SparkSession, fields: list[StructField], old: list[pa.ChunkedArray], new: list[pa.ChunkedArray]
) -> pa.Array:
    """The texts of those old partitions that Spark takes for one of the new ones: of text with rules of its own."""
    sf = functions()
    schema = StructType([StructField(field.name, field.type) for field in fields])
    names, padded = list(schema.names), shows_padding(spark)
    distinct = [build.distinct_rows(pa.table(side, names=names)) for side in (old, new)]
    sides = []
    for side, values in zip("on", distinct, strict=True):
        read = [as_read(sf.col(quoted(field.name)), field, padded=padded) for field in fields]
        shown = partition_frame(spark, values, schema).select(*read, sf.col(quoted(PARTITION_NUMBER)))
        sides.append(shown.toDF(*(f"{side}{i}" for i in range(len(names) + 1))))
    same = reduce(
        lambda one, other: one & other, (sf.col(f"o{i}").eqNullSafe(sf.col(f"n{i}")) for i in range(len(names)))
    )
    found = sides[0].join(sides[1], same, "left_semi").select(f"o{len(names)}").collect()
    texts = partition_texts([distinct[0].column(name) for name in names], distinct[0].num_rows)
    return texts.take(build.int64s([row[0] for row in found])).combine_chunks()


def partition_frame(spark: SparkSession, values: pa.Table, schema: StructType) -> DataFrame:
    """Partition values as rows that Spark can be asked about, each with its place (`PARTITION_NUMBER`)."""
    numbered = values.append_column(PARTITION_NUMBER, build.int64s(range(values.num_rows)))
    shown: Any = StructType([*schema.fields, StructField(PARTITION_NUMBER, LONG)]).to_spark()
    return spark.createDataFrame(numbered, schema=shown)


def partition_key(snapshot: Snapshot, name: str) -> str:
    """The name of a partition column in `partitionValues`."""
    from headwater.log.schema import physical_path

    return physical_path(snapshot.schema, [name], snapshot.mapping_mode)[0]


def partition_texts(columns: list[pa.ChunkedArray], count: int) -> pa.ChunkedArray:
    """One text for each row, the same for the same values: lengths keep neighbours apart, and null from empty."""
    texts = []
    for values in columns:
        if pa.types.is_temporal(values.type):  # years beyond four digits have no text in Arrow
            values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
        text = positive_zero(values).cast(pa.string())
        length = pc.fill_null(pc.utf8_length(text), -1).cast(pa.string())
        texts.append(pc.binary_join_element_wise(length, pc.fill_null(text, ""), ":"))
    if not texts:
        return pa.chunked_array([pa.repeat("", count)])
    return reduce(lambda one, other: pc.binary_join_element_wise(one, other, "|"), texts)


def _written_partitions(keys: list[tuple[StructField, str]], new: list[pa.ChunkedArray]) -> Expression:
    """The rows of the partitions that were written to."""
    if not keys or len(new[0]) == 0:
        return Constant(False)
    table = pa.table([values.combine_chunks() for values in new], names=[str(i) for i in range(len(new))])
    distinct = build.distinct_rows(table)
    fields = [field for field, _ in keys]
    if len(fields) == 1 or distinct.num_rows > _MANY_PARTITIONS:
        return And(tuple(_any_of(f, _values(distinct.column(str(i)).unique())) for i, f in enumerate(fields)))
    rows = list(zip(*(_values(distinct.column(str(i))) for i in range(len(fields))), strict=True))
    return Or(tuple(And(tuple(_any_of(f, [v]) for f, v in zip(fields, row, strict=True))) for row in rows))


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """The values as Python has them; `_FAR` for points in time beyond its calendar."""
    try:
        found: list[object] = column.to_pylist()
        return found
    except (ValueError, OverflowError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _FAR


def _any_of(field: StructField, values: list[object]) -> Expression:
    if any(value is _FAR for value in values):
        return Unknown(f"a partition of {field.name}")
    if field.type not in _COMPARABLE and not is_string(field.type):
        return Unknown(f"a partition of {field.name}")
    if not compares_as_is([field]):
        return Unknown(f"a partition of {field.name}")
    named = column(field.name)
    literals = tuple(Literal(value) for value in values if value is not None)
    parts: list[Expression] = []
    if literals:
        parts.append(Compare("=", named, literals[0]) if len(literals) == 1 else In(named, literals))
    if len(literals) < len(values):
        parts.append(IsNull(named))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))
