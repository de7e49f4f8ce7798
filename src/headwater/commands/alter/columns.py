"""Changes of columns: add, rename, drop, move, comment, type, nullability and default.

No data file is touched (spec: "Column Mapping"). A type may only become wider, and only on a table with type widening:
old files keep their type, and `delta.typeChanges` in the column metadata tells readers. A `varchar(n)` may become
longer on any table, for files hold strings. A column that a rule of the table names (CHECK constraint, generated
column, invariant) can be neither renamed nor dropped, and partition and clustering columns cannot be dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from headwater.commands.alter.commit import commit_metadata, commit_schema, described, with_schema
from headwater.commands.alter.properties import clustering_paths
from headwater.commands.alter.schema_edits import (
    add_field,
    change_field,
    change_type,
    check_independent,
    drop_field,
    locate,
    move_field,
    rename_field,
)
from headwater.errors import ColumnNotFoundError, InvalidCommitError, SchemaError
from headwater.features.column_mapping import column_list, column_path, without_mapping
from headwater.features.feature import DEFAULT_KEY, GENERATION_KEY, IDENTITY_PREFIX, fields_by_path
from headwater.features.registry import is_active, supports
from headwater.features.type_widening import can_widen, with_type_changes
from headwater.log.commit.draft import Operation
from headwater.log.configuration.properties import STATS_COLUMNS
from headwater.log.schema import STRING, StructField, StructType, is_char, is_string, strings_for_chars
from headwater.log.schema.types import CHAR_VARCHAR_KEY, dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.commands.alter.commit import Checks
    from headwater.commands.alter.schema_edits import Location
    from headwater.log.actions.model import Metadata
    from headwater.log.commit.transaction import Committed
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot


_MAPPING_HINT = "first set the table property delta.columnMapping.mode to name (older readers will not read the table)"


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns, which are null in existing rows.

    Attributes:
        columns: the new columns; a name with dots (`address.zip`) is the way to a new field inside a struct.
        position: `FIRST` or `AFTER other`, for the first of them; the others of the same struct follow it. By default
            they come last.
    """

    columns: Sequence[StructField]
    position: str | None = None

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        schema = snapshot.schema
        shown: list[dict[str, object]] = []
        last_added: dict[tuple[str, ...], str] = {}
        for column in self.columns:
            *parent, name = column_path(column.name)
            field = _addable(replace(column, name=name))
            in_struct = locate(schema, parent).path if parent else ()
            place = self.position
            if self.position is not None and in_struct in last_added:
                place = f"AFTER {last_added[in_struct]}"
            schema = add_field(schema, in_struct, field, place)
            last_added[in_struct] = name
            entry: dict[str, object] = {"column": described([*in_struct, name], field)}
            shown.append(entry if place is None else {**entry, "position": place})
        if not shown:
            raise SchemaError("there are no columns to add: give at least one.")
        return commit_schema(snapshot, schema, Operation("ADD COLUMNS", {"columns": shown}))


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column; its data stays where it is, under its physical name. Needs column mapping."""

    name: str | Sequence[str]
    new_name: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        column = _field_at(snapshot, self.name, "renamed")
        if not self.new_name:
            raise SchemaError(f"column {column} needs a name: the new one is empty.")
        check_independent(snapshot.metadata, snapshot.schema, column.path, "renamed")
        new_path = (*column.path[:-1], self.new_name)
        schema = rename_field(snapshot.schema, column.path, self.new_name)
        metadata = with_schema(snapshot.metadata, schema)
        if len(column.path) == 1:
            partitions = tuple(self.new_name if c == column.path[0] else c for c in metadata.partition_columns)
            metadata = msgspec.structs.replace(metadata, partition_columns=partitions)
        metadata = _with_stats_columns(metadata, column.path, new_path)
        parameters = {"oldColumnPath": dotted(column.path), "newColumnPath": dotted(new_path)}
        return commit_metadata(snapshot, metadata, Operation("RENAME COLUMN", parameters))


@dataclass(frozen=True, slots=True)
class DropColumns:
    """Drop columns. Their data stays in the files until they are rewritten. Needs column mapping."""

    names: Sequence[str | Sequence[str]]
    if_exists: bool = False

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        schema, metadata = snapshot.schema, snapshot.metadata
        dropped: list[tuple[str, ...]] = []
        for name in self.names:
            try:
                column = _field_at(snapshot, name, "dropped")
            except ColumnNotFoundError:
                if self.if_exists:
                    continue
                raise
            _check_not_laid_out_by(snapshot, column.path)
            schema = drop_field(schema, locate(schema, column.path).path)
            metadata = _with_stats_columns(metadata, column.path, None)
            dropped.append(column.path)
        if not dropped:
            return None
        for path in dropped:  # against what is left: a rule of a column that is dropped too does not stand in the way
            check_independent(metadata, schema, path, "dropped")
        if {field.name for field in schema.fields} <= set(metadata.partition_columns):
            raise SchemaError("these columns cannot be dropped: only partition columns would be left.")
        operation = Operation("DROP COLUMNS", {"columns": [dotted(path) for path in dropped]})
        return commit_metadata(snapshot, with_schema(metadata, schema), operation)


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column within its struct: `FIRST` or `AFTER other`."""

    name: str | Sequence[str]
    position: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        column = _field_at(snapshot, self.name, None)
        schema = move_field(snapshot.schema, column.path, self.position)
        parameters = {"column": described(column.path, column.field), "position": self.position}
        return commit_schema(snapshot, schema, Operation("CHANGE COLUMN", parameters))


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    """Say what a column is for; None removes the comment."""

    name: str | Sequence[str]
    comment: str | None

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        column = _field_at(snapshot, self.name, None)
        kept = {key: value for key, value in column.field.metadata.items() if key != "comment"}
        metadata = kept if self.comment is None else {**kept, "comment": self.comment}
        return change_column(snapshot, column, replace(column.field, metadata=metadata))


