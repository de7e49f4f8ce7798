"""Finding columns in a schema, and showing a schema as a tree.

Names are looked up as Spark does by default: the exact name first, then a name that differs only in case, as
long as there is just one.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.log.schema.types import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN_NAMES = 10
_CONTROL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"})


_HIDDEN_MARK = "\ufdd0"
"""Unicode reserves this code point for the internal use of programs: it is no character, and in no text."""


def hidden(name: str) -> str:
    """The name of a column that Headwater adds to the rows of a table for its own use.

    No column of a table has such a name, for `check_characters` refuses it. Every helper column that can stand beside
    columns of users is named here.
    """
    return f"{_HIDDEN_MARK}{name}"


def check_characters(names: Iterable[str], whose: str) -> None:
    """Raise if a name has a character that is in the name of no column.

    Args:
        names: of columns, or of columns in files.
        whose: for the message: the table or the DataFrame.

    Raises:
        SchemaError: a name has the mark of hidden columns, or NUL, which ends a name for Arrow.
    """
    for name in names:
        if _HIDDEN_MARK in name:
            raise SchemaError(
                f"{whose} has a column {name!r}: U+FDD0 is no character, Unicode reserves it for the internal use of "
                "programs, and Headwater marks hidden columns by it. Rename the column."
            )
        if "\0" in name:
            raise SchemaError(
                f"{whose} has a column {name!r}: a name cannot have the character NUL, for programs that read and "
                "write its values take that for the end of the name. Rename the column."
            )


def dotted(parts: Sequence[str]) -> str:
    """A path for people: `a.b`, with backticks around parts that have dots themselves."""
    return ".".join(f"`{p}`" if "." in p or "`" in p else p for p in parts)


def resolve(schema: StructType, parts: Sequence[str]) -> tuple[StructField, ...]:
    """The fields on the way to `parts`; see `StructType.resolve`."""
    if not parts:
        raise ColumnNotFoundError("a column needs a name: the path is empty")
    found: list[StructField] = []
    struct = schema
    for depth, part in enumerate(parts):
        here = _find(struct, part, parts[:depth])
        found.append(here)
        if depth + 1 == len(parts):
            break
        if not isinstance(here.type, StructType):
            raise ColumnNotFoundError(
                f"there is no column {dotted(parts)}: {dotted(parts[: depth + 1])} is of type {here.type}, "
                "and only the fields of structs have names"
            )
        struct = here.type
    return tuple(found)


def _find(struct: StructType, name: str, parents: Sequence[str]) -> StructField:
    exact = struct._by_name.get(name)
    if exact is not None:
        return exact
    candidates = struct._by_folded_name.get(name.lower(), [])
    if len(candidates) == 1:
        return candidates[0]
    path = dotted([*parents, name])
    if candidates:
        names = ", ".join(f.name for f in candidates)
        raise ColumnNotFoundError(f"column {path} is ambiguous: it may mean {names}. Write the exact name.")
    raise ColumnNotFoundError(f"there is no column {path}. {_suggestion(struct, name)}")


def _suggestion(struct: StructType, name: str) -> str:
    close = get_close_matches(name.lower(), list(struct._by_folded_name), n=3, cutoff=0.6)
    if close:
        names = [struct._by_folded_name[c][0].name for c in close]
        return f"Did you mean {' or '.join(names)}?"
    if not struct.fields:
        return "There are no columns at all."
    shown = ", ".join(struct.names[:_SHOWN_NAMES])
    more = len(struct) - _SHOWN_NAMES
    return f"The columns are: {shown}{f' and {more} more' if more > 0 else ''}."


def tree(schema: StructType) -> str:
    """The schema as an indented tree; see `StructType.tree`."""
    return "\n".join(["root", *_lines(schema, " |")])


def _lines(data_type: DataType, prefix: str) -> list[str]:
    deeper = f"{prefix}    |"
    lines: list[str] = []
    match data_type:
        case StructType(fields=fields):
            for f in fields:
                name = f.name.translate(_CONTROL)
                lines.append(f"{prefix}-- {name}: {f.type.json_name} (nullable = {_lower(f.nullable)})")
                lines += _lines(f.type, deeper)
        case ArrayType(element_type=element, contains_null=nulls):
            lines.append(f"{prefix}-- element: {element.json_name} (containsNull = {_lower(nulls)})")
            lines += _lines(element, deeper)
        case MapType(key_type=key, value_type=value, value_contains_null=nulls):
            lines.append(f"{prefix}-- key: {key.json_name}")
            lines += _lines(key, deeper)
            lines.append(f"{prefix}-- value: {value.json_name} (valueContainsNull = {_lower(nulls)})")
            lines += _lines(value, deeper)
    return lines


def _lower(flag: bool) -> str:
    return "true" if flag else "false"
