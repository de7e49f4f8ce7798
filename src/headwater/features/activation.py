"""Which features a table supports, which are active, and which its metaData asks for (spec: "Active Features").

A feature is supported when the protocol lists it or, for the old ones, implies it by version. It is active when it is
supported and the table's properties or schema make use of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.features.registry import FEATURES
from headwater.features.schema_walk import all_types, fields_by_path
from headwater.log.schema import TIMESTAMP_NTZ, VARIANT, StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.actions import Metadata, Protocol

TABLE_FEATURES_READER_VERSION = 3
TABLE_FEATURES_WRITER_VERSION = 7

CONSTRAINT_PREFIX = "delta.constraints."
INVARIANTS_KEY = "delta.invariants"
GENERATION_KEY = "delta.generationExpression"
DEFAULT_KEY = "CURRENT_DEFAULT"
IDENTITY_PREFIX = "delta.identity."
_MODE_PROPERTY = "delta.columnMapping.mode"
_OLD_CHANGE_DATA_FEED_PROPERTY = "delta.enableChangeDataCapture"

_BY_COLUMN_KEY = {
    INVARIANTS_KEY: "invariants",
    GENERATION_KEY: "generatedColumns",
    DEFAULT_KEY: "allowColumnDefaults",
    "delta.identity.start": "identityColumns",
    "delta.identity.step": "identityColumns",
    "delta.identity.highWaterMark": "identityColumns",
    "delta.identity.allowExplicitInsert": "identityColumns",
}
"""Column metadata, and the feature without which a writer would not heed it."""
_BY_TYPE = {TIMESTAMP_NTZ: "timestampNtz", VARIANT: "variantType"}


def supported_features(protocol: Protocol) -> frozenset[str]:
    """The features that the protocol lists or implies, each by its main name.

    >>> from headwater.log.actions import Protocol
    >>> sorted(supported_features(Protocol(1, 3)))
    ['appendOnly', 'checkConstraints', 'invariants']
    """
    return _supported(
        protocol.min_reader_version,
        protocol.min_writer_version,
        protocol.reader_features or (),
        protocol.writer_features or (),
    )


@lru_cache(maxsize=64)
def _supported(reader: int, writer: int, readers: tuple[str, ...], writers: tuple[str, ...]) -> frozenset[str]:
    if writer < TABLE_FEATURES_WRITER_VERSION:
        return frozenset(implied_features(reader, writer))
    return frozenset(main_name(name) for name in (*readers, *writers))


def implied_features(reader: int, writer: int) -> tuple[str, ...]:
    """The features that legacy versions imply, in the order of the registry."""
    return tuple(
        name
        for name, feature in FEATURES.items()
        if feature.legacy_writer_version is not None
        and feature.legacy_writer_version <= writer < TABLE_FEATURES_WRITER_VERSION
        and (feature.legacy_reader_version or 1) <= reader
    )


def main_name(name: str) -> str:
    """The name that the rest of the code uses for a feature with several names."""
    feature = FEATURES.get(name)
    return name if feature is None or feature.same_as is None else feature.same_as


def supports(protocol: Protocol, name: str) -> bool:
    """Whether the table supports a feature, listed under any of its names or implied by version."""
    return name in supported_features(protocol)


def is_active(name: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a feature is supported and, where a table property switches it on, switched on."""
    return supports(protocol, name) and _is_switched_on(name, metadata.configuration)


def active(protocol: Protocol, metadata: Metadata) -> frozenset[str]:
    """All active features: supported ones that properties or the schema use, or that need neither.

    >>> from headwater.log.actions import Metadata, Protocol
    >>> empty = '{"type":"struct","fields":[]}'
    >>> sorted(active(Protocol(1, 4), Metadata("id", empty, configuration={"delta.appendOnly": "true"})))
    ['appendOnly']
    """
    used = demanded_features(metadata.configuration, StructType.from_json(metadata.schema_string))
    by_use = {*_BY_COLUMN_KEY.values(), *_BY_TYPE.values(), "checkConstraints", "columnMapping"}
    return frozenset(
        name
        for name in supported_features(protocol)
        if (name in used if name in by_use else _is_switched_on(name, metadata.configuration))
    )


def demanded_features(configuration: Mapping[str, str], schema: StructType) -> set[str]:
    """The features without which other writers would not heed these properties and this schema."""
    wanted = {name for name, f in FEATURES.items() if f.enabled_by is not None and _is_switched_on(name, configuration)}
    if any(name.startswith(CONSTRAINT_PREFIX) for name in configuration):
        wanted.add("checkConstraints")
    if configuration.get(_MODE_PROPERTY, "none").lower() != "none":
        wanted.add("columnMapping")
    for _, field in fields_by_path(schema):
        wanted.update(feature for key, feature in _BY_COLUMN_KEY.items() if key in field.metadata)
    for type_ in all_types(schema):
        if type_ in _BY_TYPE:
            wanted.add(_BY_TYPE[type_])
    return wanted


def _is_switched_on(name: str, configuration: Mapping[str, str]) -> bool:
    switch = FEATURES[name].enabled_by if name in FEATURES else None
    if switch is None:
        return True
    value = configuration.get(switch[0])
    if value is None and name == "changeDataFeed":
        value = configuration.get(_OLD_CHANGE_DATA_FEED_PROPERTY)
    return value is not None and value.lower() == switch[1]
