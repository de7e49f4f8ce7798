"""Building `stats_parsed`: values decoded from JSON into columns of the table's own types, nested as the schema is."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.file_chunks import child_of
from headwater.log.statistics import bound_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.schema import DataType

Path = tuple[str, ...]


def bound_column(values: list[Any], type_: DataType, target: pa.DataType) -> pa.Array:
    """Decoded bounds of a leaf, in its own type; a value that the type cannot hold exactly is not known."""
    if pa.types.is_decimal(target):
        with localcontext() as context:
            context.prec = 80
            return pa.array([_exact(value, target) for value in values], target)
    found = bound_values(values, type_, upper=False)
    if found.type == target:
        return found
    if pa.types.is_integer(target):
        limit = 2 ** (target.bit_width - 1)
        fits = pc.and_(
            pc.greater_equal(found, build.int64s([-limit])[0]), pc.less_equal(found, build.int64s([limit - 1])[0])
        )
        found = pc.if_else(fits, found, build.int64s([None])[0])
    return found.cast(target, safe=not pa.types.is_floating(target))


def _exact(value: Decimal | None, target: pa.DataType) -> Decimal | None:
    if value is None or not value.is_finite():
        return None
    fixed = value.quantize(Decimal(1).scaleb(-target.scale))
    fits = fixed == 0 or fixed.adjusted() < target.precision - target.scale
    return fixed if fixed == value and fits else None


def conformed(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Statistics of another writer, or for an older schema, in our type; what does not fit is not known.

    >>> conformed(pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int32()), ("c", pa.int64())])).to_pylist()
    [{'a': 1, 'c': None}]
    """
    if values.type == target:
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        fields = list(target)
        children = [
            conformed(child_of(values, field.name), field.type)
            if values.type.get_field_index(field.name) >= 0
            else pa.nulls(len(values), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    try:
        return values.cast(target, safe=not pa.types.is_timestamp(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), target)


def nested_type(leaves: Mapping[Path, pa.DataType]) -> pa.DataType | None:
    """The struct type with these leaves; None when there are none.

    >>> nested_type({("a",): pa.int64(), ("s", "b"): pa.string()})
    StructType(struct<a: int64, s: struct<b: string>>)
    """
    fields = [
        (name, below[()] if () in below else nested_type(below)) for name, below in _by_first_name(leaves).items()
    ]
    return pa.struct(fields) if fields else None


def nested_struct(leaves: Mapping[Path, pa.Array]) -> pa.StructArray:
    """The struct array with these leaves, of which there is at least one; no struct in it is null."""
    tops = _by_first_name(leaves)
    arrays = [below[()] if () in below else nested_struct(below) for below in tops.values()]
    return pa.StructArray.from_arrays(arrays, names=list(tops))


def _by_first_name(leaves: Mapping[Path, Any]) -> dict[str, dict[Path, Any]]:
    tops: dict[str, dict[Path, Any]] = {}
    for path, value in leaves.items():
        tops.setdefault(path[0], {})[path[1:]] = value
    return tops
