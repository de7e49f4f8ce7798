"""Durations in table properties: `interval 1 week`, `interval 30 days 12 hours` (spec: tombstone expiry).

Months and years have no fixed length and are refused, as they are by other implementations.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, InvalidTablePropertyError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """The length of an interval in milliseconds.

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


def tombstone_retention_ms(configuration: Mapping[str, str]) -> int:
    """How long removed files stay (`delta.deletedFileRetentionDuration`, one week by default)."""
    return _declared_ms(configuration, "delta.deletedFileRetentionDuration", 7 * DAY_MS)


def transaction_retention_ms(configuration: Mapping[str, str]) -> int | None:
    """How long `txn` actions stay (`delta.setTransactionRetentionDuration`); None for ever, which is the default."""
    name = "delta.setTransactionRetentionDuration"
    return _declared_ms(configuration, name, LONGEST_MS) if name in configuration else None


def log_retention_ms(configuration: Mapping[str, str]) -> int:
    """How long commits stay (`delta.logRetentionDuration`, 30 days by default)."""
    return _declared_ms(configuration, "delta.logRetentionDuration", 30 * DAY_MS)


def _declared_ms(configuration: Mapping[str, str], name: str, default_ms: int) -> int:
    declared = configuration.get(name)
    try:
        return default_ms if declared is None else min(parse_interval_ms(declared), LONGEST_MS)
    except HeadwaterError as error:
        raise InvalidTablePropertyError(f"the table property {name} makes no sense: {error}") from error
