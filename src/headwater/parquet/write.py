"""Write one Parquet file in a Python worker, and put it where it belongs.

`ParquetFile` collects rows into row groups of a bounded size, so that memory stays flat however large the file
becomes; the footer gives most of the statistics, and the rest is noted while rows are added. `to_file_batch` gives
rows the schema of the files (spec: "Delta Data Type to Parquet Type Mappings"). `Places` puts files on a shared disk
in place, or uploads them to an object store: Parquet is always written to a path on a disk, so that no file is in
memory as a whole.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.log.schema import (
    DOUBLE,
    FLOAT,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructType,
    UserDefinedType,
    is_string,
)
from headwater.log.schema.types import part_in_files
from headwater.parquet.read import with_elements
from headwater.parquet.stats import Noted, statistics_json
from headwater.storage.errors import RetryPolicy, from_obstore_error, from_os_error, shown_cause
from headwater.storage.options import options_for
from headwater.storage.uri import StoreUri, check_data_key, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.stats.decode import Leaf
    from headwater.parquet.plan import FilePlan


ROW_GROUP_BYTES = 64 * 2**20
ROW_GROUP_ROWS = 2**20
"""A row group ends at the first of these two limits; the bytes are those of Arrow, several times those in the file."""
LONG_TEXT_BYTES = 1_024
"""Footers lack the bounds of texts of some thousand bytes: bounds of longer texts are computed here."""
_ZSTD_LEVEL = 3
"""The level that Spark uses; pyarrow's own default compresses less."""


class ParquetFile:
    """A file that takes rows until it is closed."""

    def __init__(self, path: str, plan: FilePlan, schema: pa.Schema, sink: pa.NativeFile | None = None) -> None:
        """Begin a file.

        Args:
            schema: `plan.file_schema` in Arrow.
            sink: where to write instead of the path, for `add_group` only.
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
        """Return the writer; the first row group decides how it encodes columns."""
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
        """Add rows, in the schema of the file."""
        self._batches.append(batch)
        self.num_rows += batch.num_rows
        self._buffered_rows += batch.num_rows
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= ROW_GROUP_BYTES or self._buffered_rows >= ROW_GROUP_ROWS:
            self.flush()

    def size_bytes(self, bytes_per_arrow_byte: float) -> float:
        """Return the size of the file if it were closed now, by a ratio for the rows that are not written yet."""
        return os.path.getsize(self.path) + self._buffered_bytes * bytes_per_arrow_byte

    @property
    def measured_ratio(self) -> float:
        """Bytes in the file for each byte of Arrow, once a row group is written."""
        assert self._arrow_bytes, "a row group is written"
        return os.path.getsize(self.path) / self._arrow_bytes

    def flush(self) -> None:
        """Write the rows that were added as a row group."""
        if not self._batches:
            return
        self._write_group(pa.Table.from_batches(self._batches, self._schema))
        self._arrow_bytes += self._buffered_bytes
        self._batches, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def add_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write rows as one row group, however many there are."""
        table = pa.Table.from_batches(batches, self._schema)
        self.num_rows += table.num_rows
        self._write_group(table)

    def _write_group(self, table: pa.Table) -> None:
        self._opened(table).write_table(table, row_group_size=max(1, table.num_rows))
        for leaf, noted in self._noted.items():
            _note(noted, leaf, table, self._row_groups, self._plan.prefix_length)
        self._row_groups += 1

    def close(self) -> str | None:
        """Complete the file; return its statistics, if the plan wants them."""
        assert self.num_rows, "a file is begun for rows"
        self.flush()
        assert self._writer is not None
        self._writer.close()
        if self._plan.leaves is None:
            return None
        return statistics_json(self._footer[0], self._plan.leaves, self._plan.prefix_length, self._noted)

    def abandon(self) -> None:
        """Release the file, whatever state it is in."""
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
    """Return the values of a leaf; null where a struct around it is null."""
    values = table.column(leaf.path[0])
    for name in leaf.path[1:]:
        position = values.type.get_field_index(name)
        values = pa.chunked_array([chunk.flatten()[position] for chunk in values.chunks], values.type[position].type)
    return values


_SAMPLE_ROWS = 2_000
_MAX_DISTINCT_SHARE = 0.5