def change_column(
    snapshot: Snapshot, column: Location, field: StructField, *, reads_all_rows: bool = False
) -> Committed:
    schema = change_field(snapshot.schema, column.field_path, lambda _: field)
    operation = Operation("CHANGE COLUMN", {"column": described(column.field_path, field)})
    return commit_schema(snapshot, schema, operation, reads_all_rows=reads_all_rows)


def _field_at(snapshot: Snapshot, name: str | Sequence[str], needs_mapping_to_be: str | None) -> Location:
    column = locate(snapshot.schema, name)
    if column.inner:
        raise SchemaError(f"{column} is inside an array or map and has no name of its own.")
    if needs_mapping_to_be is not None and snapshot.mapping_mode == "none":
        raise InvalidCommitError(
            f"column {column} of {snapshot.uri} cannot be {needs_mapping_to_be} without rewriting the data files: "
            f"{_MAPPING_HINT}."
        )
    return column


def _addable(column: StructField) -> StructField:
    """Return a new column as it may be added to a table with rows."""
    [field] = strings_for_chars(without_mapping(StructType([column]))).fields
    for path, inner in fields_by_path(StructType([field])):
        if not inner.nullable and len(path) == 1:
            raise SchemaError(
                f"column {dotted(path)} cannot be added as NOT NULL, because existing rows have no value for it: "
                "add it, fill it, then use setNullable."
            )
        if DEFAULT_KEY in inner.metadata:
            raise SchemaError(
                f"column {dotted(path)} cannot be added with a default, which existing rows would not have: add it "
                "first, then use setDefault."
            )
        if GENERATION_KEY in inner.metadata or any(key.startswith(IDENTITY_PREFIX) for key in inner.metadata):
            raise SchemaError(
                f"column {dotted(path)} cannot be added as a generated or identity column, because existing rows "
                "would not have its values: such columns are declared when a table is created."
            )
    return field


def _check_not_laid_out_by(snapshot: Snapshot, path: tuple[str, ...]) -> None:
    if len(path) == 1 and path[0] in snapshot.metadata.partition_columns:
        raise InvalidCommitError(f"column {dotted(path)} cannot be dropped: the table is partitioned by it.")
    for clustered in clustering_paths(snapshot):
        if clustered[: len(path)] == path:
            raise InvalidCommitError(
                f"column {dotted(path)} cannot be dropped: the table is clustered by it. Change that first (clusterBy)."
            )


def _with_stats_columns(metadata: Metadata, path: tuple[str, ...], new_path: tuple[str, ...] | None) -> Metadata:
    """Rename or drop a column in the property that lists the columns with statistics."""
    listed = STATS_COLUMNS.read(metadata.configuration)
    if listed is None:
        return metadata
    kept: list[str] = []
    for parts in column_list(listed):
        if tuple(p.lower() for p in parts[: len(path)]) != tuple(p.lower() for p in path):
            kept.append(dotted(parts))
        elif new_path is not None:
            kept.append(dotted([*new_path, *parts[len(path) :]]))
    return msgspec.structs.replace(
        metadata, configuration={**metadata.configuration, STATS_COLUMNS.name: ",".join(kept)}
    )


