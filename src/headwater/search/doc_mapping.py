"""The index configuration as JSON: `docMappingJson` of the log's `add` (spec 002, "AddAction").

The spec's own example has only names and types; what it leaves out is read as the default for the type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import msgspec

from headwater.errors import SchemaError, SearchConfigError
from headwater.log.schema import BINARY, BOOLEAN, DOUBLE, LONG, STRING, DataType
from headwater.log.schema.json_format import parse_type, type_to_value
from headwater.search.analysis import TOKENIZERS
from headwater.search.fields import KINDS, FieldConfig, FieldKind, IndexConfig

_TYPES: dict[str, DataType] = {"i64": LONG, "f64": DOUBLE, "bool": BOOLEAN, "stored": BINARY}


class _Field(msgspec.Struct, rename="camel"):
    name: str
    type: str
    column: str | None = None
    data_type: Any = None
    tokenizer: str | None = None
    fast: bool = False
    indexed: bool = True
    stored: bool = True


class _Mapping(msgspec.Struct):
    fields: list[_Field]


def to_doc_mapping(config: IndexConfig) -> str:
    """The configuration as JSON."""
    fields = [
        _Field(
            name=field.name,
            type=field.kind,
            column=field.column,
            data_type=type_to_value(field.data_type),
            tokenizer=field.tokenizer,
            fast=field.fast,
            indexed=field.indexed,
            stored=field.stored,
        )
        for field in config.fields
    ]
    return msgspec.json.encode(_Mapping(fields)).decode()


@lru_cache(maxsize=64)
def from_doc_mapping(text: str | bytes) -> IndexConfig:
    """Read the JSON; most splits of a table have the same, and all openings of it.

    Raises:
        SearchConfigError: it is no index configuration, or has a kind of field that Headwater does not know.
    """
    try:
        mapping = msgspec.json.decode(text, type=_Mapping)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SearchConfigError(f"the docMappingJson of a split cannot be read: {error}") from error
    return IndexConfig(tuple(_field(field) for field in mapping.fields))


def _field(field: _Field) -> FieldConfig:
    tokenizer = field.tokenizer or ("default" if field.type in ("text", "json") else "raw")
    if field.type not in KINDS or tokenizer not in TOKENIZERS:
        raise SearchConfigError(
            f"field {field.name!r} of a split is of type {field.type!r} with tokenizer {tokenizer!r}; Headwater knows "
            f"the types {', '.join(KINDS)} and the tokenizers {', '.join(TOKENIZERS)}"
        )
    try:
        data_type = _TYPES.get(field.type, STRING) if field.data_type is None else parse_type(field.data_type, ())
    except SchemaError as error:
        raise SearchConfigError(f"field {field.name!r} of a split: {error}") from error
    return FieldConfig(
        name=field.name,
        column=field.column if field.column is not None else field.name,
        kind=cast("FieldKind", field.type),
        data_type=data_type,
        tokenizer=tokenizer,
        fast=field.fast,
        indexed=field.indexed,
        stored=field.stored,
    )
