"""Decide everything about data files before the first row is written; the plan is sent to the executors.

A `WriteTarget` is what the table and the write say; `plan_files` makes a `FilePlan` of it: which columns files hold and
what they are called there (spec: "Column Mapping", "Delta Data Type to Parquet Type Mappings"), which of them get
statistics ("Per-file Statistics"; `headwater.log.stats.columns` chooses them), how files are named, how large they
become, and how they are compressed. File names follow those of other Delta writers; nothing depends on them.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import string
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.errors import SchemaError, WriteOptionError
from headwater.log.actions.paths import partition_directory
from headwater.log.schema import (
    VARIANT,
    ArrayType,
    DataType,
    MappingMode,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    drop_field_ids,
    physical_name,
    physical_path,
    strings_for_chars,
    to_physical,
    transform_fields,
)
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY
from headwater.log.schema.types import part_in_files, quoted, with_nullable_parts
from headwater.log.stats.columns import COLUMNS_PROPERTY, chosen_leaves, schema_leaves, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headwater.log.actions.model import Metadata
    from headwater.log.stats.decode import Leaf


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """The table, or the part of it, that rows are written to.

    Attributes:
        uri: the table's location.
        schema: logical, with the partition columns; the rows have exactly these columns, in any order.
        partition_columns: their logical names.
        mapping_mode: the table's column mapping.
        properties: the table's properties: statistics, file names and sizes follow from them.
        storage_options: options of the object store.
        max_records_per_file: the most rows of a file.
        target_file_size: about how many bytes a file gets; `delta.targetFileSize` when None.
        optimize_write: shuffle the rows first, so that files reach their target size and partitions do not end in many
            small files; `delta.autoOptimize.optimizeWrite` when None.
        compression: snappy, zstd, gzip, lz4, brotli or none; `spark.sql.parquet.compression.codec` when None.
        directory: below the table's location, for files that are not part of the table itself (`_change_data`).
        materialize_partition_columns: put the partition columns into the files as well, after the others.
        statistics: whether to collect statistics.
        hidden: further columns of the rows, which files hold under the same names whatever the column mapping, after
            all others and without statistics: row ids, kinds of changes.
    """

    uri: str
    schema: StructType
    partition_columns: tuple[str, ...] = ()
    mapping_mode: MappingMode = "none"
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    storage_options: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    optimize_write: bool | None = None
    compression: str | None = None
    directory: str = ""
    materialize_partition_columns: bool = False
    statistics: bool = True
    hidden: tuple[StructField, ...] = ()


PREFIX_PROPERTY = "delta.dataSkippingStringPrefixLength"
DEFAULT_TEXT_PREFIX_LENGTH = 32


def leaves(schema: StructType) -> list[Leaf]:
    """Return all leaves of the schema of a file, in order, with their positions."""
    found: list[Leaf] = []
    column = 0
    for leaf in schema_leaves(schema):
        found.append(leaf._replace(column=column))
        column += width(leaf.type)
    return found


def indexed_leaves(
    table: StructType, file_schema: StructType, mode: MappingMode, properties: Mapping[str, str]
) -> list[Leaf]:
    """Return the leaves that get statistics.

    Args:
        table: the logical schema, for the names in the property.
        file_schema: of the data files, with physical names, without partition columns.
    """
    wanted = {leaf.path for leaf in chosen_leaves(_data_columns(table, file_schema, mode), mode, properties)}
    # Files may split what the table has as one leaf: a user-defined type.
    return [
        leaf
        for leaf in leaves(file_schema)
        if any(leaf.path[:depth] in wanted for depth in range(1, len(leaf.path) + 1))
    ]


def prefix_length(properties: Mapping[str, str]) -> int:
    """Return how many characters of a text statistics keep."""
    return max(0, whole_number(properties, PREFIX_PROPERTY, DEFAULT_TEXT_PREFIX_LENGTH))


def _data_columns(table: StructType, file_schema: StructType, mode: MappingMode) -> StructType:
    """Return the columns that files have, and those of type void, which no file has."""
    in_files = set(file_schema.names)
    return StructType(
        field
        for field in table.fields
        if physical_path(table, [field.name], mode)[0] in in_files or part_in_files(field.type) is None
    )


def width(type_: DataType) -> int:
    """Return how many columns of a Parquet file a column of the table takes."""
    match type_:
        case StructType(fields=fields):
            return sum(width(field.type) for field in fields)
        case ArrayType(element_type=element):
            return width(element)
        case MapType(key_type=key, value_type=value):
            return width(key) + width(value)
        case UserDefinedType(sql_type=stored):
            return width(stored)
    return 2 if type_ == VARIANT else 1


CHANGE_DIRECTORY = "_change_data"
"""The directory of change data files (spec: "Add CDC File")."""

DEFAULT_PREFIX_LENGTH = 2
_PREFIX_LETTERS = string.ascii_letters + string.digits
_EXTENSIONS = {"uncompressed": "", "gzip": ".gz", "lz4_raw": ".lz4"}


@dataclass(frozen=True)
class FileNames:
    """How the files of one write are named."""

    directory: str = ""
    """Below the table, or empty."""
    random_prefix_length: int | None = None
    """The length of random directories, which replace partition directories; None for the latter."""
    codec: str = "snappy"

    def new_key(self, task: int, number: int, values: Mapping[str, str | None]) -> str:
        """Return the key of a new file, relative to the table.

        Args:
            task: the number of the task that writes it.
            number: of the file among those of the task.
            values: the partition values by logical column name, in order.

        >>> FileNames().new_key(3, 0, {"day": "2024-01-31"})  # doctest: +ELLIPSIS
        'day=2024-01-31/part-00003-...-....c000.snappy.parquet'
        """
        kind = "cdc" if self.directory == CHANGE_DIRECTORY else "part"
        extension = _EXTENSIONS.get(self.codec, f".{self.codec}")
        name = f"{kind}-{task:05}-{uuid.uuid4()}.c{number:03}{extension}.parquet"
        return "/".join(part for part in (self.directory, self._below(values), name) if part)

    def _below(self, values: Mapping[str, str | None]) -> str:
        if self.random_prefix_length is None:
            named = partition_directory(values)
            if named is not None:
                return named
        length = self.random_prefix_length or DEFAULT_PREFIX_LENGTH
        return "".join(secrets.choice(_PREFIX_LETTERS) for _ in range(length))


def log_path(key: str) -> str:
    """Return the path of a file as the log has it: a URI (spec: "Add File and Remove File").

    >>> log_path("what=a%2Fb/part-0.parquet")
    'what=a%252Fb/part-0.parquet'
    """
    return quote(key, safe="/=")


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
    name: str
    key: str
    """Its name in `partitionValues`."""
    type: DataType


@dataclass(frozen=True)
class FilePlan:
    """What all files of one write have in common."""

    uri: str
    storage_options: dict[str, str] | None = dataclasses.field(repr=False)
    schema: StructType
    """The columns that files hold, in order, by the names and types of the rows."""
    file_schema: StructType
    """The same columns as files have them: physical names and ids, without voids."""
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
    """Plan the files of a write.

    Args:
        default_codec: the compression when neither the write nor the table says one.
        spark_version: noted in the files, for readers that must know the calendar of their dates.

    Raises:
        WriteOptionError: an option or property has an invalid value.
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
    """Return the columns that files hold; partition columns only if the target materializes them, at the end."""
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
        return replace(field, nullable=True, type=with_nullable_parts(field.type), metadata=ids)

    return transform_fields(present, change)


