"""Building one split on a local disk, from record batches or from other splits.

The rows go into an Arrow file as they come; the same batch becomes JSON documents for tantivy. One thread writes the
index, because Spark runs one task for each core already. The bundle of both is the split, and `BuiltSplit` knows what
the log's `add` says of it (spec 002, "AddAction"). Merging puts the segments of several indexes into one index, and the
rows one after the other.

Bounds are the texts that `minValues` and `maxValues` of an `add` hold. A bound may be wider than the truth and never
narrower: long strings are cut at a prefix (the upper one ends in the largest character), and a column with NaN, which
is larger than everything to Spark, has no bounds.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from headwater.errors import SchemaMismatchError, SearchConfigError, StorageError
from headwater.log.indextables.actions import SplitAdd
from headwater.log.schema import BOOLEAN, DOUBLE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ, DecimalType, is_string
from headwater.log.stats.value_text import non_finite_text
from headwater.search.config import natural_kind
from headwater.search.split.bundle import BundleFooter, SplitMetadata, index_files, join_indexes, write_bundle
from headwater.search.split.documents import DocumentBuilder
from headwater.search.split.rows import BATCH_ROWS, MAX_ROWS, RowsWriter, new_first_id
from headwater.search.types import conform, create_index, is_day_time_interval, is_time, open_index, row_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from types import TracebackType

    from headwater.log.schema import StructField, StructType
    from headwater.search.config import IndexConfig
    from headwater.search.split.reader import Split


DEFAULT_HEAP_BYTES: Final = 512 << 20
"""What the index may hold in memory before it writes a segment: enough for about a million rows of log lines in one."""
_DOCUMENT_ROWS: Final = 8_192
"""Rows turned into documents at a time: the texts of more would not stay in the processor's cache."""


