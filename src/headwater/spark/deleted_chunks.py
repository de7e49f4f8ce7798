"""Deletion vectors without the JVM's help: a broadcast join with chunks of bitmaps.

Every 65,536 rows of a file that have a deleted one among them are one row of a small DataFrame: the number of the
file's vector, the number of the chunk, and its bits as an array of 64-bit integers. A row of the table is dropped when
its chunk is there and its bit is set. A chunk takes at most 8 KiB, so the broadcast is at most an eighth of a byte for
each row of the files that have vectors.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from headwater.log.columns import int32s, int64s
from headwater.log.deletion_vectors import to_bitmap
from headwater.log.schema.lookup import hidden
from headwater.spark.deletion_vectors import VECTOR_COLUMN, descriptor
from headwater.spark.functions import functions
from headwater.spark.path_values import ROW_POSITION

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.spark.deletion_vectors import VectorReader

_CHUNK_BITS = 16
_WORD_BITS = 6
_WORDS_PER_CHUNK = 2 ** (_CHUNK_BITS - _WORD_BITS)
_KEY, _WORDS = hidden("chunk"), hidden("words")
BITMAP_COLUMN = hidden("bitmap")
"""The number of the bitmap that has a row; see `rows_by_bitmap`."""


class DeletedChunks:
    """The deletion vectors of one scan, fetched when the files are listed."""

    def __init__(self, reader: VectorReader) -> None:
        self._reader = reader
        self._serialized: list[bytes] = []

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        """The number of each file's vector, null where a file has none.

        Args:
            vectors: the column `deletionVector` of the files.
        """
        described = [descriptor(v) for v in vectors.to_pylist()]
        unique = {v.unique_id: v for v in described if v is not None}
        self._serialized = self._reader.read(list(unique.values()))
        numbers = {identifier: number for number, identifier in enumerate(unique)}
        return int32s([None if v is None else numbers[v.unique_id] for v in described])

    def without_deleted(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        """The rows that are not deleted, of a scan that has the column with the numbers."""
        return without_rows(spark, frame, self._serialized)


def without_rows(spark: SparkSession, frame: DataFrame, serialized: list[bytes]) -> DataFrame:
    """The rows of a scan that are not in the bitmap of their file.

    Args:
        spark: the session.
        frame: a scan of Spark Connect; its column `VECTOR_COLUMN` is the number of the file's bitmap, or null.
        serialized: the bitmaps, in the portable format.
    """
    table = chunk_table(serialized)
    if not table.num_rows:
        return frame
    chunks = spark.createDataFrame(table)
    return frame.join(functions().broadcast(chunks), _in_chunk(), "left_anti")


def rows_by_bitmap(spark: SparkSession, frame: DataFrame, serialized: list[bytes], owners: list[int]) -> DataFrame:
    """The rows of a scan that are in bitmaps of their file, once for each: `BITMAP_COLUMN` says which one.

    Args:
        spark: the session.
        frame: the scan; its column `VECTOR_COLUMN` is the number of the file.
        serialized: the bitmaps, in the portable format.
        owners: for each bitmap the number of its file.
    """
    import pyarrow.compute as pc

    table = chunk_table(serialized)
    if not table.num_rows:
        return frame.where("false").withColumn(BITMAP_COLUMN, functions().lit(None).cast("int"))
    bitmaps = pc.shift_right(table.column(_KEY), 32)
    files = pc.shift_left(int64s(owners).take(bitmaps), 32)
    keys = pc.bit_wise_or(files, pc.bit_wise_and(table.column(_KEY), 2**32 - 1))
    table = table.set_column(0, _KEY, keys).append_column(BITMAP_COLUMN, bitmaps.cast("int32"))
    return frame.join(functions().broadcast(spark.createDataFrame(table)), _in_chunk())


def _in_chunk() -> Column:
    """Whether a row of a scan meets its chunk there, and its bit is set."""
    sf = functions()
    row = sf.col(ROW_POSITION)
    here = sf.shiftleft(sf.col(VECTOR_COLUMN).cast("long"), 32).bitwiseOR(sf.shiftright(row, _CHUNK_BITS))
    return (here == sf.col(_KEY)) & (_bit(row) == 1)


def _bit(row: Column) -> Column:
    """The bit of a row in the chunk that it meets; null behind the chunk's last word."""
    sf = functions()
    word = sf.shiftright(row, _WORD_BITS).bitwiseAND(sf.lit(_WORDS_PER_CHUNK - 1)).cast("int")
    return sf.getbit(sf.get(sf.col(_WORDS), word), row.bitwiseAND(sf.lit(2**_WORD_BITS - 1)).cast("int"))


def chunk_table(serialized: list[bytes]) -> pa.Table:
    """The chunks of bitmaps that have a bit set: a key (number of the bitmap, number of the chunk) and words.

    Words behind the last one with a bit are left out.
    """
    import pyarrow as pa

    keys: list[int] = []
    lengths: list[int] = []
    words: list[pa.Array] = []
    for number, data in enumerate(serialized):
        for chunk, content in _chunks(data):
            keys.append(number << 32 | chunk)
            lengths.append(len(content))
            words.append(content)
    offsets = list(accumulate(lengths, initial=0))
    values = pa.concat_arrays(words) if words else int64s([])
    return pa.table({_KEY: int64s(keys), _WORDS: pa.ListArray.from_arrays(int32s(offsets), values)})


def _chunks(serialized: bytes) -> Iterator[tuple[int, pa.Array]]:
    """The chunks of one bitmap: their numbers and their words."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyroaring import BitMap64

    rows = to_bitmap(serialized)
    every_row = int64s(range(2**_CHUNK_BITS))
    position = 0
    while position < len(rows):
        chunk = rows[position] >> _CHUNK_BITS
        first = chunk << _CHUNK_BITS
        inside = rows & BitMap64(range(first, first + 2**_CHUNK_BITS))
        absolute = pa.Array.from_buffers(pa.int64(), len(inside), [None, pa.py_buffer(inside.to_array())])
        bits = pc.is_in(every_row, value_set=pc.subtract(absolute, first))
        words = pa.Array.from_buffers(pa.int64(), _WORDS_PER_CHUNK, [None, bits.buffers()[1]])
        yield chunk, words[: ((inside[-1] - first) >> _WORD_BITS) + 1]
        position += len(inside)
