"""Columns: add, rename, drop, move, describe. No data file is touched (spec: "Column Mapping").

Columns that a rule of the table names (CHECK constraint, generated column, invariant) cannot be renamed or dropped, nor
can partition and clustering columns be dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headwater.alterations.clustering import clustering_paths
from headwater.alterations.column_paths import locate
from headwater.alterations.commits import commit_metadata, commit_schema, described, with_schema
from headwater.alterations.dependencies import check_independent
from headwater.alterations.schema_edits import add_field, change_field, drop_field, move_field, rename_field
from headwater.errors import ColumnNotFoundError, InvalidCommitError, SchemaError
from headwater.features.activation import DEFAULT_KEY, GENERATION_KEY, IDENTITY_PREFIX
from headwater.features.column_mapping import without_mapping
from headwater.features.column_names import column_list, column_path
from headwater.features.properties import STATS_COLUMNS
from headwater.features.schema_walk import fields_by_path
from headwater.log.draft import Operation
from headwater.log.schema import StructField, StructType, strings_for_chars
from headwater.log.schema.lookup import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.alterations.column_paths import Location
    from headwater.log.actions import Metadata
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed

_MAPPING_HINT = "first set the table property delta.columnMapping.mode to name (older readers will not read the table)"


def add_columns(snapshot: Snapshot, columns: Iterable[StructField], position: str | None = None) -> Committed:
    """Add columns. Existing rows have null in them.

    Args:
        snapshot: the table.
        columns: the new columns; a name with dots (`address.zip`) is the way to a new field inside a struct.
        position: `FIRST` or `AFTER other`, for the first of them; the others of the same struct follow it. By default
            they come last.

    Raises:
        SchemaError: a name is taken, or the column is one that cannot be added to rows that are there.
    """
    schema = snapshot.schema
    shown: list[dict[str, object]] = []
    last_added: dict[tuple[str, ...], str] = {}
    for column in columns:
        *parent, name = column_path(column.name)
        field = _addable(replace(column, name=name))
        in_struct = locate(schema, parent).path if parent else ()
        place = position
        if position is not None and in_struct in last_added:
            place = f"AFTER {last_added[in_struct]}"
        schema = add_field(schema, in_struct, field, place)
        last_added[in_struct] = name
        entry: dict[str, object] = {"column": described([*in_struct, name], field)}
        shown.append(entry if place is None else {**entry, "position": place})
    if not shown:
        raise SchemaError("there are no columns to add: give at least one.")
    return commit_schema(snapshot, schema, Operation("ADD COLUMNS", {"columns": shown}))


def rename_column(snapshot: Snapshot, name: str | Sequence[str], new_name: str) -> Committed:
    """Rename a column; its data stays where it is, under its physical name.

    Raises:
        InvalidCommitError: the table has no column mapping, or something depends on the column.
    """
    column = _field_at(snapshot, name, "renamed")
    if not new_name:
        raise SchemaError(f"column {column} needs a name: the new one is empty.")
    check_independent(snapshot.metadata, snapshot.schema, column.path, "renamed")
    new_path = (*column.path[:-1], new_name)
    schema = rename_field(snapshot.schema, column.path, new_name)
    metadata = with_schema(snapshot.metadata, schema)
    if len(column.path) == 1:
        partitions = tuple(new_name if c == column.path[0] else c for c in metadata.partition_columns)
        metadata = msgspec.structs.replace(metadata, partition_columns=partitions)
    metadata = _with_stats_columns(metadata, column.path, new_path)
    parameters = {"oldColumnPath": dotted(column.path), "newColumnPath": dotted(new_path)}
    return commit_metadata(snapshot, metadata, Operation("RENAME COLUMN", parameters))


def drop_columns(
    snapshot: Snapshot, names: Iterable[str | Sequence[str]], *, if_exists: bool = False
) -> Committed | None:
    """Drop columns. Their data stays in the files until they are rewritten, but nobody can read it any more.

    Returns:
        None if `if_exists` and none of them was there.

    Raises:
        InvalidCommitError: the table has no column mapping, or something depends on a column.
        SchemaError: nothing would be left of the table or of a struct.
    """
    schema, metadata = snapshot.schema, snapshot.metadata
    dropped: list[tuple[str, ...]] = []
    for name in names:
        try:
            column = _field_at(snapshot, name, "dropped")
        except ColumnNotFoundError:
            if if_exists:
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


def reorder_column(snapshot: Snapshot, name: str | Sequence[str], position: str) -> Committed:
    """Move a column within its struct: `FIRST` or `AFTER other`."""
    column = _field_at(snapshot, name, None)
    schema = move_field(snapshot.schema, column.path, position)
    parameters = {"column": described(column.path, column.field), "position": position}
    return commit_schema(snapshot, schema, Operation("CHANGE COLUMN", parameters))


def set_column_comment(snapshot: Snapshot, name: str | Sequence[str], comment: str | None) -> Committed:
    """Say what a column is for; None takes the comment away."""
    column = _field_at(snapshot, name, None)
    kept = {key: value for key, value in column.field.metadata.items() if key != "comment"}
    metadata = kept if comment is None else {**kept, "comment": comment}
    return change_column(snapshot, column, replace(column.field, metadata=metadata))


def change_column(
    snapshot: Snapshot, column: Location, field: StructField, *, reads_all_rows: bool = False
) -> Committed:
    """Commit another definition of one column, under its name."""
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
    """A new column as it may be added to a table with rows."""
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
    """The property that lists the columns with statistics follows a column that is renamed or dropped."""
    listed = metadata.configuration.get(STATS_COLUMNS)
    if listed is None:
        return metadata
    kept: list[str] = []
    for parts in column_list(listed):
        if tuple(p.lower() for p in parts[: len(path)]) != tuple(p.lower() for p in path):
            kept.append(dotted(parts))
        elif new_path is not None:
            kept.append(dotted([*new_path, *parts[len(path) :]]))
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, STATS_COLUMNS: ",".join(kept)})
