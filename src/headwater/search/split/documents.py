"""Rows as the documents of the index: one JSON text for each row, which tantivy takes fastest, built column by column.

Every value that the index would drop silently (a term that is too long, a float that is not finite, text that is not an
IP address or not JSON) is left out here and noted in the document instead, under `UNINDEXED_FIELD`. Inside nested
values it is first replaced by `UNUSABLE`, a control character that JSON text cannot hold otherwise, so one look at the
finished text finds the rows that have one.
"""

from __future__ import annotations

import math
import re
from array import array
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.schema import ArrayType, DataType, MapType, StructType, UserDefinedType, is_string
from headwater.search.analysis import MAX_TERM_BYTES, ip_text, tokens
from headwater.search.config import ARRAY_KEY, natural_kind
from headwater.search.query.values import index_array
from headwater.search.types import NULL_FIELD, ROW_ID_FIELD, UNINDEXED_FIELD, entries_of

if TYPE_CHECKING:
    from headwater.search.config import FieldConfig, IndexConfig


_MAYBE_LONG_BYTES: Final = MAX_TERM_BYTES // 2
"""Lower case can be longer than upper case, but not twice as long."""


class DocumentBuilder:
    """Makes documents, and remembers which fields lack the value of some row so far (`partial_fields`)."""

    def __init__(self, config: IndexConfig) -> None:
        self._fields = config.indexed_fields
        self._columns = list(dict.fromkeys(field.column for field in config.fields))
        self._floats = any(field.kind in ("f64", "json") for field in self._fields)
        self.partial_fields: set[str] = set()

    def documents(self, batch: pa.RecordBatch, first_id: int) -> tuple[list[str], list[str]]:
        """Return the documents that tantivy can read, and those with numbers that it would read wrong.

        Args:
            batch: the rows, in the types of `headwater.search.types.row_schema`.
            first_id: the row id of the first of them; the others follow.
        """
        if batch.num_rows == 0:
            return [], []
        pieces: list[pa.Array | pa.Scalar] = []
        nulls: list[pa.Array] = []
        unindexed: list[pa.Array] = []
        for name in self._columns:
            column = batch.column(name)
            if column.null_count:
                nulls.append(_flagged(column.is_null(), name))
        for field in self._fields:
            column = batch.column(field.column)
            value, unusable = field_text(field, column)
            if unusable is not None:
                self.partial_fields.add(field.name)
                unindexed.append(_flagged(unusable, field.name))
            pieces.extend(_member(field.index_name, value))
        pieces.extend(_flags(NULL_FIELD, nulls))
        pieces.extend(_flags(UNINDEXED_FIELD, unindexed))
        ids = array("Q", range(first_id, first_id + batch.num_rows))
        row_ids = pa.UInt64Array.from_buffers(pa.uint64(), batch.num_rows, [None, pa.py_buffer(ids)])
        lines = joined(text("{"), *pieces, text(f'"{ROW_ID_FIELD}":'), row_ids.cast(pa.string()), text("}"))
        return _plain_and_hard(lines) if self._floats else (_as_list(lines), [])


def field_text(field: FieldConfig, column: pa.Array) -> tuple[pa.StringArray, pa.BooleanArray | None]:
    """Return the JSON text of a field's values, null for null; and where (if anywhere) the index cannot have one."""
    match field.kind:
        case "string":
            strings = index_array(column, field.data_type)
            return _without(quoted(strings), _longer(strings, MAX_TERM_BYTES))
        case "text":
            return _without(quoted(column), _long_tokens(column, field.tokenizer))
        case "ip":
            return _addresses(column)
        case "json":
            written = _json(field, column)
        case "f64":
            written = numbers(index_array(column, field.data_type))
        case _:
            return numbers(index_array(column, field.data_type)), None
    data = written.buffers()[2]
    if data is None or UNUSABLE.encode() not in memoryview(data).tobytes():
        return written, None
    return _without(written, pc.fill_null(pc.match_substring(written, UNUSABLE), False))


