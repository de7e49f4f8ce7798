"""What a Python worker does to give a file other values in some columns: it writes these, and takes the rest over.

A file keeps its rows, in their order, and its row groups. Columns that it does not have yet are added to it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import VARIANT, ArrayType, MapType, StructType, UserDefinedType
from headwater.spark.arrow_rows import UnreadableInPythonError, conform, find_column, row_type, written_in_old_calendar
from headwater.spark.data_files import DataFiles
from headwater.spark.file_columns import to_file_batch
from headwater.spark.file_places import open_places
from headwater.spark.parquet_file import ParquetFile
from headwater.spark.parquet_splice import UnsplicedError, splice
from headwater.spark.task_writer import WrittenFile
from headwater.storage.failures import from_os_error
from headwater.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headwater.log.parquet import ParquetObject
    from headwater.log.schema import DataType, MappingMode
    from headwater.spark.file_plan import FilePlan

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class OldFile:
    """A file of the table."""

    uri: str
    size_bytes: int
    partition_values: dict[str, str | None]
    """As the log has them."""


def is_plain(type_: DataType) -> bool:
    """Whether a column of the type is one column of a Parquet file."""
    return type_ != VARIANT and not isinstance(type_, StructType | ArrayType | MapType | UserDefinedType)


def plan_of_columns(plan: FilePlan, names: Collection[str]) -> FilePlan:
    """How some columns of a table's files are written.

    Args:
        plan: how files with all columns are.
        names: the columns; their types are plain.
    """
    kept = [place for place, field in enumerate(plan.schema.fields) if field.name in names]
    stored = StructType([plan.file_schema.fields[place] for place in kept])
    leaves = None
    if plan.leaves is not None:
        held = {field.name: place for place, field in enumerate(stored.fields)}
        leaves = tuple(replace(leaf, column=held[leaf.path[0]]) for leaf in plan.leaves if leaf.path[0] in held)
    schema = StructType([plan.schema.fields[place] for place in kept])
    return replace(plan, schema=schema, file_schema=stored, leaves=leaves)


class ColumnWriter:
    """Writes files that differ from others in some columns.

    Args:
        plan: from `plan_of_columns`.
        mode: how the table maps its columns.
        task: the number of the task.
    """

    def __init__(self, plan: FilePlan, mode: MappingMode, task: int) -> None:
        self._plan = plan
        self._mode = mode
        self._task = task
        self._schema = plan.file_schema.to_arrow()
        self._files = DataFiles(plan.uri, plan.storage_options)
        self._places = open_places(plan.uri, plan.storage_options)
        self._written: list[str] = []

    def write(self, old: OldFile, rows: pa.Array, values: pa.RecordBatch) -> WrittenFile:
        """Write a file with new values in some rows.

        Args:
            old: the file.
            rows: the positions of the rows in it, ascending.
            values: their values, by the names and types of the table's rows.

        Returns:
            The new file; its statistics are those of the columns that were written.

        Raises:
            UnreadableInPythonError: the file holds something that only Spark understands.
        """
        store, key = self._files.locate(old.uri)
        if not isinstance(store, LocalStore):
            raise UnreadableInPythonError(f"{old.uri} is not on a disk")
        columns, stats, places = self._columns(self._files.open(old.uri, old.size_bytes), rows, values)
        named = {p.name: old.partition_values.get(p.key) or None for p in self._plan.partitions}
        new_key = self._plan.names.new_key(self._task, len(self._written), named)
        path = self._places.path(new_key)
        self._written.append(new_key)
        try:
            with pa.memory_map(store.local_path(key)) as source, open(path, "wb") as sink:
                data = memoryview(source.read_buffer())
                splice(data, memoryview(columns), places, sink, self._plan.spark_version)
        except UnsplicedError as error:
            raise UnreadableInPythonError(f"{old.uri}: {error}") from error
        except OSError as error:
            raise from_os_error(error, "write", path, writing=True) from error
        stored = self._places.finish(new_key, path)
        return WrittenFile(new_key, old.partition_values, stored.size_bytes, stored.modified_ms, stats)

    def abandon(self) -> None:
        """Remove the files of an attempt that failed, as far as that is possible."""
        for key in self._written:
            with contextlib.suppress(OSError):
                self._places.remove(key)

    def _columns(
        self, file: ParquetObject, rows: pa.Array, values: pa.RecordBatch
    ) -> tuple[pa.Buffer, str | None, dict[str, str | None]]:
        """A file with nothing but the columns that change, its statistics, and which columns its columns replace."""
        if written_in_old_calendar(file.metadata.metadata):
            raise UnreadableInPythonError(
                f"{file.meta.key} may have dates in the old calendar, and new ones cannot join"
            )
        held = list(file.schema)
        sources = {field.name: find_column(field, held, self._mode) for field in self._plan.schema.fields}
        new = to_file_batch(values, self._plan, self._schema)
        positions = rows.to_numpy()
        sink = pa.BufferOutputStream()
        written = ParquetFile("", self._plan, self._schema, sink)
        first_row = 0
        for group in range(file.num_row_groups):
            batches = []
            for batch in self._old_values(file, group, sources):
                begin, end = np.searchsorted(positions, [first_row, first_row + batch.num_rows])
                places = positions[begin:end] - first_row
                batches.append(_replaced(batch, places, new.slice(begin, end - begin)))
                first_row += batch.num_rows
            written.add_group(batches)
        stats = written.close()
        replaced = {
            stored.name: None if source is None else source.name
            for stored, source in zip(self._schema, sources.values(), strict=True)
        }
        return sink.getvalue(), stats, replaced

    def _old_values(
        self, file: ParquetObject, group: int, sources: dict[str, pa.Field | None]
    ) -> Iterator[pa.RecordBatch]:
        """The values that a row group has, in the schema of new files; null in columns that it does not have."""
        names = list(dict.fromkeys(source.name for source in sources.values() if source is not None))
        size = file.metadata.row_group(group).num_rows
        for batch in file.batches(names, [group], _BATCH_ROWS) if names else _nothing(size):
            columns = []
            for field in self._plan.schema.fields:
                source = sources[field.name]
                if source is None:
                    columns.append(pa.nulls(batch.num_rows, row_type(field.type)))
                else:
                    columns.append(conform(batch.column(source.name), field.type, self._mode))
            yield to_file_batch(pa.RecordBatch.from_arrays(columns, names=[*sources]), self._plan, self._schema)


def _nothing(num_rows: int) -> Iterator[pa.RecordBatch]:
    """So many rows without columns that mean anything."""
    for start in range(0, num_rows, _BATCH_ROWS):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(_BATCH_ROWS, num_rows - start))], names=["nothing"])


def _replaced(
    batch: pa.RecordBatch, places: np.ndarray[tuple[int], np.dtype[np.int64]], new: pa.RecordBatch
) -> pa.RecordBatch:
    """Rows of which some are others now."""
    if not len(places):
        return batch
    if len(places) == batch.num_rows:
        return new
    mask = np.zeros(batch.num_rows, bool)
    mask[places] = True
    chosen = pa.array(mask)
    columns = [pc.replace_with_mask(o, chosen, n) for o, n in zip(batch.columns, new.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