_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class SetColumnType:
    """Make the type of a column (or of an array's element, a map's key or value) wider."""

    name: str | Sequence[str]
    data_type: DataType

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        column = locate(snapshot.schema, self.name)
        if is_string(column.type) and is_string(self.data_type):
            return _set_length(snapshot, column, self.data_type)
        if column.type == self.data_type:
            return None
        if not can_widen(column.type, self.data_type):
            raise InvalidCommitError(
                f"column {column} cannot change from {column.type} to {self.data_type}: only types that hold every "
                "value of the old one are possible, such as int to bigint. Read the table, cast the column, and write "
                "it again."
            )
        if not is_active("typeWidening", snapshot.configuration):
            raise InvalidCommitError(
                f"column {column} cannot change from {column.type} to {self.data_type} without rewriting the data "
                'files: first set the table property "delta.enableTypeWidening" to "true" (older readers will not read '
                "the table)."
            )
        if any(key.startswith(IDENTITY_PREFIX) or key == GENERATION_KEY for key in column.field.metadata):
            raise InvalidCommitError(f"column {column} is generated: its type cannot change.")
        check_independent(snapshot.metadata, snapshot.schema, column.field_path, "given another type")
        schema = change_type(snapshot.schema, column.path, lambda _: self.data_type)
        kept = {} if column.inner else dict(column.field.metadata)
        shown = {
            "name": str(column),
            "type": self.data_type.json_name,
            "nullable": column.field.nullable,
            "metadata": kept,
        }
        operation = Operation("CHANGE COLUMN", {"column": shown})
        return commit_schema(snapshot, with_type_changes(snapshot.schema, schema), operation)


def _set_length(snapshot: Snapshot, column: Location, new: DataType) -> Committed | None:
    """Change `char(n)` or `varchar(n)` to a longer `varchar`, or to `string`."""
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


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Allow null in a column, or forbid it if no row has it."""

    name: str | Sequence[str]
    nullable: bool

    def commit(self, snapshot: Snapshot, checks: Checks) -> Committed | None:
        column = locate(snapshot.schema, self.name)
        if column.inner:
            raise SchemaError(f"{column} is inside an array or map: whether it may be null cannot be changed.")
        if column.field.nullable == self.nullable:
            return None
        field = replace(column.field, nullable=self.nullable)
        if self.nullable:
            return change_column(snapshot, column, field)
        for depth in range(1, len(column.path)):
            if locate(snapshot.schema, column.path[:depth]).inner:
                raise SchemaError(f"{column} is inside an array or map: NOT NULL can be set on fields of structs only.")
        checks.check_no_nulls(snapshot, change_field(snapshot.schema, column.path, lambda _: field), column.path)
        return change_column(snapshot, column, field, reads_all_rows=True)


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Set the value, an expression in SQL, of rows that are written without the column."""

    name: str
    expression: str

    def commit(self, snapshot: Snapshot, checks: Checks) -> Committed:
        column = _top_level(snapshot, self.name)
        if not supports(snapshot.protocol, "allowColumnDefaults"):
            raise InvalidCommitError(
                f"{snapshot.uri} does not support column defaults, and older writers would ignore them: first call "
                'addFeatureSupport("allowColumnDefaults").'
            )
        if any(key.startswith(IDENTITY_PREFIX) or key == GENERATION_KEY for key in column.field.metadata):
            raise InvalidCommitError(f"column {column} is generated: it cannot have a default as well.")
        checks.check_default(column.field, self.expression)
        metadata = {**column.field.metadata, DEFAULT_KEY: self.expression}
        return change_column(snapshot, column, replace(column.field, metadata=metadata))


@dataclass(frozen=True, slots=True)
class DropDefault:
    """Remove the default of a column."""

    name: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        column = _top_level(snapshot, self.name)
        if DEFAULT_KEY not in column.field.metadata:
            return None
        kept = {key: value for key, value in column.field.metadata.items() if key != DEFAULT_KEY}
        return change_column(snapshot, column, replace(column.field, metadata=kept))


def _top_level(snapshot: Snapshot, name: str) -> Location:
    column = locate(snapshot.schema, name)
    if len(column.path) > 1:
        raise SchemaError(f"{column} cannot have a default: only top-level columns can.")
    return column
