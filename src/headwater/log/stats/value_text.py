"""Single values as text: dates, timestamps, time zones and numbers, in the forms of the log and of SQL literals.

Partition values and bounds in statistics are such texts (spec: "Partition Value Serialization", "Per-file
Statistics"). Text is parsed as Spark's `cast` parses it, for dates and timestamps of any year. A parser has three
outcomes: a value; `None` for text that Spark may understand and this module does not; `ValueError` for text that Spark
refuses as well.

>>> parse_date("2024-3-1")
datetime.date(2024, 3, 1)
>>> parse_timestamp("2024-03-01 10:00:00+02:00")
datetime.datetime(2024, 3, 1, 8, 0, tzinfo=datetime.timezone.utc)
>>> date_days("+10000-01-01"), day_text(2932897)
(2932897, '+10000-01-01')
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from datetime import tzinfo

BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Spark strips from text before it parses it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970-01-01; other years have no text that every reader knows."""
NON_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf}
"""The infinities as JSON and partition values spell them."""
BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}

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
_SHORT_ZONES = dict(
    re.findall(
        r"(\w+)=(\S+)",
        """
        ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires ART=Africa/Cairo
        AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka CAT=Africa/Harare CNT=America/St_Johns
        CST=America/Chicago CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris EST=-05:00 HST=-10:00
        IET=America/Indiana/Indianapolis IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia MST=-07:00
        NET=Asia/Yerevan NST=Pacific/Auckland PLT=Asia/Karachi PNT=America/Phoenix PRT=America/Puerto_Rico
        PST=America/Los_Angeles SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh
        """,
    )
)
"""What Java means by its short names of zones; Python's database means other zones by some of them."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats itself after this many years or days, weekdays included."""
_EPOCH_ORDINAL = EPOCH.toordinal()
_DAY_US = 86_400_000_000

_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.[0-9]*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_NUMBER = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_HEX_NUMBER = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_MAX_DIGITS = 1_000
_WIDE = Context(prec=100)


# --- dates and timestamps ---------------------------------------------------------------------------


def parse_date(text: str) -> date | None:
    """Parse a date; a time after the day is ignored."""
    days = date_days(text)
    ordinal = 0 if days is None else days + _EPOCH_ORDINAL
    return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else None


def parse_timestamp(text: str) -> datetime | None:
    """Parse an instant, in UTC; text without a zone is taken to be in UTC."""
    return _datetime(timestamp_us(text, UTC), UTC)


def parse_timestamp_ntz(text: str) -> datetime | None:
    """Parse a wall-clock time; a zone is ignored, as Spark does."""
    return _datetime(timestamp_us(text, None), None)


def _datetime(micros: int | None, zone: tzinfo | None) -> datetime | None:
    try:
        return None if micros is None else datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def epoch_us(moment: datetime) -> int:
    """Return the microseconds since the epoch; a wall-clock time is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def date_days(text: str) -> int | None:
    """Return the days from 1970-01-01 to a date of any year; None for words such as `today`."""
    text = text.strip(BLANKS)
    if _SPECIAL.fullmatch(text):
        return None
    m = _DATE.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a date: expected yyyy-mm-dd")
    days = _days(int(m[1]), int(m[2] or 1), int(m[3] or 1))
    if not -(2**31) <= days < 2**31:
        raise ValueError(f"{text!r} is outside the range of dates")
    return days


def timestamp_us(text: str, zone: tzinfo | None) -> int | None:
    """Return the microseconds since the epoch of a timestamp of any year.

    Args:
        text: a timestamp; without a time of day it is midnight.
        zone: the zone of text that names none; None for a wall-clock time, which ignores zones.

    Returns:
        None for text whose value depends on when it is read, and for zones that this machine does not know.
    """
    text = text.strip(BLANKS)
    if _SPECIAL.fullmatch(text) or _TIME_ONLY.fullmatch(text):
        return None
    m = _TIMESTAMP.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a timestamp: expected yyyy-mm-dd hh:mm:ss[.ffffff][zone]")
    year, month, day = int(m[1]), int(m[2] or 1), int(m[3] or 1)
    hour, minute, second = (int(part or 0) for part in m.group(4, 5, 6))
    microsecond = int((m[7] or "")[:6].ljust(6, "0"))  # further digits are cut off
    wall = datetime(_equivalent_year(year), month, day, hour, minute, second, microsecond)
    in_day = timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microsecond)
    micros = _days(year, month, day) * _DAY_US + in_day // timedelta(microseconds=1)
    named = (m[8] or "").strip(BLANKS)
    own = zone_of(named) if named else zone
    if zone is not None:
        offset = None if own is None else own.utcoffset(wall)
        if offset is None:
            return None
        micros -= offset // timedelta(microseconds=1)
    if not -(2**63) <= micros < 2**63:
        raise ValueError(f"{text!r} is outside the range of timestamps")
    return micros


def _days(year: int, month: int, day: int) -> int:
    equivalent = _equivalent_year(year)
    cycles = (year - equivalent) // _CYCLE_YEARS
    return date(equivalent, month, day).toordinal() - _EPOCH_ORDINAL + cycles * _CYCLE_DAYS


def _equivalent_year(year: int) -> int:
    """Return the year itself where Python has it, else one with the same days, weekdays and rules of zones."""
    if 1 <= year <= 9999:
        return year
    first = 9_600 if year > 9999 else _CYCLE_YEARS
    return first + year % _CYCLE_YEARS


def zone_of(text: str) -> tzinfo | None:
    """Return a time zone by its name in Spark and Java; None if this machine does not know it.

    >>> zone_of("+02:00"), zone_of("PST")
    (datetime.timezone(datetime.timedelta(seconds=7200)), zoneinfo.ZoneInfo(key='America/Los_Angeles'))

    Raises:
        ValueError: the text is not the name of a zone.
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


