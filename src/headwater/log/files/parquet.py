"""Read Parquet files on an object store by column and row group, several at a time.

Every byte goes through `ObjectStore.get_range`, so any store (and any injected fault) serves; pyarrow merges the small
ranges of a remote file by itself. Foreign errors become `CorruptLogError` naming the file.

Types are those of Parquet's own schema. Arrow's writers add a schema of theirs (`ARROW:schema`), by which pyarrow would
give views, dictionaries, large or fixed-size lists, durations and extensions: other readers do not see those, and many
of Arrow's functions do not take them.

Threads read the next batch while the current one is processed. Arrow decodes Parquet without the interpreter lock and
msgspec decodes JSON with it, so the two overlap; on an object store the wait for the next range overlaps as well.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import CorruptLogError, HeadwaterError, ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore


BATCH_ROWS = 16_384
_ARROW_SCHEMA_KEY = b"ARROW:schema"
_LOCAL_BUFFER_BYTES = 1 << 20
"""Column chunks are read piece by piece into one buffer; whole, each would need new memory."""


class _RangeReader(io.RawIOBase):
    """A seekable view of one object; each read is one range request."""

    def __init__(self, store: ObjectStore, meta: ObjectMeta) -> None:
        super().__init__()
        self._store, self._key, self._size, self._position = store, meta.key, meta.size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._position if size < 0 else min(size, self._size - self._position)
        if length <= 0:
            return b""
        data = self._store.get_range(self._key, self._position, length)
        self._position += len(data)
        return data


class ParquetObject:
    """One Parquet file of the log: its footer is read on first use, columns on demand."""

    def __init__(
        self,
        store: ObjectStore,
        meta: ObjectMeta,
        *,
        small_bytes: int = 0,
        explain_missing: Callable[[ObjectNotFoundError], HeadwaterError | None] | None = None,
    ) -> None:
        """Open a file; nothing is read yet.

        Args:
            store: where it is.
            meta: the object.
            small_bytes: up to this size the file is read whole: for callers that want most of its columns.
            explain_missing: returns what to raise if the file is missing, where that is not damage.
        """
        self.store = store
        self.meta = meta
        self._explain_missing = explain_missing
        self._is_small = meta.size_bytes <= small_bytes
        self._readers = local()

    @cached_property
    def _file(self) -> pq.ParquetFile:
        with self._named_errors():
            file = self._opened(None)
            if _ARROW_SCHEMA_KEY in (file.metadata.metadata or {}):
                file = self._opened(_without_arrow_schema(file.metadata))
            self._readers.files = {(): file}
            return file

    def _opened(self, metadata: pq.FileMetaData | None, dictionaries: tuple[str, ...] = ()) -> pq.ParquetFile:
        source = self._whole if self._is_small else pa.PythonFile(_RangeReader(self.store, self.meta), mode="r")
        # Merging ranges pays where a request costs milliseconds; on a disk it only adds a copy.
        remote = not self.store.uri.startswith("file:")
        return pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=remote,
            buffer_size=0 if remote else _LOCAL_BUFFER_BYTES,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )

    @cached_property
    def _data(self) -> bytes:
        return self.store.get(self.meta.key)

    @property
    def _whole(self) -> pa.BufferReader:
        """A small file, read at once: one request instead of one for the footer and each column."""
        data = self._data
        if len(data) != self.meta.size_bytes:
            raise pa.ArrowInvalid(f"it has {len(data)} bytes where {self.meta.size_bytes} were expected")
        return pa.BufferReader(data)

    def _of_this_thread(self, dictionaries: tuple[str, ...] = ()) -> pq.ParquetFile:
        """Return a reader that no other thread uses; all share one footer."""
        metadata = self.metadata
        if not hasattr(self._readers, "files"):
            self._readers.files = {}
        files: dict[tuple[str, ...], pq.ParquetFile] = self._readers.files
        if dictionaries not in files:
            files[dictionaries] = self._opened(metadata, dictionaries)
        return files[dictionaries]

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._file.metadata

    @cached_property
    def schema(self) -> pa.Schema:
        with self._named_errors():
            return self._file.schema_arrow

    @property
    def num_row_groups(self) -> int:
        return int(self.metadata.num_row_groups)

    @cached_property
    def _leaves(self) -> dict[str, int]:
        """Index of each leaf column by its dotted path.

        The footer names each column twice. A damaged name would otherwise look like a column that is not there.
        """
        if not self.num_row_groups:
            return {}
        with self._named_errors():
            schema, group = self.metadata.schema, self.metadata.row_group(0)
            leaves = [schema.column(i).path for i in range(len(schema))]
            if leaves != [group.column(i).path_in_schema for i in range(group.num_columns)]:
                raise CorruptLogError(f"{self.meta.key} is damaged: its footer contradicts itself about column names.")
            return {leaf: index for index, leaf in enumerate(leaves)}

    def has(self, *path: str) -> bool:
        """Say whether the (nested) column exists."""
        fields: Any = self.schema
        for part in path:
            index = fields.get_field_index(part)
            if index < 0:
                return False
            field = fields.field(index)
            fields = field.type if pa.types.is_struct(field.type) else pa.struct([])
        return True

    def groups_with(self, column: str) -> list[int]:
        """Return the row groups in which a column (or one below it) may have a value, by null counts in the footer."""
        below = f"{column}."
        indexes = [index for leaf, index in self._leaves.items() if leaf == column or leaf.startswith(below)]
        groups = range(self.num_row_groups)
        return [group for group in groups if not all(self._is_all_null(group, index) for index in indexes)]

    def has_values(self, leaf: str) -> bool:
        """Say whether a leaf column has any value; it is read where the footer does not count nulls."""
        for group in self.groups_with(leaf):
            if self.null_count(group, leaf) is not None:
                return True
            for batch in self.batches([leaf], [group]):
                column = batch.column(0)
                for part in leaf.split(".")[1:]:
                    column = pc.struct_field(column, [part])
                if column.null_count < len(column):
                    return True
        return False

    def fields_with_values(self, column: str, groups: Sequence[int]) -> list[str]:
        """Return the fields of a struct column that may have a value in these row groups, as dotted paths.

        Whole fields: of a map whose values are all null, the keys alone could not be read.
        """
        found: dict[str, None] = {}
        for leaf, index in self._leaves.items():
            name, _, rest = leaf.partition(".")
            if name == column and rest and not all(self._is_all_null(group, index) for group in groups):
                found[f"{column}.{rest.partition('.')[0]}"] = None
        return list(found)

    def null_count(self, group: int, leaf: str) -> int | None:
        """Return the number of nulls of a leaf in a row group; None when the footer does not count them."""
        index = self._leaves.get(leaf)
        with self._named_errors():
            statistics = None if index is None else self.metadata.row_group(group).column(index).statistics
            return None if statistics is None or not statistics.has_null_count else int(statistics.null_count)

    def _is_all_null(self, group: int, index: int) -> bool:
        with self._named_errors():
            column = self.metadata.row_group(group).column(index)
            if column.num_values == 0:
                return True
            statistics = column.statistics
            return statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values

    def bytes_per_value(self, group: int, leaf: str) -> float:
        """Return how many bytes a value of a leaf takes in a row group, before it is compressed."""
        with self._named_errors():
            column = self.metadata.row_group(group).column(self._leaves[leaf])
            return float(column.total_uncompressed_size / max(1, column.num_values))

    def only_value(self, group: int, leaf: str) -> str | None:
        """Return the text that all values of a leaf in a row group are equal to, where the footer says so."""
        index = self._leaves.get(leaf)
        with self._named_errors():
            statistics = None if index is None else self.metadata.row_group(group).column(index).statistics
            if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
                return None
            return statistics.min if isinstance(statistics.min, str) else None

    def validated(self, values: pa.Array) -> pa.Array:
        """Return the same values; raise if they are damaged."""
        with self._named_errors():
            values.validate(full=True)
        return values

    def batches(
        self,
        columns: Sequence[str],
        groups: Sequence[int],
        batch_rows: int = BATCH_ROWS,
        *,
        validate: bool = True,
        dictionaries: tuple[str, ...] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of some row groups, batch by batch: one large array would be grown by copying.

        A dotted path below a struct comes as that struct with only the nested column in it. Columns of text that are
        named as `dictionaries` come as such. Raises for damage that the decoder does not notice: text that is not UTF-8
        (unless the caller validates the few values that it picks), rows that are missing.
        """
        rows_left = sum(self.metadata.row_group(group).num_rows for group in groups)
        with self._named_errors():
            for batch in self._of_this_thread(dictionaries).iter_batches(
                batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
            ):
                batch.validate(full=validate)
                rows_left -= batch.num_rows
                yield batch
        if rows_left:
            raise CorruptLogError(f"{self.meta.key} is damaged: its footer counts {rows_left} more rows than it has.")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except ObjectNotFoundError as error:
            explained = None if self._explain_missing is None else self._explain_missing(error)
            if explained is not None:
                raise explained from error
            raise CorruptLogError(f"{self.meta.key} does not exist, although the log names it: {error}") from error
        except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError, OverflowError) as error:
            raise CorruptLogError(f"{self.meta.key} cannot be read as Parquet: {error}") from error


