"""The schema's JSON: the spec's "Schema Serialization Format".

As in Spark, `nullable`, `containsNull` and `metadata` may be absent. Unknown keys and unknown type names are kept and
written back.

>>> schema = parse_schema('{"type":"struct","fields":[{"name":"a","type":"decimal","nullable":false}]}')
>>> schema_to_json(schema)
'{"type":"struct","fields":[{"name":"a","type":"decimal(10,0)","nullable":false,"metadata":{}}]}'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headwater.errors import SchemaError
from headwater.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    dotted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TypeValue: TypeAlias = str | dict[str, Any]
"""A type in JSON: the name of a primitive type, or an object."""

MAX_NESTING = 100
"""Far more than Spark can handle, and few enough for recursive functions."""
# Older writers' names for the same types.
_ALIASES = {"null": "void", "timestamp_ltz": "timestamp", "decimal": "decimal(10,0)"}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)")
_CHAR = re.compile(r"(char|varchar)\(\s*(\d{1,9})\s*\)")


# --- reading -------------------------------------------------------------------------------------------


def parse_schema(source: str | bytes | Mapping[str, Any]) -> StructType:
    try:
        value = msgspec.json.decode(source) if isinstance(source, str | bytes) else _plain(source)
        schema = parse_type(value, ())
    except (msgspec.MsgspecError, UnicodeError) as e:
        raise SchemaError(f"the schema is not valid JSON: {e}") from e
    except RecursionError as e:
        raise SchemaError("the schema is nested too deeply to be read") from e
    if not isinstance(schema, StructType):
        raise SchemaError(f"a table's schema is a struct, this is of type {schema}")
    return schema


def parse_type(value: object, path: Sequence[str]) -> DataType:
    """Parse one type from its decoded JSON; `path` is where it is, for messages."""
    if len(path) > MAX_NESTING:
        raise SchemaError(f"the schema is nested more than {MAX_NESTING} levels deep")
    if isinstance(value, str):
        return _parse_name(value, path)
    if not isinstance(value, dict):
        raise _error(path, f"a type is a name or an object, not {_shown(value)}")
    kind = value.get("type")
    match kind:
        case "struct":
            return _parse_struct(value, path)
        case "array":
            return ArrayType(
                parse_type(_required(value, "elementType", path), (*path, "element")),
                _flag(value, "containsNull", path),
                extra=_others(value, "type", "elementType", "containsNull"),
            )
        case "map":
            return MapType(
                parse_type(_required(value, "keyType", path), (*path, "key")),
                parse_type(_required(value, "valueType", path), (*path, "value")),
                _flag(value, "valueContainsNull", path),
                extra=_others(value, "type", "keyType", "valueType", "valueContainsNull"),
            )
        case "udt":
            return UserDefinedType(
                parse_type(_required(value, "sqlType", path), path), _others(value, "type", "sqlType")
            )
        case None:
            raise _error(path, "the type has no key 'type'")
        case _:
            raise _error(path, f"unknown type {_shown(kind)}; expected struct, array, map or udt")


def _parse_name(name: str, path: Sequence[str]) -> DataType:
    name = _ALIASES.get(name, name)
    try:
        if m := _DECIMAL.fullmatch(name):
            return DecimalType(int(m[1]), int(m[2]))
    except SchemaError as e:
        raise _error(path, str(e)) from e
    if m := _CHAR.fullmatch(name):
        return PrimitiveType(f"{m[1]}({int(m[2])})")
    if not name:
        raise _error(path, "the name of the type is empty")
    return PrimitiveType(name)


def _parse_struct(value: dict[str, Any], path: Sequence[str]) -> StructType:
    fields = _required(value, "fields", path)
    if not isinstance(fields, list):
        raise _error(path, f"'fields' is a list, not {_shown(fields)}")
    return StructType((_parse_field(f, i, path) for i, f in enumerate(fields)), extra=_others(value, "type", "fields"))


def _parse_field(value: object, index: int, parent: Sequence[str]) -> StructField:
    if not isinstance(value, dict):
        raise _error(parent, f"field {index} is an object, not {_shown(value)}")
    name = value.get("name")
    if not isinstance(name, str):
        raise _error(parent, f"field {index} has no name" if name is None else f"field {index}: bad name {name!r}")
    path = (*parent, name)
    metadata = value.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise _error(path, f"'metadata' is an object, not {_shown(metadata)}")
    return StructField(
        name,
        parse_type(_required(value, "type", path), path),
        _flag(value, "nullable", path),
        metadata,
        extra=_others(value, "name", "type", "nullable", "metadata"),
    )


def _required(value: dict[str, Any], key: str, path: Sequence[str]) -> Any:
    if key not in value:
        raise _error(path, f"the key {key!r} is missing")
    return value[key]


def _flag(value: dict[str, Any], key: str, path: Sequence[str]) -> bool:
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise _error(path, f"{key!r} is true or false, not {_shown(flag)}")
    return flag


def _others(value: dict[str, Any], *known: str) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k not in known}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _error(path: Sequence[str], what: str) -> SchemaError:
    return SchemaError(f"bad schema at {dotted(path)}: {what}" if path else f"bad schema: {what}")


# --- writing -------------------------------------------------------------------------------------------


def schema_to_json(schema: StructType) -> str:
    return encode_json(schema_to_dict(schema))


def schema_to_dict(schema: StructType) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field_to_value(f) for f in schema.fields], **_plain(schema.extra)}


def encode_json(value: object) -> str:
    """Return the JSON text of plain values, as compact as Spark writes it."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise SchemaError(f"the schema cannot be written as JSON: {e}") from e


def type_to_value(data_type: DataType) -> TypeValue:
    """Return a type as the plain values of its JSON; the result shares nothing with the type."""
    match data_type:
        case PrimitiveType() | DecimalType():
            return data_type.json_name
        case StructType():
            return schema_to_dict(data_type)
        case ArrayType(element_type=element, contains_null=nulls, extra=extra):
            return {"type": "array", "elementType": type_to_value(element), "containsNull": nulls, **_plain(extra)}
        case MapType(key_type=key, value_type=value, value_contains_null=nulls, extra=extra):
            return {
                "type": "map",
                "keyType": type_to_value(key),
                "valueType": type_to_value(value),
                "valueContainsNull": nulls,
                **_plain(extra),
            }
        case UserDefinedType(sql_type=sql_type, properties=properties):
            return {"type": "udt", **_plain(properties), "sqlType": type_to_value(sql_type)}


def _field_to_value(f: StructField) -> dict[str, Any]:
    return {
        "name": f.name,
        "type": type_to_value(f.type),
        "nullable": f.nullable,
        "metadata": _plain(f.metadata),
        **_plain(f.extra),
    }


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy that holds only JSON's own types."""
    if not value:
        return {}
    try:
        copy = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as e:
        raise SchemaError(f"a schema holds only JSON values: {e}") from e
    assert isinstance(copy, dict)
    return copy
