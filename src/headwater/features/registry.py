"""Every table feature, and whether a table can be read or written (spec: "Valid Feature Names in Table Features").

The registry holds the names of the spec's table and later ones that real tables carry. A name that is not here is
unknown, and a table that needs it is refused by name. Reader versions 1 to 3 and writer versions 1 to 7 are understood;
a table of version 3 or 7 lists its features, and each must be one that is supported here. A writer reads the table
first, so what cannot be read cannot be written.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, UnsupportedProtocolError
from headwater.features.basic_rules import (
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    DELETION_VECTORS,
    DOMAIN_METADATA,
    IN_COMMIT_TIMESTAMP,
)
from headwater.features.clustering import CLUSTERING
from headwater.features.column_mapping import COLUMN_MAPPING
from headwater.features.feature import (
    DEFAULT_KEY,
    GENERATION_KEY,
    INVARIANTS_KEY,
    TABLE_FEATURES_READER_VERSION,
    TABLE_FEATURES_WRITER_VERSION,
    Feature,
    Kind,
    all_types,
    fields_by_path,
)
from headwater.features.iceberg_compat import ICEBERG_COMPAT_V1, ICEBERG_COMPAT_V2, MATERIALIZED_PARTITION_COLUMNS
from headwater.features.identity_columns import IDENTITY_COLUMNS
from headwater.features.row_tracking import ROW_TRACKING
from headwater.features.type_widening import TYPE_WIDENING
from headwater.log.configuration.properties import (
    CHECKPOINT_POLICY,
    CONSTRAINT_PREFIX,
    ENABLE_VARIANT_SHREDDING,
)
from headwater.log.schema import TIMESTAMP_NTZ, VARIANT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.actions.model import Protocol
    from headwater.log.configuration import TableConfiguration
    from headwater.log.schema import StructType


def _unwritten(name: str, reason: str, *requires: str) -> Feature:
    return Feature(name, Kind.WRITER, requires=requires, writes=False, reason=reason)


def _unread(name: str, reason: str) -> Feature:
    return Feature(name, Kind.READER_WRITER, reads_log=False, writes=False, reason=reason)


_CATALOG = "only its catalog knows the newest commits, so it cannot be used by path"
_REDIRECT = "it points to another table, which only the catalog may resolve"
_COLLATED = "comparing strings by a collation is not supported"
_ICEBERG = "what newer Iceberg tables demand of data files is not supported"
_PREVIEW = "writing the preview of a feature is not supported"

_ALL = (
    # The spec's own table.
    APPEND_ONLY,
    Feature(
        "invariants",
        Kind.WRITER,
        legacy_writer_version=2,
        column_keys=(INVARIANTS_KEY,),
        in_use="columns have invariants",
    ),
    Feature(
        "checkConstraints",
        Kind.WRITER,
        legacy_writer_version=3,
        enabled=lambda properties: any(name.startswith(CONSTRAINT_PREFIX) for name in properties),
        in_use="it has constraints; drop them first",
    ),
    Feature(
        "generatedColumns",
        Kind.WRITER,
        legacy_writer_version=4,
        column_keys=(GENERATION_KEY,),
        in_use="columns have generation expressions",
    ),
    Feature(
        "allowColumnDefaults",
        Kind.WRITER,
        column_keys=(DEFAULT_KEY,),
        in_use="columns have defaults; drop them first",
    ),
    CHANGE_DATA_FEED,
    COLUMN_MAPPING,
    IDENTITY_COLUMNS,
    DELETION_VECTORS,
    ROW_TRACKING,
    Feature("timestampNtz", Kind.READER_WRITER, types=(TIMESTAMP_NTZ,)),
    DOMAIN_METADATA,
    Feature("v2Checkpoint", Kind.READER_WRITER, enabled=lambda properties: CHECKPOINT_POLICY.read(properties) == "v2"),
    ICEBERG_COMPAT_V1,
    ICEBERG_COMPAT_V2,
    CLUSTERING,
    # Only VACUUM asks for it.
    Feature("vacuumProtocolCheck", Kind.READER_WRITER, leaves_no_trace=True),
    IN_COMMIT_TIMESTAMP,
    # Later features that real tables carry.
    TYPE_WIDENING,
    Feature("variantType", Kind.READER_WRITER, aliases=("variantType-preview",), types=(VARIANT,)),
    # Shredding is a permission, not a duty: files without it are right too.
    Feature(
        "variantShredding",
        Kind.READER_WRITER,
        aliases=("variantShredding-preview",),
        enabled=ENABLE_VARIANT_SHREDDING.read,
        properties=(ENABLE_VARIANT_SHREDDING,),
    ),
    MATERIALIZED_PARTITION_COLUMNS,
    _unwritten("inCommitTimestamp-preview", _PREVIEW),
    _unwritten("liquid", _PREVIEW, "domainMetadata"),
    _unwritten("icebergCompatV3", _ICEBERG, "columnMapping"),
    _unwritten("icebergWriterCompatV1", _ICEBERG, "icebergCompatV2"),
    _unwritten("icebergWriterCompatV3", _ICEBERG, "icebergCompatV3"),
    _unwritten("collations", _COLLATED, "domainMetadata"),
    _unwritten("collations-preview", _COLLATED, "domainMetadata"),
    _unwritten("checkpointProtection", "it forbids to clean up parts of the log, which log cleanup does not heed yet"),
    _unwritten(
        "coordinatedCommits-preview",
        "its commits must go through a commit coordinator",
        "inCommitTimestamp-preview",
        "vacuumProtocolCheck",
    ),
    _unwritten("redirectWriterOnly-preview", _REDIRECT),
    _unread("redirectReaderWriter-preview", _REDIRECT),
    _unread("catalogManaged", _CATALOG),
    _unread("catalogOwned", _CATALOG),
    _unread("catalogOwned-preview", _CATALOG),
    _unread("geospatial", "geometry and geography types are not supported"),
)


def _with_aliases() -> Iterator[Feature]:
    for feature in _ALL:
        yield feature
        yield from (Feature(alias, feature.kind, same_as=feature.name) for alias in feature.aliases)


FEATURES: dict[str, Feature] = {feature.name: feature for feature in _with_aliases()}
"""All known features by name, aliases included."""

_BY_FOLDED_NAME = {feature.name.lower(): feature for feature in FEATURES.values()}


def find_feature(name: str) -> Feature | None:
    """Return the feature of a name that a user wrote, in any case.

    >>> find_feature("DELETIONVECTORS").name
    'deletionVectors'
    """
    return _BY_FOLDED_NAME.get(name.lower())


def similar_features(name: str) -> list[str]:
    """Names that a user may have meant, the nearest first."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), [f.name.lower() for f in FEATURES.values() if f.writes], n=3, cutoff=0.6)
    return [_BY_FOLDED_NAME[c].name for c in close]