def _without_arrow_schema(footer: pq.FileMetaData) -> pq.FileMetaData:
    """Return a footer without the schema that Arrow's writers add to that of Parquet.

    pyarrow has no option for it, so the key gets another name, which is as long as it was. Keys stand behind all that
    a footer says of columns, whose bounds might contain the same words: the search begins at the end.
    """
    rebuilt, (serialized,) = footer.__reduce__()
    data = bytearray(serialized)
    key = bytes([len(_ARROW_SCHEMA_KEY)]) + _ARROW_SCHEMA_KEY
    while _ARROW_SCHEMA_KEY in (footer.metadata or {}):
        place = data.rindex(key)
        data[place + 1 : place + len(key)] = _ARROW_SCHEMA_KEY.replace(b":", b"-")
        footer = rebuilt(pa.py_buffer(bytes(data)))
    return footer


_Item = TypeVar("_Item")
_Half = TypeVar("_Half")
_Result = TypeVar("_Result")
_END = object()
_MAX_THREADS = min(8, os.cpu_count() or 1)
"""Decoding is bound by cores, and every thread holds a batch of its own."""


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the same items, each made one step before it is asked for.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    source = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-prefetch") as pool:
        pending = pool.submit(next, source, _END)
        while (item := pending.result()) is not _END:
            pending = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]


def each(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results for all items, in their order; a few threads share several items.

    >>> each(str, [1, 2])
    ['1', '2']
    """
    if len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _MAX_THREADS), thread_name_prefix="headwater-read") as pool:
        return list(pool.map(work, items))


def each_in_two_steps(
    first: Callable[[_Item], _Half], second: Callable[[_Item, _Half], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Do as `each`, with work in two steps: smaller pieces keep all threads busy to the end.

    >>> each_in_two_steps(len, lambda text, length: text * length, ["a", "bc"])
    ['a', 'bcbc']
    """
    if len(items) <= 1:
        return [second(item, first(item)) for item in items]
    with ThreadPoolExecutor(min(len(items), _MAX_THREADS), thread_name_prefix="headwater-read") as pool:
        # First steps are started before all second ones, so a second step waits for a running one at most.
        halves = [pool.submit(first, item) for item in items]
        return list(pool.map(lambda item, half: second(item, half.result()), items, halves))
