"""Parquet files of a checkpoint as bytes: row groups, encodings, and a look at what the store has of them.

Text is compressed with Zstandard, which every reader of Delta tables knows, at its fastest level. Dictionaries are kept
to the columns that repeat themselves. Pages have checksums.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptLogError
from headwater.log.parquet import ParquetObject

if TYPE_CHECKING:
    from headwater.storage.base import ObjectMeta, ObjectStore

_SMALL_ROWS = 10_000
"""Row groups smaller than this go together with what follows, as long as that is not too much."""
_REPEATED = (
    "partitionValues.key_value.key",
    "partitionValues.key_value.value",
    "tags.key_value.key",
    "tags.key_value.value",
    "clusteringProvider",
    "defaultRowCommitVersion",
    "deletionVector.storageType",
)


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows a file has."""

    actions: int = 0
    adds: int = 0

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.actions + other.actions, self.adds + other.adds)


class CheckpointFile:
    """A Parquet file in the making, in memory: a store takes objects whole."""

    def __init__(self, schema: pa.Schema) -> None:
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f"{action}.{leaf}" for action in ("add", "remove") for leaf in _REPEATED],
            write_page_checksum=True,
            store_schema=False,
        )
        self._waiting: list[pa.Table] = []
        self.rows = Rows()

    def write(self, table: pa.Table, *, adds: int = 0) -> None:
        """Append rows: a row group of their own, unless they are few."""
        self.rows += Rows(table.num_rows, adds)
        if sum(t.num_rows for t in self._waiting) + table.num_rows > _SMALL_ROWS:
            self._flush()
        self._waiting.append(table)

    def finish(self) -> bytes:
        """The bytes of the file."""
        self._flush()
        self._writer.close()
        return self._buffer.getvalue()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()


def check_stored(store: ObjectStore, key: str, adds: int, size_bytes: int | None = None) -> ObjectMeta:
    """What the store says of a file, if it is a Parquet file with as many `add` actions as it should have.

    Args:
        store: where the file is.
        key: the file.
        adds: how many `add` actions it should have.
        size_bytes: how long it should be, if that is known.

    Raises:
        CorruptLogError: the store has something else.
    """
    meta = store.head(key)
    if size_bytes is not None and meta.size_bytes != size_bytes:
        raise CorruptLogError(f"{key} was written with {size_bytes} bytes, but the store has {meta.size_bytes}.")
    source = ParquetObject(store, meta)
    found = sum(_adds_in(source, group) for group in range(source.num_row_groups))
    if found != adds:
        raise CorruptLogError(f"{key} should have {adds} add actions, but what the store has says {found}.")
    return meta


def _adds_in(source: ParquetObject, group: int) -> int:
    nulls = source.null_count(group, "add.path")
    return 0 if nulls is None else int(source.metadata.row_group(group).num_rows) - nulls
