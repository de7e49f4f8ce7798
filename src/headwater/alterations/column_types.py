"""The type, nullability and default of a column (history: `CHANGE COLUMN`).

A type may only become wider, and only on a table with type widening: old files keep their type, and readers are told
by `delta.typeChanges` in the column metadata. A `varchar(n)` may become longer on any table, for files hold strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.alterations.column_paths import locate
from headwater.alterations.columns import change_column
from headwater.alterations.commits import commit_schema
from headwater.alterations.dependencies import check_independent
from headwater.alterations.schema_edits import change_field, change_type
from headwater.errors import InvalidCommitError, SchemaError
from headwater.features.activation import DEFAULT_KEY, GENERATION_KEY, IDENTITY_PREFIX, is_active, supports
from headwater.features.type_widening import can_widen, with_type_changes
from headwater.log.draft import Operation
from headwater.log.schema import (
    STRING,
    StructType,
    is_char,
    is_string,
    strings_for_chars,
)
from headwater.log.schema.chars import CHAR_VARCHAR_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.alterations.column_paths import Location
    from headwater.log.schema import DataType, StructField
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed

_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")

RowsCheck = Callable[["StructType", tuple[str, ...]], None]
"""Looks at the rows of the snapshot; raises if one breaks the rule."""


def set_column_type(snapshot: Snapshot, name: str | Sequence[str], data_type: DataType) -> Committed | None:
    """Make the type of a column (or of an array's element, a map's key or value) wider.

    Returns:
        None if the column has that type already.

    Raises:
        InvalidCommitError: the type would not become wider, the table has no type widening, or something depends on
            the column.
    """
    column = locate(snapshot.schema, name)
    if is_string(column.type) and is_string(data_type):
        return _set_length(snapshot, column, data_type)
    if column.type == data_type:
        return None
    if not can_widen(column.type, data_type):
        raise InvalidCommitError(
            f"column {column} cannot change from {column.type} to {data_type}: only types that hold every value of the "
            "old one are possible, such as int to bigint. Read the table, cast the column, and write it anew."
        )
    if not is_active("typeWidening", snapshot.protocol, snapshot.metadata):
        raise InvalidCommitError(
            f"column {column} cannot change from {column.type} to {data_type} without rewriting the data files: first "
            'set the table property "delta.enableTypeWidening" to "true" (older readers will not read the table).'
        )
    if any(key.startswith(IDENTITY_PREFIX) or key == GENERATION_KEY for key in column.field.metadata):
        raise InvalidCommitError(f"column {column} is generated: its type cannot change.")
    check_independent(snapshot.metadata, snapshot.schema, column.field_path, "given another type")
    schema = change_type(snapshot.schema, column.path, lambda _: data_type)
    kept = {} if column.inner else dict(column.field.metadata)
    shown = {"name": str(column), "type": data_type.json_name, "nullable": column.field.nullable, "metadata": kept}
    operation = Operation("CHANGE COLUMN", {"column": shown})
    return commit_schema(snapshot, with_type_changes(snapshot.schema, schema), operation)


def _set_length(snapshot: Snapshot, column: Location, new: DataType) -> Committed | None:
    """From `char(n)` or `varchar(n)` to a longer `varchar`, or to `string`."""
    if len(column.path) > 1:
        raise InvalidCommitError(f"the length of {column} cannot change: only that of top-level columns can.")
    old = str(column.field.metadata.get(CHAR_VARCHAR_KEY, column.type))
    if old == str(new):
        return None
    limit, wanted = _LENGTH.fullmatch(old), _LENGTH.fullmatch(str(new))
    if limit is None or (wanted is not None and (wanted[1] == "char" or int(wanted[2]) < int(limit[2]))):
        raise InvalidCommitError(f"column {column} cannot change from {old} to {new}: rows may hold longer values.")
    kept = {key: value for key, value in column.field.metadata.items() if key != CHAR_VARCHAR_KEY}
    field = replace(column.field, type=new if is_char(new) else STRING, metadata=kept)
    [field] = strings_for_chars(StructType([field])).fields
    return change_column(snapshot, column, field)


def set_nullable(
    snapshot: Snapshot, name: str | Sequence[str], nullable: bool, check_rows: RowsCheck | None = None
) -> Committed | None:
    """Allow or forbid null in a column.

    Args:
        snapshot: the table.
        name: the column.
        nullable: whether null is allowed.
        check_rows: looks at the rows that are there, before null is forbidden.

    Returns:
        None if it is so already.
    """
    column = locate(snapshot.schema, name)
    if column.inner:
        raise SchemaError(f"{column} is inside an array or map: whether it may be null cannot be changed.")
    if column.field.nullable == nullable:
        return None
    field = replace(column.field, nullable=nullable)
    if nullable:
        return change_column(snapshot, column, field)
    for depth in range(1, len(column.path)):
        if locate(snapshot.schema, column.path[:depth]).inner:
            raise SchemaError(f"{column} is inside an array or map: NOT NULL can be set on fields of structs only.")
    if check_rows is not None:
        check_rows(change_field(snapshot.schema, column.path, lambda _: field), column.path)
    return change_column(snapshot, column, field, reads_all_rows=True)


def set_default(snapshot: Snapshot, name: str, expression: str, check: Callable[[StructField, str], None]) -> Committed:
    """Set what rows get that are written without the column.

    Args:
        snapshot: the table.
        name: the column.
        expression: in SQL.
        check: looks whether the expression is a value of the column.

    Raises:
        InvalidCommitError: the table does not support defaults, or the column has values of its own.
    """
    column = _top_level(snapshot, name)
    if not supports(snapshot.protocol, "allowColumnDefaults"):
        raise InvalidCommitError(
            f"{snapshot.uri} does not support column defaults, and older writers would not heed them: first call "
            'addFeatureSupport("allowColumnDefaults").'
        )
    if any(key.startswith(IDENTITY_PREFIX) or key == GENERATION_KEY for key in column.field.metadata):
        raise InvalidCommitError(f"column {column} is generated: it cannot have a default as well.")
    check(column.field, expression)
    metadata = {**column.field.metadata, DEFAULT_KEY: expression}
    return change_column(snapshot, column, replace(column.field, metadata=metadata))


def drop_default(snapshot: Snapshot, name: str) -> Committed | None:
    """Remove the default of a column.

    Returns:
        None if there was none.
    """
    column = _top_level(snapshot, name)
    if DEFAULT_KEY not in column.field.metadata:
        return None
    kept = {key: value for key, value in column.field.metadata.items() if key != DEFAULT_KEY}
    return change_column(snapshot, column, replace(column.field, metadata=kept))


def _top_level(snapshot: Snapshot, name: str) -> Location:
    column = locate(snapshot.schema, name)
    if len(column.path) > 1:
        raise SchemaError(f"{column} cannot have a default: only top-level columns can.")
    return column
