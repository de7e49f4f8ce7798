"""From the columns in data files to the columns of the table (spec: "Column Mapping").

The scan reads physical columns; a projection on top gives them their logical names, at all levels. It is
written so that the optimizer sees through it: filters and nested column pruning reach the Parquet reader for
renamed structs too. Columns of type void are in no file and are null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.features.schema_walk import fields_by_path
from headwater.log.expressions import Column as TableColumn
from headwater.log.schema import (
    VOID,
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
from headwater.log.schema.lookup import check_characters
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY, PHYSICAL_NAME_KEY
from headwater.spark.functions import functions
from headwater.spark.widening import readable_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

FIELD_IDS_OPTION = "spark.sql.parquet.fieldId.read.enabled"
"""Spark copies a relation's options into the reader's configuration, so this holds for one scan only."""
MISSING_IDS_OPTION = "spark.sql.parquet.fieldId.read.ignoreMissing"
_INTERNAL_METADATA = ("delta.", "parquet.field.")
_FOR_SPARK = ("CURRENT_DEFAULT", "EXISTS_DEFAULT", "GENERATION_EXPRESSION", "IDENTITY_INFO_", "__", "spark.")
"""What Spark itself acts on in the metadata of a column. It evaluates defaults as SQL, even while it reads, and takes a
column for a hidden one, a window or a watermark: that is not for a table to say."""
_KEPT_FOR_SPARK = ("__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS")
"""But these say what the type is."""


@dataclass(frozen=True)
class ScanColumns:
    """The columns of one scan: those of the table, and where the scan finds them."""

    table: StructType
    """The table's schema."""
    mode: MappingMode
    partition_columns: tuple[str, ...]
    """By logical name."""

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
        """The name of a partition column in `partitionValues`."""
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
        """The table's column for a column of the scan."""
        found = self._logical_paths.get(path)
        return None if found is None else TableColumn(found)

    @property
    def needs_projection(self) -> bool:
        """Whether the scan's columns differ from the table's."""
        return self.visible != self.physical

    def projection(self) -> list[Column]:
        """The table's columns, in order, over the scan's."""
        sf = functions()
        columns = []
        for field, shown in zip(self.table.fields, self.visible.fields, strict=True):
            source = self._source(field)
            value = sf.lit(None).cast(_spark_type(shown)) if source is None else self._value(shown, source)
            columns.append(value.alias(field.name, metadata=_spark_field(shown).metadata))
        return columns

    def _value(self, shown: StructField, source: StructField) -> Column:
        """One column of the table, from the scan's."""
        value = _column(source)
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
    """Fields in Spark's own schema JSON."""
    if not fields:
        return []
    return list(json.loads(StructType(fields).to_spark().json())["fields"])


def quoted(name: str) -> str:
    """A column name for `functions.col`, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def part_in_files(type_: DataType) -> DataType | None:
    """The part of a type that files can hold: Parquet has no void, nor anything made of nothing else."""
    match type_:
        case _ if type_ == VOID:
            return None
        case StructType(fields=fields):
            kept = [replace(f, type=t) for f in fields if (t := part_in_files(f.type)) is not None]
            return StructType(kept) if kept or not fields else None
        case ArrayType(element_type=element):
            inner = part_in_files(element)
            return None if inner is None else replace(type_, element_type=inner)
        case MapType(key_type=key, value_type=value):
            inner_key, inner_value = part_in_files(key), part_in_files(value)
            if inner_key is None or inner_value is None:
                return None
            return replace(type_, key_type=inner_key, value_type=inner_value)
    return type_


def _column(field: StructField) -> Column:
    sf = functions()
    return sf.col(quoted(field.name))


def _spark_field(field: StructField) -> Any:
    return StructType([field]).to_spark().fields[0]


def _spark_type(field: StructField) -> Any:
    return _spark_field(field).dataType


def _scan_name(field: StructField, mode: MappingMode) -> str:
    """The name of a column in the scan."""
    match mode:
        case "none":
            return field.name
        case "name":
            return physical_name(field)
        case "id":
            return _name_with_id(physical_name(field), column_id(field))


def _name_with_id(name: str, id_: int) -> str:
    """In `id` mode files may call columns as they like. Spark finds columns by id, but hands filters to the Parquet
    reader by name, where they could meet the statistics of another column: so the scan's names are in no file.
    """
    return f"{name}#{id_}"


def _names_with_ids(physical: StructType) -> StructType:
    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return replace(field, name=_name_with_id(field.name, field.metadata[PARQUET_FIELD_ID_KEY]))

    return transform_fields(physical, change)


def without_internal_metadata(schema: StructType, prefixes: tuple[str, ...] | str = _INTERNAL_METADATA) -> StructType:
    """A schema without the column metadata that is for readers and writers, or that Spark itself would act on."""

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        kept = {
            key: value
            for key, value in field.metadata.items()
            if key in _KEPT_FOR_SPARK or not (key.startswith(prefixes) or key.startswith(_FOR_SPARK))
        }
        return replace(field, metadata=kept)

    return transform_fields(schema, change)


def _paths(struct: StructType, mode: MappingMode) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Physical to logical paths of all columns that structs lead to."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for field in struct.fields:
        name = _scan_name(field, mode)
        found[(name,)] = (field.name,)
        if isinstance(field.type, StructType):
            for physical, logical in _paths(field.type, mode).items():
                found[(name, *physical)] = (field.name, *logical)
    return found


def _renamed(value: Column, shown: StructField, source: StructField) -> Column:
    """A value of the source's type, with the names of the shown one."""
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
    """A struct with other field names.

    `withField` and `dropFields` are understood by the optimizer, which then reads only the nested columns
    that a query uses. Where old and new names overlap they would replace each other, so the struct is built
    anew.
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
        anew = sf.struct(*(part.alias(name) for name, part in parts))
        return sf.when(value.isNotNull(), anew) if source.nullable else anew
    result = value
    for name, part in parts:
        result = result.withField(quoted(name), part)
    return result.dropFields(*(quoted(name) for name in held))


def _item(type_: DataType) -> StructField:
    """A type as a field, for the parts of arrays and maps, which have no names."""
    return StructField("item", type_)


def _same_names(one: DataType, other: DataType) -> bool:
    match one, other:
        case StructType(fields=ours), StructType(fields=theirs):
            return len(ours) == len(theirs) and all(
                a.name == b.name and _same_names(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
            )
        case ArrayType(element_type=a), ArrayType(element_type=b):
            return _same_names(a, b)
        case MapType(key_type=ka, value_type=va), MapType(key_type=kb, value_type=vb):
            return _same_names(ka, kb) and _same_names(va, vb)
    return one == other


def _lacks_fields(shown: DataType, source: DataType) -> bool:
    """Whether files lack a part of the type (a nested void), so that a cast cannot produce it."""
    match shown, source:
        case StructType(fields=ours), StructType(fields=theirs):
            return len(ours) != len(theirs) or any(
                _lacks_fields(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
            )
        case ArrayType(element_type=a), ArrayType(element_type=b):
            return _lacks_fields(a, b)
        case MapType(key_type=ka, value_type=va), MapType(key_type=kb, value_type=vb):
            return _lacks_fields(ka, kb) or _lacks_fields(va, vb)
    return False
