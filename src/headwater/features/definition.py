"""Work out the protocol, metaData and domains of a new or changed table (spec: "Table Features").

Users name columns and properties. What follows from them (features in the protocol, ids and physical names of columns,
names of hidden columns, clustering columns in a domain) is worked out here, and impossible demands are refused before
any data is written. Rules for commits check what may change about a table that has files.

A feature for writers can be dropped once nothing in the table uses it: writers only look at the newest version. One
that readers must know too would also have to vanish from every version that time travel still reaches, which needs
rewritten files and a truncated history; it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import (
    ColumnNotFoundError,
    InvalidCommitError,
    InvalidTablePropertyError,
    SchemaError,
    UnsupportedProtocolError,
)
from headwater.features import clustering
from headwater.features.column_mapping import (
    check_mode_change,
    check_names,
    column_list,
    mode_of,
    with_mapping,
    without_mapping,
)
from headwater.features.feature import all_types, fields_by_path, replaces_all_files, schema_after
from headwater.features.protocols import DEFAULT, NO_FEATURES, add_feature, at_least, with_features, without_feature
from headwater.features.registry import (
    FEATURES,
    demanded_features,
    find_feature,
    main_name,
    supported_features,
    supports,
)
from headwater.features.row_tracking import materialized_column_names
from headwater.features.type_widening import TYPE_WIDENING, check_type_changes, with_type_changes, without_type_changes
from headwater.log.actions.model import DomainMetadata, Metadata
from headwater.log.configuration import TableConfiguration
from headwater.log.configuration.properties import (
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_ROW_TRACKING,
    INTERNAL,
    MAX_COLUMN_ID,
    STATS_COLUMNS,
    ProtocolDemands,
    checked_properties,
)
from headwater.log.context import new_id as unique_id
from headwater.log.schema import ArrayType, MapType, StructType, strings_for_chars
from headwater.log.schema.types import VARIANT, VOID, PrimitiveType, UserDefinedType, dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headwater.features.feature import Feature
    from headwater.log.actions.model import Protocol
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.commit.transaction import Transaction
    from headwater.log.schema import DataType, MappingMode


@dataclass(frozen=True)
class TableDefinition:
    """A table as its log is to describe it, apart from its files."""

    configuration: TableConfiguration
    domains: tuple[DomainMetadata, ...] = ()
    """The metadata domains that must be written; others stay as they are."""

    @property
    def protocol(self) -> Protocol:
        return self.configuration.protocol

    @property
    def metadata(self) -> Metadata:
        return self.configuration.metadata

    @property
    def schema(self) -> StructType:
        """The schema, with ids and physical names where the table has them."""
        return self.configuration.schema

    @property
    def mapping_mode(self) -> MappingMode:
        return self.configuration.mapping_mode


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
    """Return the definition of a table that is to be created.

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
    configuration, demands = checked_properties(properties or {})
    if COLUMN_MAPPING_MODE.name not in configuration and (
        ENABLE_ICEBERG_COMPAT_V1.read(configuration) or ENABLE_ICEBERG_COMPAT_V2.read(configuration)
    ):
        configuration[COLUMN_MAPPING_MODE.name] = "name"
    plain = without_type_changes(without_mapping(strings_for_chars(schema)))
    columns = tuple(plain.field(column).name for column in partition_columns)
    mapped = _mapped(plain, None, configuration, was_mapped=False, new_id=new_id)
    configuration |= _hidden_columns(configuration, new_id)
    wanted = demanded_features(configuration, mapped) | ({clustering.CLUSTERING.name} if cluster_by else set())
    protocol = _with_demands(with_features(NO_FEATURES, sorted(wanted)), demands)
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
    created = TableConfiguration(protocol, metadata)
    _check(created, clustered=bool(cluster_by))
    check_new_types(StructType(()), mapped)
    _check_stats_columns(created)
    domains = (clustering.clustering_domain(mapped, cluster_by, created.mapping_mode),) if cluster_by else ()
    return TableDefinition(created, domains)


