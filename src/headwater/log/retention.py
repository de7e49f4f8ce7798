"""Durations in table properties: `interval 1 week`, `interval 30 days 12 hours` (spec: tombstone expiry).

Months and years have no fixed length and are refused, as they are by other implementations.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS_MS = {
    "week": 604_800_000.0,
    "day": 86_400_000.0,
    "hour": 3_600_000.0,
    "minute": 60_000.0,
    "second": 1_000.0,
    "millisecond": 1.0,
    "microsecond": 0.001,
}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")
_DAY_MS = 86_400_000


def parse_interval_ms(text: str) -> int:
    """The length of an interval in milliseconds.

    >>> parse_interval_ms("interval 1 week 2 days")
    777600000
    """
    body = text.strip().lower().removeprefix("interval").strip()
    total = 0.0
    matched = 0
    for part in _PART.finditer(body):
        unit = _UNITS_MS.get(part[2].removesuffix("s"))
        if unit is None:
            raise HeadwaterError(f"{text!r} is not a duration: {part[2]!r} is not one of {', '.join(_UNITS_MS)}.")
        total += float(part[1]) * unit
        matched += len(part[0])
    if not matched or matched != len(re.sub(r"\s+(?=[+-]?\d)|(?<=[a-z])\s+", "", body)):
        raise HeadwaterError(f"{text!r} is not a duration. Write it like 'interval 7 days' or 'interval 36 hours'.")
    return int(total)


def tombstone_retention_ms(configuration: Mapping[str, str]) -> int:
    """How long removed files stay (`delta.deletedFileRetentionDuration`, one week by default)."""
    declared = configuration.get("delta.deletedFileRetentionDuration")
    return 7 * _DAY_MS if declared is None else parse_interval_ms(declared)
