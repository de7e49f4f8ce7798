"""Changes of a table as a whole: properties, protocol, metadata domains, clustering, constraints, the search index.

A CHECK constraint holds for every row, so existing rows are checked before it is added, and rows that come in meanwhile
make the commit fail. Metadata domains that start with `delta.` belong to the system. The definition of a search index
is a metadata domain too; its splits are built afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.commands.alter.commit import backfill, commit_metadata, with_configuration
from headwater.errors import DeltaConcurrentModificationException, InvalidCommitError, InvalidTablePropertyError
from headwater.features.basic_rules import DOMAIN_METADATA, check_user_domain
from headwater.features.clustering import clustering_columns, logical_path
from headwater.features.column_mapping import column_path
from headwater.features.definition import drop_feature as without_feature
from headwater.features.definition import set_table
from headwater.features.protocols import add_feature as with_feature
from headwater.features.protocols import upgrade as upgraded
from headwater.features.protocols import with_features
from headwater.features.registry import is_active
from headwater.log.actions.encode import protocol_fields
from headwater.log.actions.model import DomainMetadata
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration.properties import (
    CONSTRAINT_NAME,
    CONSTRAINT_PREFIX,
    ENABLE_ROW_TRACKING,
    INTERNAL,
    check_no_constraint,
    checked_property,
    proper_name,
)
from headwater.log.opening import open_snapshot
from headwater.log.schema.types import dotted
from headwater.search.delta_index import DOMAIN, definition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headwater.commands.alter.commit import Checks
    from headwater.log.actions.model import Protocol
    from headwater.log.commit.transaction import Committed
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.search.delta_index import SearchDefinition


COMMENT = "comment"
"""Not a property, but the table's description under the name that SQL gives it."""


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set properties; those that enable a feature upgrade the protocol as far as needed.

    `comment` is the table's description. `delta.enableRowTracking = true` first gives row ids to all files, in commits
    of their own.
    """

    properties: Mapping[str, str]

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        if not self.properties:
            raise InvalidTablePropertyError("there are no properties to set: give at least one.")
        for name in self.properties:
            check_no_constraint(name, "add it with addConstraint")
        wanted = dict(checked_property(name, value) for name, value in self.properties.items() if name != COMMENT)
        if ENABLE_ROW_TRACKING.read(wanted) and not is_active("rowTracking", snapshot.configuration):
            snapshot = backfill(snapshot)
        metadata = with_configuration(snapshot.metadata, {**snapshot.metadata.configuration, **wanted})
        if COMMENT in self.properties:
            metadata = msgspec.structs.replace(metadata, description=self.properties[COMMENT])
        return commit_metadata(
            snapshot, metadata, Operation("SET TBLPROPERTIES", {"properties": dict(self.properties)})
        )


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """Remove properties, so that their defaults apply again."""

    names: str | Iterable[str]
    if_exists: bool = False

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        given = [self.names] if isinstance(self.names, str) else list(self.names)
        if not given:
            raise InvalidTablePropertyError("there are no properties to unset: give at least one.")
        configuration = dict(snapshot.metadata.configuration)
        metadata = snapshot.metadata
        missing: list[str] = []
        for name in given:
            check_no_constraint(name, "drop it with dropConstraint")
            key = name if name in configuration else proper_name(name)
            if key in INTERNAL:
                raise InvalidTablePropertyError(
                    f"the table property {key} is managed by Headwater: it cannot be unset."
                )
            if name == COMMENT and metadata.description is not None:
                metadata = msgspec.structs.replace(metadata, description=None)
            elif configuration.pop(key, None) is None:
                missing.append(name)
        if missing and not self.if_exists:
            raise InvalidTablePropertyError(
                f"{snapshot.uri} has no table property {', '.join(missing)}: nothing was changed. "
                "Give if_exists=True to unset those that are there."
            )
        operation = Operation("UNSET TBLPROPERTIES", {"properties": given, "ifExists": self.if_exists})
        return commit_metadata(snapshot, with_configuration(metadata, configuration), operation)


@dataclass(frozen=True, slots=True)
class UpgradeProtocol:
    """Raise the versions of the protocol. This cannot be undone, and locks out older clients."""

    reader_version: int
    writer_version: int

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        protocol = upgraded(snapshot.protocol, self.reader_version, self.writer_version)
        return _commit_protocol(
            snapshot, protocol, Operation("UPGRADE PROTOCOL", {"newProtocol": protocol_fields(protocol)})
        )


@dataclass(frozen=True, slots=True)
class AddFeature:
    """Support a table feature. Properties or the schema say whether it is used."""

    name: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        protocol = with_feature(snapshot.protocol, self.name)
        return _commit_protocol(snapshot, protocol, Operation("ADD FEATURE", {"featureName": self.name}))


@dataclass(frozen=True, slots=True)
class DropFeature:
    """Stop supporting a table feature that the table no longer uses.

    `truncate_history` must be False. Only features that readers need as well would have to vanish from the history, and
    those cannot be dropped.
    """

    name: str
    truncate_history: bool = False

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        definition = without_feature(snapshot.configuration, self.name, snapshot.domain_metadata)
        if self.truncate_history:
            raise InvalidCommitError(
                f"{self.name} can be dropped without truncating the history: leave truncateHistory out."
            )
        transaction = Transaction(snapshot.ctx, snapshot)
        set_table(transaction, definition)
        return transaction.commit(Operation("DROP FEATURE", {"featureName": self.name, "truncateHistory": "false"}))


def _commit_protocol(snapshot: Snapshot, protocol: Protocol, operation: Operation) -> Committed | None:
    if protocol == snapshot.protocol:
        return None
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(protocol)
    return transaction.commit(operation)


@dataclass(frozen=True, slots=True)
class SetDomain:
    """Store a text under the name of a domain; the table gets the feature `domainMetadata` if needed."""

    domain: str
    configuration: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        check_user_domain(self.domain)
        if not isinstance(self.configuration, str):
            raise InvalidCommitError(
                f"the configuration of domain {self.domain} must be a text, not {type(self.configuration)}."
            )
        transaction = Transaction(snapshot.ctx, snapshot)
        if not DOMAIN_METADATA.is_supported(snapshot.protocol):
            transaction.set_protocol(with_features(snapshot.protocol, [DOMAIN_METADATA.name]))
        transaction.set_domain(DomainMetadata(self.domain, self.configuration))
        return transaction.commit(Operation("SET DOMAIN METADATA", {"domain": self.domain}))


@dataclass(frozen=True, slots=True)
class RemoveDomain:
    domain: str

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        check_user_domain(self.domain)
        before = snapshot.domain_metadata.get(self.domain)
        if before is None:
            raise InvalidCommitError(f"{snapshot.uri} has no metadata domain {self.domain}.")
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.set_domain(DomainMetadata(self.domain, before, removed=True))
        return transaction.commit(Operation("REMOVE DOMAIN METADATA", {"domain": self.domain}))


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """Cluster new and rewritten files by these columns; an empty list ends clustering."""

    columns: Sequence[str | Sequence[str]]

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed:
        wanted = [column_path(column) for column in self.columns]
        if wanted and snapshot.metadata.partition_columns:
            raise InvalidCommitError(
                f"{snapshot.uri} is partitioned by {', '.join(snapshot.metadata.partition_columns)}: a table cannot be "
                "partitioned and clustered."
            )
        exact = [tuple(field.name for field in snapshot.schema.resolve(path)) for path in wanted]
        parameters = {
            "oldClusteringColumns": ",".join(map(dotted, clustering_paths(snapshot))),
            "newClusteringColumns": ",".join(map(dotted, exact)),
        }
        return commit_metadata(snapshot, snapshot.metadata, Operation("CLUSTER BY", parameters), cluster_by=exact)


def clustering_paths(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return the clustering columns by their logical names."""
    return [logical_path(snapshot.schema, physical) for physical in clustering_columns(snapshot.domain_metadata)]


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """Add a condition in SQL that must be true for every row; null does not count as true."""

    name: str
    expression: str

    def commit(self, snapshot: Snapshot, checks: Checks) -> Committed:
        if not CONSTRAINT_NAME.fullmatch(self.name):
            raise InvalidCommitError(
                f"{self.name!r} cannot be the name of a constraint: use letters, digits and underscores."
            )
        existing = _find(snapshot, self.name)
        if existing is not None:
            raise InvalidCommitError(
                f"{snapshot.uri} has a constraint {self.name} already: {snapshot.metadata.configuration[existing]}. "
                "Drop it first (dropConstraint)."
            )
        checks.check_constraint(snapshot, self.name, self.expression)
        configuration = {**snapshot.metadata.configuration, CONSTRAINT_PREFIX + self.name.lower(): self.expression}
        operation = Operation("ADD CONSTRAINT", {"name": self.name, "expr": self.expression})
        return commit_metadata(
            snapshot, with_configuration(snapshot.metadata, configuration), operation, reads_all_rows=True
        )