def changed_table(
    before: TableConfiguration,
    metadata_after: Metadata,
    *,
    cluster_by: Sequence[str | Sequence[str]] | None = None,
    domains: Mapping[str, str] | None = None,
    replaces: bool = False,
    new_id: Callable[[], str] = unique_id,
) -> TableDefinition:
    """Return the definition of a table after a change of its columns, properties or clustering.

    Args:
        before: the table's configuration so far.
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
    protocol, old_schema, old_mode = before.protocol, before.schema, before.mapping_mode
    configuration, demands = _changed_properties(before.metadata, metadata_after, replaces=replaces)
    if not replaces:
        check_mode_change(old_mode, mode_of(configuration))
    after = strings_for_chars(StructType.from_json(metadata_after.schema_string))
    stays = None if replaces and old_mode == "none" else old_schema
    after = _mapped(after, stays, configuration, was_mapped=old_mode != "none", new_id=new_id)
    after = without_type_changes(after) if replaces else with_type_changes(old_schema, after)
    configuration |= _hidden_columns(configuration, new_id)
    # What the old protocol did not support has no effect, and stays so.
    ignored = demanded_features(before.properties, old_schema) - supported_features(protocol)
    ignored -= set() if old_mode == "none" else {"columnMapping"}
    wanted = (demanded_features(configuration, after) - ignored) | (
        {clustering.CLUSTERING.name} if cluster_by else set()
    )
    metadata = _with_schema(msgspec.structs.replace(metadata_after, configuration=configuration), after)
    changed = TableConfiguration(_with_demands(with_features(protocol, sorted(wanted)), demands), metadata)
    clustered = clustering.clustering_columns(domains or {}) if cluster_by is None else cluster_by
    _check(changed, clustered=bool(clustered))
    check_new_types(old_schema, after)
    if not replaces:
        check_type_changes(old_schema, after, enabled=TYPE_WIDENING.is_enabled(changed))
    if changed[STATS_COLUMNS] != before[STATS_COLUMNS]:
        _check_stats_columns(changed)
    return TableDefinition(
        changed, () if cluster_by is None else _clustering_change(changed, cluster_by, domains or {})
    )


def set_table(transaction: Transaction, definition: TableDefinition) -> None:
    """Let a transaction make the table what the definition says; what is so already is not written again."""
    if definition.protocol != transaction.protocol:
        transaction.set_protocol(definition.protocol)
    if definition.metadata != transaction.metadata:
        transaction.set_metadata(definition.metadata)
    for domain in definition.domains:
        transaction.set_domain(domain)


def _changed_properties(before: Metadata, after: Metadata, *, replaces: bool) -> tuple[dict[str, str], ProtocolDemands]:
    """The properties as they are kept, of which only those that differ are checked: old ones may be of any kind."""
    old, new = before.configuration, after.configuration
    changed, demands = checked_properties({key: value for key, value in new.items() if old.get(key) != value})
    kept = {key: value for key, value in new.items() if old.get(key) == value}
    for key in INTERNAL & (old.keys() - new.keys()):
        if not replaces:
            raise InvalidTablePropertyError(
                f"the table property {key} is kept by Headwater itself and cannot be unset."
            )
        kept[key] = old[key]
    return kept | changed, demands


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    """Return the metaData with a schema; the text stays as it is where it says the same."""
    if StructType.from_json(metadata.schema_string) == schema:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def _clustering_change(
    table: TableConfiguration, columns: Sequence[str | Sequence[str]], domains: Mapping[str, str]
) -> tuple[DomainMetadata, ...]:
    """Return the domain with the clustering columns, if they are others than before."""
    domain = clustering.clustering_domain(table.schema, columns, table.mapping_mode)
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
        max_column_id=int(configuration.get(MAX_COLUMN_ID.name, "0")),
        nested=ENABLE_ICEBERG_COMPAT_V2.read(configuration),
        new_id=new_id,
    )
    configuration[MAX_COLUMN_ID.name] = str(found.max_column_id)
    return found.schema


def _hidden_columns(configuration: Mapping[str, str], new_id: Callable[[], str]) -> dict[str, str]:
    return materialized_column_names(configuration, new_id) if ENABLE_ROW_TRACKING.read(configuration) else {}


def _with_demands(protocol: Protocol, demands: ProtocolDemands) -> Protocol:
    for name in demands.features:
        protocol = add_feature(protocol, name)
    return at_least(protocol, demands.min_reader_version, demands.min_writer_version)


def _check(table: TableConfiguration, *, clustered: bool) -> None:
    """Refuse before data is written what the rules would refuse at commit."""
    check_partition_columns(table.schema, table.partition_columns)
    if clustered and table.partition_columns:
        raise InvalidCommitError("a table cannot be clustered and partitioned at the same time: choose one of them.")
    for feature in FEATURES.values():
        if feature.check_definition is not None:
            feature.check_definition(table)


def _check_stats_columns(table: TableConfiguration) -> None:
    for path in column_list(table[STATS_COLUMNS] or ""):
        try:
            table.schema.resolve(path)
        except ColumnNotFoundError as error:
            raise InvalidTablePropertyError(
                f"the table property {STATS_COLUMNS.name} names a column: {error}"
            ) from error


_SHOWN = 5
COLLATIONS_KEY = "__COLLATIONS"
"""The key in the metadata of a field by which Spark says that strings in it have a collation."""


def check_partition_columns(schema: StructType, columns: Sequence[str]) -> None:
    """Raise `InvalidCommitError` unless a table can be partitioned by these columns."""
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

    Columns that are there already stay as they are: another writer added them, and they can be read.

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
        if not renamed or attempt.configuration.mapping_mode == "none":
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


def drop_feature(table: TableConfiguration, name: str, domains: Mapping[str, str]) -> TableDefinition:
    """Return the definition of the table without a feature; commit it as the operation `DROP FEATURE`.

    Raises:
        UnsupportedProtocolError: there is no such feature.
        InvalidCommitError: the table does not have it, still uses it, or it cannot be dropped.
    """
    feature = find_feature(name)
    if feature is None:
        raise UnsupportedProtocolError(f"there is no table feature {name!r}.", (name,))
    feature, protocol = FEATURES[main_name(feature.name)], table.protocol
    main = feature.name
    if not supports(protocol, main):
        raise InvalidCommitError(f"the table does not support {main}: there is nothing to drop.")
    if feature.for_readers and not feature.leaves_no_trace:
        raise InvalidCommitError(
            f"{main} cannot be dropped: older versions of the table need it, and would first have to be rewritten and "
            "cut off from its history. Write the rows to a new table instead."
        )
    _check_dependants(protocol, main)
    gone = {each.name for each in feature.properties}
    configuration = {key: value for key, value in table.properties.items() if key not in gone}
    _check_unused(feature, configuration, table.schema)
    changed = table.changed(
        without_feature(protocol, main), msgspec.structs.replace(table.metadata, configuration=configuration)
    )
    return TableDefinition(changed, () if feature.drop_domains is None else feature.drop_domains(domains))


def _check_dependants(protocol: Protocol, name: str) -> None:
    needing = [f.name for f in FEATURES.values() if name in f.requires and supports(protocol, f.name)]
    if needing:
        raise InvalidCommitError(
            f"{name} cannot be dropped while the table supports {', '.join(needing)}: drop it first."
        )


def _check_unused(feature: Feature, configuration: Mapping[str, str], schema: StructType) -> None:
    if feature.name in demanded_features(configuration, schema):
        constraints = [k.removeprefix(CONSTRAINT_PREFIX) for k in configuration if k.startswith(CONSTRAINT_PREFIX)]
        which = f" ({', '.join(constraints)})" if feature.name == "checkConstraints" else ""
        raise InvalidCommitError(f"{feature.name} cannot be dropped from the table: {feature.in_use}{which}.")
