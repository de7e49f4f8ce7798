"""Changes where Spark has no filesystem for the store: Python reads the files; see `headwater.spark.python_scan`.

A split names the deletion vectors before and after, and the executors work out which rows changed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from headwater.log.columns import int32s, int64s, strings, structs
from headwater.log.schema import StructType
from headwater.spark.change_files import CHANGE_FIELDS, CHANGE_TYPE, ChangeFiles
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.deletion_vectors import VECTOR_COLUMN
from headwater.spark.explain import summary_of
from headwater.spark.failures import remember_scan
from headwater.spark.functions import is_connect
from headwater.spark.python_reader import ReadPlan
from headwater.spark.python_scan import ROAD, read_in_python, reader_settings
from headwater.spark.splits import ONLY_COLUMN

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.actions import DeletionVector


def changes_in_python(
    spark: SparkSession, kinds: list[ChangeFiles], storage_options: Mapping[str, str] | None
) -> DataFrame:
    """The changes as a DataFrame whose rows Python reads; see `headwater.spark.changes`."""
    remember = remember_connect_scan if is_connect(spark) else remember_scan
    remember(kinds[0].root, kinds[0].version)
    frames: list[DataFrame] = []
    for changes in kinds:
        table = [replace(field, nullable=True) for field in changes.columns.visible.fields]
        shown = StructType([*table, *CHANGE_FIELDS])
        summary = summary_of(changes, changes.rows, ROAD)
        plan = replace(_plan(changes, storage_options), settings=reader_settings(spark))
        frames.append(read_in_python(spark, plan, shown, _rows(changes), summary))
    return reduce(lambda one, other: one.union(other), frames)


def _plan(changes: ChangeFiles, storage_options: Mapping[str, str] | None) -> ReadPlan:
    columns = changes.columns
    partitions = dict(zip(columns.partition_columns, (f.name for f in columns.partition_fields), strict=True))
    return ReadPlan(
        uri=changes.feed.snapshot.uri,
        storage_options=None if storage_options is None else dict(storage_options),
        schema_json=StructType([*columns.table.fields, *CHANGE_FIELDS]).to_json(),
        mode=columns.mode,
        partition_columns=partitions | changes.known,
        unmapped=(CHANGE_TYPE,),
    )


def _rows(changes: ChangeFiles) -> pa.Table:
    rows = changes.rows
    if changes.has_vectors:
        rows = rows.append_column(VECTOR_COLUMN, _descriptors([f.without for f in changes.files]))
        rows = rows.append_column(ONLY_COLUMN, _descriptors([f.only for f in changes.files]))
    return rows


def _descriptors(vectors: list[DeletionVector | None]) -> pa.Array:
    """Descriptors as the column `deletionVector` of a snapshot has them."""
    return structs(
        {
            "storageType": strings([None if v is None else v.storage_type for v in vectors]),
            "pathOrInlineDv": strings([None if v is None else v.path_or_inline_dv for v in vectors]),
            "offset": int32s([None if v is None else v.offset for v in vectors]),
            "sizeInBytes": int32s([None if v is None else v.size_in_bytes for v in vectors]),
            "cardinality": int64s([None if v is None else v.cardinality for v in vectors]),
        },
        [v is not None for v in vectors],
    )
