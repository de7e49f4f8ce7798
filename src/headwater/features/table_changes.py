"""What a table must become: protocol, metaData and domains for what a user wants (spec: "Table Features").

Users speak of columns and properties. What follows from them (features in the protocol, ids and physical names of
columns, names of hidden columns, clustering columns in a domain) is worked out here, for new tables and for changes,
and what cannot be is refused before any data is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import ColumnNotFoundError, InvalidCommitError, InvalidTablePropertyError
from headwater.features import clustering
from headwater.features.activation import demanded_features, is_active, supported_features
from headwater.features.change_data_feed import check_reserved_columns
from headwater.features.column_mapping import check_mode_change, mode_of, with_mapping, without_mapping
from headwater.features.column_names import check_names, column_list
from headwater.features.iceberg_compat import check_compatibility
from headwater.features.identity_columns import check_identity_columns
from headwater.features.properties import (
    INTERNAL,
    MAX_COLUMN_ID,
    STATS_COLUMNS,
    ProtocolWishes,
    checked_properties,
)
from headwater.features.protocols import DEFAULT, NO_FEATURES, add_feature, at_least, with_features
from headwater.features.row_tracking import materialized_column_names
from headwater.features.table_shape import check_new_types, check_partition_columns
from headwater.features.type_widening import check_type_changes, with_type_changes, without_type_changes
from headwater.log.actions import Metadata
from headwater.log.context import new_id as unique_id
from headwater.log.schema import StructType, mapping_mode, strings_for_chars
from headwater.log.schema.mapping import MODE_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headwater.log.actions import DomainMetadata, Protocol
    from headwater.log.transaction import Transaction

_ICEBERG_PROPERTIES = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table as its log describes it, apart from its files."""

    protocol: Protocol
    metadata: Metadata
    domains: tuple[DomainMetadata, ...] = ()
    """The metadata domains that must be written; others stay as they are."""

    @property
    def schema(self) -> StructType:
        """The schema, with ids and physical names where the table has them."""
        return StructType.from_json(self.metadata.schema_string)


def new_table(
    schema: StructType,
    *,
    partition_columns: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    cluster_by: Sequence[str | Sequence[str]] = (),
    name: str | None = None,
    description: str | None = None,
    id: str,  # noqa: A002 - the name of the field
    created_ms: int,
    new_id: Callable[[], str] = unique_id,
) -> TableDefinition:
    """The definition of a table that is to be created.

    Args:
        schema: the columns; identity, generation expressions and defaults stand in their metadata.
        partition_columns: names of top-level columns, in any case.
        properties: table properties; those of the `delta.` family are checked, and may ask for features.
        cluster_by: clustering columns, by name (`a.b` for a nested one) or as paths.
        name: the table's name, if it has one.
        description: what the table is for.
        id: the table's unique id.
        created_ms: when it is created.
        new_id: where the names of hidden and mapped columns come from.

    Raises:
        InvalidTablePropertyError: a property does not exist or cannot have its value.
        SchemaError: the columns cannot be told apart, or not be stored.
        InvalidCommitError: what is wanted does not go together.
        UnsupportedProtocolError: a feature is asked for that cannot be written.

    >>> from headwater.log.schema import LONG, StructField, StructType
    >>> table = new_table(StructType([StructField("id", LONG)]), id="1", created_ms=0,
    ...                   properties={"delta.enableChangeDataFeed": "true"})
    >>> table.protocol.min_reader_version, table.protocol.min_writer_version
    (1, 4)
    """
    configuration, wishes = checked_properties(properties or {})
    if MODE_PROPERTY not in configuration and _wants_iceberg(configuration):
        configuration[MODE_PROPERTY] = "name"
    plain = without_type_changes(without_mapping(strings_for_chars(schema)))
    columns = tuple(plain.field(column).name for column in partition_columns)
    mapped = _mapped(plain, None, configuration, was_mapped=False, new_id=new_id)
    configuration |= _hidden_columns(configuration, new_id)
    wanted = demanded_features(configuration, mapped) | ({clustering.FEATURE} if cluster_by else set())
    protocol = _with_wishes(with_features(NO_FEATURES, sorted(wanted)), wishes)
    protocol = at_least(protocol, DEFAULT.min_reader_version, DEFAULT.min_writer_version)
    metadata = Metadata(
        id=id,
        schema_string=mapped.to_json(),
        partition_columns=columns,
        configuration=configuration,
        name=name,
        description=description,
        created_time=created_ms,
    )
    _check(protocol, metadata, mapped, clustered=bool(cluster_by))
    check_new_types(StructType(()), mapped)
    _check_stats_columns(configuration, mapped)
    domains = (
        (clustering.clustering_domain(mapped, cluster_by, mapping_mode(protocol, metadata)),) if cluster_by else ()
    )
    return TableDefinition(protocol, metadata, domains)


