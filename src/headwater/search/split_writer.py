"""Building one split from record batches, on a local disk: the index, the rows beside it, and the bundle of both.

The rows go into an Arrow file as they come; the same batch becomes JSON documents for tantivy. One thread writes the
index, because Spark runs one task for each core already.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final, Self

import msgspec
import tantivy

from headwater.errors import SchemaMismatchError, SearchConfigError, StorageError
from headwater.search.built_split import INDEX_DIRECTORY, ROWS_PART, BuiltSplit, assemble
from headwater.search.column_bounds import ColumnBounds
from headwater.search.documents import DocumentBuilder
from headwater.search.index_schema import create_index
from headwater.search.row_ids import MAX_ROWS, new_first_id
from headwater.search.row_types import conform, row_schema
from headwater.search.split_rows import RowsWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from headwater.log.schema import StructType
    from headwater.search.fields import IndexConfig

DEFAULT_HEAP_BYTES: Final = 512 << 20
"""What the index may hold in memory before it writes a segment: enough for about a million rows of log lines in one."""
_DOCUMENT_ROWS: Final = 8_192
"""Rows turned into documents at a time: the texts of more would not stay in the processor's cache."""


class SplitWriter:
    """Builds one split. Nothing of it is left in `directory` but the finished file, whatever happens in between.

    Args:
        config: the fields of the index.
        schema: the columns of the rows.
        directory: an existing local directory.
        heap_bytes: what the index may hold in memory.
        num_merge_ops: how often the rows were merged before.

    >>> import tempfile, pyarrow as pa
    >>> from headwater.log.schema import STRING, StructField, StructType
    >>> from headwater.search.fields import index_config
    >>> schema = StructType([StructField("message", STRING)])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with SplitWriter(index_config(schema, types={"message": "text"}), schema, directory) as writer:
    ...         writer.add(pa.record_batch({"message": ["disk full", "all fine"]}))
    ...         built = writer.finish()
    >>> built.num_records
    2
    """

    def __init__(
        self,
        config: IndexConfig,
        schema: StructType,
        directory: str,
        *,
        heap_bytes: int = DEFAULT_HEAP_BYTES,
        num_merge_ops: int = 0,
    ) -> None:
        _check_fit(config, schema)
        self._config = config
        self._schema = schema
        self._arrow_schema = row_schema(schema)
        stored = row_schema(config.stored_schema(schema))
        self._stored_names = stored.names
        self._target = os.path.join(directory, f"{uuid.uuid4()}.split")
        self._work = f"{self._target}.tmp"
        index_directory = os.path.join(self._work, INDEX_DIRECTORY)
        os.makedirs(index_directory)
        self._rows = RowsWriter(os.path.join(self._work, ROWS_PART), stored)
        self._index = create_index(config, index_directory)
        self._index_writer = self._index.writer(heap_bytes, 1)
        self._documents = DocumentBuilder(config)
        self._bounds = ColumnBounds(schema, config)
        self._first_id = new_first_id()
        self._num_merge_ops = num_merge_ops
        self.num_records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    @property
    def uncompressed_size_bytes(self) -> int:
        """The rows so far, in memory: to decide when a split is large enough."""
        return self._rows.uncompressed_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            SchemaMismatchError: the batch does not have the columns of the split, or not their types.
            StorageError: the disk does not take them.
        """
        rows = conform(batch, self._arrow_schema)
        if self.num_records + rows.num_rows > MAX_ROWS:
            raise SchemaMismatchError(f"a split cannot have more than {MAX_ROWS} rows")
        with self._disk():
            self._rows.write(rows.select(self._stored_names))
        self._bounds.add(rows)
        for start in range(0, rows.num_rows, _DOCUMENT_ROWS):
            piece = rows.slice(start, _DOCUMENT_ROWS)
            self._index_rows(piece)
            self.num_records += piece.num_rows

    def _index_rows(self, rows: pa.RecordBatch) -> None:
        plain, hard = self._documents.documents(rows, self._first_id + self.num_records)
        add_json = self._index_writer.add_json
        with self._disk():  # a full segment is written by the next document
            for document in plain:
                add_json(document)
            for document in hard:
                fields = msgspec.json.decode(document)
                self._index_writer.add_document(tantivy.Document.from_dict(fields, self._index.schema))

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Where a disk can be full, or taken away: the library and Arrow have words of their own for that."""
        try:
            yield
        except (ValueError, OSError) as error:
            raise StorageError(f"could not write the split {self._target}: {error}") from error

    def finish(self) -> BuiltSplit:
        """Write the split's file. The writer can take nothing afterwards."""
        with self._disk():
            self._index_writer.commit()
            self._index_writer.wait_merging_threads()
            self._rows.close()
            built = assemble(
                self._work,
                self._target,
                config=self._config,
                schema=self._schema,
                rows=self._rows,
                bounds=self._bounds,
                row_ids=((self._first_id, self.num_records),),
                partial_fields=self._documents.partial_fields,
                null_counts=self._bounds.null_counts,
                num_merge_ops=self._num_merge_ops,
            )
        self.abandon()
        return built

    def abandon(self) -> None:
        """Throw away what is not finished; a finished split stays."""
        with contextlib.suppress(AttributeError):
            del self._index_writer  # ends its threads, which would go on to write files
        self._rows.abandon()
        shutil.rmtree(self._work, ignore_errors=True)


def _check_fit(config: IndexConfig, schema: StructType) -> None:
    columns = {field.column for field in config.fields}
    unknown = sorted(columns - set(schema.names))
    if unknown:
        raise SearchConfigError(f"the index has a field of column {unknown[0]!r}, and the rows have no such column")
    for column in schema.fields:
        for field in config.fields_of(column.name):
            if field.data_type != column.type:
                raise SearchConfigError(
                    f"field {field.name!r} is for a column of type {field.data_type}, and the rows have {column.type}"
                )