class SplitWriter:
    """Builds one split. Nothing of it is left in `directory` but the finished file, whatever happens in between.

    >>> import tempfile, pyarrow as pa
    >>> from headwater.log.schema import STRING, StructField, StructType
    >>> from headwater.search.choices import index_config
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
        """The size of the rows so far, in memory, by which callers decide when a split is large enough."""
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
        """Translate the errors of a full or lost disk, for which the library and Arrow have words of their own."""
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
        """Remove what is not finished; a finished split stays."""
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


ROWS_PART: Final = "rows.arrow"
INDEX_DIRECTORY: Final = "index"


@dataclass(frozen=True, slots=True)
class BuiltSplit:
    """A split on the local disk, and what the log's `add` says of it.

    Bounds are the spec's texts, by column; `time_range` is that of the first timestamp column.
    """

    path: str
    size_bytes: int
    num_records: int
    footer: BundleFooter
    min_values: Mapping[str, str]
    max_values: Mapping[str, str]
    time_range: tuple[str, str] | None
    uncompressed_size_bytes: int
    doc_mapping: str
    num_merge_ops: int = 0

    def to_add(
        self,
        path: str,
        partition_values: Mapping[str, str | None] | None = None,
        *,
        modified_ms: int | None = None,
        data_change: bool = True,
        tags: Mapping[str, str | None] | None = None,
        split_tags: tuple[str, ...] | None = None,
    ) -> SplitAdd:
        """Return the `add` of this split, once it is at `path` in the table (spec 002, "AddAction")."""
        start, end = self.time_range or (None, None)
        return SplitAdd(
            path,
            self.size_bytes,
            partition_values=dict(partition_values or {}),
            modification_time=modified_ms if modified_ms is not None else time.time_ns() // 1_000_000,
            data_change=data_change,
            tags=dict(tags) if tags is not None else None,
            min_values=dict(self.min_values),
            max_values=dict(self.max_values),
            num_records=self.num_records,
            footer_start_offset=self.footer.footer_start,
            footer_end_offset=self.footer.footer_end,
            hotcache_start_offset=self.footer.hotcache_start,
            hotcache_length=self.footer.hotcache_length,
            has_footer_offsets=True,
            time_range_start=start,
            time_range_end=end,
            split_tags=split_tags,
            delete_opstamp=0,
            num_merge_ops=self.num_merge_ops,
            doc_mapping_json=self.doc_mapping,
            uncompressed_size_bytes=self.uncompressed_size_bytes,
        )


def assemble(
    work: str,
    target: str,
    *,
    config: IndexConfig,
    schema: StructType,
    rows: RowsWriter,
    bounds: ColumnBounds,
    row_ids: tuple[tuple[int, int], ...],
    partial_fields: Collection[str],
    null_counts: Mapping[str, int],
    num_merge_ops: int = 0,
) -> BuiltSplit:
    """Bundle the closed rows file and the committed index in the directory `work`; the split appears at `target`."""
    doc_mapping = config.to_json()
    least, greatest = bounds.texts()
    metadata = SplitMetadata(
        doc_mapping=msgspec.json.decode(doc_mapping),
        schema=schema.to_dict(),
        num_records=rows.num_rows,
        row_ids=row_ids,
        row_batch_rows=BATCH_ROWS,
        partial_fields=tuple(sorted(partial_fields)),
        null_counts=dict(null_counts),
        min_values=least,
        max_values=greatest,
        num_merge_ops=num_merge_ops,
    )
    parts = [(ROWS_PART, os.path.join(work, ROWS_PART)), *index_files(os.path.join(work, INDEX_DIRECTORY))]
    bundle = os.path.join(work, "bundle")
    footer = write_bundle(bundle, parts, metadata.encode())
    os.rename(bundle, target)
    return BuiltSplit(
        path=target,
        size_bytes=footer.footer_end,
        num_records=rows.num_rows,
        footer=footer,
        min_values=least,
        max_values=greatest,
        time_range=bounds.time_range(),
        uncompressed_size_bytes=rows.uncompressed_bytes,
        doc_mapping=doc_mapping,
        num_merge_ops=num_merge_ops,
    )


_MAX_CHARACTERS: Final = 64
_LAST_CHARACTER: Final = "\U0010ffff"
_YEAR_OF_FOUR_DIGITS: Final = re.compile(r"\d{4}-")


class ColumnBounds:
    """Collects the bounds of the columns for which they help: not of text, JSON, binaries and intervals."""

    def __init__(self, schema: StructType, config: IndexConfig) -> None:
        self._columns = [column for column in schema.fields if _has_bounds(column, config)]
        self._least: dict[str, pa.Scalar] = {}
        self._greatest: dict[str, pa.Scalar] = {}
        self._unbounded: set[str] = set()
        self.null_counts: dict[str, int] = dict.fromkeys(schema.names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        for name in self.null_counts:
            self.null_counts[name] += batch.column(name).null_count
        for column in self._columns:
            values = batch.column(column.name)
            if column.type in (FLOAT, DOUBLE) and pc.any(pc.is_nan(values)).as_py():
                self._unbounded.add(column.name)
            bounds = pc.min_max(values)
            if bounds["min"].is_valid:
                self._widen(self._least, column.name, bounds["min"], pc.less)
                self._widen(self._greatest, column.name, bounds["max"], pc.greater)

    @staticmethod
    def _widen(bounds: dict[str, pa.Scalar], name: str, found: pa.Scalar, beyond: Any) -> None:
        if name not in bounds or beyond(found, bounds[name]).as_py():
            bounds[name] = found

    def texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the smallest and the largest values, by column; a column is in both or in neither."""
        least: dict[str, str] = {}
        greatest: dict[str, str] = {}
        for column in self._columns:
            name = column.name
            if name in self._least and name not in self._unbounded:
                low, high = _bound_texts(column, self._least[name], self._greatest[name])
                if low is not None and high is not None:
                    least[name], greatest[name] = low, high
        return least, greatest

    def time_range(self) -> tuple[str, str] | None:
        """Return the first and last instant of the first timestamp column that has values."""
        least, greatest = self.texts()
        for kind in (TIMESTAMP, TIMESTAMP_NTZ):
            for column in self._columns:
                if column.type == kind and column.name in least:
                    return least[column.name], greatest[column.name]
        return None


def _has_bounds(column: StructField, config: IndexConfig) -> bool:
    if natural_kind(column.type) in ("json", "stored") or is_day_time_interval(column.type) or is_time(column.type):
        return False
    kinds = {field.kind for field in config.fields_of(column.name)}
    return not kinds <= {"text", "json"}


def _bound_texts(column: StructField, least: pa.Scalar, greatest: pa.Scalar) -> tuple[str | None, str | None]:
    if is_string(column.type):
        return least.as_py()[:_MAX_CHARACTERS], _upper_string(greatest.as_py())
    return _text(column, least), _text(column, greatest)


def _upper_string(value: str) -> str | None:
    if len(value) <= _MAX_CHARACTERS:
        return value
    bound = value[:_MAX_CHARACTERS] + _LAST_CHARACTER
    return bound if bound >= value else None


