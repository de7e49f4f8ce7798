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
from headwater.log.values import comparable_type, parse_text

if TYPE_CHECKING:
    from headwater.log.file_chunks import FileChunk
    from headwater.log.schema import StructField


def partition_column(chunk: FileChunk, field: StructField, physical: str) -> pa.ChunkedArray | None:
    """The typed values of one partition column; None when its type cannot be compared."""
    target = comparable_type(field.type)
    if target is None:
        return None
    parsed = chunk.parsed(("partitionValues_parsed", physical))
    # Text is the truth: a parsed column of another type (the table changed since) is not used.
    if parsed is not None and parsed.type == target and not pa.types.is_string(target):
        return parsed
    text = partition_text(chunk.column("partitionValues"), physical)
    # Few distinct values stand for many files: parse each once.
    return pa.chunked_array([_typed(part, field) for part in text.chunks], type=target)


def _typed(text: pa.Array, field: StructField) -> pa.Array:
    encoded = text.dictionary_encode()
    distinct = encoded.dictionary
    distinct = pc.if_else(pc.equal(distinct, build.EMPTY), build.strings([None])[0], distinct)
    try:
        return parse_text(distinct, field.type).take(encoded.indices)
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"a partition value of column {field.name!r} is not a valid {field.type}: {error}. "
            "The partitionValues of some add action in the log are damaged."
        ) from error


def partition_text(values: pa.ChunkedArray, physical: str) -> pa.ChunkedArray:
    """The text of one partition column out of the `partitionValues` maps; null where the key is absent."""
    return pa.chunked_array([_lookup(chunk, physical) for chunk in values.chunks] or [pa.nulls(0, pa.string())])


def _lookup(maps: pa.MapArray, physical: str) -> pa.Array:
    """The value of one key. Maps of a table nearly always have the same keys in the same order: then the flat
    items array, taken with a stride, is two orders of magnitude faster than a lookup in each map.
    """
    count = len(maps) - maps.null_count
    keys = maps.keys
    if count and maps.offset == 0 and len(keys) % count == 0:
        width = len(keys) // count
        first = keys[:width].to_pylist()
        if physical in first and _repeats(maps, keys, width):
            items = maps.items
            values = items if width == 1 else items.take(_stride(first.index(physical), count, width))
            return build.spread(values, maps.is_valid()) if maps.null_count else values
    found = pc.map_lookup(maps, query_key=build.strings([physical])[0], occurrence="first")
    return found.cast(pa.string())


def _repeats(maps: pa.MapArray, keys: pa.Array, width: int) -> bool:
    """Whether every map (that is not null) has exactly the keys of the first one, in the same order."""
    offsets = maps.offsets
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    expected = pc.if_else(maps.is_valid(), build.int32s([width])[0], build.int32s([0])[0])
    if not lengths.equals(expected):
        return False
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) != width:
        return False
    indices = encoded.indices
    return width == 1 or indices[width:].equals(indices[: len(indices) - width])


def _stride(start: int, count: int, width: int) -> pa.Array:
    return build.int64s(range(start, start + count * width, width))
