"""The split of a Delta data file: the index is in the bundle, the rows are in the data file and nowhere else."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import StructType
from headwater.log.vector_writer import inline_vector
from headwater.search.fields import IndexConfig
from headwater.search.split import Split
from headwater.spark.arrow_rows import output_schema
from headwater.spark.deletion_vectors import VECTOR_COLUMN
from headwater.spark.python_reader import no_columns, read_splits
from headwater.spark.splits import ONLY_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyroaring import BitMap64

    from headwater.spark.python_reader import ReadPlan

_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)


class FileSplit(Split):
    """A split whose rows are read from the data file that it was made from, by the names of the index.

    It has all rows of the file, deleted ones too, for their numbers are positions in the file; whoever asks it leaves
    out of the answer what a deletion vector hides.
    """

    def __init__(self, split: Split, plan: ReadPlan, file: pa.RecordBatch) -> None:
        """Args: the split as its bundle is; how to read the columns of the index; the data file, one row."""
        assert split.searcher is not None, "what is open now is open for all that are made from it"
        self.__dict__.update(split.__dict__)
        for name in ("config", "stored_schema"):  # what depends on where the rows are
            self.__dict__.pop(name, None)
        self._bundle_config = split.config
        self._plan = plan
        self._file = file.drop_columns([VECTOR_COLUMN])

    @cached_property
    def config(self) -> IndexConfig:
        """The fields of the index; all their columns can be read."""
        return IndexConfig(tuple(replace(field, stored=True) for field in self._bundle_config.fields))

    def rows(self, row_numbers: pa.Array | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of the data file; see `Split.rows`."""
        names = self.schema.names if columns is None else tuple(columns)
        if row_numbers is None:
            return self._read(self._file, names)
        if not names:
            return pa.Table.from_batches([no_columns(len(row_numbers))])
        ascending = pc.unique(row_numbers.take(pc.sort_indices(row_numbers)))
        found = self._read(only_rows(self._file, bitmap_of(ascending)), names)
        return found.take(pc.index_in(row_numbers, value_set=ascending))

    def iter_rows(self, columns: Sequence[str] | None = None, max_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """All rows in order; see `Split.iter_rows`."""
        names = self.schema.names if columns is None else tuple(columns)
        for batch in read_splits(narrowed(self._plan, names), iter([self._file])):
            for start in range(0, batch.num_rows, max_rows):
                yield batch.slice(start, max_rows)

    def _read(self, file: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
        plan = narrowed(self._plan, names)
        schema = output_schema(StructType.from_json(plan.schema_json))
        return pa.Table.from_batches(list(read_splits(plan, iter([file]))), schema)


def narrowed(plan: ReadPlan, names: Sequence[str]) -> ReadPlan:
    """The plan for some of its columns, in the given order."""
    schema = StructType.from_json(plan.schema_json)
    partitions = {name: column for name, column in plan.partition_columns.items() if name in names}
    kept = StructType([schema.field(name) for name in names])
    return replace(plan, schema_json=kept.to_json(), partition_columns=partitions)


def only_rows(file: pa.RecordBatch, rows: BitMap64) -> pa.RecordBatch:
    """A data file of which only some rows count."""
    vector = inline_vector(rows)
    value = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return file.append_column(ONLY_COLUMN, pa.array([value], _VECTOR_TYPE))


def bitmap_of(row_numbers: pa.Array) -> BitMap64:
    """Row numbers (u64, none of them null) as a bitmap."""
    from pyroaring import BitMap64

    numbers = array("Q")
    start = row_numbers.offset * numbers.itemsize
    numbers.frombytes(row_numbers.buffers()[1][start : start + len(row_numbers) * numbers.itemsize])
    return BitMap64(numbers)
