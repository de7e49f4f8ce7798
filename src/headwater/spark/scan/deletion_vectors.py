"""Leave out the rows that deletion vectors delete (spec: "Deletion Vectors").

Each file of a scan carries the number of its vector as a hidden partition value. In classic PySpark the vectors are
roaring bitmaps that are broadcast to the executors; a filter that the JVM compiles asks the bitmap of that number for
the row's position in its file. Vectors are fetched when a query is planned, and only those of files that it reads.

Spark Connect joins with chunks of bitmaps instead. Every 65,536 rows of a file that have a deleted one among them are
one row of a small DataFrame: the number of the file's vector, the number of the chunk, and its bits as an array of
64-bit integers. A row of the table is dropped when its chunk is there and its bit is set. A chunk takes at most 8 KiB,
so the broadcast is at most an eighth of a byte for each row of the files that have vectors.
"""

from __future__ import annotations

import json
from functools import cached_property
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UnsupportedProtocolError
from headwater.log.actions.deletion_vectors import read_vectors, to_bitmap
from headwater.log.actions.model import DeletionVector
from headwater.log.files.arrow import binaries, int32s, int64s
from headwater.log.schema.types import hidden
from headwater.spark import jvm as bulk
from headwater.spark.functions import functions
from headwater.spark.jvm import JavaObject, jvm_of
from headwater.spark.scan.columns import ROW_POSITION
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.storage import ObjectStore


VECTOR_COLUMN = hidden("deletion_vector")
"""The hidden partition column: the number of the file's vector, null for files that have none."""


class NumbersVectors(Protocol):
    """The deletion vectors of one scan, by number."""

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        """Return numbers for the column `deletionVector` of files, null for files that have none."""


class VectorReader:
    """Fetches the vectors of a table, wherever they are."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> VectorReader:
        return cls(snapshot.ctx.store, snapshot.ctx.storage_options)

    def __init__(self, store: ObjectStore, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._options = storage_options

    @cached_property
    def _elsewhere(self) -> OtherStores:
        return OtherStores(self._store.uri, self._options)

    def read(self, vectors: Sequence[DeletionVector]) -> list[bytes]:
        """Return vectors as 64-bit bitmaps in the portable format."""
        return read_vectors(vectors, self._store, lambda path: self._elsewhere.locate(path))


class DeletedRows:
    """The deletion vectors of one scan, for a classic session."""

    def __init__(self, spark: SparkSession, reader: VectorReader) -> None:
        self._reader = reader
        self._bitmaps = Bitmaps(spark)
        self._lock = Lock()
        self._numbers: dict[str, int] = {}

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        """Return numbers for the column `deletionVector` of files; vectors that have none yet are fetched."""
        described = [descriptor(v) for v in vectors.to_pylist()]
        with self._lock:
            new = {v.unique_id: v for v in described if v is not None and v.unique_id not in self._numbers}
            if new:
                added = self._bitmaps.add(self._reader.read(list(new.values())))
                self._numbers.update(zip(new, added, strict=True))
            return int32s([None if v is None else self._numbers[v.unique_id] for v in described])

    def kept(self, position: Column) -> Column:
        """Return the filter for rows that are not deleted; `position` is that of a row in its file."""
        from pyspark.sql import functions as sf

        number = sf.col(VECTOR_COLUMN)
        return number.isNull() | ~self._bitmaps.contains(number, position)


def descriptor(value: dict[str, object] | None) -> DeletionVector | None:
    """Return the action for a value of the column `deletionVector`; None where a file has no vector."""
    return None if value is None or value["storageType"] is None else msgspec.convert(value, DeletionVector)


_LIST = "java.util.ArrayList"
_BITMAP = "org.roaringbitmap.RoaringBitmap"
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_BROADCAST = "org.apache.spark.broadcast.Broadcast"
_MAX_ROWS = 2**32
_SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "bitmap", "type": "binary", "nullable": False, "metadata": {}}]}
)


class Bitmaps:
    """The bitmaps of one scan, by number.

    The test holds a reference; `add` puts the broadcast list of all bitmaps so far into it, before any task that needs
    them is made. The list only grows, so plans that run at the same time can share it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._lock = Lock()
        self._list = self._jvm.static(_LIST)()
        self._count = 0
        self._reference = self._jvm.static(_REFERENCE)()
        self._broadcast()

    def add(self, serialized: Sequence[bytes]) -> range:
        """Add 64-bit bitmaps in the portable format; return their numbers."""
        table = pa.table({"bitmap": binaries([_lower_half(s) for s in serialized])})
        rows = bulk.rows(self._spark, table, _SCHEMA)
        new = rows.map(self._jvm.function(self._bitmap_expression()))
        with self._lock:
            grown = self._jvm.static(_LIST)(self._list)
            grown.addAll(self._jvm.static("scala.jdk.javaapi.CollectionConverters").asJava(new))
            self._list = grown
            self._broadcast()
            first, self._count = self._count, self._count + len(serialized)
        return range(first, first + len(serialized))

    def contains(self, number: Column, position: Column) -> Column:
        """Return whether the row at a position is in the bitmap of this number; null where the number is null."""
        jvm = self._jvm
        to_expression = jvm.static("org.apache.spark.sql.classic.ExpressionUtils").expression
        row = to_expression(position.cast("int")._jc)
        reference = jvm.literal(self._reference, jvm.object_type(_REFERENCE))
        broadcast = jvm.invoke(reference, "get", jvm.object_type(_BROADCAST))
        bitmaps = jvm.invoke(broadcast, "value", jvm.object_type(_LIST))
        bitmap = jvm.invoke(bitmaps, "get", jvm.object_type(_BITMAP), to_expression(number._jc))
        return jvm.column(jvm.invoke(bitmap, "contains", jvm.data_type("boolean"), row))

    def _broadcast(self) -> None:
        self._reference.set(self._spark.sparkContext._jsc.broadcast(self._list))

    def _bitmap_expression(self) -> JavaObject:
        """`new ImmutableRoaringBitmap(ByteBuffer.wrap(bytes)).toRoaringBitmap()`."""
        jvm = self._jvm
        data = jvm.expression("BoundReference", 0, jvm.data_type("binary"), False)
        buffer = jvm.static_invoke("java.nio.ByteBuffer", "wrap", jvm.object_type("java.nio.ByteBuffer"), data)
        mapped = jvm.new("org.roaringbitmap.buffer.ImmutableRoaringBitmap", buffer)
        return jvm.invoke(mapped, "toRoaringBitmap", jvm.object_type(_BITMAP))


