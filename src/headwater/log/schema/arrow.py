"""Convert schemas to Arrow and back (spec: "Delta Data Type to Parquet Type Mappings").

The metadata of an Arrow field holds Delta's column metadata as JSON, and the Delta type where Arrow's type alone does
not tell it (`char(5)` is a string, a variant is a struct). Parquet field ids go where pyarrow's Parquet writer looks
for them.

>>> from headwater.log.schema.types import STRING, TIMESTAMP
>>> schema_to_arrow(StructType([StructField("at", TIMESTAMP), StructField("name", STRING, nullable=False)]))
at: timestamp[us, tz=UTC]
name: string not null
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from headwater.errors import SchemaError
from headwater.log.schema.json_format import encode_json, parse_type, type_to_value
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY, nested_ids
from headwater.log.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    MAX_DECIMAL_PRECISION,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    dotted,
    is_char,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_KEY = b"delta.metadata"
"""The key of an Arrow field's metadata that holds the Delta column metadata, as JSON."""
TYPE_KEY = b"delta.type"
"""The key of an Arrow field's metadata that holds the Delta type, where the Arrow type does not tell it."""
_PARQUET_ID_KEY = b"PARQUET:field_id"

_PRIMITIVES: dict[PrimitiveType, pa.DataType] = {
    STRING: pa.string(),
    LONG: pa.int64(),
    INTEGER: pa.int32(),
    SHORT: pa.int16(),
    BYTE: pa.int8(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    BOOLEAN: pa.bool_(),
    BINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
    VOID: pa.null(),
    VARIANT: pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    ),
}

# Arrow's ways to hold the same values; unsigned integers get the next type that holds them all.
_FROM_ARROW: dict[pa.DataType, DataType] = {
    **{v: k for k, v in _PRIMITIVES.items() if k != VARIANT},
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.uint8(): SHORT,
    pa.uint16(): INTEGER,
    pa.uint32(): LONG,
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FLOAT,
    pa.date64(): DATE,
}


# --- to Arrow ------------------------------------------------------------------------------------------


def schema_to_arrow(schema: StructType) -> pa.Schema:
    """Convert a Delta schema to Arrow. Raises `SchemaError` for a type that Headwater does not know."""
    return pa.schema([_field_to_arrow(f, ()) for f in schema.fields])


