"""Data files by URI, opened without Spark: on the driver for their footers, on executors for their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from headwater.log.parquet import ParquetObject
from headwater.spark.file_rows import hadoop_root
from headwater.storage import ObjectMeta, open_store
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.storage import ObjectStore

_SMALL_BYTES = 256 * 2**10


class DataFiles:
    """The data files of one table, most of them below its location."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._kind = parse_uri(uri).kind
        self._root = hadoop_root(uri)
        self._options = storage_options
        self._stores = {uri: open_store(uri, storage_options)}
        self._table = self._stores[uri]

    def open(self, uri: str, size_bytes: int) -> ParquetObject:
        """A data file; nothing is read yet.

        Args:
            uri: its path as `headwater.spark.file_rows.file_uris` spells it.
            size_bytes: its size by the log.
        """
        store, key = self.locate(uri)
        return ParquetObject(store, ObjectMeta(key, size_bytes, 0), small_bytes=_SMALL_BYTES)

    def locate(self, uri: str) -> tuple[ObjectStore, str]:
        """The store that holds a file, and the file's key in it."""
        decoded = unquote(uri, errors="surrogateescape")
        if decoded.startswith(self._root + "/"):
            return self._table, decoded[len(self._root) + 1 :]
        parent, _, name = uri.rpartition("/")
        if parent not in self._stores:
            # Options say how to reach one kind of store.
            same_kind = parse_uri(parent).kind == self._kind
            self._stores[parent] = open_store(parent, self._options if same_kind else None)
        return self._stores[parent], unquote(name, errors="surrogateescape")