def changed_table(
    protocol: Protocol,
    metadata_before: Metadata,
    metadata_after: Metadata,
    *,
    cluster_by: Sequence[str | Sequence[str]] | None = None,
    domains: Mapping[str, str] | None = None,
    replaces: bool = False,
    new_id: Callable[[], str] = unique_id,
) -> TableDefinition:
    """The definition of a table after a change of its columns, properties or clustering.

    Args:
        protocol: the table's protocol so far.
        metadata_before: its metaData so far.
        metadata_after: the wanted metaData. Columns that stay keep their metadata, or are known by their names;
            properties that differ from before are checked, and may ask for features.
        cluster_by: new clustering columns; () for none, None to leave them alone.
        domains: the table's metadata domains so far (`snapshot.domain_metadata`).
        replaces: all files are replaced in the same commit, so that nothing old binds the new columns.
        new_id: where the names of hidden and mapped columns come from.

    Raises:
        InvalidTablePropertyError: a property does not exist, cannot have its value, or cannot be changed.
        SchemaError: the columns cannot be told apart, or not be stored.
        InvalidCommitError: what is wanted does not go together, or would need the files to be rewritten.
        UnsupportedProtocolError: a feature is asked for that cannot be written.
    """
    before, old_mode = StructType.from_json(metadata_before.schema_string), mapping_mode(protocol, metadata_before)
    configuration, wishes = _changed_properties(metadata_before, metadata_after, replaces=replaces)
    if not replaces:
        check_mode_change(old_mode, mode_of(configuration))
    after = strings_for_chars(StructType.from_json(metadata_after.schema_string))
    stays = None if replaces and old_mode == "none" else before
    after = _mapped(after, stays, configuration, was_mapped=old_mode != "none", new_id=new_id)
    after = without_type_changes(after) if replaces else with_type_changes(before, after)
    configuration |= _hidden_columns(configuration, new_id)
    # What the old protocol did not support has no effect, and stays so.
    ignored = demanded_features(metadata_before.configuration, before) - supported_features(protocol)
    ignored -= set() if old_mode == "none" else {"columnMapping"}
    wanted = (demanded_features(configuration, after) - ignored) | ({clustering.FEATURE} if cluster_by else set())
    new_protocol = _with_wishes(with_features(protocol, sorted(wanted)), wishes)
    metadata = _with_schema(msgspec.structs.replace(metadata_after, configuration=configuration), after)
    clustered = clustering.clustering_columns(domains or {}) if cluster_by is None else cluster_by
    _check(new_protocol, metadata, after, clustered=bool(clustered))
    check_new_types(before, after)
    if not replaces:
        check_type_changes(before, after, enabled=is_active("typeWidening", new_protocol, metadata))
    if configuration.get(STATS_COLUMNS) != metadata_before.configuration.get(STATS_COLUMNS):
        _check_stats_columns(configuration, after)
    changes = () if cluster_by is None else _clustering_change(new_protocol, metadata, after, cluster_by, domains or {})
    return TableDefinition(new_protocol, metadata, changes)


