"""The values of typed literals and casts of literals in a filter, as Spark 4 reads them; dates and times of any year.

Three outcomes are told apart: a value; `None` for what Spark understands but this file does not (then the
filter keeps more files); and `ValueError` for what Spark refuses as well.

>>> parse_date("2024-3-1")
datetime.date(2024, 3, 1)
>>> parse_timestamp("2024-03-01 10:00:00+02:00")
datetime.datetime(2024, 3, 1, 8, 0, tzinfo=datetime.timezone.utc)
>>> date_days("+10000-01-01")
2932897
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from datetime import tzinfo

_BLANKS = "".join(map(chr, range(0x21)))
_SPECIAL = re.compile(r"(epoch|now|today|yesterday|tomorrow)\b.*", re.IGNORECASE | re.DOTALL)
_DAY = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    _DAY + r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(.*))?)?)?)?)?", re.DOTALL
)
_TIME_ONLY = re.compile(r"T?[0-9]{1,2}:.*", re.DOTALL)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?|:([0-9]))?)?")
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_/+~.-]*")
_MAX_OFFSET = timedelta(hours=18)
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""What Java means by its short names of zones; Python's database means other zones by some of them."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats itself after so many years and days, weekdays included."""
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000

_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EXACT_DIGITS = 15
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]{1,38}\.?[0-9]{0,38}|\.[0-9]{1,38})")


class NoLiteralError(Exception):
    """There is no literal whose value is certain; never leaves the filter parser."""


def parse_date(text: str) -> date | None:
    """A date as Spark reads it from text; a time after the day is ignored."""
    days = date_days(text)
    ordinal = 0 if days is None else days + _EPOCH_ORDINAL
    return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else None


def parse_timestamp(text: str) -> datetime | None:
    """An instant as Spark reads it from text, in UTC; text without a zone is taken to be in UTC."""
    return _datetime(timestamp_us(text, UTC), UTC)


def parse_timestamp_ntz(text: str) -> datetime | None:
    """A wall-clock time as Spark reads it from text; a zone is ignored, as Spark does."""
    return _datetime(timestamp_us(text, None), None)


def _datetime(micros: int | None, zone: tzinfo | None) -> datetime | None:
    try:
        return None if micros is None else datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def date_days(text: str) -> int | None:
    """The days since 1970-01-01 of a date as Spark reads it from text, of any year; None for words such as `today`."""
    text = text.strip(_BLANKS)
    if _SPECIAL.fullmatch(text):
        return None
    m = _DATE.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a date: expected yyyy-mm-dd")
    days = _days(int(m[1]), int(m[2] or 1), int(m[3] or 1))
    if not -(2**31) <= days < 2**31:
        raise ValueError(f"{text!r} is beyond the dates that there are")
    return days


def timestamp_us(text: str, zone: tzinfo | None) -> int | None:
    """The microseconds since the epoch of a timestamp as Spark reads it from text, of any year.

    Args:
        text: a timestamp; without a time of day it is midnight.
        zone: the one for text that names none; None for a wall-clock time, for which zones mean nothing.

    Returns:
        None for what depends on when it is read, and for zones that this machine does not know.
    """
    text = text.strip(_BLANKS)
    if _SPECIAL.fullmatch(text) or _TIME_ONLY.fullmatch(text):
        return None
    m = _TIMESTAMP.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a timestamp: expected yyyy-mm-dd hh:mm:ss[.ffffff][zone]")
    year, month, day = int(m[1]), int(m[2] or 1), int(m[3] or 1)
    hour, minute, second = (int(part or 0) for part in m.group(4, 5, 6))
    microsecond = int((m[7] or "")[:6].ljust(6, "0"))  # further digits are cut off
    wall = datetime(_year_alike(year), month, day, hour, minute, second, microsecond)
    in_day = timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microsecond)
    micros = _days(year, month, day) * _DAY_US + in_day // timedelta(microseconds=1)
    named = (m[8] or "").strip(_BLANKS)
    own = zone_of(named) if named else zone
    if zone is not None:
        offset = None if own is None else own.utcoffset(wall)
        if offset is None:
            return None
        micros -= offset // timedelta(microseconds=1)
    if not -(2**63) <= micros < 2**63:
        raise ValueError(f"{text!r} is beyond the timestamps that there are")
    return micros


