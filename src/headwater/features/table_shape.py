"""What may change about a table that has files (spec: "Consistency Between Table Metadata and Data Files")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError, SchemaError
from headwater.features.activation import demanded_features, supported_features
from headwater.features.drafts import replaces_all_files, schema_after
from headwater.features.schema_walk import all_types, fields_by_path
from headwater.log.schema import ArrayType, MapType, StructType, mapping_mode
from headwater.log.schema.lookup import dotted
from headwater.log.schema.types import VARIANT, VOID, PrimitiveType, UserDefinedType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.draft import Attempt, Draft
    from headwater.log.schema import DataType

_SHOWN = 5
COLLATIONS_KEY = "__COLLATIONS"
"""The key in the metadata of a field by which Spark says that strings in it have a collation."""


def check_partition_columns(schema: StructType, columns: Sequence[str]) -> None:
    """Raise unless a table can be partitioned by these columns.

    Raises:
        InvalidCommitError: one is not there, is there twice, or has a type without a text form; or no other is left.
    """
    for number, name in enumerate(columns):
        if name not in schema.names:
            raise InvalidCommitError(f"the table cannot be partitioned by {name}, which is not one of its columns.")
        if name in columns[:number]:
            raise InvalidCommitError(f"the table cannot be partitioned by {name} twice.")
        type_ = schema.field(name).type
        if isinstance(type_, StructType | ArrayType | MapType) or type_ in (VARIANT, VOID):
            raise InvalidCommitError(f"the table cannot be partitioned by {name}, which is of type {type_}.")
    if columns and len(columns) == len(schema):
        raise InvalidCommitError(
            "the table cannot be partitioned by all of its columns: files need one column at least."
        )


def check_new_types(before: StructType, after: StructType) -> None:
    """Raise unless the types of new columns are types that the protocol has, and that need no feature we cannot write.

    Columns that are there already stay as they are: somebody else has put them there, and they can be read.

    Raises:
        SchemaError: a column has another type, such as an interval, or a collation.
    """
    known = dict(fields_by_path(before))
    for path, field in fields_by_path(after):
        old = known.get(path)
        collation = field.metadata.get(COLLATIONS_KEY)
        if collation is not None and (old is None or old.metadata.get(COLLATIONS_KEY) != collation):
            raise SchemaError(
                f"column {dotted(path)} has a collation ({collation}): tables with collations need the table feature "
                f"collations, which Headwater does not write. Make it a plain string: {path[-1]} COLLATE UTF8_BINARY."
            )
        if old is not None and old.type == field.type:
            continue
        bad = next((type_ for type_ in all_types(field.type) if not _is_legal(type_)), None)
        if bad is not None:
            raise SchemaError(
                f"column {dotted(path)} cannot be stored: the Delta protocol has no type {bad}. Cast it to one that it "
                "has, such as a number or a string."
            )


def _is_legal(type_: DataType) -> bool:
    if isinstance(type_, UserDefinedType):
        return all(map(_is_legal, all_types(type_.sql_type)))
    return not isinstance(type_, PrimitiveType) or type_.is_known


def table_shape_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Partitioning stays while files stay, and columns vanish only from tables with column mapping."""
    if draft.metadata is None:
        return draft
    after = schema_after(draft, attempt)
    check_partition_columns(after, draft.metadata.partition_columns)
    snapshot = attempt.snapshot
    if snapshot is None:
        return draft
    before = snapshot.metadata
    if before.partition_columns != draft.metadata.partition_columns and not replaces_all_files(draft, attempt):
        # Column mapping lets a partition column be renamed: files know it by its physical name.
        renamed = len(before.partition_columns) == len(draft.metadata.partition_columns)
        if not renamed or mapping_mode(attempt.protocol, draft.metadata) == "none":
            raise InvalidCommitError(
                f"the partitioning of a table cannot change from {list(before.partition_columns)} to "
                f"{list(draft.metadata.partition_columns)} while it has files. Overwrite it with the new partitioning."
            )
    if snapshot.mapping_mode == "none" and before.schema_string != draft.metadata.schema_string:
        gone = dict(fields_by_path(snapshot.schema)).keys() - dict(fields_by_path(after)).keys()
        if gone and not replaces_all_files(draft, attempt):
            raise InvalidCommitError(
                f"column {dotted(min(gone))} cannot be dropped or renamed while files hold it under its name. Set "
                "delta.columnMapping.mode to name first, or overwrite the table."
            )
    return draft


def needed_features_rule(draft: Draft, attempt: Attempt) -> Draft:
    """What metaData makes use of, the protocol supports: other writers would not heed it otherwise."""
    if draft.metadata is None:
        return draft
    needed = demanded_features(draft.metadata.configuration, schema_after(draft, attempt))
    missing = needed - supported_features(attempt.protocol)
    snapshot = attempt.snapshot
    if missing and snapshot is not None:
        # What was so before has no effect (spec: "Active Features"), and is not this commit's doing.
        had = demanded_features(snapshot.metadata.configuration, snapshot.schema)
        missing -= had - supported_features(snapshot.protocol)
    if missing:
        names = ", ".join(sorted(missing)[:_SHOWN])
        raise InvalidCommitError(
            f"the table's properties or columns make use of {names}, which its protocol does not support. Change the "
            "protocol in the same commit."
        )
    return draft
