"""Columns of values that the log has as text: partition values and bounds in statistics.

Spec: "Partition Value Serialization" and "Per-file Statistics". Writers differ in their texts (`2024-1-5`, ` 5`,
`True`, `+10000-01-01`), so text is parsed as Spark's `cast` parses it. What does not parse is an error in a partition
value, and "not known" in a bound.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, PartitionValueError
from headwater.log.files import arrow as build
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGRAL_TYPES,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    PrimitiveType,
    is_string,
)
from headwater.log.stats.value_text import (
    BLANKS,
    date_days,
    day_text,
    decimal_at_scale,
    non_finite_text,
    parse_boolean,
    parse_decimal,
    parse_double,
    parse_integer,
    timestamp_text,
    timestamp_us,
    zone_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from headwater.log.files.chunks import FileChunk
    from headwater.log.filters.pruning import TableShape
    from headwater.log.schema import DataType, StructField


_DOUBLE_DIGITS = 15
"""The digits of a decimal that a double keeps."""
_PLAIN_DECIMAL = r"^[+-]?[0-9]{1,100}(?:\.[0-9]{0,100})?$"
_ZONE = r"(?:[zZ]|[+-]\d{2}(?::?\d{2})?)$"
UTC_TIMESTAMP = pa.timestamp("us", "UTC")
NTZ_TIMESTAMP = pa.timestamp("us")
_COMPARABLE: dict[DataType, pa.DataType] = {
    **dict.fromkeys(INTEGRAL_TYPES, pa.int64()),
    FLOAT: pa.float64(),
    DOUBLE: pa.float64(),
    STRING: pa.string(),
    BOOLEAN: pa.bool_(),
    BINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: UTC_TIMESTAMP,
    TIMESTAMP_NTZ: NTZ_TIMESTAMP,
}


def comparable_type(type_: DataType) -> pa.DataType | None:
    """Return the Arrow type in which values of a Delta type are compared; None if pruning does not compare them.

    All integers are compared as 64 bits and both floating types as doubles, so that a bound written before a
    column was widened serves as well. `char(n)` pads, so its comparisons are not those of its text.
    """
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if not isinstance(type_, PrimitiveType):
        return None
    return pa.string() if type_.name.startswith("varchar(") else _COMPARABLE.get(type_)


def parse_text(values: pa.Array, type_: DataType, time_zone: str = "UTC") -> pa.Array:
    """Parse texts to the comparable type of a Delta type.

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
    # Some text is not plain, or is wrong: parse them one by one.
    found = [None if text is None else _read(read, text, type_) for text in values.to_pylist()]
    if pa.types.is_floating(target):
        return _of_type(pa.array(found, pa.float64()), type_)
    if pa.types.is_temporal(target):
        return pa.array(found, pa.int32() if pa.types.is_date32(target) else pa.int64()).cast(target)
    return pa.array(found, target)


def _parse_plain(values: pa.Array, type_: DataType, target: pa.DataType, time_zone: str) -> pa.Array:
    """Parse texts as most writers have them, many at a time. Raises an error of Arrow if there are others."""
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
    """Parse timestamps with or without a zone; wall-clock times ignore it, as in Spark."""
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
    """Return the parser of one text for a comparable type; it raises `ValueError` or `ArithmeticError`."""
    if pa.types.is_timestamp(target):
        if target == NTZ_TIMESTAMP:
            return partial(timestamp_us, zone=None)
        return partial(timestamp_us, zone=_zone(time_zone))
    if pa.types.is_date32(target):
        return date_days
    if pa.types.is_decimal(target):
        return partial(parse_decimal, precision=target.precision, scale=target.scale)
    if pa.types.is_floating(target):
        return parse_double
    if pa.types.is_boolean(target):
        return parse_boolean
    return parse_integer


def _read(read: Callable[[str], Any], text: str, type_: DataType) -> Any:
    try:
        value = read(text)
    except (ValueError, ArithmeticError) as error:
        raise pa.ArrowInvalid(f"{text[:100]!r} is not a value of type {type_}") from error
    if value is None:
        raise pa.ArrowInvalid(f"{text[:100]!r} is not a value of type {type_}")
    return value


def decimal_array(values: list[Decimal | None], target: pa.DataType, *, upper: bool) -> pa.Array:
    """Return decimal bounds at the type's scale, rounded outwards; a bound outside of the type is not known.

    Some writers pass decimal bounds through a double, which keeps 15 digits: longer bounds are widened by one unit of
    the last digit that a double can hold.
    """
    rounding = ROUND_CEILING if upper else ROUND_FLOOR

    def bound(value: Decimal | None) -> Decimal | None:
        if value is None or not value.is_finite() or value.adjusted() > target.precision:
            return None
        return decimal_at_scale(_widened(value, rounding), target.precision, target.scale, rounding)

    with localcontext(prec=80):
        return pa.array(list(map(bound, values)), target)


