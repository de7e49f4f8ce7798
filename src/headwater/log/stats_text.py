"""Statistics as JSON text, made from `stats_parsed` where a checkpoint has only that (spec: "Per-file Statistics").

Vectorised: one pass over the rows for each leaf, whatever the number of files. Values that JSON cannot hold in the
spec's form (binary, variants) are left out, as a writer would leave them out.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build

_ESCAPES = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}") for code in range(32)
}
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_NOTHING = build.strings([None])[0]


def json_text(values: pa.Array) -> pa.Array | None:
    """Each value as JSON text, null for null; None when values of this type have no form in statistics.

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