def type_to_arrow(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that holds values of a Delta type."""
    return _to_arrow(data_type, (), {}, "")


def _field_to_arrow(field: StructField, parent: tuple[str, ...]) -> pa.Field:
    path = (*parent, field.name)
    ids = nested_ids(field) if PARQUET_NESTED_IDS_KEY in field.metadata else {}
    arrow_type = _to_arrow(field.type, path, ids, "")
    metadata: dict[bytes, bytes] = {}
    if field.metadata:
        metadata[METADATA_KEY] = encode_json(field.metadata).encode()
    if PARQUET_FIELD_ID_KEY in field.metadata:
        metadata[_PARQUET_ID_KEY] = str(field.metadata[PARQUET_FIELD_ID_KEY]).encode()
    if _from_arrow(arrow_type, path) != field.type:
        metadata[TYPE_KEY] = encode_json(type_to_value(field.type)).encode()
    return _arrow_field(field.name, arrow_type, field.nullable, metadata or None)


def _arrow_field(name: str, arrow_type: pa.DataType, nullable: bool, metadata: dict[bytes, bytes] | None) -> pa.Field:
    # Arrow refuses a field that can only be null and must not be null.
    return pa.field(name, arrow_type, nullable or pat.is_null(arrow_type), metadata)


def _to_arrow(data_type: DataType, path: tuple[str, ...], ids: Mapping[str, int], inner: str) -> pa.DataType:
    """Convert a type; `ids` are the nested ids of the nearest field, `inner` is the path from there."""

    def part(name: str, of: DataType, nullable: bool) -> pa.Field:
        key = f"{inner}.{name}" if inner else name
        metadata = {_PARQUET_ID_KEY: str(ids[key]).encode()} if key in ids else None
        return _arrow_field(name, _to_arrow(of, (*path, name), ids, key), nullable, metadata)

    match data_type:
        case PrimitiveType():
            if is_char(data_type):
                return pa.string()
            if data_type not in _PRIMITIVES:
                raise SchemaError(f"column {dotted(path)}: type {data_type} is not known and has no Arrow form")
            return _PRIMITIVES[data_type]
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case StructType(fields=fields):
            return pa.struct([_field_to_arrow(f, path) for f in fields])
        case ArrayType(element_type=element, contains_null=nulls):
            return pa.list_(part("element", element, nulls))
        case MapType(key_type=key_type, value_type=value_type, value_contains_null=nulls):
            if key_type == VOID:
                raise SchemaError(f"column {dotted(path)}: the keys of a map cannot be of type void")
            return pa.map_(part("key", key_type, False), part("value", value_type, nulls))
        case UserDefinedType(sql_type=sql_type):
            return _to_arrow(sql_type, path, ids, inner)


# --- from Arrow ----------------------------------------------------------------------------------------


def schema_from_arrow(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Delta.

    Timestamps of any unit become microseconds; large, view, dictionary and run-end encoded forms become the
    plain types; unsigned integers become the next wider type.

    Raises:
        SchemaError: a column has a type that Delta cannot hold, such as a duration.
    """
    return StructType(_field_from_arrow(f, ()) for f in schema)


def _field_from_arrow(field: pa.Field, parent: tuple[str, ...]) -> StructField:
    path = (*parent, field.name)
    stored = field.metadata or {}
    derived = _declared_type(field, path)
    metadata = _decoded(stored[METADATA_KEY], path) if METADATA_KEY in stored else {}
    if not isinstance(metadata, dict):
        raise SchemaError(f"column {dotted(path)}: its Delta metadata is not an object")
    return StructField(field.name, derived, field.nullable, metadata)


def _declared_type(field: pa.Field, path: tuple[str, ...]) -> DataType:
    """Return the Delta type that the metadata names, if the Arrow type still fits it; else the one of Arrow's type."""
    stored = field.metadata or {}
    if TYPE_KEY in stored:
        declared = parse_type(_decoded(stored[TYPE_KEY], path), path)
        if _to_arrow(declared, path, {}, "").equals(field.type):
            return declared
    return _from_arrow(field.type, path)


def _decoded(text: bytes, path: tuple[str, ...]) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as e:
        raise SchemaError(f"column {dotted(path)}: its Delta metadata is not valid JSON: {e}") from e


def _from_arrow(t: pa.DataType, path: tuple[str, ...]) -> DataType:
    simple = _FROM_ARROW.get(t)
    if simple is not None:
        return simple
    if pat.is_struct(t):
        return StructType(_field_from_arrow(f, path) for f in t)
    if pat.is_map(t):
        return MapType(
            _from_arrow(t.key_type, (*path, "key")),
            _from_arrow(t.item_type, (*path, "value")),
            t.item_field.nullable,
        )
    if _is_any_list(t):
        return ArrayType(_from_arrow(t.value_type, (*path, "element")), t.value_field.nullable)
    if pat.is_decimal(t):
        if t.precision <= MAX_DECIMAL_PRECISION and 0 <= t.scale <= t.precision:
            return DecimalType(t.precision, t.scale)
    elif pat.is_timestamp(t):
        return TIMESTAMP if t.tz is not None else TIMESTAMP_NTZ
    elif pat.is_fixed_size_binary(t):
        return BINARY
    elif pat.is_dictionary(t) or pat.is_run_end_encoded(t):
        return _from_arrow(t.value_type, path)
    raise SchemaError(
        f"column {dotted(path)}: Delta cannot hold the Arrow type {t}; cast the column to another type first"
    )


def _is_any_list(t: pa.DataType) -> bool:
    checks = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view, pat.is_large_list_view)
    return any(check(t) for check in checks)
