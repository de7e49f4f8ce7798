"""Deletion vectors inside a Spark scan, without Python in the row path.

Each file carries the number of its vector as a hidden partition value, and a filter drops the rows that are in it (see
`headwater.spark.bitmaps`). Vectors are fetched when a query is planned, and only those of files that the query reads.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Protocol

from headwater.log.actions import DeletionVector
from headwater.log.columns import int32s
from headwater.log.deletion_vectors import read_vectors
from headwater.log.schema.lookup import hidden
from headwater.spark.bitmaps import Bitmaps
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

    from headwater.storage import ObjectStore

VECTOR_COLUMN = hidden("deletion_vector")
"""The hidden partition column: the number of the file's vector, null for files that have none."""


class NumbersVectors(Protocol):
    """What a list of files needs to know of their deletion vectors."""

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        """The numbers of the files' vectors, null for files that have none."""


class VectorReader:
    """Fetches the vectors of a table, wherever they are."""

    def __init__(self, store: ObjectStore, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._elsewhere = OtherStores(store.uri, storage_options)

    def read(self, vectors: Sequence[DeletionVector]) -> list[bytes]:
        """The vectors as 64-bit bitmaps in the portable format."""
        return read_vectors(vectors, self._store, self._elsewhere.locate)


class DeletedRows:
    """The deletion vectors of one scan."""

    def __init__(self, spark: SparkSession, reader: VectorReader) -> None:
        self._reader = reader
        self._bitmaps = Bitmaps(spark)
        self._lock = Lock()
        self._numbers: dict[str, int] = {}

    def numbers(self, vectors: pa.ChunkedArray) -> pa.Array:
        """The numbers of the files' vectors; vectors that are not known yet are fetched.

        Args:
            vectors: the column `deletionVector` of the files.
        """
        described = [descriptor(v) for v in vectors.to_pylist()]
        with self._lock:
            new = {v.unique_id: v for v in described if v is not None and v.unique_id not in self._numbers}
            if new:
                added = self._bitmaps.add(self._reader.read(list(new.values())))
                self._numbers.update(zip(new, added, strict=True))
            return int32s([None if v is None else self._numbers[v.unique_id] for v in described])

    def kept(self, position: Column) -> Column:
        """The filter: true for rows that are not deleted.

        Args:
            position: of a row in its file.
        """
        from pyspark.sql import functions as sf

        number = sf.col(VECTOR_COLUMN)
        return number.isNull() | ~self._bitmaps.contains(number, position)


def descriptor(value: dict[str, object] | None) -> DeletionVector | None:
    """The action for a value of the column `deletionVector`; None where a file has no vector."""
    if value is None or value["storageType"] is None:
        return None
    return DeletionVector(
        storage_type=str(value["storageType"]),
        path_or_inline_dv=str(value["pathOrInlineDv"]),
        size_in_bytes=value["sizeInBytes"],  # type: ignore[arg-type]
        cardinality=value["cardinality"],  # type: ignore[arg-type]
        offset=value["offset"],  # type: ignore[arg-type]
    )