@dataclass(frozen=True, slots=True)
class DropConstraint:
    name: str
    if_exists: bool = False

    def commit(self, snapshot: Snapshot, _: Checks) -> Committed | None:
        key = _find(snapshot, self.name)
        if key is None:
            if self.if_exists:
                return None
            properties = sorted(snapshot.metadata.configuration)
            names = [key.removeprefix(CONSTRAINT_PREFIX) for key in properties if key.startswith(CONSTRAINT_PREFIX)]
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise InvalidCommitError(f"{snapshot.uri} has no constraint {self.name}: {has}.")
        configuration = dict(snapshot.metadata.configuration)
        expression = configuration.pop(key)
        operation = Operation("DROP CONSTRAINT", {"name": self.name, "expr": expression, "existed": "true"})
        return commit_metadata(snapshot, with_configuration(snapshot.metadata, configuration), operation)


def _find(snapshot: Snapshot, name: str) -> str | None:
    """Return the property of a constraint, whose name counts in any case."""
    wanted = (CONSTRAINT_PREFIX + name).lower()
    return next((key for key in snapshot.metadata.configuration if key.lower() == wanted), None)


_ATTEMPTS = 10


def set_search_index(snapshot: Snapshot, definition: SearchDefinition) -> Snapshot:
    """Give a table this definition of a search index, and the feature `domainMetadata` if needed.

    Returns:
        A version of the table that has it: a new one only if it had none, or another.

    Raises:
        DeltaConcurrentModificationException: others keep changing the table's definition.
    """
    return _commit_index(snapshot, definition)