def set_table(transaction: Transaction, definition: TableDefinition) -> None:
    """Let a transaction make the table what the definition says; what is so already is not written again."""
    if definition.protocol != transaction.protocol:
        transaction.set_protocol(definition.protocol)
    if definition.metadata != transaction.metadata:
        transaction.set_metadata(definition.metadata)
    for domain in definition.domains:
        transaction.set_domain(domain)


def _changed_properties(before: Metadata, after: Metadata, *, replaces: bool) -> tuple[dict[str, str], ProtocolWishes]:
    """The properties as they are kept, of which only those that differ are checked: old ones may be of any kind."""
    old, new = before.configuration, after.configuration
    changed, wishes = checked_properties({key: value for key, value in new.items() if old.get(key) != value})
    kept = {key: value for key, value in new.items() if old.get(key) == value}
    for key in INTERNAL & (old.keys() - new.keys()):
        if not replaces:
            raise InvalidTablePropertyError(
                f"the table property {key} is kept by Headwater itself and cannot be unset."
            )
        kept[key] = old[key]
    return kept | changed, wishes


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    """The metaData with a schema; the text stays as it is where it says the same."""
    if StructType.from_json(metadata.schema_string) == schema:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def _clustering_change(
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    columns: Sequence[str | Sequence[str]],
    domains: Mapping[str, str],
) -> tuple[DomainMetadata, ...]:
    """The domain with the clustering columns, if they are others than before."""
    domain = clustering.clustering_domain(schema, columns, mapping_mode(protocol, metadata))
    wanted = clustering.clustering_columns({clustering.DOMAIN: domain.configuration})
    return () if wanted == clustering.clustering_columns(domains) else (domain,)


def _mapped(
    schema: StructType,
    before: StructType | None,
    configuration: dict[str, str],
    *,
    was_mapped: bool,
    new_id: Callable[[], str],
) -> StructType:
    """The schema with ids and physical names, if the properties ask for them; the highest id becomes a property."""
    check_names(schema, mapped=mode_of(configuration) != "none")
    if mode_of(configuration) == "none":
        return without_mapping(schema)
    found = with_mapping(
        schema,
        before,
        was_mapped=was_mapped,
        max_column_id=int(configuration.get(MAX_COLUMN_ID, "0")),
        nested=configuration.get("delta.enableIcebergCompatV2", "false").lower() == "true",
        new_id=new_id,
    )
    configuration[MAX_COLUMN_ID] = str(found.max_column_id)
    return found.schema


def _hidden_columns(configuration: Mapping[str, str], new_id: Callable[[], str]) -> dict[str, str]:
    if configuration.get("delta.enableRowTracking", "false").lower() != "true":
        return {}
    return materialized_column_names(configuration, new_id)


def _wants_iceberg(configuration: Mapping[str, str]) -> bool:
    return any(configuration.get(name, "false").lower() == "true" for name in _ICEBERG_PROPERTIES)


def _with_wishes(protocol: Protocol, wishes: ProtocolWishes) -> Protocol:
    for name in wishes.features:
        protocol = add_feature(protocol, name)
    return at_least(protocol, wishes.min_reader_version, wishes.min_writer_version)


def _check(protocol: Protocol, metadata: Metadata, schema: StructType, *, clustered: bool) -> None:
    """What the rules would refuse at commit, refused before data is written."""
    check_partition_columns(schema, metadata.partition_columns)
    if clustered and metadata.partition_columns:
        raise InvalidCommitError("a table cannot be clustered and partitioned at the same time: choose one of them.")
    check_identity_columns(schema, metadata.partition_columns)
    check_compatibility(protocol, metadata, schema)
    if is_active("changeDataFeed", protocol, metadata):
        check_reserved_columns(schema)


def _check_stats_columns(configuration: Mapping[str, str], schema: StructType) -> None:
    for path in _paths(configuration.get(STATS_COLUMNS)):
        try:
            schema.resolve(path)
        except ColumnNotFoundError as error:
            raise InvalidTablePropertyError(f"the table property {STATS_COLUMNS} names a column: {error}") from error


def _paths(text: str | None) -> Iterable[tuple[str, ...]]:
    return () if text is None else column_list(text)
