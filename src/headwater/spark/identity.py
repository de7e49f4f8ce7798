"""Identity columns: values that no two rows share, counted by each task for itself (spec: "Identity Columns").

Every task of the job has its own numbers, so there is no shuffle and no second pass. The numbers are dealt out in
blocks: the first block of each task, then the second block of each, and so on. What a task does not use of its blocks
stays unused: values are unique and beyond the high-water mark, but have gaps. A job of one task has no gaps before
its first million of rows (`df.coalesce(1)`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import ConstraintViolationError, SchemaError
from headwater.features.identity_columns import ALLOW_EXPLICIT_INSERT, HIGH_WATER_MARK, START, STEP
from headwater.log.schema import StructType, physical_path
from headwater.log.schema.lookup import hidden
from headwater.spark.columns import quoted
from headwater.spark.functions import functions
from headwater.spark.violations import violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from headwater.log.actions import Add
    from headwater.log.schema import MappingMode, StructField

ROW_NUMBER = hidden("row_number")
"""The hidden column that counts: Spark's `monotonically_increasing_id`."""
_ROW_BITS = 33
"""Of that number: the row within the task; the task is above."""
_BLOCK_BITS = 20
_TASK_BITS = 17
_MIN, _MAX = -(2**63), 2**63 - 1


class _Bounds(msgspec.Struct):
    minValues: dict[str, Any] = {}
    maxValues: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """How a column counts."""

    start: int
    step: int
    high_water_mark: int | None
    allows_explicit: bool

    @property
    def next_value(self) -> int:
        """The first value of the series that was not given out.

        >>> Identity(start=1, step=10, high_water_mark=25, allows_explicit=False).next_value
        31
        """
        mark = self.high_water_mark
        if mark is None or (mark < self.start if self.step > 0 else mark > self.start):
            return self.start
        return self.start + ((mark - self.start) // self.step + 1) * self.step


def identity_of(field: StructField) -> Identity | None:
    """How a column counts, if it is an identity column.

    Raises:
        SchemaError: the column metadata makes no sense.
    """
    if START not in field.metadata and STEP not in field.metadata:
        return None
    try:
        mark = field.metadata.get(HIGH_WATER_MARK)
        identity = Identity(
            int(field.metadata.get(START, 1)),
            int(field.metadata.get(STEP, 1)),
            None if mark is None else int(mark),
            str(field.metadata.get(ALLOW_EXPLICIT_INSERT, False)).lower() == "true",
        )
    except (TypeError, ValueError) as error:
        raise SchemaError(f"column {field.name}: the identity settings in the schema are no numbers") from error
    if identity.step == 0:
        raise SchemaError(f"column {field.name}: the step of an identity column cannot be 0")
    return identity


def with_row_numbers(frame: DataFrame) -> DataFrame:
    """The rows with the hidden column that counts them. Apart, for each use of the function counts anew."""
    return frame.withColumn(ROW_NUMBER, functions().monotonically_increasing_id())


def identity_values(column: str, identity: Identity) -> Column:
    """The values of an identity column, over rows with numbers.

    Raises:
        ConstraintViolationError: there is no value left.
    """
    sf = functions()
    first = identity.next_value
    room = (_MAX - first) // identity.step if identity.step > 0 else (first - _MIN) // -identity.step
    if room < 0:
        raise ConstraintViolationError(
            f"the identity column {column} has no value left: {first} would be the next one, and is no BIGINT."
        )
    number = sf.col(quoted(ROW_NUMBER))
    task = sf.shiftright(number, _ROW_BITS)
    row = number.bitwiseAND(sf.lit(2**_ROW_BITS - 1))
    index = (
        sf.shiftleft(sf.shiftright(row, _BLOCK_BITS), _BLOCK_BITS + _TASK_BITS)
        + sf.shiftleft(task, _BLOCK_BITS)
        + row.bitwiseAND(sf.lit(2**_BLOCK_BITS - 1))
    )
    many = violation(f"the job has more than {2**_TASK_BITS} tasks, too many for the identity column {column}.")
    overflow = violation(f"the identity column {column} has run out of values: the next one is no BIGINT.")
    return (
        sf.when(task >= 2**_TASK_BITS, many)
        .when(index > sf.lit(min(room, _MAX)), overflow)
        .otherwise(sf.lit(first) + index * sf.lit(identity.step))
    )


def with_marks(
    schema: StructType, identities: Mapping[str, Identity], files: Iterable[Add], mode: MappingMode
) -> StructType:
    """The schema with the new high-water marks: the last values that are in the files.

    Args:
        schema: of the table.
        identities: the columns that were given values.
        files: that were written, with bounds for these columns (`required_statistics`).
        mode: the table's column mapping.
    """
    bounds = [msgspec.json.decode(file.stats or "{}", type=_Bounds) for file in files]
    fields = []
    for field in schema.fields:
        identity = identities.get(field.name)
        if identity is not None and bounds:
            [name] = physical_path(schema, [field.name], mode)
            last = max if identity.step > 0 else min
            mark = last((b.maxValues if identity.step > 0 else b.minValues)[name] for b in bounds)
            field = replace(field, metadata={**field.metadata, HIGH_WATER_MARK: mark})
        fields.append(field)
    return StructType(fields, extra=schema.extra)
