"""The table properties of the `delta.` family: their names, the values they may have, and how they are read.

Names are accepted in any case and stored in the proper one. An unknown name is an error, as it is probably a typing
error. Properties without the prefix are the user's own and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.errors import CorruptLogError, HeadwaterError, InvalidTablePropertyError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "delta."
CONSTRAINT_PREFIX = "delta.constraints."
FEATURE_PREFIX = "delta.feature."
CONSTRAINT_NAME = re.compile(r"\w[\w.-]*")
"""What a constraint may be called."""

_Value = TypeVar("_Value")
_Check = Callable[[str], str]
"""Returns a value as it is stored, or raises `ValueError` with what it should be."""


@dataclass(frozen=True, slots=True, eq=False)
class Property(Generic[_Value]):
    """A table property: its full name, which values users may set, and how a stored one is read."""

    name: str
    check: _Check
    parse: Callable[[str], _Value]
    default: _Value
    is_internal: bool = False
    """Whether writers record it, rather than users set it."""

    def read(self, values: Mapping[str, str]) -> _Value:
        text = values.get(self.name)
        return self.default if text is None else self.parse(text)


_UNITS_US = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_INTERVAL = re.compile(r"(?:interval\b)?((?:\s*[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?\s*[a-z]+)+)\s*")
_PART = re.compile(r"([+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]+)")
DAY_MS = 86_400_000
LONGEST_MS = 10_000 * 366 * DAY_MS
"""A longer retention is as good as for ever, and times that it is taken from stay in the range of a long."""


def parse_interval_ms(text: str) -> int:
    """Return the length of an interval in milliseconds.

    >>> parse_interval_ms("interval 1 week 2 days")
    777600000

    Raises:
        HeadwaterError: the text is not a duration, has a unit without a fixed length, or is negative.
    """
    whole = _INTERVAL.fullmatch(text.strip().lower())
    if whole is None:
        raise HeadwaterError(f"{text!r} is not a duration. Write it like 'interval 7 days' or 'interval 36 hours'.")
    total_us = Fraction(0)
    for number, unit in _PART.findall(whole[1]):
        length_us = _UNITS_US.get(unit.removesuffix("s"))
        if length_us is None:
            raise HeadwaterError(f"{text!r} is not a duration: {unit!r} is not one of {', '.join(_UNITS_US)}.")
        total_us += Fraction(number) * length_us
    if total_us < 0:
        raise HeadwaterError(f"{text!r} is not a duration: it must not be negative.")
    return int(total_us) // 1_000


PROPERTIES: dict[str, Property[Any]] = {}
"""Every known property by name."""


def _registered(known: Property[_Value]) -> Property[_Value]:
    PROPERTIES[known.name] = known
    return known


# --- kinds of properties ------------------------------------------------------------------------------


def _flag(name: str, *, default: bool = False) -> Property[bool]:
    def check(value: str) -> str:
        if value.strip().lower() not in ("true", "false"):
            raise ValueError("it must be true or false")
        return value.strip().lower()

    def parse(text: str) -> bool:
        return text.lower() != "false" if default else text.lower() == "true"

    return _registered(Property(PREFIX + name, check, parse, default))


def _number(name: str, lowest: int, default: int, highest: int = 2**31 - 1) -> Property[int]:
    def check(value: str) -> str:
        text = value.strip()
        number = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
        if number is None or not lowest <= number <= highest:
            raise ValueError(f"it must be a whole number from {lowest} to {highest}")
        return str(number)

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
        return default if number is None or number < min(lowest, 0) else number

    return _registered(Property(PREFIX + name, check, parse, default))


def _interval(name: str, default_ms: _Value) -> Property[int | _Value]:
    def check(value: str) -> str:
        try:
            parse_interval_ms(value)
        except HeadwaterError as error:
            raise ValueError(
                "it must be an interval such as 'interval 30 days' or 'interval 36 hours'; months and years have no "
                "fixed length"
            ) from error
        return value.strip()

    def parse(text: str) -> int:
        try:
            return min(parse_interval_ms(text), LONGEST_MS)
        except HeadwaterError as error:
            raise InvalidTablePropertyError(f"the table property {PREFIX}{name} makes no sense: {error}") from error

    return _registered(Property(PREFIX + name, check, parse, default_ms))


def _one_of(name: str, *choices: str, default: str) -> Property[str]:
    def check(value: str) -> str:
        for choice in choices:
            if value.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"it must be {' or '.join(choices)}")

    return _registered(Property(PREFIX + name, check, str.lower, default))


def _text(name: str) -> Property[str | None]:
    return _registered(Property(PREFIX + name, str, str, None))


def _size(name: str) -> Property[str | None]:
    def check(value: str) -> str:
        text = value.strip().lower()
        if not text.rstrip("bkmgt").isdecimal() or not text.isascii():
            raise ValueError("it must be a number of bytes, such as 134217728, 128mb or 1g")
        return value.strip()

    return _registered(Property(PREFIX + name, check, str, None))


def _refuse_internal(value: str) -> str:  # noqa: ARG001
    raise ValueError("it is kept by Headwater itself and cannot be set")


def _internal(name: str) -> Property[str | None]:
    return _registered(Property(PREFIX + name, _refuse_internal, str, None, is_internal=True))


def _internal_number(name: str) -> Property[int | None]:
    def parse(text: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
            raise CorruptLogError(f"the table property {PREFIX}{name} must be a whole number, but it is {text!r}.")
        return int(text)

    return _registered(Property(PREFIX + name, _refuse_internal, parse, None, is_internal=True))


def _refused(name: str, reason: str) -> Property[str | None]:
    def check(value: str) -> str:
        if value.strip().lower() in ("", "false"):
            return value.strip()
        raise ValueError(reason)

    return _registered(Property(PREFIX + name, check, str, None))


# --- the properties -----------------------------------------------------------------------------------

APPEND_ONLY = _flag("appendOnly")
CHECKPOINT_POLICY = _one_of("checkpointPolicy", "classic", "v2", default="classic")
COLUMN_MAPPING_MODE = _one_of("columnMapping.mode", "none", "name", "id", default="none")
DELETED_FILE_RETENTION = _interval("deletedFileRetentionDuration", 7 * DAY_MS)
ENABLE_CHANGE_DATA_CAPTURE = _flag("enableChangeDataCapture")
"""The name of `enableChangeDataFeed` in old tables."""
ENABLE_CHANGE_DATA_FEED = _flag("enableChangeDataFeed")
ENABLE_DELETION_VECTORS = _flag("enableDeletionVectors")
ENABLE_EXPIRED_LOG_CLEANUP = _flag("enableExpiredLogCleanup", default=True)
ENABLE_ICEBERG_COMPAT_V1 = _flag("enableIcebergCompatV1")
ENABLE_ICEBERG_COMPAT_V2 = _flag("enableIcebergCompatV2")
ENABLE_IN_COMMIT_TIMESTAMPS = _flag("enableInCommitTimestamps")
ENABLE_MATERIALIZED_PARTITION_COLUMNS = _flag("enableMaterializePartitionColumnsFeature")
ENABLE_ROW_TRACKING = _flag("enableRowTracking")
ENABLE_TYPE_WIDENING = _flag("enableTypeWidening")
ENABLE_VARIANT_SHREDDING = _flag("enableVariantShredding")
IGNORE_PROTOCOL_DEFAULTS = _flag("ignoreProtocolDefaults")
IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP = _internal_number("inCommitTimestampEnablementTimestamp")
IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION = _internal_number("inCommitTimestampEnablementVersion")
ISOLATION_LEVEL = _one_of("isolationLevel", "Serializable", "WriteSerializable", default="serializable")
LOG_RETENTION = _interval("logRetentionDuration", 30 * DAY_MS)
MAX_COLUMN_ID = _internal("columnMapping.maxColumnId")
MIN_READER_VERSION = _number("minReaderVersion", 1, 1, 3)
MIN_WRITER_VERSION = _number("minWriterVersion", 1, 1, 7)
RANDOM_PREFIX_LENGTH = _number("randomPrefixLength", 1, 2)
RANDOMIZE_FILE_PREFIXES = _flag("randomizeFilePrefixes")
ROW_COMMIT_VERSION_COLUMN = _internal("rowTracking.materializedRowCommitVersionColumnName")
ROW_ID_COLUMN = _internal("rowTracking.materializedRowIdColumnName")
STATS_AS_JSON = _flag("checkpoint.writeStatsAsJson", default=True)
STATS_AS_STRUCT = _flag("checkpoint.writeStatsAsStruct")
STATS_COLUMNS = _text("dataSkippingStatsColumns")
STRING_PREFIX_LENGTH = _number("dataSkippingStringPrefixLength", 1, 32)
SYMLINK_MANIFESTS = _flag("compatibility.symlinkFormatManifest.enabled")
TRANSACTION_RETENTION: Property[int | None] = _interval("setTransactionRetentionDuration", None)
"""How long `txn` actions stay; for ever by default."""
CHECKPOINT_INTERVAL = _number("checkpointInterval", 1, 10)

_NO_COORDINATORS = "commit coordinators are not supported"
_NO_REDIRECTS = "redirected tables are not supported"
_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "zstd", "brotli", "lzo")

# Those that are checked and stored, or read by other names in one place only.
_flag("autoOptimize")
_one_of("autoOptimize.autoCompact", "true", "false", "auto", "legacy", default="false")
_flag("autoOptimize.optimizeWrite")
_flag("castIcebergTimeType")
_interval("checkpointRetentionDuration", None)
_refused("coordinatedCommits.commitCoordinator-preview", _NO_COORDINATORS)
_refused("coordinatedCommits.commitCoordinatorConf-preview", _NO_COORDINATORS)
_refused("coordinatedCommits.tableConf-preview", _NO_COORDINATORS)
_number("dataSkippingNumIndexedCols", -1, 32)
_interval("dropFeatureTruncateHistory.retentionDuration", None)
_flag("enableFullRetentionRollback")
_refused("enableIcebergCompatV3", "the table feature icebergCompatV3 is not supported")
_refused("enableIcebergWriterCompatV1", "the table feature icebergWriterCompatV1 is not supported")
_refused("enableIcebergWriterCompatV3", "the table feature icebergWriterCompatV3 is not supported")
_flag("ignoreIcebergBucketPartition")
_one_of("parquet.compression.codec", *_CODECS, default="snappy")
_text("parquet.format.version")
_refused("redirectReaderWriter-preview", _NO_REDIRECTS)
_refused("redirectWriterOnly-preview", _NO_REDIRECTS)
_internal("requireCheckpointProtectionBeforeVersion")
_refused("rowTrackingSuspended", "row tracking cannot be suspended; set delta.enableRowTracking to false")
_interval("sampleRetentionDuration", None)
_size("targetFileSize")
_flag("tuneFileSizesForRewrites")
_refused("universalFormat.enabledFormats", "the metadata of other table formats is not written")
_refused("universalFormat.iceberg.atomicConversion.supported", "the metadata of Iceberg is not written")
_flag("writePartitionColumnsToParquet")

_BY_FOLDED_NAME = {name.lower(): name for name in PROPERTIES}
INTERNAL = frozenset(name for name, known in PROPERTIES.items() if known.is_internal)
"""Properties that record what writers have done."""


@dataclass(frozen=True, slots=True)
class ProtocolDemands:
    """What properties demand of the protocol; they are not stored as properties."""

    features: tuple[str, ...] = ()
    """As the user wrote them."""
    min_reader_version: int = 1
    min_writer_version: int = 1


def proper_name(name: str) -> str:
    """Return the name of a property as it is kept: `DELTA.APPENDONLY` is `delta.appendOnly`.

    >>> proper_name("delta.appendonly"), proper_name("owner")
    ('delta.appendOnly', 'owner')
    """
    folded = name.lower()
    if folded.startswith((CONSTRAINT_PREFIX, FEATURE_PREFIX)):
        prefix = CONSTRAINT_PREFIX if folded.startswith(CONSTRAINT_PREFIX) else FEATURE_PREFIX
        return prefix + name[len(prefix) :]
    return _BY_FOLDED_NAME.get(folded, name)


def checked_property(name: str, value: str) -> tuple[str, str]:
    """Return a property as it is kept, its proper name and value.

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
    known = PROPERTIES.get(name)
    if known is None:
        raise InvalidTablePropertyError(f"there is no table property {name}.{_suggestion(name)}")
    try:
        return name, known.check(value)
    except ValueError as error:
        raise InvalidTablePropertyError(f"the table property {name} cannot be {value!r}: {error}.") from error


def check_no_constraint(name: str, advice: str) -> None:
    """Raise if a property is a CHECK constraint: rows that are there must be looked at before it can be one.

    Raises:
        InvalidTablePropertyError: it is.
    """
    if name.lower().startswith(CONSTRAINT_PREFIX):
        raise InvalidTablePropertyError(f"{name} is a constraint, not a property to set: {advice}.")


def checked_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], ProtocolDemands]:
    """Return the properties as they are kept, and what they ask of the protocol.

    Raises:
        InvalidTablePropertyError: one of them does not exist or cannot have its value.
    """
    kept: dict[str, str] = {}
    features: list[str] = []
    versions = {MIN_READER_VERSION.name: 1, MIN_WRITER_VERSION.name: 1}
    for given, text in properties.items():
        name, value = checked_property(given, text)
        if name in versions:
            versions[name] = int(value)
        elif name.startswith(FEATURE_PREFIX):
            features.append(name.removeprefix(FEATURE_PREFIX))
        elif name != IGNORE_PROTOCOL_DEFAULTS.name:  # there are no defaults of a session here
            kept[name] = value
    _check_constraint_names(kept)
    return kept, ProtocolDemands(tuple(features), *versions.values())


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
