"""Partition values as text, for the log and for directory names (spec: "Partition Value Serialization").

The log's text is what counts; directories are named after the values only because people and other tools expect it.
Their names are escaped as Spark and Hive do it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.partition_directories import NULL_DIRECTORY, partition_directory
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    PrimitiveType,
    is_string,
)

if TYPE_CHECKING:
    from headwater.log.schema import DataType

__all__ = ["NULL_DIRECTORY", "PartitionValueError", "partition_directory", "partition_text", "same_value_runs"]

_INTEGRAL = frozenset({"byte", "short", "integer", "long"})


class PartitionValueError(HeadwaterError):
    """A value cannot be kept as a partition value: the log has no text for it."""


def partition_text(value: pa.Scalar, type_: DataType, column: str) -> str | None:
    """A partition value as the log has it; None for null, and for what the spec takes for null (empty text).

    Args:
        value: in the Arrow type in which Spark hands it over.
        type_: the column's type.
        column: its name, for messages.

    >>> from headwater.log.schema import DATE
    >>> partition_text(pa.scalar(19_000, pa.int32()).cast(pa.date32()), DATE, "day")
    '2022-01-08'

    Raises:
        PartitionValueError: the value has no text.
    """
    if not value.is_valid:
        return None
    if is_string(type_):
        return value.as_py() or None
    if type_ == BINARY:
        return _binary(value.as_py(), column)
    if type_ == BOOLEAN:
        return "true" if value.as_py() else "false"
    if type_ in (FLOAT, DOUBLE):
        return _floating(value)
    if isinstance(type_, DecimalType):
        return format(value.as_py(), "f")
    if type_ in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return _point_in_time(value, type_)
    if isinstance(type_, PrimitiveType) and type_.name in _INTEGRAL:
        return str(value.as_py())
    raise PartitionValueError(f"column {column} is of type {type_}, and no table can be partitioned by that")


def _binary(value: bytes, column: str) -> str | None:
    try:
        return value.decode("utf-8") or None
    except UnicodeDecodeError:
        raise PartitionValueError(
            f"the partition column {column} holds the bytes {value[:20].hex()}, which are no UTF-8 text: the log keeps "
            "partition values as text. Partition by another column, for example by hex() of this one."
        ) from None


def _floating(value: pa.Scalar) -> str:
    number = value.as_py()
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    # The shortest text that gives the same 32 or 64 bits again; zero has one sign, for -0.0 = 0.0.
    return str(pa.scalar(number + 0.0, value.type).cast(pa.string()).as_py())


def _point_in_time(value: pa.Scalar, type_: DataType) -> str:
    if type_ == DATE:
        return day_text(value.cast(pa.date32()).cast(pa.int32()).as_py())
    micros = value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64()).as_py()
    return timestamp_text(micros, zoned=type_ == TIMESTAMP)


def timestamp_text(micros: int, *, zoned: bool) -> str:
    """A timestamp as a partition value: as long as it must be, in UTC with a `Z` if it is an instant.

    >>> timestamp_text(1_500_000, zoned=True), timestamp_text(0, zoned=False)
    ('1970-01-01T00:00:01.500000Z', '1970-01-01 00:00:00')
    """
    seconds, fraction = divmod(micros, 1_000_000)
    days, second = divmod(seconds, 86_400)
    time = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    if fraction:
        time += f".{fraction:06}"
    return f"{day_text(days)}T{time}Z" if zoned else f"{day_text(days)} {time}"


def day_text(days: int) -> str:
    """A day since 1970-01-01 as text, with years as long as they are (`datetime` ends at 9999).

    ISO 8601 puts a sign before years of more than four digits; most readers insist on it.
    """
    # The calendar repeats every 400 years, which are 146,097 days.
    cycles, rest = divmod(days + 719_468, 146_097)
    year_of_cycle = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
    day = rest - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    shifted = (5 * day + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = cycles * 400 + year_of_cycle + (month <= 2)
    sign, digits = ("-", -year) if year < 0 else ("+", year) if year > 9999 else ("", year)
    return f"{sign}{digits:04}-{month:02}-{day - (153 * shifted + 2) // 5 + 1:02}"


def same_value_runs(columns: list[pa.Array]) -> list[int]:
    """Where runs of rows with the same values begin, the end included: `[0, 3, 5]` for two runs in five rows."""
    import pyarrow.compute as pc

    rows = len(columns[0])
    changes: Any = None
    for column in columns:
        codes = positive_zero(column).dictionary_encode(null_encoding="encode").indices
        differs = pc.not_equal(codes.slice(1), codes.slice(0, max(rows - 1, 0)))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(position + 1 for position in pc.indices_nonzero(changes).to_pylist()), rows] if rows else [0]


def positive_zero(column: pa.Array) -> pa.Array:
    """Floating numbers with one zero: -0.0 and 0.0 are equal for Spark, and two values for Arrow."""
    import pyarrow.compute as pc

    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
