"""Parquet files on an object store, read by column and row group.

Every byte goes through `ObjectStore.get_range`, so any store (and any injected fault) serves; pyarrow merges the
small ranges of a remote file by itself. Foreign errors become `CorruptLogError` naming the file.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptLogError, ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore


_BATCH_ROWS = 32_768


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

    def __init__(self, store: ObjectStore, meta: ObjectMeta) -> None:
        self.store = store
        self.meta = meta

    @cached_property
    def _file(self) -> pq.ParquetFile:
        with self._named_errors():
            source = pa.PythonFile(_RangeReader(self.store, self.meta), mode="r")
            return pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._file.metadata

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        with self._named_errors():
            return self._file.schema_arrow

    @property
    def num_row_groups(self) -> int:
        """How many row groups the file has."""
        return int(self.metadata.num_row_groups)

    @cached_property
    def _leaves(self) -> dict[str, int]:
        """Index of each leaf column by its dotted path."""
        if not self.num_row_groups:
            return {}
        group = self.metadata.row_group(0)
        return {group.column(i).path_in_schema: i for i in range(group.num_columns)}

    def has(self, *path: str) -> bool:
        """Whether the (nested) column exists."""
        fields: Any = self.schema
        for part in path:
            index = fields.get_field_index(part)
            if index < 0:
                return False
            field = fields.field(index)
            fields = field.type if pa.types.is_struct(field.type) else pa.struct([])
        return True

    def groups_with(self, leaf: str) -> list[int]:
        """The row groups in which the leaf column may have a value, by the null counts of the footer."""
        index = self._leaves.get(leaf)
        if index is None:
            return []
        return [group for group in range(self.num_row_groups) if not self._is_all_null(group, index)]

    def leaves_with_values(self, column: str, groups: Sequence[int]) -> list[str]:
        """The leaves below a column that may have a value in these row groups."""
        below = [(leaf, index) for leaf, index in self._leaves.items() if leaf.startswith(f"{column}.")]
        return [leaf for leaf, index in below if not all(self._is_all_null(group, index) for group in groups)]

    def _is_all_null(self, group: int, index: int) -> bool:
        column = self.metadata.row_group(group).column(index)
        statistics = column.statistics
        return statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values

    def read(self, column: str, groups: Sequence[int]) -> pa.ChunkedArray:
        """A top-level column, or the nested one of a dotted path, of some row groups.

        A path below a struct comes as that struct with only the nested column in it.
        """
        with self._named_errors():
            # One column: threads would only add their start.
            return self._file.read_row_groups(list(groups), columns=[column], use_threads=False).column(0)

    def batches(self, columns: Sequence[str], groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Like `read` for several columns, batch by batch: for what is used once, in bounded memory."""
        with self._named_errors():
            yield from self._file.iter_batches(
                _BATCH_ROWS, row_groups=list(groups), columns=list(columns), use_threads=False
            )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except ObjectNotFoundError as error:
            raise CorruptLogError(f"{self.meta.key} does not exist, although the log names it: {error}") from error
        except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError, OverflowError) as error:
            raise CorruptLogError(f"{self.meta.key} cannot be read as Parquet: {error}") from error
