"""Where a row is: the number of its file and its position there, as columns of a scan.

Only scans of a numbered part of a snapshot (`headwater.log.numbered_part`) have them. The number travels as a hidden
partition value; the position is Spark's own, which counts deleted rows too. It is a field of the hidden column
`_metadata` of Spark's file source, which is asked for as such: a table may have a column of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.numbered_part import FILE_COLUMN, ROW_COLUMN
from headwater.log.schema import INTEGER, LONG, StructField
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOCATION_FIELDS = (StructField(FILE_COLUMN, INTEGER), StructField(ROW_COLUMN, LONG))


def location_columns(position: Column) -> list[Column]:
    """The two columns, over the scan's.

    Args:
        position: of a row in its file.
    """
    return [functions().col(FILE_COLUMN), position.alias(ROW_COLUMN)]


def row_position(scan: DataFrame) -> Column:
    """The position of a row in its file, deleted rows counted.

    Args:
        scan: one of Spark's own, as it came: whatever is built on it may use the column.
    """
    return _file_metadata(scan)["row_index"]


def row_file(scan: DataFrame) -> Column:
    """The path of a row's file."""
    return _file_metadata(scan)["file_path"]


def _file_metadata(scan: DataFrame) -> Column:
    return scan.metadataColumn("_metadata")
