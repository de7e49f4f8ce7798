"""The live files of a snapshot as Spark's scan needs them: typed partition values, absolute paths, sizes.

One Arrow table, one row a file, made with column operations only. Columns that are not partition values have names that
no column of a table has. Partition values are the log's (spec:
"Partition Value Serialization"); what directories are called means nothing. Paths are decoded, as Hadoop's
`Path` wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.file_uris import file_uris, hadoop_root
from headwater.log.map_lookup import values_of_key
from headwater.log.partition_values import typed_values
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.lookup import hidden
from headwater.log.schema.types import is_string

if TYPE_CHECKING:
    from headwater.log.schema import StructField

__all__ = ["END", "MODIFIED", "PATH", "SIZE", "START", "file_uris", "hadoop_root", "has_nulls", "partition_values"]

PATH, SIZE, MODIFIED = hidden("path"), hidden("size"), hidden("modification_time")
"""Columns of files beside their partition values: URI, bytes, milliseconds."""
START, END = hidden("start"), hidden("end")
"""Columns of splits: the range of bytes in which those row groups begin that count."""


def partition_values(
    maps: pa.ChunkedArray, field: StructField, physical: str, time_zone: str = "UTC"
) -> pa.ChunkedArray:
    """One partition column, typed.

    Args:
        maps: the `partitionValues` of the files.
        field: the column in the table's schema.
        physical: its key in the maps.
        time_zone: of timestamps that do not name theirs: the session's, as in delta-spark.

    Raises:
        CorruptLogError: a value is not of the column's type.
    """
    texts = pa.chunked_array([values_of_key(chunk, physical) for chunk in maps.chunks], pa.string()).combine_chunks()
    target = pa.string() if is_string(field.type) else type_to_arrow(field.type)
    return pa.chunked_array([typed_values(texts, field, target, time_zone)])


def has_nulls(maps: pa.ChunkedArray, physical: str) -> bool:
    """Whether a partition column is null in some file: it has no text, or an empty one."""
    texts = [values_of_key(chunk, physical) for chunk in maps.chunks]
    return any(text.null_count or pc.any(pc.equal(text, "")).as_py() for text in texts)
