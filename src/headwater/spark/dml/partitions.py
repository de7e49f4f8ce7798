"""Which files a condition on partition columns alone means: Spark evaluates it on the values of each partition.

No data file is read: all rows of a file have the same partition values, so either all of them match or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.columns import int64s
from headwater.log.schema import LONG, StructField, StructType
from headwater.spark.columns import quoted
from headwater.spark.file_rows import partition_values
from headwater.spark.functions import functions
from headwater.spark.overwrite import partition_key, partition_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot

_NUMBER = "__headwater_number"


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
            files.column("partitionValues"), snapshot.schema.field(name), partition_key(snapshot, name)
        ).combine_chunks()
        for name in names
    }
    if not names:  # a condition without columns: it is true or false
        one = spark.range(1).select(functions().col("id").alias(_NUMBER))
        return list(range(files.num_rows)) if matching(one).collect() else []
    distinct = pa.table(values).group_by(names).aggregate([]).select(names)
    numbered = distinct.append_column(_NUMBER, int64s(range(distinct.num_rows)))
    fields = [StructField(name, snapshot.schema.field(name).type) for name in names]
    schema = StructType([*fields, StructField(_NUMBER, LONG)])
    frame = spark.createDataFrame(numbered, schema=schema.to_spark())
    kept = [row[0] for row in matching(frame).select(quoted(_NUMBER)).collect()]
    wanted = partition_texts([distinct.column(name) for name in names], distinct.num_rows).take(int64s(kept))
    own = partition_texts([pa.chunked_array([values[name]]) for name in names], files.num_rows)
    found: list[int] = pc.indices_nonzero(pc.is_in(own, value_set=wanted.combine_chunks())).to_pylist()
    return found