def day_text(days: int) -> str:
    """Return a day since 1970-01-01 as text, with years as long as they are (`datetime` ends at 9999).

    ISO 8601 puts a sign before years of more than four digits; most readers insist on it.
    """
    cycles, rest = divmod(days + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    day = date.fromordinal(rest + 1)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"


def timestamp_text(micros: int, *, zoned: bool) -> str:
    """Return a timestamp as a partition value: as long as it must be, in UTC with a `Z` if it is an instant.

    >>> timestamp_text(1_500_000, zoned=True), timestamp_text(0, zoned=False)
    ('1970-01-01T00:00:01.500000Z', '1970-01-01 00:00:00')
    """
    days, rest = divmod(micros, _DAY_US)
    fraction = f".{rest % 1_000_000:06}" if rest % 1_000_000 else ""
    return f"{day_text(days)}{'T' if zoned else ' '}{_clock(rest)}{fraction}{'Z' if zoned else ''}"


def timestamp_bound_text(micros: int, *, zoned: bool) -> str | None:
    """Return a timestamp as a bound, cut to milliseconds as the spec says; None outside the years 1 to 9999.

    >>> timestamp_bound_text(1_999_999, zoned=False)
    '1970-01-01T00:00:01.999'
    """
    days, rest = divmod(micros, _DAY_US)
    if not FIRST_DAY <= days <= LAST_DAY:
        return None
    return f"{day_text(days)}T{_clock(rest)}.{rest // 1_000 % 1_000:03}{'Z' if zoned else ''}"


def _clock(micros_of_day: int) -> str:
    seconds = micros_of_day // 1_000_000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# --- numbers ----------------------------------------------------------------------------------------


def parse_boolean(text: str) -> bool | None:
    return BOOLEANS.get(text.strip(BLANKS).lower())


def parse_integer(text: str) -> int | None:
    """Parse a whole number of 64 bits; digits after a point are cut off."""
    m = _WHOLE.fullmatch(text.strip(BLANKS)[:_MAX_DIGITS])
    number = None if m is None else int(m[1])
    return number if number is not None and -(2**63) <= number < 2**63 else None


def parse_double(text: str) -> float | None:
    text = text.strip(BLANKS)
    if _SPECIAL_NUMBER.fullmatch(text):
        return float(text)
    digits = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text  # Java's suffixes
    if _HEX_NUMBER.fullmatch(digits):
        return float.fromhex(digits)
    return float(digits) if _NUMBER.fullmatch(digits) else None


def parse_decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """Parse a decimal, rounded to the type's scale as Spark rounds it."""
    text = text.strip(BLANKS)
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_DIGITS:
        return None
    return decimal_at_scale(Decimal(text), precision, scale, ROUND_HALF_UP)


def decimal_at_scale(value: Decimal, precision: int, scale: int, rounding: str) -> Decimal | None:
    """Round a number to the scale of a decimal type; None if the type cannot hold it.

    >>> from decimal import ROUND_CEILING
    >>> decimal_at_scale(Decimal("1.231"), 3, 2, ROUND_CEILING), decimal_at_scale(Decimal("9.999"), 3, 2, ROUND_CEILING)
    (Decimal('1.24'), None)
    """
    if not value.is_finite() or (value and value.adjusted() >= precision - scale):
        return None
    fixed = value.quantize(Decimal(1).scaleb(-scale), rounding, _WIDE)
    return fixed if not fixed or fixed.adjusted() < precision - scale else None


def nearest_float(number: float) -> float:
    """Return the 32-bit float that is nearest to a double. Raises `OverflowError`."""
    single: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return single


def non_finite_text(number: float) -> str | None:
    """Return the text of NaN and of the infinities; None for every other number."""
    if math.isfinite(number):
        return None
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
