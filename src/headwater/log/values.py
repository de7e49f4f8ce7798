"""Values as text, back to typed Arrow columns: partition values and bounds in statistics.

Spec: "Partition Value Serialization" and "Per-file Statistics". Both write dates and timestamps as text; the
difference is what a value that cannot be understood means: a partition value must be right, a bound may be unknown.
Writers differ in their texts (`2024-1-5`, ` 5`, `True`, `+10000-01-01`), so text is read as Spark's `cast` reads it;
where that gives no value, or one that depends on the day, there is none here either.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.filter_literals import date_days, timestamp_us, zone_of
from headwater.log.schema import FLOAT, DecimalType, PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from headwater.log.schema import DataType

_INTEGRAL = frozenset({"byte", "short", "integer", "long"})
_PLAIN_DECIMAL = r"^[+-]?[0-9]{1,100}(?:\.[0-9]{0,100})?$"
_ZONE = r"(?:[zZ]|[+-]\d{2}(?::?\d{2})?)$"
UTC_TIMESTAMP = pa.timestamp("us", "UTC")
NTZ_TIMESTAMP = pa.timestamp("us")


def comparable_type(type_: DataType) -> pa.DataType | None:
    """The Arrow type in which values of a Delta type are compared; None if pruning does not compare them.

    All integers are compared as 64 bits and both floating types as doubles, so that a bound written before a
    column was widened serves as well. `char(n)` pads, so its comparisons are not those of its text.
    """
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if not isinstance(type_, PrimitiveType):
        return None
    if type_.name in _INTEGRAL:
        return pa.int64()
    if type_.name.startswith("varchar("):
        return pa.string()
    return {
        "float": pa.float64(),
        "double": pa.float64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": UTC_TIMESTAMP,
        "timestamp_ntz": NTZ_TIMESTAMP,
    }.get(type_.name)


def parse_text(values: pa.Array, type_: DataType, time_zone: str = "UTC") -> pa.Array:
    """Text to the comparable type of a Delta type.

    Args:
        values: texts, as partition values and bounds have them.
        type_: the type of the column.
        time_zone: the zone of timestamps that do not name theirs, as Spark's `spark.sql.session.timeZone` spells it.

    Raises:
        pa.ArrowInvalid: a text does not parse.
    """
    target = comparable_type(type_)
    if target is None:
        raise pa.ArrowInvalid(f"no text form for values of type {type_}")
    try:
        return _parse_plain(values, type_, target, time_zone)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        read = _reader_of(target, time_zone)
    # Some text is not plain, or is wrong: then each is looked at.
    found = [None if text is None else _read(read, text, type_) for text in values.to_pylist()]
    if pa.types.is_floating(target):
        return _of_type(pa.array(found, pa.float64()), type_)
    if pa.types.is_temporal(target):
        return pa.array(found, pa.int32() if pa.types.is_date32(target) else pa.int64()).cast(target)
    return pa.array(found, target)


def _parse_plain(values: pa.Array, type_: DataType, target: pa.DataType, time_zone: str) -> pa.Array:
    """Texts as most writers have them, many at a time; an error if there are others."""
    if pa.types.is_timestamp(target):
        return _timestamps(values, target, time_zone)
    if pa.types.is_boolean(target):
        return pc.utf8_lower(values).cast(target)
    if pa.types.is_floating(target):
        # Not the double that is next to the text: a value of 32 bits is that float, widened.
        return _of_type(values.cast(pa.float32()) if type_ == FLOAT else values.cast(target), type_)
    if pa.types.is_decimal(target) and pc.all(pc.match_substring_regex(values, _PLAIN_DECIMAL)).as_py() is False:
        raise pa.ArrowInvalid("a decimal with an exponent")  # of many digits, Arrow does not survive it
    return values.cast(target)


def _of_type(numbers: pa.Array, type_: DataType) -> pa.Array:
    return (numbers.cast(pa.float32(), safe=False) if type_ == FLOAT else numbers).cast(pa.float64())


def _timestamps(values: pa.Array, target: pa.DataType, time_zone: str) -> pa.Array:
    """Timestamps with or without a zone. Where wall-clock times are wanted, a zone means nothing, as in Spark."""
    zoned = pc.match_substring_regex(values, _ZONE)
    # A zone needs a time of day before it: the regex would also take the day of `2024-01-01` for an offset.
    zoned = pc.and_(zoned, pc.match_substring(values, ":"))
    nothing = build.strings([None])[0]
    if target == NTZ_TIMESTAMP:
        return pc.if_else(zoned, pc.replace_substring_regex(values, _ZONE, ""), values).cast(NTZ_TIMESTAMP)
    with_zone = pc.if_else(zoned, values, nothing).cast(UTC_TIMESTAMP)
    without_zone = pc.if_else(zoned, nothing, values).cast(NTZ_TIMESTAMP)
    if without_zone.null_count == len(values):
        return with_zone
    zone = _zone(time_zone)
    if isinstance(zone, ZoneInfo):
        # Of an hour that occurs twice the first, as in Java; an hour that does not occur at all is not plain.
        local = pc.assume_timezone(without_zone, zone.key, ambiguous="earliest", nonexistent="raise")
        return pc.coalesce(with_zone, local.cast(UTC_TIMESTAMP))
    offset_us = (zone.utcoffset(None) or timedelta(0)) // timedelta(microseconds=1)
    instants = pc.subtract_checked(without_zone, build.int64s([offset_us], pa.duration("us"))[0])
    return pc.coalesce(with_zone, pc.assume_timezone(instants, "UTC"))


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    try:
        zone = zone_of(name)
    except ValueError:
        zone = None
    if zone is None:
        raise pa.ArrowInvalid(f"the time zone {name!r} is not known on this machine")
    return zone


def _reader_of(target: pa.DataType, time_zone: str) -> Callable[[str], Any]:
    """How one text is read as a value of a comparable type; it raises `ValueError` or `ArithmeticError`."""
    if pa.types.is_timestamp(target):
        if target == NTZ_TIMESTAMP:
            return partial(timestamp_us, zone=None)
        return partial(timestamp_us, zone=_zone(time_zone))
    if pa.types.is_date32(target):
        return date_days
    if pa.types.is_decimal(target):
        return partial(_decimal, target=target)
    if pa.types.is_floating(target):
        return _double
    if pa.types.is_boolean(target):
        return lambda text: _BOOLEANS.get(text.strip(_BLANKS).lower())
    return _integer


def _read(read: Callable[[str], Any], text: str, type_: DataType) -> Any:
    try:
        value = read(text)
    except (ValueError, ArithmeticError) as error:
        raise pa.ArrowInvalid(f"{text[:100]!r} is not a value of type {type_}") from error
    if value is None:
        raise pa.ArrowInvalid(f"{text[:100]!r} is not a value of type {type_}")
    return value


_BLANKS = "".join(map(chr, range(0x21)))
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.[0-9]*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_NUMBER = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_HEX_NUMBER = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_MAX_DIGITS = 1_000


def _integer(text: str) -> int | None:
    """A whole number; digits after a point are cut off."""
    m = _WHOLE.fullmatch(text.strip(_BLANKS)[:_MAX_DIGITS])
    number = None if m is None else int(m[1])
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _double(text: str) -> float | None:
    text = text.strip(_BLANKS)
    if _SPECIAL_NUMBER.fullmatch(text):
        return float(text)
    digits = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text  # Java's suffixes
    if _HEX_NUMBER.fullmatch(digits):
        return float.fromhex(digits)
    return float(digits) if _NUMBER.fullmatch(digits) else None


def _decimal(text: str, target: pa.DataType) -> Decimal | None:
    """A decimal at the type's scale, rounded as Spark does."""
    text = text.strip(_BLANKS)
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_DIGITS:
        return None
    with localcontext(prec=80):
        fixed = Decimal(text).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP)
    return fixed if fixed == 0 or fixed.adjusted() < target.precision - target.scale else None


