"""Schema enforcement: do the columns of a DataFrame fit the table's? If not, what differs, column by column.

Columns are matched by name, in any case and at every level, never by position. What the data lacks may be null or be
filled in; what the table lacks, or cannot keep, is a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import SchemaMismatchError
from headwater.log.schema import ArrayType, MapType, StructField, StructType, UserDefinedType
from headwater.log.schema.lookup import dotted
from headwater.spark.assignment import fit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headwater.log.schema import DataType

Path = tuple[str, ...]
_SHOWN = 20
"""How many differences a message shows."""
_UNKNOWN = "the table has no such column"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in the data that the table cannot take."""

    column: str
    table_type: str
    data_type: str
    problem: str


def check_fits(data: StructType, table: StructType, filled: Collection[str], uri: str) -> None:
    """Raise unless the data fits the table.

    Args:
        data: the DataFrame's schema.
        table: the table's.
        filled: the names of the table's columns that get a value when the data has none.
        uri: the table, for the message.

    Raises:
        SchemaMismatchError: with all differences.
    """
    found = list(differences(data, table, filled))
    if not found:
        return
    hint = ""
    if any(difference.problem == _UNKNOWN for difference in found):
        hint = "\nSet merge_schema=True to add new columns to the table, or drop them from the DataFrame."
    raise SchemaMismatchError(f"the DataFrame does not fit the table {uri}:\n{as_table(found)}{hint}")


def differences(data: StructType, table: StructType, filled: Collection[str] = ()) -> Iterator[Difference]:
    """What stands in the way, in the order of the data's columns, then of the table's."""
    yield from _structs(data, table, (), frozenset(name.lower() for name in filled))


def by_folded_name(struct: StructType) -> dict[str, StructField]:
    """The fields by their name in lower case."""
    return {field.name.lower(): field for field in struct.fields}


def as_table(found: list[Difference]) -> str:
    """Differences as an aligned text table."""
    rows = [("column", "table", "data", "problem")]
    rows += [(d.column, d.table_type, d.data_type, d.problem) for d in found[:_SHOWN]]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  " + "  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]) for row in rows]
    if len(found) > _SHOWN:
        lines.append(f"  ... and {len(found) - _SHOWN} more")
    return "\n".join(lines)


def _structs(data: StructType, table: StructType, path: Path, filled: frozenset[str]) -> Iterator[Difference]:
    known, given = by_folded_name(table), by_folded_name(data)
    for field in data.fields:
        here = (*path, field.name)
        wanted = known.get(field.name.lower())
        if wanted is None:
            yield Difference(dotted(here), "-", str(field.type), _UNKNOWN)
        else:
            yield from _types(field.type, wanted.type, here)
    for field in table.fields:
        name = field.name.lower()
        if name not in given and not field.nullable and name not in filled:
            problem = "NOT NULL, and the data has no such column"
            yield Difference(dotted((*path, field.name)), str(field.type), "-", problem)


def _types(data: DataType, table: DataType, path: Path) -> Iterator[Difference]:
    match data, table:
        case StructType(), StructType():
            yield from _structs(data, table, path, frozenset())
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            yield from _types(given, wanted, (*path, "element"))
        case MapType(), MapType():
            yield from _types(data.key_type, table.key_type, (*path, "key"))
            yield from _types(data.value_type, table.value_type, (*path, "value"))
        case _ if stored(data) != stored(table) and fit(stored(data), stored(table)) is None:
            problem = f"{_short(data)} cannot be stored as {_short(table)}"
            yield Difference(dotted(path), str(table), str(data), problem)


def stored(type_: DataType) -> DataType:
    """What values of the type are kept as."""
    return type_.sql_type if isinstance(type_, UserDefinedType) else type_


def _short(type_: DataType) -> str:
    return type_.json_name if isinstance(type_, StructType | ArrayType | MapType) else str(type_)