def check_readable(configuration: TableConfiguration) -> None:
    """Raise unless the log of a table with this protocol can be read correctly.

    Raises:
        UnsupportedProtocolError: the table needs a newer reader version, or features that are not supported.
        CorruptLogError: the protocol action contradicts itself.
    """
    protocol, metadata = configuration.protocol, configuration.metadata
    version = protocol.min_reader_version
    if not 1 <= version <= TABLE_FEATURES_READER_VERSION:
        raise UnsupportedProtocolError(
            f"the table needs Delta reader version {version}; Headwater reads versions 1 to "
            f"{TABLE_FEATURES_READER_VERSION}. A newer release may read it."
        )
    if metadata.format.provider.lower() != "parquet":
        raise UnsupportedProtocolError(
            f"the table's data files are {metadata.format.provider!r}; only Parquet is supported."
        )
    if version < TABLE_FEATURES_READER_VERSION:
        if protocol.reader_features:
            raise CorruptLogError(
                f"the protocol action is not valid: it lists the readerFeatures {list(protocol.reader_features)}, "
                f"which only reader version 3 does, but has reader version {version}."
            )
        _check_read(protocol)
        return
    if protocol.min_writer_version != TABLE_FEATURES_WRITER_VERSION or protocol.reader_features is None:
        raise CorruptLogError(
            "the protocol action is not valid: reader version 3 needs writer version 7 and a list of readerFeatures, "
            f"but it is {protocol.min_writer_version} and {protocol.reader_features}."
        )
    _check_read(protocol)


