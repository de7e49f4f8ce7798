"""From the columns in data files to the columns of the table (spec: "Column Mapping", "Row Tracking").

The scan reads physical columns; a projection on top gives them their logical names, at all levels. It is written so
that the optimizer sees through it: filters and nested column pruning reach the Parquet reader for renamed structs too.
Columns of type void are in no file and are null.

Row tracking columns: a stable row id is the materialized one where a file has it, else the file's base id plus the
row's position; a row commit version is the materialized one, else the file's default. Base id and default travel as
hidden partition values.

Columns that locate a row: the number of its file, a hidden partition value, and its position there, which counts
deleted rows too. The position is a field of the hidden column `_metadata` of Spark's file source, which is asked for as
such: a table may have a column of that name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import RowTrackingDisabledError, SchemaError
from headwater.features.feature import fields_by_path
from headwater.features.registry import is_active
from headwater.features.row_tracking import check_materialized_names
from headwater.log.filters.expressions import Column as TableColumn
from headwater.log.schema import (
    INTEGER,
    LONG,
    ArrayType,
    DataType,
    MappingMode,
    MapType,
    StructField,
    StructType,
    column_id,
    drop_field_ids,
    physical_name,
    to_physical,
    transform_fields,
)
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY, PHYSICAL_NAME_KEY
from headwater.log.schema.spark import readable_types
from headwater.log.schema.types import check_characters, hidden, part_in_files, quoted
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from headwater.log.snapshot import Snapshot


FIELD_IDS_OPTION = "spark.sql.parquet.fieldId.read.enabled"
"""Spark copies a relation's options into the reader's configuration, so this holds for one scan only."""
MISSING_IDS_OPTION = "spark.sql.parquet.fieldId.read.ignoreMissing"
_INTERNAL_METADATA = ("delta.", "parquet.field.")
_FOR_SPARK = ("CURRENT_DEFAULT", "EXISTS_DEFAULT", "GENERATION_EXPRESSION", "IDENTITY_INFO_", "__", "spark.")
"""What Spark itself acts on in the metadata of a column. It evaluates defaults as SQL, even while it reads, and takes a
column for a hidden one, a window or a watermark: a table must not decide that."""
_KEPT_FOR_SPARK = ("__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS")
"""But these say what the type is."""


@dataclass(frozen=True)
class ScanColumns:
    """The columns of one scan: the table's (partition columns by logical name), and where the scan finds them."""

    table: StructType
    mode: MappingMode
    partition_columns: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> ScanColumns:
        """Return the columns of a version of a table."""
        return cls(snapshot.schema, snapshot.mapping_mode, snapshot.metadata.partition_columns)

    def __post_init__(self) -> None:
        for _, field in fields_by_path(self.table):
            check_characters((field.name, str(field.metadata.get(PHYSICAL_NAME_KEY, ""))), "the table")

    @cached_property
    def visible(self) -> StructType:
        """The table's schema as users see it: without the metadata that only readers and writers need."""
        return without_internal_metadata(self.table)

    @cached_property
    def physical(self) -> StructType:
        """All columns, as files may hold them: by physical name. Partition columns too, for their place."""
        mapped = to_physical(readable_types(self.table), self.mode)
        found_by = _names_with_ids(mapped) if self.mode == "id" else drop_field_ids(mapped)
        present = part_in_files(found_by)
        return without_internal_metadata(present if isinstance(present, StructType) else StructType(()), "delta.")

    @cached_property
    def partition_fields(self) -> list[StructField]:
        """The partition columns in the order of `partition_columns`, by physical name."""
        return [self.physical.field(_scan_name(self.table.field(name), self.mode)) for name in self.partition_columns]

    def partition_key(self, logical: str) -> str:
        """Return the name of a partition column in `partitionValues`."""
        field = self.table.field(logical)
        return field.name if self.mode == "none" else physical_name(field)

    @property
    def options(self) -> dict[str, str]:
        """Options of the relation that make Spark find columns as the table's mode says."""
        # A file without ids is refused whatever the session says: all its values would be null.
        return {FIELD_IDS_OPTION: "true" if self.mode == "id" else "false", MISSING_IDS_OPTION: "false"}

    @cached_property
    def _logical_paths(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        return dict(_paths(self.table, self.mode))

    def resolve(self, path: tuple[str, ...]) -> TableColumn | None:
        """Return the table's column for a column of the scan."""
        found = self._logical_paths.get(path)
        return None if found is None else TableColumn(found)

    @property
    def needs_projection(self) -> bool:
        """Whether the scan's columns differ from the table's."""
        return self.visible != self.physical

    @cached_property
    def projection(self) -> list[Column]:
        """The table's columns, in order, over the scan's; of the kind of session that first asks for them."""
        sf = functions()
        columns = []
        for field, shown in zip(self.table.fields, self.visible.fields, strict=True):
            source = self._source(field)
            value = sf.lit(None).cast(_spark_type(shown)) if source is None else self._value(shown, source)
            columns.append(value.alias(field.name, metadata=_spark_field(shown).metadata))
        return columns

    def _value(self, shown: StructField, source: StructField) -> Column:
        value = functions().col(quoted(source.name))
        held = part_in_files(shown.type)
        if self.mode == "id" and held is not None and not _same_names(held, source.type):
            # When Spark prunes nested columns it loses their ids, and would look for them by name. It does not
            # prune below a cast.
            source = replace(shown, type=held)
            value = value.cast(_spark_type(source))
        return _renamed(value, shown, source)

    def _source(self, field: StructField) -> StructField | None:
        name = _scan_name(field, self.mode)
        return next((f for f in self.physical.fields if f.name == name), None)


def spark_fields(fields: list[StructField]) -> list[dict[str, Any]]:
    """Return fields in Spark's own schema JSON."""
    if not fields:
        return []
    return list(json.loads(StructType(fields).to_spark().json())["fields"])


def _spark_field(field: StructField) -> Any:
    return StructType([field]).to_spark().fields[0]


def _spark_type(field: StructField) -> Any:
    return _spark_field(field).dataType


def _scan_name(field: StructField, mode: MappingMode) -> str:
    match mode:
        case "none":
            return field.name
        case "name":
            return physical_name(field)
        case "id":
            return _name_with_id(physical_name(field), column_id(field))


def _name_with_id(name: str, id_: int) -> str:
    """Return a name that is in no file.

    In `id` mode files may call columns as they like. Spark finds columns by id, but hands filters to the Parquet reader
    by name, where they could meet the statistics of another column.
    """
    return f"{name}#{id_}"


def _names_with_ids(physical: StructType) -> StructType:
    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return replace(field, name=_name_with_id(field.name, field.metadata[PARQUET_FIELD_ID_KEY]))

    return transform_fields(physical, change)


def without_internal_metadata(schema: StructType, prefixes: tuple[str, ...] | str = _INTERNAL_METADATA) -> StructType:
    """Return a schema without the column metadata that is for readers and writers, or that Spark would act on."""

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        kept = {
            key: value
            for key, value in field.metadata.items()
            if key in _KEPT_FOR_SPARK or not (key.startswith(prefixes) or key.startswith(_FOR_SPARK))
        }
        return replace(field, metadata=kept)

    return transform_fields(schema, change)


def _paths(struct: StructType, mode: MappingMode) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the logical paths of all columns that structs lead to, by their physical ones."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for field in struct.fields:
        name = _scan_name(field, mode)
        found[(name,)] = (field.name,)
        if isinstance(field.type, StructType):
            for physical, logical in _paths(field.type, mode).items():
                found[(name, *physical)] = (field.name, *logical)
    return found


def _renamed(value: Column, shown: StructField, source: StructField) -> Column:
    """Return a value of the source's type, with the names of the shown one."""
    sf = functions()
    if _same_names(shown.type, source.type):
        return value
    match shown.type, source.type:
        case StructType(), StructType():
            return _renamed_struct(value, shown.type, source)
        case (ArrayType(element_type=to), ArrayType(element_type=of)) if _lacks_fields(to, of):
            return sf.transform(value, lambda item: _renamed(item, _item(to), _item(of)))
        case (MapType(), MapType()) if _lacks_fields(shown.type, source.type):
            keyed = sf.transform_keys(
                value, lambda key, _: _renamed(key, _item(shown.type.key_type), _item(source.type.key_type))
            )
            return sf.transform_values(
                keyed,
                lambda _, item: _renamed(item, _item(shown.type.value_type), _item(source.type.value_type)),
            )
    return value.cast(_spark_type(shown))


def _renamed_struct(value: Column, shown: StructType, source: StructField) -> Column:
    """Return a struct with other field names.

    The optimizer understands `withField` and `dropFields`, and then reads only the nested columns that a query uses.
    Where old and new names overlap they would replace each other, so a new struct is built.
    """
    sf = functions()
    assert isinstance(source.type, StructType)
    held = {f.name: f for f in source.type.fields}
    old = iter(source.type.fields)
    parts: list[tuple[str, Column]] = []
    for field in shown.fields:
        if part_in_files(field.type) is None:
            parts.append((field.name, sf.lit(None).cast(_spark_type(field))))
        else:
            inner = next(old)
            parts.append((field.name, _renamed(value[inner.name], field, inner)))
    folded = {name.lower() for name in held}
    if any(name.lower() in folded for name, _ in parts):
        rebuilt = sf.struct(*(part.alias(name) for name, part in parts))
        return sf.when(value.isNotNull(), rebuilt) if source.nullable else rebuilt
    result = value
    for name, part in parts:
        result = result.withField(quoted(name), part)
    return result.dropFields(*(quoted(name) for name in held))


def _item(type_: DataType) -> StructField:
    """Return a type as a field, for the parts of arrays and maps, which have no names."""
    return StructField("item", type_)


def _inner_types(one: DataType, other: DataType) -> list[tuple[DataType, DataType]] | None:
    """Return the types inside two structs, arrays or maps, in pairs; None for other types."""
    match one, other:
        case StructType(), StructType():
            return [(a.type, b.type) for a, b in zip(one.fields, other.fields, strict=False)]
        case ArrayType(), ArrayType():
            return [(one.element_type, other.element_type)]
        case MapType(), MapType():
            return [(one.key_type, other.key_type), (one.value_type, other.value_type)]
    return None


def _same_names(one: DataType, other: DataType) -> bool:
    if isinstance(one, StructType) and isinstance(other, StructType) and one.names != other.names:
        return False
    inner = _inner_types(one, other)
    return one == other if inner is None else all(_same_names(a, b) for a, b in inner)


def _lacks_fields(shown: DataType, source: DataType) -> bool:
    """Say whether files lack a part of the type (a nested void), so that a cast cannot produce it."""
    if isinstance(shown, StructType) and isinstance(source, StructType) and len(shown.fields) != len(source.fields):
        return True
    return any(_lacks_fields(a, b) for a, b in _inner_types(shown, source) or ())


ROW_ID = hidden("row_id")
ROW_COMMIT_VERSION = hidden("row_commit_version")
_SHOWN = {ROW_ID: "_row_id", ROW_COMMIT_VERSION: "_row_commit_version"}
"""The names that users see. Inside they differ, for a table may have columns of these names."""
HIDDEN_COLUMNS = {
    hidden("base_row_id"): "baseRowId",
    hidden("default_row_commit_version"): "defaultRowCommitVersion",
}
"""The hidden partition columns, and the field of the add action that each one holds."""
_BASE_ROW_ID, _DEFAULT_COMMIT_VERSION = HIDDEN_COLUMNS
_MATERIALIZED = {
    ROW_ID: "delta.rowTracking.materializedRowIdColumnName",
    ROW_COMMIT_VERSION: "delta.rowTracking.materializedRowCommitVersionColumnName",
}


def materialized_columns(snapshot: Snapshot) -> dict[str, str | None]:
    """Return the names in data files of the materialized columns; None where the table has not chosen one.

    Raises:
        RowTrackingDisabledError: row tracking is not enabled, so rows may have no ids.
        InvalidCommitError: the properties name a column of the table.
    """
    properties = snapshot.properties
    if not is_active("rowTracking", snapshot.configuration):
        raise RowTrackingDisabledError(
            f"row tracking is off in version {snapshot.version} of {snapshot.uri}: its rows have no ids. "
            "Set the table property delta.enableRowTracking to true, or read without row_tracking."
        )
    check_materialized_names(snapshot.schema, properties)
    return {column: properties.get(key) for column, key in _MATERIALIZED.items()}


def shown_names(snapshot: Snapshot) -> dict[str, str]:
    """Return the names of the two columns for users, by those that a scan has.

    Raises:
        SchemaError: the table has columns of its own with these names.
    """
    taken = {name.lower() for name in snapshot.schema.names}.intersection(_SHOWN.values())
    if taken:
        raise SchemaError(
            f"{snapshot.uri} has a column {min(taken)} of its own, so it cannot be read with row_tracking"
        )
    return dict(_SHOWN)


def materialized_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the names in data files of `ROW_ID` and `ROW_COMMIT_VERSION`, as far as the table has chosen them."""
    return {column: name for column, key in _MATERIALIZED.items() if (name := properties.get(key))}


def row_tracking_columns(materialized: dict[str, str | None], position: Column) -> list[Column]:
    """Return `ROW_ID` and `ROW_COMMIT_VERSION` over the scan's columns; files call them as `materialized` says."""
    sf = functions()
    fresh = {
        ROW_ID: sf.col(_BASE_ROW_ID) + position,
        ROW_COMMIT_VERSION: sf.col(_DEFAULT_COMMIT_VERSION),
    }
    columns = []
    for name, default in fresh.items():
        stored = materialized[name]
        columns.append((sf.coalesce(sf.col(quoted(stored)), default) if stored else default).alias(name))
    return columns


FILE_COLUMN = hidden("file")
"""The number of a row's file, in a scan that locates rows."""
ROW_COLUMN = hidden("row")
"""The position of a row in its file, deleted rows counted."""
LOCATION_FIELDS = (StructField(FILE_COLUMN, INTEGER), StructField(ROW_COLUMN, LONG))


def location_columns(position: Column) -> list[Column]:
    """Return `FILE_COLUMN` and `ROW_COLUMN`, over the scan's; `position` is that of a row in its file."""
    return [functions().col(FILE_COLUMN), position.alias(ROW_COLUMN)]


def row_position(scan: DataFrame) -> Column:
    """Return the position of a row in its file, deleted rows counted, over a scan of Spark's own."""
    return scan.metadataColumn("_metadata")["row_index"]


def row_file(scan: DataFrame) -> Column:
    """Return the path of a row's file, over a scan of Spark's own."""
    return scan.metadataColumn("_metadata")["file_path"]


FILE_PATH = hidden("file_path")
"""The path of a row's file, in a scan of Spark Connect."""
ROW_POSITION = hidden("row_position")
"""The position of a row in its file, deleted rows counted, in such a scan."""
