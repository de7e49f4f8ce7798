"""The values at a place of a query, taken from plain rows: a column, or what a path of keys leads to inside one.

Arrays are looked through: every element counts as a value of its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.schema import ArrayType, MapType, StructType, UserDefinedType
from headwater.search.config import ARRAY_KEY, natural_kind
from headwater.search.query.values import index_array
from headwater.search.rows.tokens import counting
from headwater.search.types import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.schema import DataType
    from headwater.search.query.targets import Target


class Placed(NamedTuple):
    """Values that are not null, and the row of each of them, ascending."""

    values: pa.Array
    rows: pa.Int64Array


def column_values(column: pa.Array) -> Placed:
    valid = column.is_valid()
    return Placed(column.filter(valid), counting(len(column)).filter(valid))


def typed_values(column: pa.Array, target: Target) -> Placed:
    return _descend(column_values(column), target.field.data_type, target.path)[0]


def indexed_values(placed: Placed, data_type: DataType) -> Placed:
    """Convert values to the form of the index."""
    return Placed(index_array(placed.values, data_type), placed.rows)


class DecodedJson(NamedTuple):
    """A column of JSON texts: each distinct one decoded (None for other text), and for each row which it is."""

    values: list[Any]
    rows: list[int]
    codes: list[int]

    def leaves(self, path: Sequence[str], *, deep: bool) -> list[tuple[int, Any]]:
        """Return row and value of each scalar at a path; with `deep`, also of those inside the objects there."""
        found = [tuple(_walk(value, path, deep)) for value in self.values]
        return [(row, leaf) for row, code in zip(self.rows, self.codes, strict=True) for leaf in found[code]]


def decoded_json(column: pa.Array) -> DecodedJson:
    """Decode a column of JSON texts, in the form in which the index has them."""
    placed = column_values(column)
    encoded = placed.values.dictionary_encode()
    values = [_decoded(text) for text in encoded.dictionary.to_pylist()]
    return DecodedJson(values, placed.rows.to_pylist(), encoded.indices.to_pylist())


def rows_with_object(column: pa.Array, target: Target) -> pa.Int64Array:
    """Return the rows in which something that is not null is at a path of structs, arrays and maps."""
    placed, data_type = _descend(column_values(column), target.field.data_type, target.path)
    return _filled_rows(placed, data_type)


def _filled_rows(placed: Placed, data_type: DataType) -> pa.Int64Array:
    """Return the rows that have a scalar somewhere inside."""
    match data_type:
        case UserDefinedType(sql_type=sql_type):
            return _filled_rows(placed, sql_type)
        case ArrayType(element_type=element):
            return _filled_rows(_elements(placed), element)
        case MapType(value_type=value):
            return _filled_rows(_entries(placed, None), value)
        case StructType(fields=fields):
            members = [_filled_rows(_member(placed, i), field.type) for i, field in enumerate(fields)]
            return pa.concat_arrays([*members, build.int64s([])])
    return placed.rows


def _descend(placed: Placed, data_type: DataType, path: Sequence[str]) -> tuple[Placed, DataType]:
    match data_type:
        case UserDefinedType(sql_type=sql_type):
            return _descend(placed, sql_type, path)
        case ArrayType(element_type=element):
            return _descend(_elements(placed), element, path)
    if not path:
        return placed, data_type
    match data_type:
        case MapType(value_type=value, key_type=key):
            return _descend(_entries(placed, (path[0], key)), value, path[1:])
        case StructType(fields=fields):
            at = next(i for i, field in enumerate(fields) if field.name == path[0])
            return _descend(_member(placed, at), fields[at].type, path[1:])
    raise AssertionError(f"{data_type} has nothing inside")


def _valid(placed: Placed) -> Placed:
    valid = placed.values.is_valid()
    return Placed(placed.values.filter(valid), placed.rows.filter(valid))


def _elements(placed: Placed) -> Placed:
    offsets, entries = entries_of(placed.values)
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, counting(len(entries))))
    return _valid(Placed(entries, placed.rows.take(owners)))


def _entries(placed: Placed, wanted: tuple[str, DataType] | None) -> Placed:
    """Return the values of maps: all, or those of one key (written as it is in JSON)."""
    offsets, entries = entries_of(placed.values)
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, counting(len(entries))))
    rows = placed.rows.take(owners)
    keys, values = entries.field(0), entries.field(1)
    if wanted is not None:
        key, key_type = wanted
        if natural_kind(key_type) in ("json", "stored"):
            return Placed(values.slice(0, 0), rows.slice(0, 0))
        same = pc.equal(index_array(keys, key_type).cast(pa.string()), build.strings([key])[0])
        values, rows = values.filter(same), rows.filter(same)
    return _valid(Placed(values, rows))


def _member(placed: Placed, at: int) -> Placed:
    return _valid(Placed(placed.values.field(at), placed.rows))


def _decoded(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    is_objects = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    return value if isinstance(value, dict) or is_objects else {ARRAY_KEY: value}


def _walk(value: Any, path: Sequence[str], deep: bool) -> Iterator[Any]:
    pending = [(value, 0)]  # texts may be nested more deeply than Python may call
    while pending:
        value, at = pending.pop()
        if isinstance(value, list):
            pending.extend((item, at) for item in reversed(value))
        elif at < len(path):
            if isinstance(value, dict) and path[at] in value:
                pending.append((value[path[at]], at + 1))
        elif isinstance(value, dict):
            if deep:
                pending.extend((item, at) for item in reversed(value.values()))
        elif value is not None:
            yield value
