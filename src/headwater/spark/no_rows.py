"""A DataFrame without rows, for versions (and filters) that leave no file to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.spark.functions import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.schema import StructType


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, with the columns of a schema. `createDataFrame` does not know all types."""
    sf = functions()
    shown: Any = schema.to_spark()
    columns = (sf.lit(None).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in shown.fields)
    return spark.range(0).select(*columns)