def _check_read(protocol: Protocol) -> None:
    """Raise if a reader must understand a feature that is unknown, or known and not supported.

    What a known feature means for readers does not depend on the list that names it: a table that is managed by its
    catalog is, even if only `writerFeatures` says so. Unknown names in that list are the business of writers.
    """
    readers = protocol.reader_features or ()
    missing = [name for name in readers if name not in FEATURES or not FEATURES[name].reads_log]
    missing += [
        name
        for name in protocol.writer_features or ()
        if name in FEATURES and not FEATURES[name].reads_log and name not in readers
    ]
    if missing:
        raise UnsupportedProtocolError(
            f"the table needs {_plural('reader feature', missing)} that Headwater does not support: "
            + "; ".join(_explained(name) for name in missing),
            features=tuple(missing),
        )


def check_writable(configuration: TableConfiguration) -> None:
    """Raise unless a table with this protocol can be written correctly, with everything its features demand.

    Raises:
        UnsupportedProtocolError: the table needs a newer writer version, or features that are not supported.
        CorruptLogError: the protocol action contradicts itself.
    """
    check_readable(configuration)
    protocol = configuration.protocol
    version = protocol.min_writer_version
    if not 1 <= version <= TABLE_FEATURES_WRITER_VERSION:
        raise UnsupportedProtocolError(
            f"the table needs Delta writer version {version}; Headwater writes versions 1 to "
            f"{TABLE_FEATURES_WRITER_VERSION}. A newer release may write it."
        )
    if version < TABLE_FEATURES_WRITER_VERSION:
        if protocol.writer_features:
            raise CorruptLogError(
                f"the protocol action is not valid: it lists the writerFeatures {list(protocol.writer_features)}, "
                f"which only writer version 7 does, but has writer version {version}."
            )
        return
    if protocol.writer_features is None:
        raise CorruptLogError("the protocol action is not valid: writer version 7 needs a list of writerFeatures.")
    _check_lists(protocol.reader_features or (), protocol.writer_features)


def _check_lists(readers: tuple[str, ...], writers: tuple[str, ...]) -> None:
    missing = [name for name in writers if name not in FEATURES or not FEATURES[name].writes]
    if missing:
        raise UnsupportedProtocolError(
            f"the table needs {_plural('writer feature', missing)} that Headwater does not support: "
            + "; ".join(_explained(name) for name in missing),
            features=tuple(missing),
        )
    for name in readers:
        if name not in writers:
            raise CorruptLogError(
                f"the protocol action is not valid: {name} is in readerFeatures, but not in writerFeatures."
            )
    for name in writers:
        required = [r for r in FEATURES[name].requires if r not in writers]
        if required:
            raise CorruptLogError(
                f"the protocol action is not valid: {name} needs {', '.join(required)} too, "
                "which writerFeatures does not have."
            )


def _plural(noun: str, items: list[str]) -> str:
    return f"a {noun}" if len(items) == 1 else f"{noun}s"


def _explained(name: str) -> str:
    known = FEATURES.get(name)
    return f"{name} ({known.reason if known is not None else 'unknown to this release'})"


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that the protocol lists or implies, each by its main name.

    >>> from headwater.log.actions.model import Protocol
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
    """Return the features that legacy versions imply, in the order of the registry."""
    return tuple(feature.name for feature in _ALL if feature.is_implied(reader, writer))


def main_name(name: str) -> str:
    """Return the name that the rest of the code uses for a feature with several names."""
    feature = FEATURES.get(name)
    return name if feature is None or feature.same_as is None else feature.same_as


def supports(protocol: Protocol, name: str) -> bool:
    """Tell whether the table supports a feature, listed under any of its names or implied by version."""
    return name in supported_features(protocol)


def is_active(name: str, table: TableConfiguration) -> bool:
    """Tell whether a feature is supported and, where a table property switches it on, switched on."""
    return FEATURES[name].is_enabled(table)


def demanded_features(properties: Mapping[str, str], schema: StructType) -> set[str]:
    """Return the features without which other writers would not heed these properties and this schema."""
    keys = {key for _, field in fields_by_path(schema) for key in field.metadata}
    types = set(all_types(schema))
    return {feature.name for feature in _ALL if feature.is_demanded(properties, keys, types)}