def _json(field: FieldConfig, column: pa.Array) -> pa.StringArray:
    plain = field.data_type.sql_type if isinstance(field.data_type, UserDefinedType) else field.data_type
    raw = field.tokenizer == "raw"
    if not is_string(plain):
        return json_column(column, plain, raw=raw)
    return build.strings([None if value is None else usable_object(value, raw=raw) for value in column.to_pylist()])


def _addresses(column: pa.StringArray) -> tuple[pa.StringArray, pa.BooleanArray | None]:
    encoded = column.dictionary_encode()  # an address is understood once, however many rows have it
    known = build.strings([_json_address(value) for value in encoded.dictionary.to_pylist()])
    written = known.take(encoded.indices)
    if written.null_count == column.null_count:
        return written, None
    return written, pc.and_(column.is_valid(), written.is_null())


def _json_address(value: str) -> str | None:
    address = ip_text(value)
    return None if address is None else f'"{address}"'


def _longer(values: pa.StringArray, limit_bytes: int) -> pa.BooleanArray | None:
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) <= limit_bytes:
        return None
    return pc.fill_null(pc.greater(lengths, build.int32s([limit_bytes])[0]), False)


def _long_tokens(values: pa.StringArray, tokenizer: str) -> pa.BooleanArray | None:
    """Return where a token does not fit into a term; only long texts are analysed for it."""
    maybe = _longer(values, _MAYBE_LONG_BYTES)
    if maybe is None:
        return None
    flags = [
        suspect and any(len(token.encode()) > MAX_TERM_BYTES for token in tokens(tokenizer, value.as_py()))
        for suspect, value in zip(maybe.to_pylist(), values, strict=True)
    ]
    return build.bools(flags) if any(flags) else None


def _without(
    written: pa.StringArray, unusable: pa.BooleanArray | None
) -> tuple[pa.StringArray, pa.BooleanArray | None]:
    if unusable is None:
        return written, None
    return pc.if_else(unusable, build.strings([None])[0], written), unusable


# --- the pieces of a document ------------------------------------------------------------------------------


def _member(name: str, value: pa.StringArray) -> list[pa.Array | pa.Scalar]:
    """Return `"name":value,` for each row, nothing where there is no value."""
    opening = text(f"{msgspec.json.encode(name).decode()}:")
    if value.null_count == 0:
        return [opening, value, text(",")]
    return [pc.coalesce(joined(opening, value, text(",")), build.EMPTY)]


def _flagged(where: pa.BooleanArray, name: str) -> pa.StringArray:
    return pc.if_else(where, text(f"{msgspec.json.encode(name).decode()},"), build.EMPTY)


def _flags(name: str, flagged: list[pa.Array]) -> list[pa.Array | pa.Scalar]:
    """Return `"name":["a","b"],` for each row that has some."""
    if not flagged:
        return []
    listed = pc.utf8_rtrim(joined(*flagged) if len(flagged) > 1 else flagged[0], ",")
    member = joined(text(f'"{name}":['), listed, text("],"))
    return [pc.if_else(pc.equal(listed, build.EMPTY), build.EMPTY, member)]


def _plain_and_hard(lines: pa.StringArray) -> tuple[list[str], list[str]]:
    if HARD_NUMBER.encode() not in memoryview(lines.buffers()[2]).tobytes():
        return _as_list(lines), []
    hard = pc.match_substring(lines, HARD_NUMBER)
    cleaned = pc.replace_substring(lines.filter(hard), HARD_NUMBER, "")
    return _as_list(lines.filter(pc.invert(hard))), _as_list(cleaned)


def _as_list(lines: pa.StringArray) -> list[str]:
    """Return texts as Python strings: JSON text has no line ends, so one join and one split do for all rows."""
    if not len(lines):
        return []
    offsets = build.int32s([0, len(lines)])
    whole: str = pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")[0].as_py()
    return whole.split("\n")


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
    return build.strings([value])[0]


