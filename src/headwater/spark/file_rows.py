"""The live files of a snapshot as Spark's scan needs them: typed partition values, absolute paths, sizes.

One Arrow table, one row a file, made with column operations only. Partition values are the log's (spec:
"Partition Value Serialization"); what directories are called means nothing. Paths are decoded, as Hadoop's
`Path` wants them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError
from headwater.log.file_uris import file_uris, hadoop_root
from headwater.log.map_lookup import values_of_key
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.types import is_string
from headwater.log.values import parse_text

if TYPE_CHECKING:
    from headwater.log.schema import StructField

__all__ = ["file_uris", "hadoop_root", "partition_values"]


def partition_values(maps: pa.ChunkedArray, field: StructField, physical: str) -> pa.ChunkedArray:
    """One partition column, typed.

    Args:
        maps: the `partitionValues` of the files.
        field: the column in the table's schema.
        physical: its key in the maps.

    Raises:
        CorruptLogError: a value is not of the column's type.
    """
    texts = pa.chunked_array([values_of_key(chunk, physical) for chunk in maps.chunks], pa.string()).combine_chunks()
    # Few distinct values stand for many files: parse each once.
    encoded = texts.dictionary_encode()
    distinct = pc.if_else(pc.equal(encoded.dictionary, ""), None, encoded.dictionary)
    if not is_string(field.type):
        try:
            distinct = parse_text(distinct, field.type).cast(type_to_arrow(field.type))
        except pa.ArrowInvalid as error:
            raise CorruptLogError(
                f"a partition value of column {field.name!r} is not a valid {field.type}: {error}. "
                "The partitionValues of some add action in the log are damaged."
            ) from error
    return pa.chunked_array([distinct.take(encoded.indices)])
