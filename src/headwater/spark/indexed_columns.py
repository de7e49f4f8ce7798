"""The columns of data files that get statistics (spec: "Per-file Statistics"; properties `delta.dataSkipping*`).

Which columns of a table those are is decided in `headwater.log.indexed_columns`; the leaves here know where they stand
among the columns of a Parquet file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.indexed_columns import chosen_leaves, whole_number
from headwater.log.schema import VARIANT, ArrayType, MapType, StructType, UserDefinedType, physical_path
from headwater.spark.bound_text import has_bounds
from headwater.spark.columns import part_in_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.schema import DataType, MappingMode

PREFIX_PROPERTY = "delta.dataSkippingStringPrefixLength"
DEFAULT_PREFIX_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that has statistics, or could have."""

    path: tuple[str, ...]
    """Physical names: the keys in statistics."""
    type: DataType
    column: int
    """Its place among the columns of a Parquet file, the first of its places if it has several."""

    @property
    def has_bounds(self) -> bool:
        """Whether it has bounds, or its nulls are only counted."""
        return has_bounds(self.type)

    @property
    def counts_nulls(self) -> bool:
        """Whether a footer counts its nulls: of arrays and maps it does not tell nulls from empty ones."""
        return not isinstance(self.type, ArrayType | MapType | UserDefinedType)


def leaves(schema: StructType) -> list[Leaf]:
    """All leaves of the schema of a file, in order."""
    found: list[Leaf] = []
    column = 0
    for path, type_ in _walk(schema, ()):
        found.append(Leaf(path, type_, column))
        column += width(type_)
    return found


def indexed_leaves(
    table: StructType, file_schema: StructType, mode: MappingMode, properties: Mapping[str, str]
) -> list[Leaf]:
    """The leaves that get statistics.

    Args:
        table: the logical schema, for the names in the property.
        file_schema: of the data files, with physical names, without partition columns.
        mode: the table's column mapping.
        properties: of the table.
    """
    wanted = {leaf.path for leaf in chosen_leaves(_data_columns(table, file_schema, mode), mode, properties)}
    return [leaf for leaf in leaves(file_schema) if any(leaf.path[:depth] in wanted for depth in _depths(leaf))]


def prefix_length(properties: Mapping[str, str]) -> int:
    """The characters that statistics keep of a text."""
    return max(0, whole_number(properties, PREFIX_PROPERTY, DEFAULT_PREFIX_LENGTH))


def _data_columns(table: StructType, file_schema: StructType, mode: MappingMode) -> StructType:
    """The table's columns without those that partition it: what files have, and the voids that no file has."""
    in_files = set(file_schema.names)
    return StructType(
        field
        for field in table.fields
        if physical_path(table, [field.name], mode)[0] in in_files or part_in_files(field.type) is None
    )


def _depths(leaf: Leaf) -> range:
    """A leaf of a file may be a part of what the table has as one: a user-defined type is stored as another."""
    return range(1, len(leaf.path) + 1)


def _walk(struct: StructType, parent: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    for field in struct.fields:
        path = (*parent, field.name)
        if isinstance(field.type, StructType):
            yield from _walk(field.type, path)
        else:
            yield path, field.type


def width(type_: DataType) -> int:
    """The columns of a Parquet file that a column of the table takes."""
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
