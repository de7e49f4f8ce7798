"""Names of columns: how users write them, and which ones a table may have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import SchemaError
from headwater.features.schema_walk import fields_by_path
from headwater.log.schema.lookup import check_characters, dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.schema import StructType

_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_FORBIDDEN = " ,;{}()\n\t="
"""What other writers refuse in the names of Parquet columns."""


def column_path(column: str | Sequence[str]) -> tuple[str, ...]:
    """The path to a column as a user writes it: dots lead into structs, backticks quote.

    >>> column_path("address.city"), column_path("`a.b`.c"), column_path(["a.b"])
    (('address', 'city'), ('a.b', 'c'), ('a.b',))
    """
    if not isinstance(column, str):
        return tuple(column)
    parts: list[str] = []
    position = 0
    while position <= len(column):
        match = _PART.match(column, position)
        end = len(column) if match is None else match.end()
        if match is None or (end < len(column) and column[end] != "."):
            raise SchemaError(f"{column!r} is not the name of a column: write a.b, or `a.b` for a name with a dot.")
        parts.append(match[2].strip() if match[1] is None else match[1].replace("``", "`"))
        position = end + 1
    return tuple(parts)


def column_list(text: str) -> list[tuple[str, ...]]:
    """A list of columns with commas, as in `delta.dataSkippingStatsColumns`.

    >>> column_list("a, b.c, `d,e`")
    [('a',), ('b', 'c'), ('d,e',)]
    """
    parts = re.findall(r"(?:`(?:[^`]|``)*`|[^`,])+", text)
    return [column_path(part.strip()) for part in parts if part.strip()]


def check_names(schema: StructType, *, mapped: bool) -> None:
    """Raise unless other readers and writers can tell the columns apart and store them.

    Raises:
        SchemaError: two columns differ only in case, or, without column mapping, a name has forbidden characters, or a
            name has one that no column may have.
    """
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, field in fields_by_path(schema):
        check_characters((field.name,), "the schema")
        folded = tuple(map(_folded, path))
        if folded in seen:
            raise SchemaError(f"the columns {dotted(seen[folded])} and {dotted(path)} have the same name.")
        seen[folded] = path
        bad = [character for character in _FORBIDDEN if character in field.name]
        if not field.name or (bad and not mapped):
            raise SchemaError(
                f"the column {dotted(path)} cannot be stored under its name, because of {bad[0]!r}. Rename it, or "
                "set the table property delta.columnMapping.mode to name."
                if bad
                else "a column needs a name."
            )


def _folded(name: str) -> str:
    """The name as Java compares it without regard to case: letter by letter, by upper and then lower case.

    >>> _folded("Stra\u00dfe") == _folded("STRASSE"), _folded("\u017f") == _folded("S")
    (False, True)
    """
    raised = (other if len(other := letter.upper()) == 1 else letter for letter in name)
    return "".join(other if len(other := letter.lower()) == 1 else letter for letter in raised)
