"""Partition values as typed columns (spec: "Partition Value Serialization").

They come from `partitionValues_parsed` where a checkpoint has it, else from the text in `partitionValues`. An
empty text is null for every type; keys are physical column names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError
from headwater.log import columns as build
from headwater.log.schema import TIMESTAMP
from headwater.log.values import comparable_type, parse_text

if TYPE_CHECKING:
    from headwater.log.file_chunks import FileChunk
    from headwater.log.operands import TableShape
    from headwater.log.schema import StructField


def partition_column(
    chunk: FileChunk, field: StructField, physical: str, shape: TableShape | None = None
) -> pa.ChunkedArray | None:
    """The typed values of one partition column; None when its type cannot be compared."""
    target = comparable_type(field.type)
    if target is None:
        return None
    parsed = chunk.parsed(("partitionValues_parsed", physical))
    # Text is the truth: a parsed column of another type (the table changed since) is not used, nor instants, which
    # whoever wrote the checkpoint may have parsed in another zone.
    if parsed is not None and parsed.type == target and not pa.types.is_string(target) and field.type != TIMESTAMP:
        return parsed
    text = chunk.map_values("partitionValues", physical)
    if shape is not None and not shape.empty_text_is_null and pa.types.is_string(target):
        return text
    zone = "UTC" if shape is None else shape.time_zone
    return pa.chunked_array([typed_values(part, field, target, zone) for part in text.chunks], type=target)


def typed_values(text: pa.Array, field: StructField, target: pa.DataType, time_zone: str = "UTC") -> pa.Array:
    """Texts of one partition column as values; an empty text is null.

    Args:
        text: as the log has them.
        field: the column.
        target: the Arrow type wanted: the comparable type, the column's own, or text.
        time_zone: of timestamps that do not name theirs.

    Raises:
        CorruptLogError: a text is not a value of the column's type.
    """
    # Few distinct values stand for many files: parse each once.
    encoded = text.dictionary_encode()
    distinct = pc.if_else(pc.equal(encoded.dictionary, build.EMPTY), build.strings([None])[0], encoded.dictionary)
    if pa.types.is_string(target):
        return distinct.take(encoded.indices)
    try:
        return parse_text(distinct, field.type, time_zone).cast(target).take(encoded.indices)
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"a partition value of column {field.name!r} is not a valid {field.type}: {error}. "
            "The partitionValues of some add action in the log are damaged."
        ) from error
