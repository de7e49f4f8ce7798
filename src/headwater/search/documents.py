"""Rows as the documents of the index: one JSON text for each row, built column by column.

Every value that the index would drop without a word (a term that is too long, a float that is not finite, text that is
no IP address or no JSON object) is left out here and noted in the document instead, under `UNINDEXED_FIELD`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.schema import UserDefinedType, is_string
from headwater.search.analysis import MAX_TERM_BYTES, ip_text, tokens
from headwater.search.field_values import index_array
from headwater.search.fields import NULL_FIELD, ROW_ID_FIELD, UNINDEXED_FIELD
from headwater.search.json_strings import usable_object
from headwater.search.json_text import HARD_NUMBER, UNUSABLE, joined, json_column, numbers, quoted, text

if TYPE_CHECKING:
    from headwater.search.fields import FieldConfig, IndexConfig

_MAYBE_LONG_BYTES: Final = MAX_TERM_BYTES // 2
"""Lower case can be longer than upper case, but not twice as long."""


class DocumentBuilder:
    """Makes documents, and remembers what the index does not have of them.

    Attributes:
        partial_fields: the names of fields that lack the value of some row so far.
    """

    def __init__(self, config: IndexConfig) -> None:
        self._fields = config.indexed_fields
        self._columns = list(dict.fromkeys(field.column for field in config.fields))
        self._floats = any(field.kind in ("f64", "json") for field in self._fields)
        self.partial_fields: set[str] = set()

    def documents(self, batch: pa.RecordBatch, first_id: int) -> tuple[list[str], list[str]]:
        """The documents of a batch of rows: those that tantivy can read, and those with numbers it would read wrong.

        Args:
            batch: the rows, in the types of `headwater.search.row_types.row_schema`.
            first_id: the row id of the first of them; the others count on.
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
    """The JSON text of a field's values, null where there is none; and where a value is one that the index cannot have.

    The second is None when there is no such row.
    """
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
    """Where a token does not fit into a term: only long texts are looked at."""
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
    """`"name":value,` for each row, nothing where there is no value."""
    opening = text(f"{msgspec.json.encode(name).decode()}:")
    if value.null_count == 0:
        return [opening, value, text(",")]
    return [pc.coalesce(joined(opening, value, text(",")), build.EMPTY)]


def _flagged(where: pa.BooleanArray, name: str) -> pa.StringArray:
    return pc.if_else(where, text(f"{msgspec.json.encode(name).decode()},"), build.EMPTY)


def _flags(name: str, flagged: list[pa.Array]) -> list[pa.Array | pa.Scalar]:
    """`"name":["a","b"],` for each row that has some."""
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
    """The texts as Python strings: JSON text has no line ends, so one join and one split do for all rows."""
    if not len(lines):
        return []
    offsets = build.int32s([0, len(lines)])
    whole: str = pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")[0].as_py()
    return whole.split("\n")