def _days(year: int, month: int, day: int) -> int:
    alike = _year_alike(year)
    cycles = (year - alike) // _CYCLE_YEARS
    return date(alike, month, day).toordinal() - _EPOCH_ORDINAL + cycles * _CYCLE_DAYS


def _year_alike(year: int) -> int:
    """The year itself where Python has it, else one with the same days, weekdays and rules of zones."""
    if 1 <= year <= 9999:
        return year
    first = 9_600 if year > 9999 else _CYCLE_YEARS
    return first + year % _CYCLE_YEARS


def zone_of(text: str) -> tzinfo | None:
    """A zone by the name that Spark and Java have for it; None if this machine does not know it.

    >>> zone_of("+02:00"), zone_of("PST")
    (datetime.timezone(datetime.timedelta(seconds=7200)), zoneinfo.ZoneInfo(key='America/Los_Angeles'))

    Raises:
        ValueError: it is no name of a zone.
    """
    text = _SHORT_ZONES.get(text, text)
    if text in ("", "Z"):
        return UTC
    if m := _OFFSET.fullmatch(text):
        sign, hours, minutes, seconds, minute = m.groups()
        parts = [int(hours or 0), int(minutes or minute or 0), int(seconds or 0)]
        offset = timedelta(hours=parts[0], minutes=parts[1], seconds=parts[2])
        if max(parts[1:]) > 59 or offset > _MAX_OFFSET:
            raise ValueError(f"{text!r} is not an offset from UTC")
        return timezone(-offset if sign == "-" else offset)
    if not _ZONE_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a time zone")
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None  # perhaps only this machine does not know the zone


def cast(value: object, target: str, precision: int = 10, scale: int = 0) -> object:
    """A literal converted to a type, given by sqlglot's name for it; None stays None.

    Raises:
        NoLiteralError: the result is not certain, or the conversion fails at run time in Spark.
        ValueError: the text of a date or timestamp is malformed.
    """
    if value is None:
        return None
    result: object | None = None
    if target in _INTEGER_BITS:
        result = _to_integer(value, _INTEGER_BITS[target])
    elif target == "DECIMAL":
        result = _to_decimal(value, precision, scale)
    elif target == "DOUBLE":
        result = _to_double(value)
    elif target == "FLOAT":
        result = _to_float(value)
    elif target in ("TEXT", "VARCHAR"):
        result = _to_text(value)
    elif target == "DATE":
        result = _to_date(value)
    elif target in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"):
        result = _to_timestamp(value)
    elif target == "TIMESTAMPNTZ":
        result = _to_timestamp_ntz(value)
    elif target == "BOOLEAN":
        result = _to_boolean(value)
    elif target == "BINARY":
        result = value if isinstance(value, bytes) else None
    if result is None:
        raise NoLiteralError
    return result


def _to_integer(value: object, bits: int) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip(_BLANKS)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        return value
    return None


def _to_decimal(value: object, precision: int, scale: int) -> Decimal | None:
    if isinstance(value, str) and _FRACTION.fullmatch(value.strip(_BLANKS)):
        value = Decimal(value.strip(_BLANKS))
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= scale <= precision <= 38:
        return None
    with localcontext(prec=100):
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def _to_double(value: object) -> float | None:
    if isinstance(value, str) and _FRACTION.fullmatch(value.strip(_BLANKS)):
        return float(value)
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > _EXACT_DIGITS:
        return None  # older Java versions do not round these to the nearest double
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return float(value)


def _to_float(value: object) -> float | None:
    """Only from numbers that a double holds exactly: others would be rounded twice."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or float(value) != value:
        return None
    try:
        single: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    except OverflowError:
        return None
    return single


def _to_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) or not isinstance(value, str | int | date):
        return None
    return str(value)


def _to_date(value: object) -> date | None:
    if isinstance(value, str):
        return parse_date(value)
    return value if type(value) is date else None


def _to_timestamp(value: object) -> datetime | None:
    if isinstance(value, str):
        return parse_timestamp(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else None
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if isinstance(value, date) else None


def _to_timestamp_ntz(value: object) -> datetime | None:
    if isinstance(value, str):
        return parse_timestamp_ntz(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is None else None
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _to_boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None
