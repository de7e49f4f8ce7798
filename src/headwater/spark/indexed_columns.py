"""Which columns get statistics (spec: "Per-file Statistics"; properties `delta.dataSkipping*`).

By default the first 32 leaves of the schema do, arrays and maps counting as one each; a table may name another number,
or the columns themselves. The leaves know where they stand among the columns of a Parquet file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError
from headwater.log.indexed_columns import DEFAULT_INDEXED_COLUMNS, column_names
from headwater.log.schema import VARIANT, ArrayType, MapType, StructType, UserDefinedType, physical_path
from headwater.spark.bound_text import has_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.schema import DataType, MappingMode

NUMBER_PROPERTY = "delta.dataSkippingNumIndexedCols"
COLUMNS_PROPERTY = "delta.dataSkippingStatsColumns"
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
    found = leaves(file_schema)
    named = properties.get(COLUMNS_PROPERTY)
    if named is not None:
        wanted = {path for parts in column_names(named) if (path := _resolve(table, parts, mode)) is not None}
        return [leaf for leaf in found if any(leaf.path[: len(path)] == path for path in wanted)]
    number = _whole_number(properties, NUMBER_PROPERTY, DEFAULT_INDEXED_COLUMNS)
    return found if number < 0 else found[:number]


def prefix_length(properties: Mapping[str, str]) -> int:
    """The characters that statistics keep of a text."""
    return max(0, _whole_number(properties, PREFIX_PROPERTY, DEFAULT_PREFIX_LENGTH))


def _whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property that is a number; one that is none counts as not set, as it does for readers of the log."""
    text = properties.get(name, "")
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


def _resolve(table: StructType, parts: tuple[str, ...], mode: MappingMode) -> tuple[str, ...] | None:
    """The physical path; None for a column that the table does not have (any more)."""
    try:
        return physical_path(table, parts, mode)
    except ColumnNotFoundError:
        return None


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