def _widened(value: Decimal, rounding: str) -> Decimal:
    if len(value.as_tuple().digits) <= _DOUBLE_DIGITS:
        return value
    ulp = abs(value) * Decimal(2) ** -52
    return value + ulp if rounding == ROUND_CEILING else value - ulp


def parse_bounds(values: pa.Array, type_: DataType) -> pa.Array:
    """Parse texts as `parse_text` does, with null (not known) for every value that does not parse exactly."""
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
    return found if found[0].as_py() == Decimal(value[0].as_py().strip(BLANKS)) else pa.nulls(1, target)


def has_zone(text: str) -> bool:
    """Return whether a timestamp text names its zone."""
    return ":" in text and re.search(_ZONE, text) is not None


def partition_column(
    chunk: FileChunk, field: StructField, physical: str, shape: TableShape | None = None
) -> pa.ChunkedArray | None:
    """Return the typed values of one partition column; None when its type cannot be compared.

    They come from `partitionValues_parsed` where a checkpoint has it, else from the text in `partitionValues`.
    """
    target = comparable_type(field.type)
    if target is None:
        return None
    parsed = chunk.parsed(("partitionValues_parsed", physical))
    # Text is the truth: parsed values of another type (the table changed since) are not used, nor are instants, which
    # the writer of the checkpoint may have parsed in another zone.
    if parsed is not None and parsed.type == target and not pa.types.is_string(target) and field.type != TIMESTAMP:
        return parsed
    text = chunk.map_values("partitionValues", physical)
    if shape is not None and not shape.empty_text_is_null and pa.types.is_string(target):
        return text
    zone = "UTC" if shape is None else shape.time_zone
    return pa.chunked_array([typed_values(part, field, target, zone) for part in text.chunks], type=target)


def typed_values(text: pa.Array, field: StructField, target: pa.DataType, time_zone: str = "UTC") -> pa.Array:
    """Convert texts of one partition column to values; an empty text is null.

    Args:
        text: the texts of the log.
        field: the column.
        target: the comparable type, the column's own Arrow type, or text.
        time_zone: of timestamps that do not name theirs.

    Raises:
        CorruptLogError: a text is not a value of the column's type.
    """
    # Few distinct values stand for many files: parse each once.
    encoded = text.dictionary_encode()
    distinct = pc.if_else(pc.equal(encoded.dictionary, build.EMPTY), build.strings([None])[0], encoded.dictionary)
    if pa.types.is_string(target):
        return distinct.take(encoded.indices)
    try:
        return parse_text(distinct, field.type, time_zone).cast(target).take(encoded.indices)
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"a partition value of column {field.name!r} is not a valid {field.type}: {error}. "
            "The partitionValues of some add action in the log are damaged."
        ) from error


def partition_text(value: pa.Scalar, type_: DataType, column: str) -> str | None:
    """Return a partition value as the log has it; None for null, and for empty text, which the spec takes for null.

    Args:
        value: in the Arrow type in which Spark passes it.
        type_: the column's type.
        column: its name, for messages.

    >>> partition_text(pa.scalar(19_000, pa.int32()).cast(pa.date32()), DATE, "day")
    '2022-01-08'
    """
    if not value.is_valid:
        return None
    if is_string(type_):
        return value.as_py() or None
    if type_ == BINARY:
        return _utf8(value.as_py(), column)
    if type_ == BOOLEAN:
        return "true" if value.as_py() else "false"
    if type_ in (FLOAT, DOUBLE):
        # The shortest text that gives the same 32 or 64 bits again; zero has one sign, for -0.0 = 0.0.
        number = value.as_py()
        return non_finite_text(number) or str(pa.scalar(number + 0.0, value.type).cast(pa.string()).as_py())
    if isinstance(type_, DecimalType):
        return format(value.as_py(), "f")
    if type_ == DATE:
        return day_text(value.cast(pa.date32()).cast(pa.int32()).as_py())
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        micros = value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64()).as_py()
        return timestamp_text(micros, zoned=type_ == TIMESTAMP)
    if type_ in INTEGRAL_TYPES:
        return str(value.as_py())
    raise PartitionValueError(f"a table cannot be partitioned by column {column}, whose type is {type_}")


def _utf8(value: bytes, column: str) -> str | None:
    try:
        return value.decode("utf-8") or None
    except UnicodeDecodeError:
        raise PartitionValueError(
            f"the partition column {column} holds the bytes {value[:20].hex()}, which are not UTF-8 text: the log "
            "keeps partition values as text. Partition by another column, for example by hex() of this one."
        ) from None
