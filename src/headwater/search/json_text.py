"""Arrow columns as JSON text, the form in which tantivy takes documents fastest. Vectorised: no loop over rows.

A value that the index must not get is replaced by `UNUSABLE`, a control character that JSON text cannot hold otherwise:
so the rows that have one anywhere inside are found by one look at the finished text.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.schema import ArrayType, DataType, MapType, StructType, UserDefinedType
from headwater.search.field_values import index_array
from headwater.search.fields import ARRAY_KEY, natural_kind
from headwater.search.row_types import entries_of

UNUSABLE: Final = "\x01"
HARD_NUMBER: Final = "\x02"
"""Follows a number that tantivy would read with its last bit wrong: the document has to be read by us."""
MAX_EASY_NUMBER: Final = 16
"""Characters of a number that is read exactly by everyone: up to 15 digits make a whole number that a float can hold,
divided by a power of ten that a float can hold as well."""
MAX_LEAF_BYTES: Final = 40_000
"""Texts inside JSON are terms together with their path; both must fit into a term."""
MAX_KEY_BYTES: Final = 2_000

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}") for code in range(32)
}
_SPECIAL: Final = "".join(_ESCAPES).encode()
_LIKE_A_TIME: Final = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:"
_LIKE_A_TIME_BYTES: Final = re.compile(rb"\d{4}-\d\d-\d\d[Tt ]\d\d:")
_CONTROL: Final = r"[\x00-\x1f]"


def text(value: str) -> pa.Scalar:
    """A text as an Arrow scalar."""
    return build.strings([value])[0]


def escaped(values: pa.StringArray) -> pa.StringArray:
    """The inside of JSON strings."""
    if values.buffers()[2] is None:
        return values
    data = bytes(_window(values))
    if len(data.translate(None, _SPECIAL)) == len(data):  # one look at all bytes, not 34 looks at each text
        return values
    for plain, written in _ESCAPES.items():
        if plain.encode() in data:
            values = pc.replace_substring(values, plain, written)
    return values


def quoted(values: pa.StringArray) -> pa.StringArray:
    """JSON strings."""
    return joined(text('"'), escaped(values), text('"'))


def joined(*pieces: pa.Array | pa.Scalar) -> pa.StringArray:
    """The pieces of each row one after the other; null where one of them is."""
    return pc.binary_join_element_wise(*pieces, build.EMPTY)


def numbers(values: pa.Array) -> pa.StringArray:
    """Whole numbers, floats and booleans; floats that are not finite are unusable."""
    written = values.cast(pa.string())
    if not pa.types.is_floating(values.type):
        return written
    long = pc.greater(pc.binary_length(written), build.int32s([MAX_EASY_NUMBER])[0])
    hard = pc.or_(long, pc.match_substring(written, "e"))
    if pc.any(hard).as_py():
        written = joined(written, pc.if_else(hard, text(HARD_NUMBER), build.EMPTY))
    finite = pc.is_finite(values)
    if pc.all(finite, min_count=0).as_py() is False:
        written = pc.if_else(finite, written, text(UNUSABLE))
    return written


def json_column(values: pa.Array, data_type: DataType, *, raw: bool) -> pa.StringArray:
    """A column of structs, arrays or maps as the JSON objects (or lists of them) that a JSON field takes.

    Args:
        values: the column.
        data_type: its type.
        raw: whether the field keeps its strings whole.
    """
    whole = _value(values, data_type, raw)
    assert whole is not None
    plain = data_type.sql_type if isinstance(data_type, UserDefinedType) else data_type
    if isinstance(plain, ArrayType) and not isinstance(plain.element_type, StructType):
        return joined(text(f'{{"{ARRAY_KEY}":'), whole, text("}"))
    return whole


def _value(values: pa.Array, data_type: DataType, raw: bool) -> pa.StringArray | None:
    """The JSON text of each value, null for null; None for a type that has nothing to search."""
    match data_type:
        case UserDefinedType(sql_type=sql_type):
            return _value(values, sql_type, raw)
        case StructType():
            return _objects(values, data_type, raw)
        case ArrayType(element_type=element):
            offsets, entries = entries_of(values)
            inner = _value(entries, element, raw)
            if inner is None:
                return pc.if_else(values.is_valid(), text("[]"), build.strings([None])[0])
            return _lists(values, offsets, pc.coalesce(inner, text("null")), "[", "]")
        case MapType(key_type=key, value_type=value):
            return _maps(values, key, value, raw)
    kind = natural_kind(data_type)
    if kind == "stored":
        return None
    indexed = index_array(values, data_type)
    return _strings(indexed, raw) if kind == "string" else numbers(indexed)


def _strings(values: pa.StringArray, raw: bool) -> pa.StringArray:
    """Strings inside JSON. tantivy would make dates, exact to the second, of those that look like a time."""
    whole = quoted(values)
    data = values.buffers()[2]
    if data is not None and _LIKE_A_TIME_BYTES.search(_window(values)) is not None:
        # A blank in front makes no token; where the string is kept whole it would be part of the term.
        guarded = text(UNUSABLE) if raw else joined(text('" '), escaped(values), text('"'))
        whole = pc.if_else(pc.match_substring_regex(values, _LIKE_A_TIME), guarded, whole)
    return _unless_long(whole, values, MAX_LEAF_BYTES)


def _unless_long(whole: pa.StringArray, values: pa.StringArray, limit_bytes: int) -> pa.StringArray:
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) <= limit_bytes:
        return whole
    return pc.if_else(pc.greater(lengths, build.int32s([limit_bytes])[0]), text(UNUSABLE), whole)


def _objects(values: pa.StructArray, data_type: StructType, raw: bool) -> pa.StringArray:
    pieces = []
    for field, child in zip(data_type.fields, values.flatten(), strict=True):
        inner = _value(child, field.type, raw)
        if inner is not None:
            name = text(f"{msgspec.json.encode(field.name).decode()}:")
            pieces.append(pc.coalesce(joined(name, inner, text(",")), build.EMPTY))
    nothing = build.strings([None])[0]
    if not pieces:
        return pc.if_else(values.is_valid(), text("{}"), nothing)
    body = pc.utf8_rtrim(joined(*pieces), ",")
    return pc.if_else(values.is_valid(), joined(text("{"), body, text("}")), nothing)


def _maps(values: pa.MapArray, key_type: DataType, value_type: DataType, raw: bool) -> pa.StringArray:
    offsets, entries = entries_of(values)
    inner = _value(entries.field(1), value_type, raw)
    if inner is None:
        return pc.if_else(values.is_valid(), text("{}"), build.strings([None])[0])
    names = _names(entries.field(0), key_type)
    if names is None:
        return pc.if_else(values.is_valid(), text("{}"), build.strings([None])[0])
    pairs = joined(names, text(":"), pc.coalesce(inner, text("null")))
    return _lists(values, offsets, pairs, "{", "}")


def _names(keys: pa.Array, key_type: DataType) -> pa.StringArray | None:
    """The keys of maps as names; None for keys of a nested type: nobody could write the path of such a value."""
    kind = natural_kind(key_type)
    if kind in ("json", "stored"):
        return None
    indexed = index_array(keys, key_type)
    if kind != "string":
        return joined(text('"'), numbers(indexed), text('"'))
    names = _unless_long(quoted(indexed), indexed, MAX_KEY_BYTES)
    return pc.if_else(pc.match_substring_regex(indexed, _CONTROL), text(UNUSABLE), names)


def _lists(values: pa.Array, offsets: pa.Int32Array, entries: pa.StringArray, opening: str, closing: str) -> pa.Array:
    body = pc.binary_join(pa.ListArray.from_arrays(offsets, entries), ",")
    whole = joined(text(opening), body, text(closing))
    return pc.if_else(values.is_valid(), whole, build.strings([None])[0])


def _window(values: pa.StringArray) -> memoryview:
    """The bytes of a string column that its rows use (a slice shares the bytes of the whole)."""
    _, offsets, data = values.buffers()
    view = memoryview(offsets).cast("i")
    return memoryview(data)[view[values.offset] : view[values.offset + len(values)]]
