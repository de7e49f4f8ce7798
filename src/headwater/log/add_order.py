"""In which order a checkpoint has its `add` actions: by partition values, so that row groups hold few partitions.

Where statistics are columns too, files of one partition are in the order of the first of them. The rest stays as it
was, which is the order of commits. Order says nothing about a table: it only lets readers skip row groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.partition_values import partition_column
from headwater.log.schema import physical_path
from headwater.log.statistics import ChunkStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.file_chunks import FileChunk
    from headwater.log.operands import TableShape
    from headwater.log.stats_decoder import Leaf

_MAX_KEYS = 2**62


def places(chunks: Sequence[FileChunk], shape: TableShape, first_leaf: Leaf | None, *, typed: bool) -> pa.Array | None:
    """For each action of the chunks, its place (`uint64`) in the order; None when they are in order already.

    Args:
        chunks: the `add` actions, older ones first.
        shape: the table.
        first_leaf: the column whose lower bounds decide within a partition, if any.
        typed: whether partition values are in the order of their type, or of their text.
    """
    keys: pa.ChunkedArray | None = None
    distinct = 1
    for column in _columns(chunks, shape, first_leaf, typed=typed):
        codes, count = _codes(column)
        if distinct * count > _MAX_KEYS and keys is not None:
            keys = pa.chunked_array([pc.rank(keys, tiebreaker="dense").cast(pa.int64())])
            distinct = len(keys) + 1
        keys = codes if keys is None else pc.add(pc.multiply(keys, build.int64s([count])[0]), codes)
        distinct *= count
    if keys is None or len(keys) < 2 or pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        return None
    return pc.subtract(pc.rank(keys, tiebreaker="first"), build.ONE.cast(pa.uint64()))


def _columns(
    chunks: Sequence[FileChunk], shape: TableShape, first_leaf: Leaf | None, *, typed: bool
) -> Iterator[pa.ChunkedArray]:
    for name in shape.partition_columns:
        field = shape.schema.field(name)
        [physical] = physical_path(shape.schema, [name], shape.mapping_mode)
        found = [partition_column(chunk, field, physical) if typed else None for chunk in chunks]
        parts = [
            chunk.map_values("partitionValues", physical) if values is None else values
            for chunk, values in zip(chunks, found, strict=True)
        ]
        yield _joined(parts)
    if first_leaf is not None:
        bounds = [ChunkStatistics(chunk).leaf(first_leaf).lower for chunk in chunks]
        yield _joined(
            [
                pa.chunked_array([pa.nulls(chunk.num_rows)]) if lower is None else lower
                for chunk, lower in zip(chunks, bounds, strict=True)
            ]
        )


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns of all chunks, of which some may know nothing."""
    known = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.string())
    arrays = [array if array.type == known else array.cast(known) for part in parts for array in part.chunks]
    return pa.chunked_array(arrays, type=known)


def _codes(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Numbers (`int64`) in the order of the values, null last; and a number that is greater than all of them.

    Texts are compared once for each distinct one: there are few partitions and many files.
    """
    if pa.types.is_primitive(column.type):
        ranks = pc.rank(column, tiebreaker="dense").cast(pa.int64())
        return pa.chunked_array([ranks]), len(ranks) + 2
    encoded = column.dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return pa.chunked_array([], type=pa.int64()), 1
    dictionary = encoded.chunk(0).dictionary
    ranks = pc.rank(dictionary, tiebreaker="dense").cast(pa.int64())
    last = build.int64s([len(dictionary) + 1])[0]
    codes = [pc.fill_null(ranks.take(part.indices), last) for part in encoded.chunks]
    return pa.chunked_array(codes, type=pa.int64()), len(dictionary) + 2