def decimal_array(values: list[Decimal | None], target: pa.DataType, *, upper: bool) -> pa.Array:
    """Decimal bounds at the type's scale, rounded outwards; one that no value of the type can reach is not known.

    Some writers pass decimal bounds through a double, which keeps 15 digits: such bounds are widened by
    one unit of the last digit a double can hold.
    """
    rounding = ROUND_CEILING if upper else ROUND_FLOOR
    with localcontext() as context:
        context.prec = 80
        result = [None if value is None else _at_scale(value, target, rounding) for value in values]
    return pa.array(result, target)


def _at_scale(value: Decimal, target: pa.DataType, rounding: str) -> Decimal | None:
    if not value.is_finite() or value.adjusted() > target.precision:
        return None
    if len(value.as_tuple().digits) > 15:
        ulp = abs(value) * Decimal(2) ** -52
        value = value + ulp if rounding == ROUND_CEILING else value - ulp
    fixed = value.quantize(Decimal(1).scaleb(-target.scale), rounding=rounding)
    fits = fixed == 0 or fixed.adjusted() < target.precision - target.scale
    return fixed if fits else None


def parse_bounds(values: pa.Array, type_: DataType) -> pa.Array:
    """Like `parse_text`, with null (unknown) for every value that does not parse, or not exactly."""
    target = comparable_type(type_)
    try:
        if isinstance(type_, DecimalType):
            return _parse_plain(values, type_, target, "UTC")
        return parse_text(values, type_)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_parse_one(values[i : i + 1], type_, target) for i in range(len(values))])


def _parse_one(value: pa.Array, type_: DataType, target: pa.DataType) -> pa.Array:
    try:
        found = parse_text(value, type_)
    except pa.ArrowInvalid:
        return pa.nulls(1, target)
    if not isinstance(type_, DecimalType) or found.null_count:
        return found
    # A bound that was rounded to the column's scale may lie on the wrong side of a value.
    return found if found[0].as_py() == Decimal(value[0].as_py().strip(_BLANKS)) else pa.nulls(1, target)


def has_zone(text: str) -> bool:
    """Whether a timestamp text names its zone."""
    return ":" in text and re.search(_ZONE, text) is not None
