"""Values as text, back to typed Arrow columns: partition values and bounds in statistics.

Spec: "Partition Value Serialization" and "Per-file Statistics". Both write dates and timestamps as text; the
difference is what a value that cannot be understood means: a partition value must be right, a bound may be unknown.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.schema import FLOAT, DecimalType, PrimitiveType

if TYPE_CHECKING:
    from headwater.log.schema import DataType

_INTEGRAL = frozenset({"byte", "short", "integer", "long"})
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


def parse_text(values: pa.Array, type_: DataType) -> pa.Array:
    """Text to the comparable type of a Delta type. Raises `pa.ArrowInvalid` for text that does not parse."""
    target = comparable_type(type_)
    if target is None:
        raise pa.ArrowInvalid(f"no text form for values of type {type_}")
    if pa.types.is_timestamp(target):
        return _timestamps(values, target)
    if pa.types.is_boolean(target):
        return pc.utf8_lower(values).cast(target)
    if pa.types.is_decimal(target):
        return _decimals(values, target)
    if type_ == FLOAT:
        return values.cast(pa.float32()).cast(target)
    return values.cast(target)


def _timestamps(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Timestamps with or without a zone; without one they are taken as UTC."""
    zoned = pc.match_substring_regex(values, _ZONE)
    # A zone needs a time of day before it: the regex would also take the day of `2024-01-01` for an offset.
    zoned = pc.and_(zoned, pc.match_substring(values, ":"))
    nothing = build.strings([None])[0]
    with_zone = pc.if_else(zoned, values, nothing).cast(UTC_TIMESTAMP)
    without_zone = pc.if_else(zoned, nothing, values).cast(NTZ_TIMESTAMP)
    if target == UTC_TIMESTAMP:
        return pc.coalesce(with_zone, pc.assume_timezone(without_zone, "UTC"))
    return pc.coalesce(pc.local_timestamp(with_zone), without_zone)


def _decimals(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        return decimal_array([None if v is None else _decimal(v) for v in values.to_pylist()], target, upper=None)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise pa.ArrowInvalid(f"{text!r} is not a decimal") from error


def decimal_array(values: list[Decimal | None], target: pa.DataType, *, upper: bool | None) -> pa.Array:
    """Decimals at the type's scale; what does not fit exactly is rounded outwards, or is an error (`upper=None`).

    Some writers pass decimal bounds through a double, which keeps 15 digits: such bounds are widened by
    one unit of the last digit a double can hold.
    """
    rounding = {True: ROUND_CEILING, False: ROUND_FLOOR}.get(upper) if upper is not None else None
    with localcontext() as context:
        context.prec = 80
        result = [None if value is None else _at_scale(value, target, rounding) for value in values]
    return pa.array(result, target)


def _at_scale(value: Decimal, target: pa.DataType, rounding: str | None) -> Decimal | None:
    if not value.is_finite():
        return None
    unit = Decimal(1).scaleb(-target.scale)
    if rounding is None:
        fixed = value.quantize(unit)
        if fixed != value or value.adjusted() >= target.precision - target.scale:
            raise pa.ArrowInvalid(f"{value} does not fit decimal({target.precision},{target.scale})")
        return fixed
    if len(value.as_tuple().digits) > 15:
        ulp = abs(value) * Decimal(2) ** -52
        value = value + ulp if rounding == ROUND_CEILING else value - ulp
    fixed = value.quantize(unit, rounding=rounding)
    fits = fixed == 0 or fixed.adjusted() < target.precision - target.scale
    return fixed if fits else None


def parse_bounds(values: pa.Array, type_: DataType) -> pa.Array:
    """Like `parse_text`, with null (unknown) for every value that does not parse."""
    try:
        return parse_text(values, type_)
    except pa.ArrowInvalid:
        target = comparable_type(type_)
        return pa.concat_arrays([_parse_one(values[i : i + 1], type_, target) for i in range(len(values))])


def _parse_one(value: pa.Array, type_: DataType, target: pa.DataType) -> pa.Array:
    try:
        return parse_text(value, type_)
    except pa.ArrowInvalid:
        return pa.nulls(1, target)


def has_zone(text: str) -> bool:
    """Whether a timestamp text names its zone."""
    return ":" in text and re.search(_ZONE, text) is not None
