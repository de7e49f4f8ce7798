"""Data files by URI, opened without Spark: on the driver for their footers, on executors for their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.compute as pc

from headwater.log.parquet import ParquetObject
from headwater.spark.file_rows import hadoop_root
from headwater.storage import ObjectMeta, open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headwater.storage import ObjectStore

_SMALL_BYTES = 256 * 2**10


def check_places(uri: str, storage_options: Mapping[str, str] | None, paths: pa.ChunkedArray) -> None:
    """Raise before a job starts if workers could not read some files for want of options.

    Args:
        uri: the table's location.
        storage_options: options of the object store.
        paths: URIs of data files, as `headwater.spark.file_rows.file_uris` spells them.

    Raises:
        ForeignLocationError: one of them lies in a store for which there are no options.
    """
    own = f"{hadoop_root(replace(parse_uri(uri), path='').uri)}/" if parse_uri(uri).kind != "local" else "file:/"
    others = paths.filter(pc.invert(pc.starts_with(paths, own)))
    if not len(others):
        return
    elsewhere = OtherStores(uri, storage_options)
    places = pc.struct_field(pc.extract_regex(others, r"^(?P<place>[^:]+:/{0,2}[^/]*/)"), "place")
    for place in places.unique().drop_null().to_pylist():
        elsewhere.locate_uri(others.filter(pc.starts_with(others, place))[0].as_py())


class DataFiles:
    """The data files of one table, most of them below its location."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._root = hadoop_root(uri)
        self._table = open_store(uri, storage_options)
        self._elsewhere = OtherStores(uri, storage_options)

    def open(self, uri: str, size_bytes: int) -> ParquetObject:
        """A data file; nothing is read yet.

        Args:
            uri: its path as `headwater.spark.file_rows.file_uris` spells it.
            size_bytes: its size by the log.
        """
        store, key = self.locate(uri)
        return ParquetObject(store, ObjectMeta(key, size_bytes, 0), small_bytes=_SMALL_BYTES)

    def locate(self, uri: str) -> tuple[ObjectStore, str]:
        """The store that holds a file, and the file's key in it.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        decoded = unquote(uri, errors="surrogateescape")
        if decoded.startswith(self._root + "/"):
            return self._table, decoded[len(self._root) + 1 :]
        return self._elsewhere.locate_uri(uri)
