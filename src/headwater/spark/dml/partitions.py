"""Which files a condition on partition columns alone means: Spark evaluates it on the values of each partition.

No data file is read: all rows of a file have the same partition values, so either all of them match or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.columns import distinct_rows, int64s
from headwater.log.schema import StructField, StructType, compares_as_is
from headwater.spark.char_types import as_read, shows_padding
from headwater.spark.columns import quoted
from headwater.spark.file_rows import partition_values
from headwater.spark.functions import functions
from headwater.spark.overwrite import PARTITION_NUMBER, partition_frame, partition_key, partition_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot


def matching_files(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, matching: Callable[[DataFrame], DataFrame]
) -> list[int]:
    """The places of the files whose rows match.

    Args:
        spark: the session.
        snapshot: the table.
        files: of the table, with their `partitionValues`.
        matching: filters rows that have the table's partition columns (and one more).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if files.num_rows == 0:
        return []
    names = [snapshot.schema.field(name).name for name in snapshot.partition_columns]
    values: dict[str, pa.Array] = {
        name: partition_values(
            files.column("partitionValues"),
            snapshot.schema.field(name),
            partition_key(snapshot, name),
            snapshot.ctx.time_zone,
        ).combine_chunks()
        for name in names
    }
    if not names:  # a condition without columns: it is true or false
        one = spark.range(1).select(functions().col("id").alias(PARTITION_NUMBER))
        return list(range(files.num_rows)) if matching(one).collect() else []
    distinct = distinct_rows(pa.table(values))
    plain = StructType([StructField(name, snapshot.schema.field(name).type) for name in names])
    frame = _as_read(partition_frame(spark, distinct, plain), snapshot, names)
    kept = [row[0] for row in matching(frame).select(quoted(PARTITION_NUMBER)).collect()]
    wanted = partition_texts([distinct.column(name) for name in names], distinct.num_rows).take(int64s(kept))
    own = partition_texts([pa.chunked_array([values[name]]) for name in names], files.num_rows)
    found: list[int] = pc.indices_nonzero(pc.is_in(own, value_set=wanted.combine_chunks())).to_pylist()
    return found


def _as_read(frame: DataFrame, snapshot: Snapshot, names: list[str]) -> DataFrame:
    """The partition values as a query sees them: text with rules of its own is compared by these rules."""
    fields = [snapshot.schema.field(name) for name in names]
    if all(compares_as_is([field]) for field in fields):
        return frame
    sf = functions()
    padded = shows_padding(frame.sparkSession)
    columns = []
    for field in fields:
        value = sf.col(quoted(field.name))
        columns.append(value if compares_as_is([field]) else as_read(value, field, padded=padded))
    return frame.select(*columns, sf.col(quoted(PARTITION_NUMBER)))
