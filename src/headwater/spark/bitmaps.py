"""Roaring bitmaps of row positions, broadcast to the executors, and the test whether a row is in one of them.

A scan names a bitmap by its number, a hidden partition value. The test is an expression that the JVM compiles: it looks
the number up in a broadcast list and asks the bitmap for the row's position in its file.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING

from headwater.errors import UnsupportedProtocolError
from headwater.log.columns import binaries
from headwater.log.deletion_vectors import to_bitmap
from headwater.spark import bulk
from headwater.spark.jvm import JavaObject, jvm_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, SparkSession

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
        """Add 64-bit bitmaps in the portable format; their numbers."""
        import pyarrow as pa

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
        """Whether the row at a position is in the bitmap of this number; null where the number is."""
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
    """The 32-bit bitmap in a 64-bit one: Parquet files of four billion rows do not occur."""
    from pyroaring import BitMap

    rows = to_bitmap(serialized)
    if len(rows) == 0:
        return bytes(BitMap().serialize())
    if rows[-1] >= _MAX_ROWS:
        raise UnsupportedProtocolError(
            f"a deletion vector names row {rows[-1]}, and files of {_MAX_ROWS} rows or more are not supported"
        )
    return serialized[12:]  # after the number of 32-bit bitmaps, which is one, and its key, which is zero