def columns_with_statistics(schema: StructType) -> list[str]:
    """Return the columns whose statistics Parquet keeps: all but floating numbers.

    pyarrow leaves NaN out of the maximum. For Spark NaN is greater than every number, so its Parquet reader would skip
    row groups (and pages) that hold the NaN a query asks for.
    """
    return [path for path, type_ in _columns(schema) if type_ not in (FLOAT, DOUBLE)]


def columns_with_dictionary(schema: StructType, rows: pa.Table) -> list[str]:
    """Return the columns that get a dictionary: all whose values repeat, by a sample of the first row group.

    A dictionary of values that hardly ever repeat makes a file larger and slower to write.
    """
    plain = {field.name for field in schema.fields if not isinstance(field.type, StructType | ArrayType | MapType)}
    unique = {name for name in plain if _hardly_repeats(rows.column(name))}
    return [path for path, _ in _columns(schema) if path not in unique]


def _hardly_repeats(values: pa.ChunkedArray) -> bool:
    """Return whether most values of a column are distinct, by how many a sample has once and twice.

    Values that it has more often are few, whatever share of the rows they have. Dictionary-encoded columns repeat.
    """
    if pa.types.is_boolean(values.type) or pa.types.is_struct(values.type) or pa.types.is_dictionary(values.type):
        return False
    sample = _sample(values).drop_null()
    if len(sample) < 2:
        return False
    counts = pc.value_counts(sample).field(1).to_numpy()
    once, twice = int(np.sum(counts == 1)), int(np.sum(counts == 2))
    rare = once + 2 * twice
    # This many distinct values would give a sample with as many repetitions, if all were equally frequent.
    distinct = rare**2 / (2 * twice) if twice else float("inf")
    num_values = len(values) - values.null_count
    return bool(min(distinct, rare / len(sample) * num_values) > _MAX_DISTINCT_SHARE * num_values)