def drop_search_index(snapshot: Snapshot) -> Snapshot:
    """Remove the search index; VACUUM deletes the splits once they are old enough."""
    return _commit_index(snapshot, None)


def _commit_index(snapshot: Snapshot, definition: SearchDefinition | None) -> Snapshot:
    for attempts_left in reversed(range(_ATTEMPTS)):
        if definition_of(snapshot) == definition:
            return snapshot
        try:
            return _commit_definition(snapshot.ctx, snapshot, definition)
        except DeltaConcurrentModificationException:
            if not attempts_left:
                raise
            snapshot = open_snapshot(snapshot.ctx)
    raise AssertionError("the last attempt returns or raises")


def _commit_definition(ctx: LogContext, snapshot: Snapshot, definition: SearchDefinition | None) -> Snapshot:
    transaction = Transaction(ctx, snapshot)
    if definition is None:
        transaction.set_domain(DomainMetadata(DOMAIN, snapshot.domain_metadata[DOMAIN], removed=True))
        return transaction.commit(Operation("DROP SEARCH INDEX")).snapshot
    if not DOMAIN_METADATA.is_supported(snapshot.protocol):
        transaction.set_protocol(with_features(snapshot.protocol, [DOMAIN_METADATA.name]))
    transaction.set_domain(DomainMetadata(DOMAIN, definition.to_json()))
    columns = ",".join(column.field.name for column in definition.columns)
    return transaction.commit(Operation("CREATE SEARCH INDEX", {"columns": columns})).snapshot
