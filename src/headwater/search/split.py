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
from headwater.search.fields import IndexConfig
from headwater.search.split_bundle import BundleFooter, read_footer
from headwater.search.split_metadata import SplitMetadata

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pyarrow as pa
    import tantivy

    from headwater.search.split_cache import SplitCache, SplitSource
    from headwater.search.split_rows import SplitRows
    from headwater.storage import ObjectStore


class Split:
    """An open split. Cheap to keep: the index and the rows are memory maps. Safe to share between threads.

    Attributes:
        path: its URI, for messages.
        config: the fields of its index.
        schema: the columns of the rows it was made from (index-only columns included).
        num_records: how many rows it has.
        partial_fields: the index fields (by name) that could not take the value of every row: a term that is too
            long, a number that is not finite, text that is no IP address, an unusable JSON value. Such a row has no
            value of that field in the index, neither to search nor fast; `Query.term_query(schema, UNINDEXED_FIELD,
            field.name)` finds exactly these rows (`headwater.search.fields.UNINDEXED_FIELD`). A query on a partial
            field is right when these rows are looked at themselves; aggregates over one come from the rows.
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
        """Open a split.

        Args:
            store: of the table.
            key: of the split in the store.
            size_bytes: the log's `size`, if known: it saves asking the store.
            footer_start: the log's `footerStartOffset`, if known.
            cache: where to unpack; the machine's (`default_cache()`) if not given.

        Raises:
            ObjectNotFoundError: there is no such split.
            CorruptSplitError: it is damaged, cut off or no split.
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
        """The fields of the index."""
        return IndexConfig.from_json(msgspec.json.encode(self.metadata.doc_mapping))

    @functools.cached_property
    def schema(self) -> StructType:
        """The columns of the rows that the split was made from."""
        return StructType.from_json(self.metadata.schema)

    @functools.cached_property
    def stored_schema(self) -> StructType:
        """The columns that can be read from the split: all but the index-only ones."""
        return self.config.stored_schema(self.schema)

    @property
    def num_records(self) -> int:
        """How many rows there are."""
        return self.metadata.num_records

    @functools.cached_property
    def partial_fields(self) -> frozenset[str]:
        """The index fields that lack the value of some row (see the class)."""
        return frozenset(self.metadata.partial_fields)

    @functools.cached_property
    def kind(self) -> Hashable:
        """Equal for splits that are asked alike: with the same columns and fields, of which the same lack values."""
        return msgspec.json.encode([self.metadata.doc_mapping, self.metadata.schema]), self.partial_fields

    # --- the index ----------------------------------------------------------------------------------------

    @functools.cached_property
    def _opened(self) -> tuple[tantivy.Index, tantivy.Searcher]:
        return self._cache_in_use.open_index(self._source)

    @property
    def index(self) -> tantivy.Index:
        """The tantivy index, with our analysers registered."""
        return self._opened[0]

    @property
    def searcher(self) -> tantivy.Searcher:
        """A searcher on the index, opened once."""
        return self._opened[1]

    def row_numbers_of(self, row_ids: Sequence[int]) -> pa.UInt64Array:
        """The row numbers (from 0, in the order of the rows) for values of `ROW_ID_FIELD`, in the given order.

        Ascending ids give ascending numbers only in a split that was never merged: sort the numbers where it matters.

        Raises:
            CorruptSplitError: an id is not of this split.
        """
        from headwater.search.row_ids import row_numbers

        numbers = row_numbers(row_ids, self.metadata.row_ids)
        if numbers is None:
            raise CorruptSplitError(f"the index of the split {self.path} has rows that the split does not", self.path)
        return numbers

    # --- the rows -----------------------------------------------------------------------------------------

    def rows(self, row_numbers: pa.Array | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows in the types of `stored_schema`.

        Args:
            row_numbers: which, in the wanted order; all if not given.
            columns: which, in the wanted order; all if not given.

        Raises:
            ColumnNotFoundError: there is no such column, or it is index-only.
        """
        return self._rows.read(row_numbers, columns)

    def iter_rows(self, columns: Sequence[str] | None = None, max_rows: int = 16_384) -> Iterator[pa.RecordBatch]:
        """All rows in order, in batches of at most `max_rows`, without having them in memory together."""
        return self._rows.batches(columns, max_rows)

    @functools.cached_property
    def _rows(self) -> SplitRows:
        from headwater.search.split_rows import SplitRows

        buffer = self._cache_in_use.rows_buffer(self._source)
        return SplitRows(buffer, self.num_records, self.metadata.row_batch_rows, self.path)

    # --- the local copy -----------------------------------------------------------------------------------

    def prewarm(self) -> None:
        """Have everything on this machine, checked and open, before it is asked for."""
        _ = self.searcher, self._rows

    def link_index(self, target: str) -> None:
        """Give the files of the index a second name each, in a new directory: for merging."""
        self._cache_in_use.link_index(self._source, target)

    @property
    def _cache_in_use(self) -> SplitCache:
        from headwater.search.split_cache import default_cache

        return self._cache or default_cache()

    @property
    def _source(self) -> SplitSource:
        from headwater.search.split_cache import SplitSource

        return SplitSource(self._store, self._key, self.footer, self.path)


_POOL_SPLITS: Final = 512
_pool: OrderedDict[tuple[str, str, int | None], Split] = OrderedDict()
_pool_lock = threading.Lock()


def open_split(
    store: ObjectStore, key: str, *, size_bytes: int | None = None, footer_start: int | None = None
) -> Split:
    """`Split.open`, or the split that this process has open already: the second search of a split costs microseconds.

    Splits are immutable and their names unique, so an open one never goes stale; the least recently used are let go.
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
