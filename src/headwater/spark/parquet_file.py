"""One Parquet file that is being written by a Python worker, and the statistics of its rows.

Rows are gathered to row groups of a bounded size, so that memory stays flat however large the file becomes. The footer
gives most of the statistics; what it does not tell is noted while the rows pass.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.log.schema import DOUBLE, FLOAT, is_string
from headwater.spark.column_encodings import columns_with_dictionary, columns_with_statistics
from headwater.spark.file_statistics import Noted, statistics_json

if TYPE_CHECKING:
    from headwater.spark.file_plan import FilePlan
    from headwater.spark.indexed_columns import Leaf

ROW_GROUP_BYTES = 64 * 2**20
ROW_GROUP_ROWS = 2**20
"""A row group ends with the first of the two; the bytes are those of Arrow, several times those in the file."""
LONG_TEXT_BYTES = 1_024
"""Footers lack the bounds of texts of some thousand bytes: those of row groups with longer ones are found here."""
_ZSTD_LEVEL = 3
"""What Spark uses; pyarrow's own default compresses less."""


class ParquetFile:
    """A file that takes rows until it is closed."""

    def __init__(self, path: str, plan: FilePlan, schema: pa.Schema, sink: pa.NativeFile | None = None) -> None:
        """Begin a file.

        Args:
            path: where it is.
            plan: of the write.
            schema: `plan.file_schema` in Arrow.
            sink: where to write instead of the path, by `add_group`: sizes are those of the file at the path.
        """
        self.path = path
        self._sink = path if sink is None else sink
        self.num_rows = 0
        self._plan = plan
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[Any] = []
        self._row_groups = 0
        self._batches: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._arrow_bytes = 0
        self._noted: dict[Leaf, Noted] = {leaf: Noted() for leaf in plan.leaves or ()}

    def _opened(self, first_rows: pa.Table) -> pq.ParquetWriter:
        """The writer: how it encodes columns is decided by the first row group."""
        if self._writer is not None:
            return self._writer
        codec = self._plan.names.codec
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression={"uncompressed": "none", "lz4_raw": "lz4"}.get(codec, codec),
            compression_level=_ZSTD_LEVEL if codec == "zstd" else None,
            use_dictionary=columns_with_dictionary(self._plan.file_schema, first_rows),
            write_statistics=columns_with_statistics(self._plan.file_schema),
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_index=True,
            metadata_collector=self._footer,
        )
        if self._plan.spark_version:
            # Spark takes dates of a file without it by the calendar that the session of the reader is set to.
            self._writer.add_key_value_metadata({"org.apache.spark.version": self._plan.spark_version})
        return self._writer

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, in the schema of the file."""
        self._batches.append(batch)
        self.num_rows += batch.num_rows
        self._buffered_rows += batch.num_rows
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= ROW_GROUP_BYTES or self._buffered_rows >= ROW_GROUP_ROWS:
            self.flush()

    def size_bytes(self, bytes_per_arrow_byte: float) -> float:
        """How large the file would be if it were closed now, by a ratio for the rows that are not written yet."""
        return os.path.getsize(self.path) + self._buffered_bytes * bytes_per_arrow_byte

    @property
    def measured_ratio(self) -> float:
        """Bytes in the file for each byte of Arrow, once a row group is written."""
        assert self._arrow_bytes, "a row group is written"
        return os.path.getsize(self.path) / self._arrow_bytes

    def flush(self) -> None:
        """Write the rows that were gathered as a row group."""
        if not self._batches:
            return
        self._write_group(pa.Table.from_batches(self._batches, self._schema))
        self._arrow_bytes += self._buffered_bytes
        self._batches, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def add_group(self, batches: list[pa.RecordBatch]) -> None:
        """Take rows that are to be a row group, however many there are."""
        table = pa.Table.from_batches(batches, self._schema)
        self.num_rows += table.num_rows
        self._write_group(table)

    def _write_group(self, table: pa.Table) -> None:
        self._opened(table).write_table(table, row_group_size=max(1, table.num_rows))
        for leaf, noted in self._noted.items():
            _note(noted, leaf, table, self._row_groups, self._plan.prefix_length)
        self._row_groups += 1

    def close(self) -> str | None:
        """Complete the file; its statistics, if the plan wants them."""
        assert self.num_rows, "a file is begun for rows"
        self.flush()
        assert self._writer is not None
        self._writer.close()
        if self._plan.leaves is None:
            return None
        return statistics_json(self._footer[0], self._plan.leaves, self._plan.prefix_length, self._noted)

    def abandon(self) -> None:
        """Let go of the file, whatever state it is in."""
        self._batches = []
        if self._writer is not None:
            self._writer.close()


def _note(noted: Noted, leaf: Leaf, table: pa.Table, row_group: int, prefix_length: int) -> None:
    """Note what the footer will not tell about the rows of a row group."""
    if leaf.type in (FLOAT, DOUBLE):
        values = _values(table, leaf)
        noted.null_count = (noted.null_count or 0) + values.null_count
        noted.has_nan = noted.has_nan or bool(pc.any(pc.is_nan(values)).as_py())
        bounds = pc.min_max(values).as_py()  # NaN takes no part, unless there is nothing else
        if bounds["min"] is not None and not math.isnan(bounds["min"]):
            noted.bounds[row_group] = bounds["min"], bounds["max"]
    elif not leaf.counts_nulls:
        noted.null_count = (noted.null_count or 0) + _values(table, leaf).null_count
    elif is_string(leaf.type):
        values = _values(table, leaf)
        is_coded = pa.types.is_dictionary(values.type)
        texts = [chunk.dictionary if is_coded else chunk for chunk in values.chunks]
        if max((pc.max(pc.binary_length(text)).as_py() or 0 for text in texts), default=0) > LONG_TEXT_BYTES:
            values = values.cast(values.type.value_type) if is_coded else values
            # Long enough that the character after the cut is there, and those that decide if it is the last one.
            bounds = pc.min_max(pc.utf8_slice_codeunits(values, 0, 2 * prefix_length + 2)).as_py()
            noted.bounds[row_group] = bounds["min"].encode(), bounds["max"].encode()


def _values(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The values of a leaf; null where a struct around it is null."""
    values = table.column(leaf.path[0])
    for name in leaf.path[1:]:
        position = values.type.get_field_index(name)
        values = pa.chunked_array([chunk.flatten()[position] for chunk in values.chunks], values.type[position].type)
    return values
