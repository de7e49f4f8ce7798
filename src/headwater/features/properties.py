"""The table properties of the `delta.` family: which exist, and which values they may have.

A property that nobody knows is refused: a typing error in a name would otherwise be a wish that is never heard. Names
are accepted in any case and kept in the proper one. Properties of users' own stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, InvalidTablePropertyError
from headwater.features.activation import CONSTRAINT_PREFIX
from headwater.log.retention import parse_interval_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "delta."
FEATURE_PREFIX = "delta.feature."
MIN_READER_VERSION = "delta.minReaderVersion"
MIN_WRITER_VERSION = "delta.minWriterVersion"
IGNORE_PROTOCOL_DEFAULTS = "delta.ignoreProtocolDefaults"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
STATS_COLUMNS = "delta.dataSkippingStatsColumns"
CONSTRAINT_NAME = re.compile(r"\w[\w.-]*")
"""What a constraint may be called."""

_Check = Callable[[str], str]
"""Gives a value as it is stored, or raises `ValueError` with what it should be."""


def _flag(value: str) -> str:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return value.strip().lower()


def _at_least(lowest: int, highest: int = 2**31 - 1) -> _Check:
    def check(value: str) -> str:
        text = value.strip()
        number = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
        if number is None or not lowest <= number <= highest:
            raise ValueError(f"it must be a whole number from {lowest} to {highest}")
        return str(number)

    return check


def _interval(value: str) -> str:
    try:
        parse_interval_ms(value)
    except HeadwaterError as error:
        raise ValueError(
            "it must be an interval such as 'interval 30 days' or 'interval 36 hours'; months and years have no "
            "fixed length"
        ) from error
    return value.strip()


def _one_of(*choices: str) -> _Check:
    def check(value: str) -> str:
        for choice in choices:
            if value.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"it must be {' or '.join(choices)}")

    return check


def _text(value: str) -> str:
    return value


def _size(value: str) -> str:
    text = value.strip().lower()
    if not text.rstrip("bkmgt").isdecimal() or not text.isascii():
        raise ValueError("it must be a number of bytes, such as 134217728, 128mb or 1g")
    return value.strip()


def _internal(value: str) -> str:  # noqa: ARG001
    raise ValueError("it is kept by Headwater itself and cannot be set")


def _refused(reason: str) -> _Check:
    def check(value: str) -> str:
        if value.strip().lower() in ("", "false"):
            return value.strip()
        raise ValueError(reason)

    return check


_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "zstd", "brotli", "lzo")

_CHECKS: dict[str, _Check] = {
    "appendOnly": _flag,
    "autoOptimize": _flag,
    "autoOptimize.autoCompact": _one_of("true", "false", "auto", "legacy"),
    "autoOptimize.optimizeWrite": _flag,
    "castIcebergTimeType": _flag,
    "checkpoint.writeStatsAsJson": _flag,
    "checkpoint.writeStatsAsStruct": _flag,
    "checkpointInterval": _at_least(1),
    "checkpointPolicy": _one_of("classic", "v2"),
    "checkpointRetentionDuration": _interval,
    "columnMapping.maxColumnId": _internal,
    "columnMapping.mode": _one_of("none", "name", "id"),
    "compatibility.symlinkFormatManifest.enabled": _flag,
    "coordinatedCommits.commitCoordinator-preview": _refused("commit coordinators are not supported"),
    "coordinatedCommits.commitCoordinatorConf-preview": _refused("commit coordinators are not supported"),
    "coordinatedCommits.tableConf-preview": _refused("commit coordinators are not supported"),
    "dataSkippingNumIndexedCols": _at_least(-1),
    "dataSkippingStatsColumns": _text,
    "dataSkippingStringPrefixLength": _at_least(1),
    "deletedFileRetentionDuration": _interval,
    "dropFeatureTruncateHistory.retentionDuration": _interval,
    "enableChangeDataCapture": _flag,
    "enableChangeDataFeed": _flag,
    "enableDeletionVectors": _flag,
    "enableExpiredLogCleanup": _flag,
    "enableFullRetentionRollback": _flag,
    "enableIcebergCompatV1": _flag,
    "enableIcebergCompatV2": _flag,
    "enableIcebergCompatV3": _refused("the table feature icebergCompatV3 is not supported"),
    "enableIcebergWriterCompatV1": _refused("the table feature icebergWriterCompatV1 is not supported"),
    "enableIcebergWriterCompatV3": _refused("the table feature icebergWriterCompatV3 is not supported"),
    "enableInCommitTimestamps": _flag,
    "enableMaterializePartitionColumnsFeature": _flag,
    "enableRowTracking": _flag,
    "enableTypeWidening": _flag,
    "enableVariantShredding": _flag,
    "ignoreIcebergBucketPartition": _flag,
    "ignoreProtocolDefaults": _flag,
    "inCommitTimestampEnablementTimestamp": _internal,
    "inCommitTimestampEnablementVersion": _internal,
    "isolationLevel": _one_of("Serializable", "WriteSerializable"),
    "logRetentionDuration": _interval,
    "minReaderVersion": _at_least(1, 3),
    "minWriterVersion": _at_least(1, 7),
    "parquet.compression.codec": _one_of(*_CODECS),
    "parquet.format.version": _text,
    "randomPrefixLength": _at_least(1),
    "randomizeFilePrefixes": _flag,
    "redirectReaderWriter-preview": _refused("redirected tables are not supported"),
    "redirectWriterOnly-preview": _refused("redirected tables are not supported"),
    "requireCheckpointProtectionBeforeVersion": _internal,
    "rowTracking.materializedRowCommitVersionColumnName": _internal,
    "rowTracking.materializedRowIdColumnName": _internal,
    "rowTrackingSuspended": _refused("row tracking cannot be suspended; set delta.enableRowTracking to false"),
    "sampleRetentionDuration": _interval,
    "setTransactionRetentionDuration": _interval,
    "targetFileSize": _size,
    "tuneFileSizesForRewrites": _flag,
    "universalFormat.enabledFormats": _refused("the metadata of other table formats is not written"),
    "universalFormat.iceberg.atomicConversion.supported": _refused("the metadata of Iceberg is not written"),
    "writePartitionColumnsToParquet": _flag,
}

PROPERTIES: dict[str, _Check] = {PREFIX + name: check for name, check in _CHECKS.items()}
"""What checks the value of each known property."""
_BY_FOLDED_NAME = {name.lower(): name for name in PROPERTIES}
INTERNAL = frozenset(name for name, check in PROPERTIES.items() if check is _internal)
"""Properties that say what writers have done, not what users want."""


@dataclass(frozen=True, slots=True)
class ProtocolWishes:
    """What properties ask of the protocol; they are not kept as properties."""

    features: tuple[str, ...] = ()
    """As the user wrote them."""
    min_reader_version: int = 1
    min_writer_version: int = 1


def proper_name(name: str) -> str:
    """The name of a property as it is kept: `DELTA.APPENDONLY` is `delta.appendOnly`.

    >>> proper_name("delta.appendonly"), proper_name("owner")
    ('delta.appendOnly', 'owner')
    """
    folded = name.lower()
    if folded.startswith((CONSTRAINT_PREFIX, FEATURE_PREFIX)):
        prefix = CONSTRAINT_PREFIX if folded.startswith(CONSTRAINT_PREFIX) else FEATURE_PREFIX
        return prefix + name[len(prefix) :]
    return _BY_FOLDED_NAME.get(folded, name)


def checked_property(name: str, value: str) -> tuple[str, str]:
    """A property as it is kept, its proper name and value.

    Raises:
        InvalidTablePropertyError: there is no such property, or it cannot have this value.

    >>> checked_property("delta.APPENDONLY", "True")
    ('delta.appendOnly', 'true')
    """
    if not isinstance(value, str):
        raise InvalidTablePropertyError(f"the table property {name} must be a text, but it is {value!r}.")
    name = proper_name(name)
    if not name.lower().startswith(PREFIX):
        return name, value
    if name.startswith(CONSTRAINT_PREFIX):
        if name == CONSTRAINT_PREFIX or not value.strip():
            raise InvalidTablePropertyError(f"the constraint {name!r} needs a name and an expression.")
        return name, value
    if name.startswith(FEATURE_PREFIX):
        if value.strip().lower() not in ("supported", "enabled"):
            raise InvalidTablePropertyError(f"the table property {name} cannot be {value!r}: it must be supported.")
        return name, "supported"
    check = PROPERTIES.get(name)
    if check is None:
        raise InvalidTablePropertyError(f"there is no table property {name}.{_suggestion(name)}")
    try:
        return name, check(value)
    except ValueError as error:
        raise InvalidTablePropertyError(f"the table property {name} cannot be {value!r}: {error}.") from error


def check_no_constraint(name: str, advice: str) -> None:
    """Raise if a property is a CHECK constraint: rows that are there must be looked at before it can be one.

    Args:
        name: of the property, in any case.
        advice: what to do instead.

    Raises:
        InvalidTablePropertyError: it is.
    """
    if name.lower().startswith(CONSTRAINT_PREFIX):
        raise InvalidTablePropertyError(f"{name} is a constraint, not a property to set: {advice}.")


def checked_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], ProtocolWishes]:
    """The properties as they are kept, and what they ask of the protocol.

    Raises:
        InvalidTablePropertyError: one of them does not exist or cannot have its value.
    """
    kept: dict[str, str] = {}
    features: list[str] = []
    versions = {MIN_READER_VERSION: 1, MIN_WRITER_VERSION: 1}
    for given, text in properties.items():
        name, value = checked_property(given, text)
        if name in versions:
            versions[name] = int(value)
        elif name.startswith(FEATURE_PREFIX):
            features.append(name.removeprefix(FEATURE_PREFIX))
        elif name != IGNORE_PROTOCOL_DEFAULTS:  # there are no defaults of a session here
            kept[name] = value
    _check_constraint_names(kept)
    return kept, ProtocolWishes(tuple(features), versions[MIN_READER_VERSION], versions[MIN_WRITER_VERSION])


def _check_constraint_names(properties: Mapping[str, str]) -> None:
    """Constraints are found by name in any case, so no two may differ in case alone."""
    seen: set[str] = set()
    for key in properties:
        if key.startswith(CONSTRAINT_PREFIX):
            name = key.removeprefix(CONSTRAINT_PREFIX)
            if not CONSTRAINT_NAME.fullmatch(name) or name.lower() in seen:
                reason = "another one has it" if name.lower() in seen else "use letters, digits and underscores"
                raise InvalidTablePropertyError(f"{name!r} cannot be the name of a constraint: {reason}.")
            seen.add(name.lower())


def _suggestion(name: str) -> str:
    close = get_close_matches(name.lower(), list(_BY_FOLDED_NAME), n=3, cutoff=0.75)
    if close:
        return f" Did you mean {' or '.join(_BY_FOLDED_NAME[c] for c in close)}?"
    return " Properties of your own must not start with 'delta.'."