def escaped(values: pa.StringArray) -> pa.StringArray:
    """Escape texts for the inside of JSON strings."""
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
    return joined(text('"'), escaped(values), text('"'))


def joined(*pieces: pa.Array | pa.Scalar) -> pa.StringArray:
    """Join the pieces of each row; null where one of them is."""
    return pc.binary_join_element_wise(*pieces, build.EMPTY)


def numbers(values: pa.Array) -> pa.StringArray:
    """Write whole numbers, floats and booleans; floats that are not finite are unusable."""
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
    """Write a column of structs, arrays or maps as the JSON objects (or lists of them) that a JSON field takes.

    `raw` says whether the field keeps its strings whole.
    """
    whole = _value(values, data_type, raw)
    assert whole is not None
    plain = data_type.sql_type if isinstance(data_type, UserDefinedType) else data_type
    if isinstance(plain, ArrayType) and not isinstance(plain.element_type, StructType):
        return joined(text(f'{{"{ARRAY_KEY}":'), whole, text("}"))
    return whole


def _value(values: pa.Array, data_type: DataType, raw: bool) -> pa.StringArray | None:
    """Write each value as JSON text, null for null; None for a type that has nothing to search."""
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
    """Write strings inside JSON. tantivy would make dates, exact to the second, of those that look like a time."""
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
    """Write the keys of maps as names; None for keys of a nested type, which no path in a query can name."""
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
    """Return the bytes of a string column that its rows use (a slice shares the bytes of the whole)."""
    _, offsets, data = values.buffers()
    view = memoryview(offsets).cast("i")
    return memoryview(data)[view[values.offset] : view[values.offset + len(values)]]


_TIME_PATTERN: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
_CONTROL_PATTERN: Final = re.compile(r"[\x00-\x1f]")
_MAX_INTEGER: Final = 2**64
_MAX_DEPTH: Final = 100
"""The library reads JSON of up to 128 levels, those of its own document included."""


class _UnusableError(Exception):
    """The index cannot have something in the value."""


def usable_object(value: str, *, raw: bool) -> str:
    """Return a JSON text as the index takes it; `UNUSABLE` for other text and for what the index cannot have.

    >>> usable_object('{"a": [1, "x"]}', raw=False)
    '{"a":[1,"x"]}'
    >>> usable_object('[1, 2]', raw=False)
    '{"_values":[1,2]}'
    """
    hard: list[float] = []
    try:
        checked = _checked(msgspec.json.decode(value), raw, hard, 0)
    except (msgspec.MsgspecError, _UnusableError, RecursionError):
        return UNUSABLE
    objects = isinstance(checked, list) and checked and all(isinstance(item, dict) for item in checked)
    if not objects and not isinstance(checked, dict):
        checked = {ARRAY_KEY: checked}
    return msgspec.json.encode(checked).decode() + (HARD_NUMBER if hard else "")


def _checked(value: Any, raw: bool, hard: list[float], depth: int) -> Any:
    """Return the value as the index takes it; floats that have to be read with care are collected in `hard`."""
    if depth > _MAX_DEPTH:
        raise _UnusableError
    if isinstance(value, dict):
        for key in value:
            if len(key.encode()) > MAX_KEY_BYTES or _CONTROL_PATTERN.search(key):
                raise _UnusableError
        return {key: _checked(item, raw, hard, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, raw, hard, depth + 1) for item in value]
    if isinstance(value, str):
        if len(value.encode()) > MAX_LEAF_BYTES:
            raise _UnusableError
        if _TIME_PATTERN.match(value):
            if raw:
                raise _UnusableError
            return f" {value}"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _UnusableError
        written = repr(value)
        if len(written) > MAX_EASY_NUMBER or "e" in written:
            hard.append(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -_MAX_INTEGER // 2 <= value < _MAX_INTEGER:
        raise _UnusableError
    return value
