"""Arrow arrays from Python lists, built from buffers.

The first `pa.array(list)` of a process imports pandas when that is installed (0.3 s and 60 MB), which a command
line tool that opens a small table should not pay for. These few builders cover what the log needs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_Number = TypeVar("_Number", int, float)


def _validity(values: Sequence[object]) -> tuple[pa.Buffer | None, int]:
    """Return the validity bitmap and the number of nulls."""
    null_count = values.count(None)
    if null_count == 0:
        return None, 0
    return bitmap([v is not None for v in values]), null_count


def bitmap(bits: Sequence[bool]) -> pa.Buffer:
    """Pack booleans to bits, by Arrow's own cast from bytes."""
    as_bytes = pa.Array.from_buffers(pa.uint8(), len(bits), [None, pa.py_buffer(bytes(bits))])
    return as_bytes.cast(pa.bool_()).buffers()[1]


def _filled(values: Sequence[_Number | None], filler: _Number) -> list[_Number]:
    return [filler if v is None else v for v in values]


def strings(values: Sequence[str | None]) -> pa.Array:
    """Return a `string` array (`large_string` if the text does not fit 32-bit offsets)."""
    return _variable(
        [None if v is None else v.encode("utf-8", "surrogatepass") for v in values],
        pa.string(),
        pa.large_string(),
    )


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    return _variable(values, pa.binary(), pa.large_binary())


def _variable(values: Sequence[bytes | None], small: pa.DataType, large: pa.DataType) -> pa.Array:
    validity, null_count = _validity(values)
    lengths = [0 if v is None else len(v) for v in values]
    data = b"".join(v for v in values if v is not None)
    fits = len(data) < 2**31
    offsets = array("i" if fits else "q", accumulate(lengths, initial=0))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(small if fits else large, len(values), buffers, null_count)


def int64s(values: Sequence[int | None], type_: pa.DataType | None = None) -> pa.Array:
    """Return an `int64` array, or one of another 64-bit type (timestamps)."""
    validity, null_count = None, 0
    try:
        data = array("q", cast("Sequence[int]", values))
    except TypeError:  # there are nulls; to look for them first would cost as much again
        validity, null_count = _validity(values)
        data = array("q", _filled(values, 0))
    return pa.Array.from_buffers(type_ or pa.int64(), len(values), [validity, pa.py_buffer(data)], null_count)


def int32s(values: Sequence[int | None]) -> pa.Array:
    validity, null_count = _validity(values)
    data = array("i", _filled(values, 0))
    return pa.Array.from_buffers(pa.int32(), len(values), [validity, pa.py_buffer(data)], null_count)


def float64s(values: Sequence[float | None]) -> pa.Array:
    validity, null_count = _validity(values)
    data = array("d", _filled(values, 0.0) if null_count else cast("Sequence[float]", values))
    return pa.Array.from_buffers(pa.float64(), len(values), [validity, pa.py_buffer(data)], null_count)


def bools(values: Sequence[bool | None]) -> pa.Array:
    if values.count(None) == len(values):
        return pa.nulls(len(values), pa.bool_())
    validity, null_count = _validity(values)
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity, bitmap([bool(v) for v in values])], null_count)


def string_maps(values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    validity, null_count = _validity(values)
    present = [v for v in values if v is not None]
    keys = strings([k for v in present for k in v])
    items = strings([x for v in present for x in v.values()])
    offsets = array("i", accumulate((0 if v is None else len(v) for v in values), initial=0))
    type_ = pa.map_(pa.string(), pa.string())
    entries = structs({"key": keys.cast(pa.string()), "value": items.cast(pa.string())}, nullable={"key": False})
    return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(offsets)], null_count, children=[entries])


def string_lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    validity, null_count = _validity(values)
    items = strings([item for value in values if value is not None for item in value]).cast(pa.string())
    offsets = array("i", accumulate((0 if v is None else len(v) for v in values), initial=0))
    buffers = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(pa.string()), len(values), buffers, null_count, children=[items])


def structs(
    children: Mapping[str, pa.Array],
    valid: Sequence[bool] | None = None,
    nullable: Mapping[str, bool] | None = None,
) -> pa.Array:
    """Return a struct array of the children; rows where `valid` is False are null."""
    fields = [pa.field(name, child.type, (nullable or {}).get(name, True)) for name, child in children.items()]
    length = len(next(iter(children.values())))
    validity, null_count = (None, 0) if valid is None or all(valid) else (bitmap(valid), valid.count(False))
    return pa.Array.from_buffers(pa.struct(fields), length, [validity], null_count, children=list(children.values()))


TRUE = bools([True])[0]
FALSE = bools([False])[0]
ZERO = int64s([0])[0]
ONE = int64s([1])[0]
ONE32 = int32s([1])[0]
EMPTY = strings([""])[0]


def spread(dense: pa.Array, valid: pa.Array) -> pa.Array:
    """Return values of the valid rows as values of all rows: null where `valid` is False."""
    position = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), ONE)
    return dense.take(pc.if_else(valid, position, int64s([None])[0]))


def distinct_rows(table: pa.Table) -> pa.Table:
    """Return the rows of a table, each once, in any order.

    Columns may have any names: Arrow takes those that begin with a dot or a bracket for paths.
    """
    places = [str(place) for place in range(table.num_columns)]
    found = table.rename_columns(places).group_by(places).aggregate([])
    return found.select(places).rename_columns(table.column_names)


def order_of(columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Array:
    """Return the positions of rows in the order of the values of columns, the first column first."""
    places = [str(place) for place in range(len(columns))]
    return pc.sort_indices(pa.table(list(columns), names=places), [(place, "ascending") for place in places])


def take_ascending(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return some rows of a column, by ascending row numbers (`uint64`).

    Arrow's own `take` on several chunks joins them first, which for text costs more than everything else.
    """
    if column.num_chunks <= 1:
        return column.take(rows)
    taken, first, last = [], 0, 0
    for part in column.chunks:
        start, last = last, last + len(part)
        some, first = numbers_between(rows, first, start, last)
        if len(some):
            taken.append(part.take(some))
    return pa.chunked_array(taken, type=column.type)


def numbers_between(numbers: pa.Array, first: int, start: int, end: int) -> tuple[pa.Array, int]:
    """Return those of ascending numbers (`uint64`) from position `first` on that are below `end`, counted from `start`.

    The second result is the position after them.
    """
    if first == len(numbers):
        return numbers.slice(0, 0), first
    values = memoryview(numbers.buffers()[1])[numbers.offset * 8 :].cast("Q")[: len(numbers)]
    last = bisect_left(values, end, lo=first)
    return pc.subtract(numbers.slice(first, last - first), int64s([start])[0].cast(pa.uint64())), last


def child_of(values: pa.StructArray, name: str) -> pa.Array:
    """Return a field of a struct, null where the struct is."""
    return pc.struct_field(values, [values.type.get_field_index(name)])


def positive_zero(column: pa.Array) -> pa.Array:
    """Return floating numbers with one zero: -0.0 and 0.0 are equal for Spark, and two values for Arrow."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def same_value_runs(columns: list[pa.Array]) -> list[int]:
    """Return where runs of rows with the same values begin, and the end: `[0, 3, 5]` for two runs in five rows."""
    rows = len(columns[0])
    changes: pa.Array | None = None
    for column in columns:
        codes = positive_zero(column).dictionary_encode(null_encoding="encode").indices
        differs = pc.not_equal(codes.slice(1), codes.slice(0, max(rows - 1, 0)))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(position + 1 for position in pc.indices_nonzero(changes).to_pylist()), rows] if rows else [0]
