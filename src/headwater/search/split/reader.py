"""One split, open: its index to search, and its rows to read.

A split is opened by its footer (one range request, with the log's offsets). The index is unpacked into the machine's
cache of splits when it is first searched; the rows stay in the bundle where that is on a local disk. Both are checked
against their digests once per machine, before anything is answered from them.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.errors import CorruptSplitError
from headwater.log.schema import StructType
from headwater.search.config import IndexConfig
from headwater.search.split import rows as split_rows
from headwater.search.split.bundle import BundleFooter, SplitMetadata, read_footer
from headwater.search.split.cache import SplitSource, default_cache

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pyarrow as pa
    import tantivy

    from headwater.search.split.cache import SplitCache
    from headwater.storage.base import ObjectStore


class Split:
    """An open split. Cheap to keep: the index and the rows are memory maps. Safe to share between threads.

    `schema` has the columns of the rows that it was made from, index-only columns included. `partial_fields` are the
    index fields that could not take the value of every row: a term that is too long, a number that is not finite, text
    that is not an IP address, an unusable JSON value. Such a row has no value of that field in the index; the name of
    the field in `UNINDEXED_FIELD` finds it. A query on a partial field has to read these rows, and aggregates over one
    come from the rows.
    """

    def __init__(self, store: ObjectStore, key: str, footer: BundleFooter, cache: SplitCache | None = None) -> None:
        self.path = f"{store.uri.rstrip('/')}/{key}"
        self.footer = footer
        self._store = store
        self._key = key
        self._cache = cache
        self.metadata = SplitMetadata.decode(footer.metadata, self.path)

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        key: str,
        *,
        size_bytes: int | None = None,
        footer_start: int | None = None,
        cache: SplitCache | None = None,
    ) -> Split:
        """Open a split; the log's `size` and `footerStartOffset` save requests to the store.

        Raises:
            ObjectNotFoundError: the split does not exist.
            CorruptSplitError: it is damaged, cut off or not a split.
        """
        size = size_bytes if size_bytes is not None else store.head(key).size_bytes
        path = f"{store.uri.rstrip('/')}/{key}"
        footer = read_footer(lambda start, length: store.get_range(key, start, length), size, path, footer_start)
        return cls(store, key, footer, cache)

    def __repr__(self) -> str:
        return f"Split({self.path!r}, {self.num_records} rows)"

    # --- what it is ---------------------------------------------------------------------------------------

    @functools.cached_property
    def config(self) -> IndexConfig:
        return IndexConfig.from_json(msgspec.json.encode(self.metadata.doc_mapping))

    @functools.cached_property
    def schema(self) -> StructType:
        return StructType.from_json(self.metadata.schema)

    @functools.cached_property
    def stored_schema(self) -> StructType:
        return self.config.stored_schema(self.schema)

    @property
    def num_records(self) -> int:
        return self.metadata.num_records

    @functools.cached_property
    def partial_fields(self) -> frozenset[str]:
        return frozenset(self.metadata.partial_fields)

    @functools.cached_property
    def kind(self) -> Hashable:
        """Equal for splits that the same plan serves: the same columns and fields, of which the same lack values."""
        return msgspec.json.encode([self.metadata.doc_mapping, self.metadata.schema]), self.partial_fields

    # --- the index ----------------------------------------------------------------------------------------

    @functools.cached_property
    def _opened(self) -> tuple[tantivy.Index, tantivy.Searcher]:
        return self._cache_in_use.open_index(self._source)

    @property
    def index(self) -> tantivy.Index:
        return self._opened[0]

    @property
    def searcher(self) -> tantivy.Searcher:
        return self._opened[1]

    def row_numbers_of(self, row_ids: Sequence[int]) -> pa.UInt64Array:
        """Return row numbers (from 0, in the order of the rows) for values of `ROW_ID_FIELD`, in the given order.

        Ascending ids give ascending numbers only in a split that was never merged: sort the numbers where it matters.
        """
        numbers = split_rows.row_numbers(row_ids, self.metadata.row_ids)
        if numbers is None:
            raise CorruptSplitError(f"the index of the split {self.path} has rows that the split does not", self.path)
        return numbers

    # --- the rows -----------------------------------------------------------------------------------------

    def rows(self, row_numbers: pa.Array | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows, by number and column in the wanted order, in the types of `stored_schema`; all if not given.

        Raises:
            ColumnNotFoundError: the split has no such column, or it is index-only.
        """
        return self._rows.read(row_numbers, columns)

    def iter_rows(self, columns: Sequence[str] | None = None, max_rows: int = 16_384) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in batches of at most `max_rows`, without having them in memory together."""
        return self._rows.batches(columns, max_rows)

    @functools.cached_property
    def _rows(self) -> split_rows.SplitRows:
        buffer = self._cache_in_use.rows_buffer(self._source)
        return split_rows.SplitRows(buffer, self.num_records, self.metadata.row_batch_rows, self.path)

    # --- the local copy -----------------------------------------------------------------------------------

    def prewarm(self) -> None:
        """Fetch, check and open everything on this machine, before the first search."""
        _ = self.searcher, self._rows

    def link_index(self, target: str) -> None:
        """Link the files of the index into a new directory, for merging."""
        self._cache_in_use.link_index(self._source, target)

    @property
    def _cache_in_use(self) -> SplitCache:
        return self._cache or default_cache()

    @property
    def _source(self) -> SplitSource:
        return SplitSource(self._store, self._key, self.footer, self.path)


_POOL_SPLITS: Final = 512
_pool: OrderedDict[tuple[str, str, int | None], Split] = OrderedDict()
_pool_lock = threading.Lock()


def open_split(
    store: ObjectStore, key: str, *, size_bytes: int | None = None, footer_start: int | None = None
) -> Split:
    """Open a split, or return the one that this process has open: its second search costs microseconds.

    Splits are immutable and their names unique, so an open one never goes stale; the least recently used are closed.
    """
    place = (store.uri, key, size_bytes)
    with _pool_lock:
        found = _pool.get(place)
        if found is not None:
            _pool.move_to_end(place)
            return found
    opened = Split.open(store, key, size_bytes=size_bytes, footer_start=footer_start)
    with _pool_lock:
        _pool[place] = opened
        while len(_pool) > _POOL_SPLITS:
            _pool.popitem(last=False)
    return opened
