"""Where a row is: the number of its file and its position there, as columns of a scan.

Only scans of a numbered part of a snapshot (`headwater.log.numbered_part`) have them. The number travels as a hidden
partition value; the position is Spark's own, which counts deleted rows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import INTEGER, LONG, StructField
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from pyspark.sql import Column

LOCATION_FIELDS = (StructField(FILE_COLUMN, INTEGER), StructField(ROW_COLUMN, LONG))


def location_columns() -> list[Column]:
    """The two columns, over the scan's."""
    sf = functions()
    return [sf.col(FILE_COLUMN), sf.col("_metadata.row_index").alias(ROW_COLUMN)]