def _text(column: StructField, value: pa.Scalar) -> str | None:
    if column.type == BOOLEAN:
        return "true" if value.as_py() else "false"
    if column.type in (FLOAT, DOUBLE):
        number: float = value.as_py()
        return non_finite_text(number) or repr(number)
    if isinstance(column.type, DecimalType):
        return format(value.as_py(), "f")
    written: str = value.cast(pa.string()).as_py()
    if pa.types.is_temporal(value.type):
        if _YEAR_OF_FOUR_DIGITS.match(written) is None:
            return None  # ISO 8601 has no form of it that every reader knows
        return written.replace(" ", "T").replace(".000000", "")
    return written


# --- merging ------------------------------------------------------------------------------------------------


def merge_splits(
    splits: Sequence[Split], directory: str, *, config: IndexConfig | None = None, heap_bytes: int = DEFAULT_HEAP_BYTES
) -> BuiltSplit:
    """Merge splits of one table into one, with their rows in the given order.

    Nothing is analysed again, so a merge costs about half of indexing the rows again. Only splits with different index
    configurations (or the one in four billion pairs that have the same row ids) are indexed again from their rows. The
    configuration of the result is the last split's by default.

    Raises:
        CorruptSplitError: one of the splits is damaged; its `path` says which.
        SearchConfigError: the splits have different columns, or different configurations and columns that are only
            indexed, so that they cannot be indexed again.
    """
    if not splits:
        raise SearchConfigError("there are no splits to merge")
    schema = splits[-1].schema
    for split in splits:
        if split.schema != schema:
            raise SearchConfigError(f"the splits {split.path} and {splits[-1].path} have different columns")
        split.prewarm()  # a damaged split is found before anything is written
    wanted = config or splits[-1].config
    first_ids = [first for split in splits for first, _ in split.metadata.row_ids]
    work = os.path.join(directory, f"{uuid.uuid4()}.split.tmp")
    try:
        same = all(split.config == wanted for split in splits) and len(set(first_ids)) == len(first_ids)
        if same and _join(splits, work):
            return _merged(splits, wanted, work, heap_bytes)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _indexed_again(splits, wanted, directory, heap_bytes)


def _join(splits: Sequence[Split], work: str) -> bool:
    """Join the indexes in the work directory; False if their schemas differ after all."""
    sources = [os.path.join(work, f"source-{number}") for number in range(len(splits))]
    os.makedirs(os.path.join(work, INDEX_DIRECTORY))
    for split, source in zip(splits, sources, strict=True):
        split.link_index(source)
    return join_indexes(sources, os.path.join(work, INDEX_DIRECTORY))


def _merged(splits: Sequence[Split], config: IndexConfig, work: str, heap_bytes: int) -> BuiltSplit:
    writer = open_index(os.path.join(work, INDEX_DIRECTORY)).writer(heap_bytes, 1)
    writer.commit()  # this is when tantivy looks for segments to merge
    writer.wait_merging_threads()
    schema = splits[0].schema
    stored = config.stored_schema(schema)
    rows = RowsWriter(os.path.join(work, ROWS_PART), row_schema(stored))
    bounds = ColumnBounds(stored, config)  # the values of columns that are only indexed are gone, and so their bounds
    null_counts = dict.fromkeys(schema.names, 0)
    for split in splits:
        for name, count in split.metadata.null_counts.items():
            null_counts[name] += count
        for batch in split.iter_rows():
            rows.write(batch)
            bounds.add(batch)
    rows.close()
    return assemble(
        work,
        work.removesuffix(".tmp"),
        config=config,
        schema=schema,
        rows=rows,
        bounds=bounds,
        row_ids=tuple(pair for split in splits for pair in split.metadata.row_ids),
        partial_fields=frozenset().union(*(split.partial_fields for split in splits)),
        null_counts=null_counts,
        num_merge_ops=1 + max(split.metadata.num_merge_ops for split in splits),
    )


def _indexed_again(splits: Sequence[Split], config: IndexConfig, directory: str, heap_bytes: int) -> BuiltSplit:
    lost = sorted(set().union(*(split.config.index_only_columns for split in splits)))
    if lost:
        raise SearchConfigError(
            f"the splits {splits[0].path} and others have different index configurations, and column {lost[0]!r} is "
            f"only indexed: its values are not kept, so the splits cannot be indexed again"
        )
    merges = 1 + max(split.metadata.num_merge_ops for split in splits)
    with SplitWriter(config, splits[0].schema, directory, heap_bytes=heap_bytes, num_merge_ops=merges) as writer:
        for split in splits:
            for batch in split.iter_rows():
                writer.add(batch)
        return writer.finish()
