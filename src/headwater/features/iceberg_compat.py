"""Iceberg compatibility (spec: "Writer Requirements for IcebergCompatV1", "... for IcebergCompatV2").

The two features ask that a table can be turned into an Iceberg table from its log and files alone. What they ask of
data files (partition columns inside, field ids, timestamps as int64) is the data writer's duty; this is the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.basic_rules import DELETION_VECTORS
from headwater.features.feature import Feature, Kind, all_types, fields_by_path, replaces_all_files, schema_after
from headwater.log.actions.paths import canonical
from headwater.log.configuration.properties import (
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_MATERIALIZED_PARTITION_COLUMNS,
)
from headwater.log.schema import (
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
    nested_ids,
)
from headwater.log.schema.types import dotted
from headwater.log.stats.add_stats import live_file_without_statistics, required_num_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.configuration import TableConfiguration
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot

_V2_TYPES = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean"}
    | {"timestamp", "timestamp_ntz", "date", "array", "map", "struct"}
)


def _allows(version: Feature, type_: DataType) -> bool:
    if version is ICEBERG_COMPAT_V1:
        return not isinstance(type_, ArrayType | MapType) and type_ != VOID
    return isinstance(type_, DecimalType) or type_.json_name in _V2_TYPES


def active_compatibility(configuration: TableConfiguration) -> Feature | None:
    """Return the version that is active, if one is.

    Raises:
        InvalidCommitError: both are.
    """
    on = [version for version in (ICEBERG_COMPAT_V1, ICEBERG_COMPAT_V2) if version.is_enabled(configuration)]
    if len(on) > 1:
        raise InvalidCommitError(
            "a table cannot have delta.enableIcebergCompatV1 and delta.enableIcebergCompatV2 at the same time. Set "
            "the older one to false."
        )
    return on[0] if on else None


def must_materialize_partition_columns(configuration: TableConfiguration) -> bool:
    """Tell whether data files must hold the partition columns too, after the other columns."""
    materialized = MATERIALIZED_PARTITION_COLUMNS.is_supported(configuration.protocol)
    return materialized or active_compatibility(configuration) is not None


def check_compatibility(configuration: TableConfiguration) -> None:
    """Raise `InvalidCommitError` unless protocol, properties and schema are what an active version demands."""
    version = active_compatibility(configuration)
    if version is None:
        return
    if configuration.mapping_mode == "none":
        raise InvalidCommitError(f"{version.name} needs column mapping: set delta.columnMapping.mode to name as well.")
    if version is ICEBERG_COMPAT_V1 and DELETION_VECTORS.is_supported(configuration.protocol):
        raise InvalidCommitError("icebergCompatV1 cannot be used on a table that supports deletionVectors.")
    if DELETION_VECTORS.is_enabled(configuration):
        raise InvalidCommitError(f"{version.name} needs delta.enableDeletionVectors to be false.")
    for path, field in fields_by_path(configuration.schema):
        bad = next((type_ for type_ in all_types(field.type) if not _allows(version, type_)), None)
        if bad is not None:
            raise InvalidCommitError(f"{version.name} does not allow the type {bad} of column {dotted(path)}.")


def iceberg_compat_rule(draft: Draft, attempt: Attempt) -> Draft:
    """The requirements on metaData when it changes, and on every file that is added."""
    version = active_compatibility(attempt.configuration)
    if version is None:
        return draft
    if draft.metadata is not None or draft.protocol is not None:
        schema = schema_after(draft, attempt)
        check_compatibility(attempt.configuration)
        if version is ICEBERG_COMPAT_V2:
            _check_nested_ids(schema)
        _check_table_before(version, draft, attempt, schema)
    for add in draft.adds:
        required_num_records(add, version.name)
        if add.deletion_vector is not None:
            raise InvalidCommitError(f"{version.name} does not allow the deletion vector of {add.path!r}.")
    return draft


def _check_nested_ids(schema: StructType) -> None:
    for path, field in fields_by_path(schema):
        expected = sum(isinstance(t, ArrayType) + 2 * isinstance(t, MapType) for t in _own_types(field.type))
        if len(nested_ids(field)) != expected:
            raise InvalidCommitError(
                f"icebergCompatV2 needs an id for each array element, map key and map value in column {dotted(path)}."
            )


def _own_types(type_: DataType) -> list[DataType]:
    """Return the arrays and maps whose nearest named ancestor is the same column."""
    match type_:
        case ArrayType(element_type=element):
            return [type_, *_own_types(element)]
        case MapType(key_type=key, value_type=value):
            return [type_, *_own_types(key), *_own_types(value)]
        case _:
            return []


def _check_table_before(version: Feature, draft: Draft, attempt: Attempt, schema: StructType) -> None:
    """What the table was before stands in the way of some changes."""
    snapshot = attempt.snapshot
    if snapshot is None:
        return
    before, after = snapshot.metadata.partition_columns, attempt.metadata.partition_columns
    if active_compatibility(snapshot.configuration) is version:
        if before and before != after:
            raise InvalidCommitError(
                f"{version.name} does not allow to replace a table partitioned by {', '.join(before)} with one "
                f"partitioned by {', '.join(after) or 'nothing'}."
            )
        return
    if not replaces_all_files(draft, attempt):
        check_files_before(version, snapshot, after, schema, {canonical(remove.path) for remove in draft.removes})


def check_files_before(
    version: Feature,
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
    if after and not must_materialize_partition_columns(snapshot.configuration):
        raise InvalidCommitError(
            f"{version.name} cannot be enabled: the data files that are there do not hold their partition columns. "
            "Overwrite the table with the property set, or write a new one."
        )
    if any(isinstance(type_, ArrayType | MapType) for type_ in all_types(schema)):
        raise InvalidCommitError(
            f"{version.name} cannot be enabled: the data files that are there have no ids for array elements, map "
            "keys and map values. Overwrite the table with the property set, or write a new one."
        )
    path = live_file_without_statistics(snapshot, (), removed or set())
    if path is not None:
        raise InvalidCommitError(f"{version.name} cannot be enabled: the file {path!r} has no numRecords.")


ICEBERG_COMPAT_V1 = Feature(
    "icebergCompatV1",
    Kind.WRITER,
    requires=("columnMapping",),
    enabled=ENABLE_ICEBERG_COMPAT_V1.read,
    check_definition=check_compatibility,
    check_commit=iceberg_compat_rule,
    properties=(ENABLE_ICEBERG_COMPAT_V1,),
)
ICEBERG_COMPAT_V2 = replace(
    ICEBERG_COMPAT_V1,
    name="icebergCompatV2",
    enabled=ENABLE_ICEBERG_COMPAT_V2.read,
    properties=(ENABLE_ICEBERG_COMPAT_V2,),
)
MATERIALIZED_PARTITION_COLUMNS = Feature(
    "materializePartitionColumns",
    Kind.WRITER,
    enabled=ENABLE_MATERIALIZED_PARTITION_COLUMNS.read,
    properties=(ENABLE_MATERIALIZED_PARTITION_COLUMNS,),
)
