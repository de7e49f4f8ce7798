"""Smallest and largest values of a split's columns, as the texts that `minValues` and `maxValues` of an `add` hold.

A bound may be wider than the truth and never narrower: long strings are cut at a prefix (the upper one ends in the
largest character), and a column with NaN, which is larger than everything to Spark, has no bounds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    is_string,
)
from headwater.search.fields import is_day_time_interval, is_time, natural_kind

if TYPE_CHECKING:
    from headwater.log.schema import StructField, StructType
    from headwater.search.fields import IndexConfig

_MAX_CHARACTERS: Final = 64
_LAST_CHARACTER: Final = "\U0010ffff"
_YEAR_OF_FOUR_DIGITS: Final = re.compile(r"\d{4}-")


class ColumnBounds:
    """Collects the bounds of the columns for which they help: not of text, JSON, binaries and intervals."""

    def __init__(self, schema: StructType, config: IndexConfig) -> None:
        self._columns = [column for column in schema.fields if _has_bounds(column, config)]
        self._least: dict[str, pa.Scalar] = {}
        self._greatest: dict[str, pa.Scalar] = {}
        self._unbounded: set[str] = set()
        self.null_counts: dict[str, int] = dict.fromkeys(schema.names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch into account."""
        for name in self.null_counts:
            self.null_counts[name] += batch.column(name).null_count
        for column in self._columns:
            values = batch.column(column.name)
            if column.type in (FLOAT, DOUBLE) and pc.any(pc.is_nan(values)).as_py():
                self._unbounded.add(column.name)
            bounds = pc.min_max(values)
            if bounds["min"].is_valid:
                self._widen(self._least, column.name, bounds["min"], pc.less)
                self._widen(self._greatest, column.name, bounds["max"], pc.greater)

    @staticmethod
    def _widen(bounds: dict[str, pa.Scalar], name: str, found: pa.Scalar, beyond: Any) -> None:
        if name not in bounds or beyond(found, bounds[name]).as_py():
            bounds[name] = found

    def texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """The smallest and the largest values, by column; a column is in both or in neither."""
        least: dict[str, str] = {}
        greatest: dict[str, str] = {}
        for column in self._columns:
            name = column.name
            if name in self._least and name not in self._unbounded:
                low, high = _bound_texts(column, self._least[name], self._greatest[name])
                if low is not None and high is not None:
                    least[name], greatest[name] = low, high
        return least, greatest

    def time_range(self) -> tuple[str, str] | None:
        """The first and last instant of the first timestamp column, if there is one with values."""
        least, greatest = self.texts()
        for kind in (TIMESTAMP, TIMESTAMP_NTZ):
            for column in self._columns:
                if column.type == kind and column.name in least:
                    return least[column.name], greatest[column.name]
        return None


def _has_bounds(column: StructField, config: IndexConfig) -> bool:
    if natural_kind(column.type) in ("json", "stored") or is_day_time_interval(column.type) or is_time(column.type):
        return False
    kinds = {field.kind for field in config.fields_of(column.name)}
    return not kinds <= {"text", "json"}


def _bound_texts(column: StructField, least: pa.Scalar, greatest: pa.Scalar) -> tuple[str | None, str | None]:
    if is_string(column.type):
        return least.as_py()[:_MAX_CHARACTERS], _upper_string(greatest.as_py())
    return _text(column, least), _text(column, greatest)


def _upper_string(value: str) -> str | None:
    if len(value) <= _MAX_CHARACTERS:
        return value
    bound = value[:_MAX_CHARACTERS] + _LAST_CHARACTER
    return bound if bound >= value else None


def _text(column: StructField, value: pa.Scalar) -> str | None:
    if column.type == BOOLEAN:
        return "true" if value.as_py() else "false"
    if column.type in (FLOAT, DOUBLE):
        number: float = value.as_py()
        return repr(number) if abs(number) < float("inf") else ("Infinity" if number > 0 else "-Infinity")
    if isinstance(column.type, DecimalType):
        return format(value.as_py(), "f")
    written: str = value.cast(pa.string()).as_py()
    if pa.types.is_temporal(value.type):
        if _YEAR_OF_FOUR_DIGITS.match(written) is None:
            return None  # ISO 8601 has no form of it that every reader knows
        return written.replace(" ", "T").replace(".000000", "")
    return written