def _lower_half(serialized: bytes) -> bytes:
    """Return the 32-bit bitmap in a 64-bit one: Parquet files of four billion rows do not occur."""
    from pyroaring import BitMap

    rows = to_bitmap(serialized)
    if len(rows) == 0:
        return bytes(BitMap().serialize())
    if rows[-1] >= _MAX_ROWS:
        raise UnsupportedProtocolError(
            f"a deletion vector names row {rows[-1]}, and files of {_MAX_ROWS} rows or more are not supported"
        )
    return serialized[12:]  # after the number of 32-bit bitmaps, which is one, and its key, which is zero


_CHUNK_BITS = 16
_WORD_BITS = 6
_WORDS_PER_CHUNK = 2 ** (_CHUNK_BITS - _WORD_BITS)
_KEY, _WORDS = hidden("chunk"), hidden("words")
BITMAP_COLUMN = hidden("bitmap")
"""The number of the bitmap that has a row; see `rows_by_bitmap`."""


class DeletedChunks:
    """The deletion vectors of one scan of Spark Connect, fetched when the files are listed."""

    def __init__(self, reader: VectorReader) -> None:
        self._reader = reader
        self._serialized: list[bytes] = []

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        described = [descriptor(v) for v in vectors.to_pylist()]
        unique = {v.unique_id: v for v in described if v is not None}
        self._serialized = self._reader.read(list(unique.values()))
        numbers = {identifier: number for number, identifier in enumerate(unique)}
        return int32s([None if v is None else numbers[v.unique_id] for v in described])

    def without_deleted(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        """Return the rows that are not deleted, of a scan that has the column with the numbers."""
        return without_rows(spark, frame, self._serialized)


def without_rows(spark: SparkSession, frame: DataFrame, serialized: list[bytes]) -> DataFrame:
    """Return the rows of a scan of Spark Connect that are not in the bitmap of their file.

    The column `VECTOR_COLUMN` of the scan is the number of the file's bitmap, or null.
    """
    table = chunk_table(serialized)
    if not table.num_rows:
        return frame
    chunks = spark.createDataFrame(table)
    return frame.join(functions().broadcast(chunks), _in_chunk(), "left_anti")


def rows_by_bitmap(spark: SparkSession, frame: DataFrame, serialized: list[bytes], owners: list[int]) -> DataFrame:
    """Return the rows of a scan that are in bitmaps of their file, once for each: `BITMAP_COLUMN` says which one.

    The column `VECTOR_COLUMN` of the scan is the number of the file; `owners` has that of each bitmap.
    """
    table = chunk_table(serialized)
    if not table.num_rows:
        return frame.where("false").withColumn(BITMAP_COLUMN, functions().lit(None).cast("int"))
    bitmaps = pc.shift_right(table.column(_KEY), 32)
    files = pc.shift_left(int64s(owners).take(bitmaps), 32)
    keys = pc.bit_wise_or(files, pc.bit_wise_and(table.column(_KEY), 2**32 - 1))
    table = table.set_column(0, _KEY, keys).append_column(BITMAP_COLUMN, bitmaps.cast("int32"))
    return frame.join(functions().broadcast(spark.createDataFrame(table)), _in_chunk())


def _in_chunk() -> Column:
    """Return the condition of the join: a row meets its chunk, and its bit is set there."""
    sf = functions()
    row = sf.col(ROW_POSITION)
    here = sf.shiftleft(sf.col(VECTOR_COLUMN).cast("long"), 32).bitwiseOR(sf.shiftright(row, _CHUNK_BITS))
    return (here == sf.col(_KEY)) & (_bit(row) == 1)


def _bit(row: Column) -> Column:
    """Return the bit of a row in the chunk that it meets; null behind the chunk's last word."""
    sf = functions()
    word = sf.shiftright(row, _WORD_BITS).bitwiseAND(sf.lit(_WORDS_PER_CHUNK - 1)).cast("int")
    return sf.getbit(sf.get(sf.col(_WORDS), word), row.bitwiseAND(sf.lit(2**_WORD_BITS - 1)).cast("int"))


def chunk_table(serialized: list[bytes]) -> pa.Table:
    """Return the chunks of bitmaps that have a bit set: a key (number of the bitmap, number of the chunk) and words.

    Words behind the last one with a bit are left out.
    """
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
    """Yield the chunks of one bitmap: their numbers and their words."""
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
