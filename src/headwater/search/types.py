"""The Arrow types of a split's rows, and the tantivy schema of its index.

Rows keep Spark's types exactly. Everything is nullable in Arrow (the schema in the split's metadata knows what is not),
timestamps are in UTC, and strings and binaries have the plain forms, whatever forms Spark's settings produce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import tantivy

from headwater.errors import SchemaError, SchemaMismatchError
from headwater.log.schema import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
    UserDefinedType,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.search.analysis import register_tokenizers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.search.config import FieldConfig, IndexConfig


def row_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows of a table.

    Raises:
        SchemaError: a column has a type that Spark has no Arrow form of; the message names it.

    >>> from headwater.log.schema import StructField
    >>> row_schema(StructType([StructField("took", PrimitiveType("interval day to second"))]))
    took: duration[us]
    """
    return pa.schema([pa.field(f.name, _arrow_type(f.type, f.name)) for f in schema.fields])


def _arrow_type(data_type: DataType, column: str) -> pa.DataType:
    match data_type:
        case StructType(fields=fields):
            return pa.struct([pa.field(f.name, _arrow_type(f.type, f"{column}.{f.name}")) for f in fields])
        case ArrayType(element_type=element):
            return pa.list_(pa.field("element", _arrow_type(element, f"{column}.element")))
        case MapType(key_type=key, value_type=value):
            key_field = pa.field("key", _arrow_type(key, f"{column}.key"), nullable=False)
            return pa.map_(key_field, pa.field("value", _arrow_type(value, f"{column}.value")))
        case UserDefinedType(sql_type=sql_type):
            return _arrow_type(sql_type, column)
    if data_type == VARIANT:
        return pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
    if is_day_time_interval(data_type):
        return pa.duration("us")
    if is_time(data_type):
        return pa.time64("ns")
    if isinstance(data_type, PrimitiveType) and not data_type.is_known:
        raise SchemaError(
            f"column {column}: Spark has no Arrow form of {data_type}, so no split can have it; cast it first"
        )
    return type_to_arrow(data_type)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch with exactly the columns and types of `schema`; columns are matched by name."""
    if batch.schema.equals(schema, check_metadata=False):
        return batch.cast(schema) if batch.schema.metadata else batch
    given = batch.schema.names
    unknown = [name for name in given if name not in schema.names]
    missing = [name for name in schema.names if name not in given]
    if unknown or missing or len(given) != len(schema.names):
        raise SchemaMismatchError(
            f"the rows do not have the columns of the split: unknown {_names(unknown)}, missing {_names(missing)}"
        )
    columns = [_conformed(batch.column(field.name), field.type, field.name) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conformed(values: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if values.type.equals(target):
        return values
    if pat.is_dictionary(values.type):
        return _conformed(values.dictionary_decode(), target, path)
    if pat.is_struct(target) and pat.is_struct(values.type):
        return _conformed_struct(values, target, path)
    if pat.is_timestamp(target) and pat.is_timestamp(values.type) and (target.tz is None) != (values.type.tz is None):
        raise SchemaMismatchError(f"column {path}: the rows have {values.type}, the split has {target}")
    if pat.is_map(target) and pat.is_map(values.type):
        offsets, entries = entries_of(values)
        keys = _conformed(entries.field(0), target.key_type, f"{path}.key")
        items = _conformed(entries.field(1), target.item_type, f"{path}.value")
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=values.is_null())
    if pat.is_list(target) and (pat.is_list(values.type) or pat.is_large_list(values.type)):
        offsets, entries = entries_of(values)
        elements = _conformed(entries, target.value_type, f"{path}.element")
        return pa.ListArray.from_arrays(offsets, elements, type=target, mask=values.is_null())
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {path}: the rows have {values.type}, the split has {target}: {error}"
        ) from error


def _conformed_struct(values: pa.StructArray, target: pa.StructType, path: str) -> pa.StructArray:
    given = [field.name for field in values.type]
    wanted = [field.name for field in target]
    if sorted(given) != sorted(wanted):
        raise SchemaMismatchError(f"column {path}: the rows have {values.type}, the split has {target}")
    children = [_conformed(values.field(field.name), field.type, f"{path}.{field.name}") for field in target]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())


def entries_of(values: pa.Array) -> tuple[pa.Int32Array, pa.Array]:
    """Return offsets and entries of a list or map array, without those that a slice or a null hides."""
    if pat.is_map(values.type):
        values = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    zero = pa.Int32Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(b"\0\0\0\0")])
    return pa.concat_arrays([zero, ends]), values.flatten()


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def index_schema(config: IndexConfig) -> tantivy.Schema:
    """Return the tantivy schema: a field for each indexed one, and three of our own."""
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
    index = tantivy.Index(index_schema(config), directory, reuse=False)
    register_tokenizers(index)
    return index


def open_index(directory: str) -> tantivy.Index:
    index = tantivy.Index.open(directory)
    register_tokenizers(index)
    return index


ROW_ID_FIELD: Final = "_hw_rid"
"""u64, fast, the order of the index. `Split.row_numbers_of` turns its values into row numbers."""
NULL_FIELD: Final = "_hw_null"
"""Untokenised, one term for each column of the row that is null (the column's name): the exact answer to IS NULL."""
UNINDEXED_FIELD: Final = "_hw_unindexed"
"""Untokenised, one term for each field (its name) that could not take the row's value: see `Split.partial_fields`."""
_DAY_TIME_UNITS: Final = ("day", "hour", "minute", "second")


def is_day_time_interval(data_type: DataType) -> bool:
    """Say whether a type is one of Spark's day-time intervals (`interval day to second`, `interval hour`, ...)."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    return name.startswith("interval ") and name.split()[1] in _DAY_TIME_UNITS


def is_time(data_type: DataType) -> bool:
    """Say whether a type is Spark's time of day, `time(6)`."""
    return isinstance(data_type, PrimitiveType) and data_type.name.startswith("time(")
