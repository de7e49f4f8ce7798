"""Find the files that a dynamic overwrite removes: those of the partitions that it writes to.

A removal is an entry in the log, made in the same commit that adds the new files; nothing is deleted from the store.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files.arrow import distinct_rows, positive_zero
from headwater.log.files.live import REMOVED_COLUMNS
from headwater.log.filters.expressions import (
    And,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Or,
    Unknown,
    column,
)
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
from headwater.log.schema.types import hidden, quoted
from headwater.spark.functions import functions
from headwater.spark.scan.files import partition_values
from headwater.spark.write.values import as_read, shows_padding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions.model import Add
    from headwater.log.commit.transaction import Transaction
    from headwater.log.snapshot import Snapshot

_COMPARABLE = (BYTE, SHORT, INTEGER, LONG, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)
_FAR = object()
PARTITION_NUMBER = hidden("number")
"""The position of a partition in a list."""
_MANY_PARTITIONS = 500
"""Above this number the read set only remembers the values of each column, not their combinations."""


def files_of_partitions(spark: SparkSession, transaction: Transaction, adds: Sequence[Add]) -> pa.Table:
    """Return the live files of the partitions that new files are in."""
    snapshot = transaction.snapshot
    assert snapshot is not None, "a table that does not exist has no partitions"
    written = pa.array([list(add.partition_values.items()) for add in adds], pa.map_(pa.string(), pa.string()))
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
    """Return the texts of the old partitions that equal a new one by the rules of padded or collated text."""
    sf = functions()
    schema = StructType([StructField(field.name, field.type) for field in fields])
    names, padded = list(schema.names), shows_padding(spark)
    distinct = [distinct_rows(pa.table(side, names=names)) for side in (old, new)]
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
    return texts.take(pa.array([row[0] for row in found], pa.int64())).combine_chunks()


def partition_frame(spark: SparkSession, values: pa.Table, schema: StructType) -> DataFrame:
    """Return partition values as rows that Spark can filter, each with its position (`PARTITION_NUMBER`)."""
    numbered = values.append_column(PARTITION_NUMBER, pa.array(range(values.num_rows), pa.int64()))
    shown: Any = StructType([*schema.fields, StructField(PARTITION_NUMBER, LONG)]).to_spark()
    return spark.createDataFrame(numbered, schema=shown)


def partition_key(snapshot: Snapshot, name: str) -> str:
    """Return the name of a partition column in `partitionValues`."""
    from headwater.log.schema import physical_path

    return physical_path(snapshot.schema, [name], snapshot.mapping_mode)[0]


def partition_texts(columns: list[pa.ChunkedArray], count: int) -> pa.ChunkedArray:
    """Return a text for each row, the same for the same values: lengths separate values, and null from empty."""
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
    """Return a condition that holds for the rows of the written partitions."""
    if not keys or len(new[0]) == 0:
        return Constant(False)
    table = pa.table([values.combine_chunks() for values in new], names=[str(i) for i in range(len(new))])
    distinct = distinct_rows(table)
    fields = [field for field, _ in keys]
    if len(fields) == 1 or distinct.num_rows > _MANY_PARTITIONS:
        return And(tuple(_any_of(f, _values(distinct.column(str(i)).unique())) for i, f in enumerate(fields)))
    rows = list(zip(*(_values(distinct.column(str(i))) for i in range(len(fields))), strict=True))
    return Or(tuple(And(tuple(_any_of(f, [v]) for f, v in zip(fields, row, strict=True))) for row in rows))


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Convert values to Python; `_FAR` stands for points in time beyond its calendar."""
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
