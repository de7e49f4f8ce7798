"""The tantivy schema of an index configuration, and the settings of indexes that we write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tantivy

from headwater.search.analysis import register_tokenizers
from headwater.search.fields import NULL_FIELD, ROW_ID_FIELD, UNINDEXED_FIELD

if TYPE_CHECKING:
    from headwater.search.fields import FieldConfig, IndexConfig


def index_schema(config: IndexConfig) -> tantivy.Schema:
    """The schema: a field for each indexed one, and our own three."""
    builder = tantivy.SchemaBuilder()
    for field in config.indexed_fields:
        _add(builder, field)
    builder.add_unsigned_field(ROW_ID_FIELD, fast=True)
    for name in (NULL_FIELD, UNINDEXED_FIELD):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    return builder.build()


def _add(builder: tantivy.SchemaBuilder, field: FieldConfig) -> None:
    name, fast = field.index_name, field.fast
    match field.kind:
        case "text":
            builder.add_text_field(name, fast=fast, tokenizer_name=field.tokenizer, index_option="position")
        case "string":
            builder.add_text_field(name, fast=fast, tokenizer_name="raw", index_option="basic")
        case "json":
            builder.add_json_field(name, fast=fast, tokenizer_name=field.tokenizer, index_option="position")
        case "ip":
            builder.add_ip_addr_field(name, indexed=True, fast=fast)
        case "i64":
            builder.add_integer_field(name, indexed=field.has_terms, fast=fast)
        case "f64":
            builder.add_float_field(name, indexed=field.has_terms, fast=fast)
        case "bool":
            builder.add_boolean_field(name, indexed=True, fast=fast)
        case "stored":
            raise AssertionError(f"field {field.name!r} is indexed and has nothing to index")


def create_index(config: IndexConfig, directory: str) -> tantivy.Index:
    """A new, empty index in a directory."""
    index = tantivy.Index(index_schema(config), directory, reuse=False)
    register_tokenizers(index)
    return index


def open_index(directory: str) -> tantivy.Index:
    """The index in a directory."""
    index = tantivy.Index.open(directory)
    register_tokenizers(index)
    return index
