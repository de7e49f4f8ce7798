"""Build `stats_parsed` from decoded statistics, and the JSON text from `stats_parsed` (spec: "Per-file Statistics").

`stats_parsed` has columns of the table's own types, nested as the schema is. Values that have no form in JSON
statistics (binary, variants) are omitted.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.files.arrow import child_of
from headwater.log.stats.columns import bound_values
from headwater.log.stats.value_text import decimal_at_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.schema import DataType


Path = tuple[str, ...]


def bound_column(values: list[Any], type_: DataType, target: pa.DataType) -> pa.Array:
    """Return decoded bounds of a leaf in its own type; a value that the type cannot hold exactly is not known."""
    if pa.types.is_decimal(target):
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
    fixed = None if value is None else decimal_at_scale(value, target.precision, target.scale, ROUND_DOWN)
    return fixed if fixed == value else None


def conformed(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert statistics of another writer, or for an older schema, to a type; what does not fit is not known.

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
    """Return the struct type with these leaves; None when there are none.

    >>> nested_type({("a",): pa.int64(), ("s", "b"): pa.string()})
    StructType(struct<a: int64, s: struct<b: string>>)
    """
    fields = [
        (name, below[()] if () in below else nested_type(below)) for name, below in _by_first_name(leaves).items()
    ]
    return pa.struct(fields) if fields else None


def nested_struct(leaves: Mapping[Path, pa.Array]) -> pa.StructArray:
    """Return the struct array with these leaves, at least one; no struct in it is null."""
    tops = _by_first_name(leaves)
    arrays = [below[()] if () in below else nested_struct(below) for below in tops.values()]
    return pa.StructArray.from_arrays(arrays, names=list(tops))


def _by_first_name(leaves: Mapping[Path, Any]) -> dict[str, dict[Path, Any]]:
    tops: dict[str, dict[Path, Any]] = {}
    for path, value in leaves.items():
        tops.setdefault(path[0], {})[path[1:]] = value
    return tops


_ESCAPES = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}") for code in range(32)
}
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_NOTHING = build.strings([None])[0]


def json_text(values: pa.Array) -> pa.Array | None:
    """Return each value as JSON text, null for null; None when values of this type have no form in statistics.

    >>> json_text(pa.array([{"numRecords": 3, "minValues": {"a": "x"}}, None])).to_pylist()
    ['{"numRecords":3,"minValues":{"a":"x"}}', None]
    """
    type_ = values.type
    if pa.types.is_struct(type_):
        return _objects(values)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return values.cast(pa.string())
    if pa.types.is_floating(type_):
        return _numbers(values)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _quoted(_escaped(values.cast(pa.string())))
    if pa.types.is_date(type_):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_timestamp(type_):
        return _quoted(pc.replace_substring(values.cast(pa.string()), " ", "T"))
    return None


def _objects(values: pa.StructArray) -> pa.Array:
    pieces = []
    for field, child in zip(values.type, values.flatten(), strict=True):
        text = json_text(child)
        if text is not None:
            name = _text(f"{_quoted(_escaped(build.strings([field.name])))[0].as_py()}:")
            piece = pc.binary_join_element_wise(name, text, _text(","), build.EMPTY)
            pieces.append(pc.coalesce(piece, build.EMPTY))
    if not pieces:
        return pc.if_else(values.is_valid(), _text("{}"), _NOTHING)
    body = pc.utf8_rtrim(pc.binary_join_element_wise(*pieces, build.EMPTY), ",")
    whole = pc.binary_join_element_wise(_text("{"), body, _text("}"), build.EMPTY)
    return pc.if_else(values.is_valid(), whole, _NOTHING)


def _numbers(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    for name, spelled in (("nan", '"NaN"'), ("-inf", '"-Infinity"'), ("inf", '"Infinity"')):
        text = pc.if_else(pc.equal(text, _text(name)), _text(spelled), text)
    return text


def _escaped(text: pa.Array) -> pa.Array:
    data = text.buffers()[2]
    if data is None or _SPECIAL.search(data) is None:  # one look at all bytes, not 34 looks at each text
        return text
    for plain, escaped in _ESCAPES.items():
        if pc.any(pc.match_substring(text, plain)).as_py():
            text = pc.replace_substring(text, plain, escaped)
    return text


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_text('"'), text, _text('"'), build.EMPTY)


def _text(value: str) -> pa.Scalar:
    return build.strings([value])[0]
