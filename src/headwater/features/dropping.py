"""Taking a feature out of a table again (`dropFeatureSupport`).

A feature of writers can go once nothing in the table uses it any more: writers only look at the newest version. A
feature of readers too must also be gone from every version that time travel still reaches, which asks for rewritten
files and a truncated history; such features are refused, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import InvalidCommitError, UnsupportedProtocolError
from headwater.features import clustering
from headwater.features.activation import CONSTRAINT_PREFIX, demanded_features, main_name, supports
from headwater.features.properties import (
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
)
from headwater.features.protocols import without_feature
from headwater.features.registry import FEATURES, find_feature
from headwater.features.table_changes import TableDefinition
from headwater.log.actions import DomainMetadata
from headwater.log.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.actions import Metadata, Protocol

_PROPERTIES = {
    "changeDataFeed": ("delta.enableChangeDataCapture",),
    "inCommitTimestamp": (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP),
    "rowTracking": (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN),
}
"""What goes with a feature besides the property that switches it on."""
_IN_USE = {
    "invariants": "columns have invariants",
    "checkConstraints": "it has constraints; drop them first",
    "generatedColumns": "columns have generation expressions",
    "allowColumnDefaults": "columns have defaults; drop them first",
    "identityColumns": "columns are identity columns; drop them first",
}
_BARE = ("vacuumProtocolCheck",)
"""Features for readers too that leave no trace in any version: only VACUUM asks for them."""


def drop_feature(protocol: Protocol, metadata: Metadata, name: str, domains: Mapping[str, str]) -> TableDefinition:
    """The definition of the table without a feature; commit it as the operation `DROP FEATURE`.

    Args:
        protocol: the table's protocol.
        metadata: its metaData.
        name: the feature, in any case.
        domains: the table's metadata domains (`snapshot.domain_metadata`).

    Raises:
        UnsupportedProtocolError: there is no such feature.
        InvalidCommitError: the table does not have it, still uses it, or it cannot be dropped.
    """
    feature = find_feature(name)
    if feature is None:
        raise UnsupportedProtocolError(f"there is no table feature {name!r}.", (name,))
    main = main_name(feature.name)
    if not supports(protocol, main):
        raise InvalidCommitError(f"the table does not support {main}: there is nothing to drop.")
    if feature.for_readers and main not in _BARE:
        raise InvalidCommitError(
            f"{main} cannot be dropped: older versions of the table need it, and would first have to be rewritten and "
            "cut off from its history. Write the rows to a new table instead."
        )
    _check_dependants(protocol, main)
    configuration = _without_properties(metadata.configuration, main)
    _check_unused(main, configuration, StructType.from_json(metadata.schema_string))
    return TableDefinition(
        without_feature(protocol, main),
        msgspec.structs.replace(metadata, configuration=configuration),
        _without_domains(main, domains),
    )


def _check_dependants(protocol: Protocol, name: str) -> None:
    needing = [f.name for f in FEATURES.values() if name in f.requires and supports(protocol, f.name)]
    if needing:
        raise InvalidCommitError(
            f"{name} cannot be dropped while the table supports {', '.join(needing)}: drop it first."
        )


def _without_properties(configuration: Mapping[str, str], name: str) -> dict[str, str]:
    switch = FEATURES[name].enabled_by
    gone = {*_PROPERTIES.get(name, ()), *(() if switch is None else (switch[0],))}
    return {key: value for key, value in configuration.items() if key not in gone}


def _check_unused(name: str, configuration: Mapping[str, str], schema: StructType) -> None:
    if name in demanded_features(configuration, schema):
        constraints = [k.removeprefix(CONSTRAINT_PREFIX) for k in configuration if k.startswith(CONSTRAINT_PREFIX)]
        which = f" ({', '.join(constraints)})" if name == "checkConstraints" else ""
        raise InvalidCommitError(f"{name} cannot be dropped from the table: {_IN_USE[name]}{which}.")


def _without_domains(name: str, domains: Mapping[str, str]) -> tuple[DomainMetadata, ...]:
    """The domain of a feature goes with it. That of row tracking stays: were tracking ever switched on again, ids must
    go on above the mark."""
    if name == clustering.FEATURE:
        columns = clustering.clustering_columns(domains)
        if columns:
            raise InvalidCommitError(
                "clustering cannot be dropped while the table is clustered: cluster it by nothing first."
            )
        if clustering.DOMAIN in domains:
            return (DomainMetadata(clustering.DOMAIN, domains[clustering.DOMAIN], removed=True),)
    if name == "domainMetadata" and domains:
        raise InvalidCommitError(
            f"domainMetadata cannot be dropped while there are domains: {', '.join(sorted(domains))}."
        )
    return ()
