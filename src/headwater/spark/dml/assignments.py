"""The columns that a SET names: top-level ones, or fields inside structs, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.features.column_names import column_path
from headwater.log.schema import StructType
from headwater.log.schema.lookup import dotted, resolve

if TYPE_CHECKING:
    from headwater.spark.dml.assigned_values import Path


def assignment_paths(schema: StructType, names: list[str], alias: str | None, what: str) -> list[Path]:
    """The columns that a SET names, as the schema spells them.

    Args:
        schema: of the table.
        names: as the user has them: dots lead into structs, backticks quote; the alias may stand before them.
        alias: of the table.
        what: for messages: the table and the command.

    Raises:
        ColumnNotFoundError: there is no such column.
        SchemaError: a column is set twice, or it is inside an array or map.
    """
    found = [_resolved(schema, column_path(name), alias, what) for name in names]
    for number, path in enumerate(found):
        for other in found[:number]:
            shared = min(len(path), len(other))
            if path[:shared] == other[:shared]:
                raise SchemaError(f"{what} sets {dotted(path)} and {dotted(other)}: one value cannot be set twice.")
    return found


def _resolved(schema: StructType, path: Path, alias: str | None, what: str) -> Path:
    try:
        fields = resolve(schema, path)
    except ColumnNotFoundError:
        if alias is None or len(path) < 2 or path[0].lower() != alias.lower():
            raise
        fields = resolve(schema, path[1:])
    for outer in fields[:-1]:
        if not isinstance(outer.type, StructType):
            raise SchemaError(f"{what} sets {dotted(path)}: only fields of structs can be set one by one.")
    return tuple(field.name for field in fields)
