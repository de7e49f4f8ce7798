"""The options of a read, by the names that Delta users know, in any case.

Time travel (`versionAsOf`, `timestampAsOf`), the change data feed (`readChangeFeed` with its bounds), and the few
options of Spark's Parquet reader that make sense when the schema is the table's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.spark.time_travel import TimeTravelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

_TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
_CHANGE_FEED = ("readChangeFeed", "readChangeData")
_BOUNDS = {
    "startingVersion": "starting_version",
    "endingVersion": "ending_version",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
}
_READER = ("datetimeRebaseMode", "int96RebaseMode", "ignoreCorruptFiles", "ignoreMissingFiles")
_KNOWN = {name.lower(): name for name in (*_TIME_TRAVEL, *_CHANGE_FEED, *_BOUNDS, *_READER)}


class ReadOptionError(HeadwaterError, ValueError):
    """An option of a read is unknown, or contradicts another."""


@dataclass(frozen=True)
class ReadOptions:
    """What the options of a read ask for."""

    version: int | None
    timestamp: str | datetime | date | int | None
    changes: dict[str, Any] | None
    """The bounds for `read_changes`, when the change data feed is wanted."""
    reader: dict[str, str] = field(default_factory=dict)
    """For Spark's Parquet reader."""


def parse_options(
    version: int | None, timestamp: str | datetime | date | int | None, options: Mapping[str, object]
) -> ReadOptions:
    """Sort the options out.

    Raises:
        ReadOptionError: an option is unknown, or bounds are given without `readChangeFeed`.
        TimeTravelError: a version or timestamp is given twice.
    """
    named = {_name(key): value for key, value in options.items()}
    for name, given in (("versionAsOf", version), ("timestampAsOf", timestamp)):
        if name in named and given is not None:
            raise TimeTravelError(f"the option {name} is given twice")
    if "versionAsOf" in named:
        version = _number("versionAsOf", named["versionAsOf"])
    if "timestampAsOf" in named:
        timestamp = str(named["timestampAsOf"])
    wants_changes = any(_is_true(named.get(name, False)) for name in _CHANGE_FEED)
    bounds = {argument: named[name] for name, argument in _BOUNDS.items() if name in named}
    if bounds and not wants_changes:
        raise ReadOptionError(
            f"{sorted(set(_BOUNDS) & set(named))} bound a change data feed: give readChangeFeed=True too"
        )
    if wants_changes and (version is not None or timestamp is not None):
        raise ReadOptionError("a change data feed has a starting and an ending version, not one version to travel to")
    for name, argument in _BOUNDS.items():
        if argument in bounds and argument.endswith("version"):
            bounds[argument] = _number(name, bounds[argument])
    reader = {name: str(named[name]).lower() for name in _READER if name in named}
    return ReadOptions(version, timestamp, bounds if wants_changes else None, reader)


def _name(key: str) -> str:
    name = _KNOWN.get(key.lower())
    if name is None:
        raise ReadOptionError(f"a read has no option {key!r}: known are {', '.join(_KNOWN.values())}")
    return name


def _number(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ReadOptionError(f"the option {name} is a version number, not {value!r}") from None


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"
