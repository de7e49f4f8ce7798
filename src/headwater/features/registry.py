"""Every table feature by name, and what Headwater supports of it (spec: "Valid Feature Names in Table Features").

A feature is a value. The registry holds the names of the spec's table and later ones that real tables carry;
a name that is not here is unknown, and a table that needs it is refused by name. Support is a fact, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Who must understand a feature."""

    WRITER = "writer"
    READER_WRITER = "reader and writer"


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature."""

    name: str
    kind: Kind
    legacy_reader_version: int | None = None
    """The reader version that implies the feature without listing it."""
    legacy_writer_version: int | None = None
    """The writer version from which on the feature is implied without being listed (up to 6)."""
    requires: tuple[str, ...] = ()
    enabled_by: tuple[str, str] | None = None
    """The table property, and its value, that make the feature active; None where the schema does, or support alone."""
    same_as: str | None = None
    """The feature that this one is under another name (a preview, or the spec's text)."""
    reads_log: bool = True
    """Whether the files of such a table are found correctly from its log."""
    writes: bool = True
    """Whether everything the feature demands of a writer is done."""
    reason: str = ""
    """Why it is not supported, for the message."""

    @property
    def is_legacy(self) -> bool:
        """Whether old protocol versions can express it."""
        return self.legacy_writer_version is not None

    @property
    def for_readers(self) -> bool:
        """Whether readers must understand it too."""
        return self.kind is Kind.READER_WRITER


def _writer(
    name: str,
    legacy: int | None = None,
    *requires: str,
    enabled_by: tuple[str, str] | None = None,
    same_as: str | None = None,
) -> Feature:
    return Feature(name, Kind.WRITER, None, legacy, requires, enabled_by, same_as)


def _reader(name: str, enabled_by: tuple[str, str] | None = None, same_as: str | None = None) -> Feature:
    return Feature(name, Kind.READER_WRITER, enabled_by=enabled_by, same_as=same_as)


def _unwritten(name: str, kind: Kind, reason: str, *requires: str) -> Feature:
    return Feature(name, kind, requires=requires, writes=False, reason=reason)


def _unread(name: str, reason: str) -> Feature:
    return Feature(name, Kind.READER_WRITER, reads_log=False, writes=False, reason=reason)


_CATALOG = "only its catalog knows the newest commits, so it cannot be used by path"
_REDIRECT = "it points to another table, which only the catalog may resolve"
_COLLATED = "comparing strings by a collation is not supported"
_ICEBERG = "what newer Iceberg tables demand of data files is not supported"
_PREVIEW = "writing the preview of a feature is not supported"

_ALL = (
    # The spec's own table.
    _writer("appendOnly", 2, enabled_by=("delta.appendOnly", "true")),
    _writer("invariants", 2),
    _writer("checkConstraints", 3),
    _writer("generatedColumns", 4),
    _writer("allowColumnDefaults"),
    _writer("changeDataFeed", 4, enabled_by=("delta.enableChangeDataFeed", "true")),
    Feature("columnMapping", Kind.READER_WRITER, 2, 5),
    _writer("identityColumns", 6),
    _reader("deletionVectors", ("delta.enableDeletionVectors", "true")),
    _writer("rowTracking", None, "domainMetadata", enabled_by=("delta.enableRowTracking", "true")),
    _reader("timestampNtz"),
    _writer("domainMetadata"),
    _reader("v2Checkpoint", ("delta.checkpointPolicy", "v2")),
    _writer("icebergCompatV1", None, "columnMapping", enabled_by=("delta.enableIcebergCompatV1", "true")),
    _writer("icebergCompatV2", None, "columnMapping", enabled_by=("delta.enableIcebergCompatV2", "true")),
    _writer("clustering", None, "domainMetadata"),
    _reader("vacuumProtocolCheck"),
    # The spec's text calls it `inCommitTimestamps`, tables carry `inCommitTimestamp`.
    _writer("inCommitTimestamp", enabled_by=("delta.enableInCommitTimestamps", "true")),
    _writer("inCommitTimestamps", same_as="inCommitTimestamp"),
    # Later features that real tables carry.
    _reader("typeWidening", ("delta.enableTypeWidening", "true")),
    _reader("typeWidening-preview", same_as="typeWidening"),
    _reader("variantType"),
    _reader("variantType-preview", same_as="variantType"),
    # Shredding is a permission, not a duty: files without it are right too.
    _reader("variantShredding", ("delta.enableVariantShredding", "true")),
    _reader("variantShredding-preview", same_as="variantShredding"),
    _writer("materializePartitionColumns", enabled_by=("delta.enableMaterializePartitionColumnsFeature", "true")),
    _unwritten("inCommitTimestamp-preview", Kind.WRITER, _PREVIEW),
    _unwritten("liquid", Kind.WRITER, _PREVIEW, "domainMetadata"),
    _unwritten("icebergCompatV3", Kind.WRITER, _ICEBERG, "columnMapping"),
    _unwritten("icebergWriterCompatV1", Kind.WRITER, _ICEBERG, "icebergCompatV2"),
    _unwritten("icebergWriterCompatV3", Kind.WRITER, _ICEBERG, "icebergCompatV3"),
    _unwritten("collations", Kind.WRITER, _COLLATED, "domainMetadata"),
    _unwritten("collations-preview", Kind.WRITER, _COLLATED, "domainMetadata"),
    _unwritten(
        "checkpointProtection",
        Kind.WRITER,
        "it forbids to clean up parts of the log, which log cleanup does not heed yet",
    ),
    _unwritten(
        "coordinatedCommits-preview",
        Kind.WRITER,
        "its commits must go through a commit coordinator",
        "inCommitTimestamp-preview",
        "vacuumProtocolCheck",
    ),
    _unwritten("redirectWriterOnly-preview", Kind.WRITER, _REDIRECT),
    _unread("redirectReaderWriter-preview", _REDIRECT),
    _unread("catalogManaged", _CATALOG),
    _unread("catalogOwned", _CATALOG),
    _unread("catalogOwned-preview", _CATALOG),
    _unread("geospatial", "geometry and geography types are not supported"),
)

FEATURES: dict[str, Feature] = {feature.name: feature for feature in _ALL}
"""All known features by name."""

_BY_FOLDED_NAME = {feature.name.lower(): feature for feature in _ALL}


def find_feature(name: str) -> Feature | None:
    """The feature of a name that a user wrote, in any case.

    >>> find_feature("DELETIONVECTORS").name
    'deletionVectors'
    """
    return _BY_FOLDED_NAME.get(name.lower())


def similar_features(name: str) -> list[str]:
    """Names that a user may have meant, the nearest first."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), [f.name.lower() for f in _ALL if f.writes], n=3, cutoff=0.6)
    return [_BY_FOLDED_NAME[c].name for c in close]
