"""Iceberg compatibility (spec: "Writer Requirements for IcebergCompatV1", "... for IcebergCompatV2").

The two features ask that a table can be turned into an Iceberg table from its log and files alone. What they ask of
data files (partition columns inside, field ids, timestamps as int64) is the data writer's duty; this is the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.activation import is_active, supports
from headwater.features.drafts import replaces_all_files, schema_after
from headwater.features.file_statistics import live_file_without_statistics, required_num_records
from headwater.features.schema_walk import all_types, fields_by_path
from headwater.log.paths import canonical
from headwater.log.schema import (
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
    mapping_mode,
    nested_ids,
)
from headwater.log.schema.lookup import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.actions import Metadata, Protocol
    from headwater.log.draft import Attempt, Draft
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot

_V2_TYPES = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean"}
    | {"timestamp", "timestamp_ntz", "date", "array", "map", "struct"}
)


@dataclass(frozen=True, slots=True)
class Compatibility:
    """One version of the feature."""

    feature: str

    def allows(self, type_: DataType) -> bool:
        """Whether the schema may hold this type."""
        if self.feature == "icebergCompatV1":
            return not isinstance(type_, ArrayType | MapType) and type_ != VOID
        return isinstance(type_, DecimalType) or type_.json_name in _V2_TYPES


V1 = Compatibility("icebergCompatV1")
V2 = Compatibility("icebergCompatV2")


def active_compatibility(protocol: Protocol, metadata: Metadata) -> Compatibility | None:
    """The version that is active, if one is.

    Raises:
        InvalidCommitError: both are.
    """
    on = [version for version in (V1, V2) if is_active(version.feature, protocol, metadata)]
    if len(on) > 1:
        raise InvalidCommitError(
            "a table cannot have delta.enableIcebergCompatV1 and delta.enableIcebergCompatV2 at the same time. Set "
            "the older one to false."
        )
    return on[0] if on else None


def must_materialize_partition_columns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether data files must hold the partition columns too, after the other columns."""
    materialized = supports(protocol, "materializePartitionColumns")
    return materialized or active_compatibility(protocol, metadata) is not None


def check_compatibility(protocol: Protocol, metadata: Metadata, schema: StructType) -> None:
    """Raise unless protocol, properties and schema are what an active version demands.

    Raises:
        InvalidCommitError: they are not.
    """
    version = active_compatibility(protocol, metadata)
    if version is None:
        return
    if mapping_mode(protocol, metadata) == "none":
        raise InvalidCommitError(
            f"{version.feature} needs column mapping: set delta.columnMapping.mode to name as well."
        )
    if version is V1 and supports(protocol, "deletionVectors"):
        raise InvalidCommitError("icebergCompatV1 cannot be used on a table that supports deletionVectors.")
    if is_active("deletionVectors", protocol, metadata):
        raise InvalidCommitError(f"{version.feature} needs delta.enableDeletionVectors to be false.")
    for path, field in fields_by_path(schema):
        bad = next((type_ for type_ in all_types(field.type) if not version.allows(type_)), None)
        if bad is not None:
            raise InvalidCommitError(f"{version.feature} does not allow the type {bad} of column {dotted(path)}.")


def iceberg_compat_rule(draft: Draft, attempt: Attempt) -> Draft:
    """The requirements on metaData when it changes, and on every file that is added."""
    version = active_compatibility(attempt.protocol, attempt.metadata)
    if version is None:
        return draft
    if draft.metadata is not None or draft.protocol is not None:
        schema = schema_after(draft, attempt)
        check_compatibility(attempt.protocol, attempt.metadata, schema)
        if version is V2:
            _check_nested_ids(schema)
        _check_table_before(version, draft, attempt, schema)
    for add in draft.adds:
        required_num_records(add, version.feature)
        if add.deletion_vector is not None:
            raise InvalidCommitError(f"{version.feature} does not allow the deletion vector of {add.path!r}.")
    return draft


def _check_nested_ids(schema: StructType) -> None:
    for path, field in fields_by_path(schema):
        expected = sum(isinstance(t, ArrayType) + 2 * isinstance(t, MapType) for t in _own_types(field.type))
        if len(nested_ids(field)) != expected:
            raise InvalidCommitError(
                f"icebergCompatV2 needs an id for each array element, map key and map value in column {dotted(path)}."
            )


def _own_types(type_: DataType) -> list[DataType]:
    """The arrays and maps whose nearest named ancestor is the same column."""
    match type_:
        case ArrayType(element_type=element):
            return [type_, *_own_types(element)]
        case MapType(key_type=key, value_type=value):
            return [type_, *_own_types(key), *_own_types(value)]
        case _:
            return []


def _check_table_before(version: Compatibility, draft: Draft, attempt: Attempt, schema: StructType) -> None:
    """What the table was before stands in the way of some changes."""
    snapshot = attempt.snapshot
    if snapshot is None:
        return
    before, after = snapshot.metadata.partition_columns, attempt.metadata.partition_columns
    if active_compatibility(snapshot.protocol, snapshot.metadata) is version:
        if before and before != after:
            raise InvalidCommitError(
                f"{version.feature} does not allow to replace a table partitioned by {', '.join(before)} with one "
                f"partitioned by {', '.join(after) or 'nothing'}."
            )
        return
    if not replaces_all_files(draft, attempt):
        check_files_before(version, snapshot, after, schema, {canonical(remove.path) for remove in draft.removes})


def check_files_before(
    version: Compatibility,
    snapshot: Snapshot,
    after: Sequence[str],
    schema: StructType,
    removed: set[str] | None = None,
) -> None:
    """Raise unless the files of a table without a version of compatibility can go on being part of one that has it.

    Args:
        version: what is enabled.
        snapshot: the table with the files: the same one before the change, or the source of a clone.
        after: the partition columns of the table that has it.
        schema: its schema.
        removed: canonical paths of files that do not stay.

    Raises:
        InvalidCommitError: they were not written as they must be.
    """
    if after and not must_materialize_partition_columns(snapshot.protocol, snapshot.metadata):
        raise InvalidCommitError(
            f"{version.feature} cannot be enabled: the data files that are there do not hold their partition columns. "
            "Overwrite the table with the property set, or write a new one."
        )
    if any(isinstance(type_, ArrayType | MapType) for type_ in all_types(schema)):
        raise InvalidCommitError(
            f"{version.feature} cannot be enabled: the data files that are there have no ids for array elements, map "
            "keys and map values. Overwrite the table with the property set, or write a new one."
        )
    path = live_file_without_statistics(snapshot, (), removed or set())
    if path is not None:
        raise InvalidCommitError(f"{version.feature} cannot be enabled: the file {path!r} has no numRecords.")