def _materialized(target: WriteTarget) -> int:
    """Return how many partition columns are at the end of the files' columns."""
    return len(target.partition_columns) if target.materialize_partition_columns else 0


def _partition_column(target: WriteTarget, name: str) -> PartitionColumn:
    field: StructField = target.schema.field(name)
    key = field.name if target.mapping_mode == "none" else physical_name(field)
    return PartitionColumn(field.name, key, field.type)


def _random_prefix_length(target: WriteTarget) -> int | None:
    """Directories are not named after columns that column mapping may rename."""
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
    """Parse a size with or without a unit, as properties have it; return 0 if it is not one.

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


Path = tuple[str, ...]


def with_required_statistics(
    metadata: Metadata, schema: StructType, mode: MappingMode, required: Sequence[Path]
) -> dict[str, str]:
    """Return the table's properties, changed so that a write collects statistics of all required columns.

    Clustering columns need them ("Writer Requirements for Clustered Table"), and so do identity columns, whose last
    value they tell.

    Args:
        schema: the columns of its files and its partition columns.
        required: the columns, as paths of physical names.
    """
    properties = metadata.configuration
    if not required:
        return properties
    partitions = set(metadata.partition_columns)
    leaves = {physical_path(schema, path, mode): path for path in _leaves(schema, ()) if path[0] not in partitions}
    data = to_physical(StructType([f for f in schema.fields if f.name not in partitions]), mode)
    indexed = {leaf.path for leaf in indexed_leaves(schema, data, mode, properties)}
    if all(path in indexed for path in required):
        return properties
    wanted = [path for physical, path in leaves.items() if physical in indexed or physical in required]
    return {**properties, COLUMNS_PROPERTY: ", ".join(".".join(map(quoted, path)) for path in wanted)}


def _leaves(struct: StructType, parent: Path) -> Iterator[Path]:
    for field in struct.fields:
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, (*parent, field.name))
        else:
            yield (*parent, field.name)
