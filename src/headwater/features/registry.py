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
    reads_log: bool = True
    """Whether the files of such a table are found correctly from its log."""
    reason: str = ""
    """Why it is not supported, for the message."""


def _writer(name: str, legacy: int | None = None, *requires: str) -> Feature:
    return Feature(name, Kind.WRITER, None, legacy, requires)


def _reader(name: str, *requires: str) -> Feature:
    return Feature(name, Kind.READER_WRITER, requires=requires)


_CATALOG = "only its catalog knows the newest commits, so it cannot be read by path"
_REDIRECT = "it points to another table, which only the catalog may resolve"

_ALL = (
    # The spec's own table.
    _writer("appendOnly", 2),
    _writer("invariants", 2),
    _writer("checkConstraints", 3),
    _writer("generatedColumns", 4),
    _writer("allowColumnDefaults"),
    _writer("changeDataFeed", 4),
    Feature("columnMapping", Kind.READER_WRITER, 2, 5),
    _writer("identityColumns", 6),
    _reader("deletionVectors"),
    _writer("rowTracking", None, "domainMetadata"),
    _reader("timestampNtz"),
    _writer("domainMetadata"),
    _reader("v2Checkpoint"),
    _writer("icebergCompatV1", None, "columnMapping"),
    _writer("icebergCompatV2", None, "columnMapping"),
    _writer("clustering", None, "domainMetadata"),
    _reader("vacuumProtocolCheck"),
    # The spec's text calls it `inCommitTimestamps`, tables carry `inCommitTimestamp`.
    _writer("inCommitTimestamp"),
    _writer("inCommitTimestamps"),
    _writer("inCommitTimestamp-preview"),
    # Later features that real tables carry.
    _writer("liquid", None, "domainMetadata"),
    _writer("icebergCompatV3", None, "columnMapping"),
    _writer("icebergWriterCompatV1", None, "icebergCompatV2"),
    _writer("icebergWriterCompatV3", None, "icebergCompatV3"),
    _writer("materializePartitionColumns"),
    _writer("collations", None, "domainMetadata"),
    _writer("collations-preview", None, "domainMetadata"),
    _writer("checkpointProtection"),
    _writer("coordinatedCommits-preview", None, "inCommitTimestamp-preview", "vacuumProtocolCheck"),
    _reader("typeWidening"),
    _reader("typeWidening-preview"),
    _reader("variantType"),
    _reader("variantType-preview"),
    _reader("variantShredding"),
    _reader("variantShredding-preview"),
    Feature("catalogManaged", Kind.READER_WRITER, reads_log=False, reason=_CATALOG),
    Feature("catalogOwned", Kind.READER_WRITER, reads_log=False, reason=_CATALOG),
    Feature("catalogOwned-preview", Kind.READER_WRITER, reads_log=False, reason=_CATALOG),
    Feature("redirectReaderWriter-preview", Kind.READER_WRITER, reads_log=False, reason=_REDIRECT),
    Feature("redirectWriterOnly-preview", Kind.WRITER),
    Feature(
        "geospatial",
        Kind.READER_WRITER,
        reads_log=False,
        reason="geometry and geography types are not supported",
    ),
)

FEATURES: dict[str, Feature] = {feature.name: feature for feature in _ALL}
"""All known features by name."""
