"""Column mapping: from the names people see to the names and ids that files use (spec: "Column Mapping").

In the modes `name` and `id`, data files, `partitionValues` and statistics use *physical* names, and Parquet
files also carry field ids; IcebergCompatV2 gives ids to array elements, map keys and map values as well.

>>> from headwater.log.schema.types import LONG, StructField, StructType
>>> mapped = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
>>> schema = StructType([StructField("id", LONG, metadata=mapped)])
>>> physical_path(schema, ["ID"], "name")
('col-1',)
>>> to_physical(schema, "name").field("col-1").metadata["parquet.field.id"]
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headwater.errors import SchemaError
from headwater.log.schema.types import dotted, transform_fields

if TYPE_CHECKING:
    from headwater.log.actions.model import Metadata, Protocol
    from headwater.log.schema.types import StructField, StructType

MappingMode: TypeAlias = Literal["none", "name", "id"]
"""The values of the table property `delta.columnMapping.mode`."""

FEATURE = "columnMapping"
MODE_PROPERTY = "delta.columnMapping.mode"
PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
COLUMN_ID_KEY = "delta.columnMapping.id"
# The spec names the first key; tables written by delta-spark have the second one, with the same content.
NESTED_IDS_KEYS = ("parquet.field.nested.ids", "delta.columnMapping.nested.ids")
PARQUET_FIELD_ID_KEY = "parquet.field.id"
"""Where Spark's Parquet reader and writer look for a field's id."""
PARQUET_NESTED_IDS_KEY = "parquet.field.nested.ids"

_LEGACY_WRITER_VERSIONS = (5, 6)
"""The versions that imply the feature without listing it."""
_MODES: dict[str, MappingMode] = {"none": "none", "name": "name", "id": "id"}
_MAX_ID = 2**31 - 1


def mapping_mode(protocol: Protocol, metadata: Metadata) -> MappingMode:
    """Return the column mapping mode of a table; the property counts only if the protocol supports it.

    Support on either side is enough: real tables list the feature for writers alone, and their files have physical
    names all the same.

    Raises:
        SchemaError: the table property has a value that the spec does not know.
    """
    by_version = protocol.min_reader_version == 2 or protocol.min_writer_version in _LEGACY_WRITER_VERSIONS
    if not by_version and not protocol.supports(FEATURE):
        return "none"
    return _checked(metadata.configuration.get(MODE_PROPERTY, "none").lower())


def physical_path(schema: StructType, parts: Sequence[str], mode: MappingMode) -> tuple[str, ...]:
    """Return the physical names on the path to a column, which is given by logical names in any case.

    Raises:
        ColumnNotFoundError: there is no such column.
        SchemaError: column mapping is on and a column on the path has no physical name.
    """
    fields = schema.resolve(parts)
    if _checked(mode) == "none":
        return tuple(f.name for f in fields)
    names = [f.name for f in fields]
    return tuple(physical_name(f, names[: i + 1]) for i, f in enumerate(fields))


def to_physical(schema: StructType, mode: MappingMode) -> StructType:
    """Return the schema as files have it: physical names at all levels, and field ids in the metadata.

    Ids go under `parquet.field.id` and `parquet.field.nested.ids`, where Spark and `to_arrow` find them. A column
    without an id is an error in `id` mode; in `name` mode readers do not need it.
    """
    if _checked(mode) == "none":
        return schema

    def change(field: StructField, path: tuple[str, ...]) -> StructField:
        name = physical_name(field, path)
        metadata = dict(field.metadata)
        if mode == "id" or COLUMN_ID_KEY in metadata:
            metadata[PARQUET_FIELD_ID_KEY] = column_id(field, path)
        if nested := nested_ids(field, path):
            metadata[PARQUET_NESTED_IDS_KEY] = {f"{name}.{inner}": i for inner, i in nested.items()}
        return replace(field, name=name, metadata=metadata)

    return transform_fields(schema, change)


def drop_field_ids(schema: StructType) -> StructType:
    """Return the schema without Parquet field ids, for readers that must find columns by name (`name` mode)."""
    dropped = (PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY)

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k not in dropped})

    return transform_fields(schema, change)


def _checked(mode: str) -> MappingMode:
    if mode not in _MODES:
        raise SchemaError(f"unknown column mapping mode {mode!r}: expected none, name or id")
    return _MODES[mode]


def physical_name(field: StructField, path: Sequence[str] = ()) -> str:
    """Return the name of a column in files, `partitionValues` and statistics, when column mapping is on.

    `path` leads to a nested field, for messages; here as well as below.

    Raises:
        SchemaError: the column has no physical name.
    """
    name = field.metadata.get(PHYSICAL_NAME_KEY)
    if not isinstance(name, str) or not name:
        raise SchemaError(
            f"column {dotted(path or (field.name,))} has no physical name ({PHYSICAL_NAME_KEY}), though the table uses "
            "column mapping: the schema in the log is broken"
        )
    return name


def column_id(field: StructField, path: Sequence[str] = ()) -> int:
    """Return the id of a column: the `field_id` of its Parquet column. Raises `SchemaError` if it has none."""
    return _checked_id(field.metadata.get(COLUMN_ID_KEY), path or (field.name,), COLUMN_ID_KEY)


def nested_ids(field: StructField, path: Sequence[str] = ()) -> dict[str, int]:
    """Return the ids inside an array or map column, by path from the column (`element`, `value.element`).

    >>> from headwater.log.schema.types import LONG, ArrayType, StructField
    >>> nested_ids(StructField("a", ArrayType(LONG), metadata={"parquet.field.nested.ids": {"a.element": 7}}))
    {'element': 7}
    """
    path = path or (field.name,)
    key = next((k for k in NESTED_IDS_KEYS if field.metadata.get(k)), None)
    if key is None:
        return {}
    ids: Mapping[str, Any] = field.metadata[key]
    if not isinstance(ids, Mapping):
        raise SchemaError(f"column {dotted(path)} has bad nested ids ({key}): the schema in the log is broken")
    # The keys start with the name of the column: logical in the spec, physical in real tables.
    names = (field.metadata.get(PHYSICAL_NAME_KEY), field.name)
    found: dict[str, int] = {}
    for full, value in ids.items():
        prefix = next((n for n in names if isinstance(n, str) and full.startswith(f"{n}.")), None)
        if prefix is None:
            raise SchemaError(
                f"column {dotted(path)} has a nested id for {full!r}, which is not inside it: the schema in "
                "the log is broken"
            )
        inner = full[len(prefix) + 1 :]
        found[inner] = _checked_id(value, [*path, *inner.split(".")], key)
    return found


def _checked_id(value: object, path: Sequence[str], key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_ID:
        found = "has no id" if value is None else f"has the bad id {value!r}"
        raise SchemaError(f"column {dotted(path)} {found} ({key}): the schema in the log is broken")
    return value