def _sample(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Take values from all over a column, at random: neighbours have more in common than others."""
    return values if len(values) <= _SAMPLE_ROWS else values.take(_sample_places(len(values)))


@lru_cache(maxsize=16)
def _sample_places(num_rows: int) -> pa.Array:
    """Return the same places for the same number of rows: the same rows make the same file."""
    return pa.array(np.unique(np.random.default_rng(0).integers(0, num_rows, _SAMPLE_ROWS)))


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    """Return the columns of a file by their Parquet paths."""
    return [found for field in schema.fields for found in _below(field.name, field.type)]


def _below(path: str, type_: DataType) -> Iterator[tuple[str, DataType]]:
    match type_:
        case StructType(fields=fields):
            for field in fields:
                yield from _below(f"{path}.{field.name}", field.type)
        case ArrayType(element_type=element):
            yield from _below(f"{path}.list.element", element)
        case MapType(key_type=key, value_type=value):
            yield from _below(f"{path}.key_value.key", key)
            yield from _below(f"{path}.key_value.value", value)
        case UserDefinedType(sql_type=stored):
            yield from _below(path, stored)
        case _ if type_ == VARIANT:
            yield from ((f"{path}.{part}", type_) for part in ("metadata", "value"))
        case _:
            yield path, type_


_ATTEMPTS = 10


class Stored(NamedTuple):
    """A complete file in its final place."""

    size_bytes: int
    modified_ms: int


class Places(Protocol):
    """The place of the files of a table."""

    def path(self, key: str) -> str:
        """Create an empty file for a key, and return its path on this machine. Raises `StorageError`."""

    def finish(self, key: str, path: str) -> Stored:
        """Put the complete file in its final place."""

    def remove(self, key: str) -> None:
        """Remove a file that no log names, if possible."""


def open_places(uri: str, storage_options: Mapping[str, str] | None) -> Places:
    location = parse_uri(uri)
    return LocalPlaces(location.path) if location.kind == "local" else RemotePlaces(location, storage_options)


class LocalPlaces:
    """Files below a directory that all machines share."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    def path(self, key: str) -> str:
        path = f"{self._root}/{check_data_key(key)}"
        try:
            for attempts_left in reversed(range(_ATTEMPTS)):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                try:
                    # Fails if there is such a file: none is ever overwritten.
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
                    break
                except FileNotFoundError:  # VACUUM has removed the directory while it was empty
                    if not attempts_left:
                        raise
        except OSError as error:
            raise from_os_error(error, "create", path, writing=True) from error
        return path

    def finish(self, key: str, path: str) -> Stored:
        assert path == f"{self._root}/{key}", path
        try:
            status = os.stat(path)
        except OSError as error:
            raise from_os_error(error, "look up", path, writing=True) from error
        return Stored(status.st_size, status.st_mtime_ns // 1_000_000)

    def remove(self, key: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{self._root}/{check_data_key(key)}")


class RemotePlaces:
    """Objects below a prefix of a bucket or container, uploaded from temporary files; a failed upload starts again."""

    def __init__(self, location: StoreUri, storage_options: Mapping[str, str] | None) -> None:
        from headwater.storage.remote import open_backend

        self._options = options_for(location, storage_options)
        self._backend = open_backend(location, self._options)
        self._uri = location.uri
        self._base = f"{location.path}/" if location.path else ""

    def path(self, key: str) -> str:
        check_data_key(key)
        try:
            descriptor, path = tempfile.mkstemp(prefix="headwater-", suffix=key.rpartition("/")[2][:100])
        except OSError as error:
            raise from_os_error(error, "create a temporary file for", key, writing=True) from error
        os.close(descriptor)
        return path

    def finish(self, key: str, path: str) -> Stored:
        import obstore
        from obstore.exceptions import BaseError

        def upload() -> None:
            try:
                obstore.put(self._backend, self._base + key, Path(path))
                return
            except (BaseError, OSError, ValueError) as error:
                failure = from_obstore_error(error, "write", f"{self._uri}/{key}", self._options)
                cause = shown_cause(error, self._options)
            raise failure from cause

        try:
            size_bytes = os.path.getsize(path)
        except OSError as error:
            raise from_os_error(error, "read", path, writing=True) from error
        RetryPolicy().run(upload)
        with contextlib.suppress(OSError):  # it is where it belongs; what is left here is a temporary file
            os.unlink(path)
        return Stored(size_bytes, time.time_ns() // 1_000_000)

    def remove(self, key: str) -> None:
        import obstore

        with contextlib.suppress(Exception):  # whatever goes wrong, the file is garbage and no more
            obstore.delete(self._backend, self._base + check_data_key(key))


def to_file_batch(batch: pa.RecordBatch, plan: FilePlan, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to the schema of the files.

    Args:
        batch: it has at least the columns of the plan, by their logical names.
        schema: `plan.file_schema` in Arrow.
    """
    columns = [
        _in_file(batch.column(field.name), field.type, target.type)
        for field, target in zip(plan.schema.fields, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_file(array: pa.Array, type_: DataType, target: pa.DataType) -> pa.Array:
    match type_:
        case _ if array.type == target:
            return array
        case UserDefinedType(sql_type=stored):
            return _in_file(array, stored, target)
        case StructType():
            return _struct(array, type_, target)
        case ArrayType(element_type=element):
            return with_elements(array, target, _in_file(array.values, element, target.value_type))
        case MapType(key_type=key, value_type=value):
            parts = [_in_file(array.keys, key, target.key_type), _in_file(array.items, value, target.item_type)]
            entries = pa.StructArray.from_arrays(parts, fields=[target.key_field, target.item_field])
            return with_elements(array, target, entries)
    if type_ == VARIANT:
        return _variant(array, target)
    return array.cast(target)


def _struct(array: pa.Array, type_: StructType, target: pa.DataType) -> pa.Array:
    """Rename the fields of a struct, by position; files lack those of type void."""
    held = [position for position, field in enumerate(type_.fields) if part_in_files(field.type) is not None]
    children = [
        _in_file(array.field(position), type_.fields[position].type, target.field(place).type)
        for place, position in enumerate(held)
    ]
    return pa.StructArray.from_arrays(children, fields=list(target.fields), mask=array.is_null())


def _variant(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Swap the two parts, which Spark has in the other order, and fill those of null variants."""
    children = [pc.fill_null(array.field(field.name).cast(field.type), b"") for field in target.fields]
    return pa.StructArray.from_arrays(children, fields=list(target.fields), mask=array.is_null())


@dataclass(frozen=True)
class WrittenFile:
    """A complete file."""

    key: str
    """Its path below the table, not encoded."""
    partition_values: dict[str, str | None]
    size_bytes: int
    modified_ms: int
    stats: str | None
