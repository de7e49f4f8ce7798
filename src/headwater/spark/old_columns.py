"""A column of a data file, of which some values are to become others: do they, and what does it come to?"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import STRING
from headwater.spark.arrow_rows import conform, row_type
from headwater.spark.file_columns import to_file_batch
from headwater.spark.python_reader import batch_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.parquet import ParquetObject
    from headwater.log.schema import MappingMode
    from headwater.spark.file_plan import FilePlan

    Positions = np.ndarray[tuple[int], np.dtype[np.int64]]

_LOOKED_AT_ROWS = 16_384
"""At a time: where many values change, one of the first does."""
_LENGTH_BYTES = 4
"""What the length of a text takes in a file."""


class Part(NamedTuple):
    """Some rows of a column."""

    old: pa.Array
    """The values that they have; texts may come as numbers of a dictionary."""
    places: Positions
    """Those of them that get others."""
    new: pa.Array
    """The others."""

    def changes(self) -> bool:
        """Whether any of the others is another."""
        if pa.types.is_nested(self.new.type):
            return len(self.places) > 0
        return not _is_same(_written_out(self.old.take(pa.array(self.places))), self.new)

    def replaced(self) -> pa.Array:
        """The values that they have from now on, in the type of the old ones."""
        if not len(self.places):
            return self.old
        if pa.types.is_dictionary(self.old.type):
            return self._recoded()
        if len(self.places) == len(self.old):
            return self.new
        if pa.types.is_nested(self.old.type):
            order = np.arange(len(self.old))
            order[self.places] = len(self.old) + np.arange(len(self.places))
            return pa.concat_arrays([self.old, self.new]).take(pa.array(order))
        return _put(self.old, self.places, self.new)

    def _recoded(self) -> pa.Array:
        """The same for numbers of a dictionary, which gets the texts that it lacks."""
        known = self.old.dictionary
        codes = pc.index_in(self.new, known)
        added = self.new.filter(pc.and_(codes.is_null(), self.new.is_valid())).unique()
        if len(added):
            codes = pc.coalesce(codes, pc.add(pc.index_in(self.new, added), pa.scalar(len(known), pa.int32())))
        return pa.DictionaryArray.from_arrays(
            _put(self.old.indices, self.places, codes), pa.concat_arrays([known, added]) if len(added) else known
        )


def _put(old: pa.Array, places: Positions, new: pa.Array) -> pa.Array:
    """Values with others in some places."""
    mask = np.zeros(len(old), bool)
    mask[places] = True
    return pc.replace_with_mask(old, pa.array(mask), new)


def _written_out(values: pa.Array) -> pa.Array:
    """Values that may be numbers of a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


