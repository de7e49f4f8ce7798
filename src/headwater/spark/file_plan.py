"""What is decided about data files before the first row is written; it travels to the executors.

Which columns files hold and what they are called there (spec: "Column Mapping", "Delta Data Type to Parquet Type
Mappings"), which of them get statistics, how large files become, and how they are compressed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.errors import SchemaError, WriteOptionError
from headwater.log.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    drop_field_ids,
    physical_name,
    strings_for_chars,
    to_physical,
    transform_fields,
)
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY
from headwater.spark.columns import part_in_files
from headwater.spark.file_names import DEFAULT_PREFIX_LENGTH, FileNames
from headwater.spark.indexed_columns import Leaf, indexed_leaves, prefix_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.spark.write_target import WriteTarget

TARGET_SIZE_PROPERTY = "delta.targetFileSize"
OPTIMIZE_PROPERTIES = ("delta.autoOptimize.optimizeWrite", "delta.autoOptimize")
RANDOMIZE_PROPERTY = "delta.randomizeFilePrefixes"
RANDOM_LENGTH_PROPERTY = "delta.randomPrefixLength"
COMPRESSION_PROPERTY = "delta.parquet.compression.codec"

_CODECS = {
    "none": "uncompressed",
    "uncompressed": "uncompressed",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "brotli": "brotli",
    "lz4": "lz4_raw",
    "lz4_raw": "lz4_raw",
}
_ID_KEYS = (PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class PartitionColumn:
    """A partition column."""

    name: str
    key: str
    """Its name in `partitionValues`."""
    type: DataType


@dataclass(frozen=True)
class FilePlan:
    """What all files of one write have in common."""

    uri: str
    storage_options: dict[str, str] | None = field(repr=False)
    schema: StructType
    """The columns that files hold, in order, by the names and types of the rows."""
    file_schema: StructType
    """The same as files have it: physical names and ids, without voids."""
    partitions: tuple[PartitionColumn, ...]
    names: FileNames
    leaves: tuple[Leaf, ...] | None
    """The columns with statistics; None when files get no statistics at all."""
    prefix_length: int
    max_records: int | None = None
    target_size_bytes: int | None = None
    optimize: bool = False
    spark_version: str = ""


def plan_files(target: WriteTarget, *, default_codec: str = "snappy", spark_version: str = "") -> FilePlan:
    """Decide everything about the files of a write.

    Args:
        target: the table.
        default_codec: the compression when neither the write nor the table says one.
        spark_version: noted in the files, for readers that must know by which calendar dates were written.

    Raises:
        WriteOptionError: an option or property has a value that cannot be.
        SchemaError: files cannot hold the columns.
    """
    properties = target.properties
    schema = _columns_in_files(target)
    file_schema = _file_schema(schema, target)
    hidden = drop_field_ids(StructType(target.hidden)).fields
    codec = _codec(target.compression or properties.get(COMPRESSION_PROPERTY) or default_codec)
    data_columns = StructType(file_schema.fields[: len(file_schema) - _materialized(target)])
    leaves = indexed_leaves(target.schema, data_columns, target.mapping_mode, properties)
    return FilePlan(
        uri=target.uri,
        storage_options=None if target.storage_options is None else dict(target.storage_options),
        schema=StructType([*schema.fields, *hidden]),
        file_schema=StructType([*file_schema.fields, *hidden]),
        partitions=tuple(_partition_column(target, name) for name in target.partition_columns),
        names=FileNames(target.directory.strip("/"), _random_prefix_length(target), codec),
        leaves=tuple(leaves) if target.statistics else None,
        prefix_length=prefix_length(properties),
        max_records=_positive("max_records_per_file", target.max_records_per_file),
        target_size_bytes=_target_size(target),
        optimize=_optimize(target),
        spark_version=spark_version,
    )


def _columns_in_files(target: WriteTarget) -> StructType:
    """The columns that files hold: not the partition columns, unless they are asked for, and then at the end."""
    partitions = [target.schema.field(name).name for name in target.partition_columns]
    kept = [f for f in target.schema.fields if f.name not in partitions]
    if target.materialize_partition_columns:
        kept += [target.schema.field(name) for name in partitions]
    kept = [f for f in kept if part_in_files(f.type) is not None]
    if not kept:
        raise SchemaError(
            f"there is no column left to write to the files of {target.uri}: all columns are partition columns or of "
            "type void. Add a column of another type, or partition by fewer columns."
        )
    return StructType(kept)


def _file_schema(schema: StructType, target: WriteTarget) -> StructType:
    mode = target.mapping_mode
    physical = drop_field_ids(schema) if mode == "none" else to_physical(schema, mode)
    present = part_in_files(strings_for_chars(physical))
    assert isinstance(present, StructType), "there are columns"

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        ids = {key: value for key, value in field.metadata.items() if key in _ID_KEYS}
        return replace(field, nullable=True, type=_optional(field.type), metadata=ids)

    return transform_fields(present, change)


def _optional(type_: DataType) -> DataType:
    """Whether values may be null is checked elsewhere; files need not say it."""
    match type_:
        case ArrayType(element_type=element):
            return replace(type_, element_type=_optional(element), contains_null=True)
        case MapType(key_type=key, value_type=value):
            return replace(type_, key_type=_optional(key), value_type=_optional(value), value_contains_null=True)
    return type_


def _materialized(target: WriteTarget) -> int:
    """The number of partition columns at the end of the files' columns."""
    return len(target.partition_columns) if target.materialize_partition_columns else 0


def _partition_column(target: WriteTarget, name: str) -> PartitionColumn:
    field: StructField = target.schema.field(name)
    key = field.name if target.mapping_mode == "none" else physical_name(field)
    return PartitionColumn(field.name, key, field.type)


def _random_prefix_length(target: WriteTarget) -> int | None:
    """Under column mapping names of columns may change, so directories are not called after them."""
    randomize = _flag(target.properties, RANDOMIZE_PROPERTY)
    if target.mapping_mode == "none" and not randomize:
        return None
    text = target.properties.get(RANDOM_LENGTH_PROPERTY)
    return DEFAULT_PREFIX_LENGTH if text is None else _positive(RANDOM_LENGTH_PROPERTY, size_bytes(text))


def _target_size(target: WriteTarget) -> int | None:
    if target.target_file_size is not None:
        return _positive("target_file_size", target.target_file_size)
    text = target.properties.get(TARGET_SIZE_PROPERTY)
    return None if text is None else _positive(TARGET_SIZE_PROPERTY, size_bytes(text))


def _optimize(target: WriteTarget) -> bool:
    if target.optimize_write is not None:
        return target.optimize_write
    return any(_flag(target.properties, name) for name in OPTIMIZE_PROPERTIES)


def size_bytes(text: str) -> int:
    """A size with or without a unit, as properties have it; 0 if it is none.

    >>> size_bytes("128mb"), size_bytes("1000")
    (134217728, 1000)
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _UNITS[found[2].lower()] if found else 0


def _positive(name: str, number: int | None) -> int | None:
    if number is not None and number <= 0:
        raise WriteOptionError(f"{name} must be a positive number")
    return number


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "false").strip().lower() == "true"


def _codec(name: str) -> str:
    found = _CODECS.get(name.lower())
    if found is None:
        raise WriteOptionError(
            f"the compression {name!r} is not known: use one of {', '.join(sorted(set(_CODECS) - {'uncompressed'}))}"
        )
    return found
