"""What a write makes of the table's definition: a new table, the same one, one with more columns, or a replaced one.

The protocol follows from the definition (`headwater.features.table_changes`); here it is decided what the schema, the
partitioning and the properties shall be, and whether the write may change them at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import SchemaError, WriteOptionError
from headwater.features.activation import is_active
from headwater.features.change_data_feed import check_reserved_columns
from headwater.features.clustering import clustering_columns
from headwater.features.column_names import check_names, column_path
from headwater.features.schema_walk import all_types
from headwater.features.table_changes import TableDefinition, changed_table, new_table
from headwater.log.schema import StructType, mapping_mode, physical_path
from headwater.log.schema.types import VOID
from headwater.spark.evolution import merged

if TYPE_CHECKING:
    from headwater.log.actions import Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot
    from headwater.spark.write_options import WriteOptions


def planned_table(
    ctx: LogContext, snapshot: Snapshot | None, data: StructType, options: WriteOptions
) -> TableDefinition:
    """The definition of the table after the write.

    Args:
        ctx: the table's log.
        snapshot: the table as it is; None when it is created.
        data: the schema of the data.
        options: of the write.

    Raises:
        SchemaError: the names of the columns are not allowed in a table.
        WriteOptionError: the write asks for another partitioning, clustering or properties than the table has.
    """
    check_names(data, mapped=True)
    if snapshot is None:
        definition = _new(ctx, data, options)
    elif options.overwrite_schema:
        definition = _replaced(snapshot, data, options)
    else:
        _check_layout(snapshot, options)
        definition = _evolved(snapshot, data, options)
    if snapshot is None or definition.metadata.schema_string != snapshot.metadata.schema_string:
        _check_columns(definition.protocol, definition.metadata)
    return definition


def _new(ctx: LogContext, data: StructType, options: WriteOptions) -> TableDefinition:
    return new_table(
        data,
        partition_columns=_resolved(data, options.partition_by or ()),
        properties={**options.property_defaults, **options.properties},
        cluster_by=options.cluster_by or (),
        id=ctx.new_id(),
        created_ms=ctx.clock_ms(),
    )


def _replaced(snapshot: Snapshot, data: StructType, options: WriteOptions) -> TableDefinition:
    after = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=data.to_json(),
        partition_columns=_resolved(data, options.partition_by or ()),
        configuration={**snapshot.metadata.configuration, **options.properties},
    )
    return changed_table(
        snapshot.protocol,
        snapshot.metadata,
        after,
        cluster_by=() if options.partition_by else options.cluster_by,
        domains=snapshot.domain_metadata,
        replaces=True,
    )


def _evolved(snapshot: Snapshot, data: StructType, options: WriteOptions) -> TableDefinition:
    same = TableDefinition(snapshot.protocol, snapshot.metadata)
    if not options.merge_schema:
        return same
    widening = is_active("typeWidening", snapshot.protocol, snapshot.metadata)
    schema = merged(snapshot.schema, data, widening=widening)
    if schema == snapshot.schema:
        return same
    after = msgspec.structs.replace(snapshot.metadata, schema_string=schema.to_json())
    return changed_table(snapshot.protocol, snapshot.metadata, after, domains=snapshot.domain_metadata)


def _check_layout(snapshot: Snapshot, options: WriteOptions) -> None:
    """Refuse what a write cannot change without replacing the table."""
    hint = 'To change it, replace the table: mode="overwrite" with overwrite_schema=True.'
    if options.partition_by is not None:
        wanted = [name.lower() for name in options.partition_by]
        if wanted != [name.lower() for name in snapshot.partition_columns]:
            raise WriteOptionError(
                f"{snapshot.uri} is partitioned by {snapshot.partition_columns}, and the write asks for "
                f"{list(options.partition_by)}. {hint}"
            )
    if options.cluster_by is not None:
        current = [tuple(columns) for columns in clustering_columns(snapshot.domain_metadata)]
        wanted_columns = [
            physical_path(snapshot.schema, column_path(name), snapshot.mapping_mode) for name in options.cluster_by
        ]
        if wanted_columns != current:
            raise WriteOptionError(
                f"{snapshot.uri} is clustered by {current}, and the write asks for {list(options.cluster_by)}. {hint}"
            )
    differing = sorted(name for name, value in options.properties.items() if snapshot.properties.get(name) != value)
    if differing:
        raise WriteOptionError(
            f"{snapshot.uri} exists and has other values for these properties: {', '.join(differing)}. A write sets "
            "properties only when it creates or replaces the table; change them on the table itself."
        )


def _check_columns(protocol: Protocol, metadata: Metadata) -> None:
    schema = StructType.from_json(metadata.schema_string)
    check_names(schema, mapped=mapping_mode(protocol, metadata) != "none")
    if is_active("changeDataFeed", protocol, metadata):
        check_reserved_columns(schema)
    for field in schema.fields:
        if _has_void_inside(field.type):
            raise SchemaError(
                f"column {field.name} is {field.type}: files cannot hold a part of it that has no type (void). Cast it."
            )
    if not schema.fields or all(field.type == VOID for field in schema.fields):
        raise SchemaError("a table needs at least one column with a type.")
    partitions = {name.lower() for name in metadata.partition_columns}
    if partitions and all(field.name.lower() in partitions for field in schema.fields):
        raise SchemaError("a table needs at least one column that it is not partitioned by.")


def _resolved(schema: StructType, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names as the schema spells them."""
    return tuple(schema.field(name).name for name in names)


def _has_void_inside(type_: DataType) -> bool:
    return type_ != VOID and VOID in all_types(type_)