class OldColumn:
    """A column of a file, and values that some of its rows are to have.

    Args:
        plan: how the column is written (`headwater.spark.column_files.plans_of_columns`).
        file: the file.
        source: the column of the file that it is (`headwater.spark.arrow_rows.find_columns`); None if it has none.
        mode: how the table maps its columns.
        rows: the positions of the rows, ascending.
        values: theirs, by the names and types of the table's rows.
    """

    def __init__(
        self,
        plan: FilePlan,
        file: ParquetObject,
        source: pa.Field | None,
        mode: MappingMode,
        rows: Positions,
        values: pa.RecordBatch,
    ) -> None:
        self._plan = plan
        self._file = file
        self._mode = mode
        self._field = plan.schema.fields[0]
        self._source = source
        self._schema = plan.file_schema.to_arrow()
        self._rows, self._new = rows, self._in_file(values)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes]).tolist()

    @property
    def name(self) -> str | None:
        """What it is called in the file; None if the file does not have it."""
        return None if self._source is None else self._source.name

    @property
    def schema(self) -> pa.Schema:
        """That of the values in `groups`, and of the file that they make."""
        if not self._is_coded:
            return self._schema
        field = self._schema.field(0)
        return self._schema.set(0, field.with_type(pa.dictionary(pa.int32(), field.type)))

    def differs(self) -> bool:
        """Whether new values are surely not those that the rows have; in doubt they are not."""
        if self._source is None or pa.types.is_nested(self._new.type):
            return True
        for group, first_row in enumerate(self._starts[:-1]):
            begin, end = np.searchsorted(self._rows, [first_row, self._starts[group + 1]])
            places, new = self._rows[begin:end] - first_row, self._new.slice(begin, end - begin)
            if len(places) and not self._has(group, places, new):
                return True
        return False

    def groups(self) -> Iterator[Iterator[Part]]:
        """The column with the new values, by row groups, which may be large.

        If texts of one come as numbers of a dictionary, those of all do, and those of a row group have the same one.
        """
        return (self._parts(group, first_row) for group, first_row in enumerate(self._starts[:-1]))

    def _has(self, group: int, places: Positions, new: pa.Array) -> bool:
        """Whether rows of a row group have certain values."""
        assert self._source is not None
        name = self._source.name
        dictionaries = (name,) if self._has_dictionary(group) else ()
        first_row = 0
        # Not validated: what equals new values is sound, and what does not is read again.
        size = min(_LOOKED_AT_ROWS, batch_rows(self._file, group))
        for batch in self._file.batches([name], [group], size, validate=False, dictionaries=dictionaries):
            begin, end = np.searchsorted(places, [first_row, first_row + batch.num_rows])
            picked = _written_out(batch.column(name).take(pa.array(places[begin:end] - first_row)))
            if not _is_same(self._conformed(picked), new.slice(begin, end - begin)):
                return False
            first_row += batch.num_rows
        return True

    @cached_property
    def _is_coded(self) -> bool:
        """Whether texts are read as numbers of a dictionary."""
        return self._source is not None and all(map(self._has_dictionary, range(self._file.num_row_groups)))

    def _has_dictionary(self, group: int) -> bool:
        """Whether texts take so little of the file that most of them must be numbers of a dictionary."""
        if self._field.type != STRING or self._source is None:
            return False
        return 2 * self._file.bytes_per_value(group, self._source.name) < self._written_out_bytes

    @cached_property
    def _written_out_bytes(self) -> float:
        """What a text takes in a file that has no dictionary."""
        return _LENGTH_BYTES + (pc.mean(pc.binary_length(self._new)).as_py() or 0.0)

    def _parts(self, group: int, first_row: int) -> Iterator[Part]:
        for old in self._codes(group) if self._is_coded else self._values(group):
            begin, end = np.searchsorted(self._rows, [first_row, first_row + len(old)])
            yield Part(old, self._rows[begin:end] - first_row, self._new.slice(begin, end - begin))
            first_row += len(old)

    def _values(self, group: int) -> Iterator[pa.Array]:
        """The values that a row group has, null if it does not have the column."""
        if self._source is None:
            count = self._starts[group + 1] - self._starts[group]
            yield self._conformed(pa.nulls(count, row_type(self._field.type)))
            return
        for batch in self._file.batches([self._source.name], [group], batch_rows(self._file, group)):
            # By its name, which Arrow takes for a path as well if it has dots.
            yield self._conformed(batch.column(self._source.name))

    def _codes(self, group: int) -> Iterator[pa.Array]:
        """The texts that a row group has as numbers of a dictionary; there is nothing if it has no rows."""
        assert self._source is not None
        name = self._source.name
        size = max(1, self._file.metadata.row_group(group).num_rows)
        batches = self._file.batches([name], [group], size, dictionaries=(name,))
        if chunks := [batch.column(name) for batch in batches]:
            coded = pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
            [codes] = coded.chunks if isinstance(coded, pa.ChunkedArray) else [coded]
            yield pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(self._schema.field(0).type))

    def _conformed(self, values: pa.Array) -> pa.Array:
        """Values that the file has, as files have them now."""
        conformed = conform(values, self._field.type, self._mode)
        return self._in_file(pa.RecordBatch.from_arrays([conformed], names=[self._field.name]))

    def _in_file(self, values: pa.RecordBatch) -> pa.Array:
        """Values of the table's rows, as files have them."""
        return to_file_batch(values, self._plan, self._schema).column(0)


def _is_same(old: pa.Array, new: pa.Array) -> bool:
    """Whether values are the same to the last bit."""
    if pa.types.is_floating(old.type):  # there are two zeros, and many that are no number
        bits = {32: pa.int32(), 64: pa.int64()}[old.type.bit_width]
        old, new = old.view(bits), new.view(bits)
    return bool(old.equals(new))
