"""The columns of a filter, resolved in a table (spec: "Column Mapping").

Filters use logical names in any case; statistics and partition values use physical names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.expressions import And, columns_of
from headwater.log.schema import VOID, StructType, compares_as_is, physical_path
from headwater.log.stats_decoder import Leaf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.expressions import Column, Expression
    from headwater.log.schema import MappingMode, StructField

DEFAULT_STRING_PREFIX_LENGTH = 32


@dataclass(frozen=True, slots=True)
class TableShape:
    """What pruning must know about a table."""

    schema: StructType
    partition_columns: tuple[str, ...]
    mapping_mode: MappingMode
    string_prefix_length: int = DEFAULT_STRING_PREFIX_LENGTH
    """Strings in statistics may be cut at this length, or longer ones at theirs."""
    empty_text_is_null: bool = True
    """An empty partition value is a null whatever the type; otherwise it is text where the column is."""
    time_zone: str = "UTC"
    """The zone of timestamps among the partition values that do not name theirs."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A column of the filter, resolved in the table."""

    field: StructField
    leaf: Leaf
    is_partition: bool
    compares_as_is: bool
    """False for text with rules of its own: a collation, or the padding of `char(n)`."""

    @property
    def has_statistics(self) -> bool:
        """Statistics are about leaves: a struct has none of its own."""
        return not self.is_partition and not self.is_void and not isinstance(self.field.type, StructType)

    @property
    def is_void(self) -> bool:
        """The type of columns that are always null."""
        return self.field.type == VOID


def resolve(column: Column, shape: TableShape) -> Operand:
    """Find a filter's column in the table. Raises `ColumnNotFoundError`."""
    fields = shape.schema.resolve(column.parts)
    names = tuple(field.name for field in fields)
    path = physical_path(shape.schema, names, shape.mapping_mode)
    is_partition = len(names) == 1 and names[0] in shape.partition_columns
    return Operand(fields[-1], Leaf.of(path, fields[-1]), is_partition, compares_as_is(fields))


def split_by_partition(expr: Expression, shape: TableShape) -> tuple[list[Expression], list[Expression]]:
    """The conjuncts that only need partition values, and the others."""
    parts = list(_conjuncts(expr))
    only_partition: list[Expression] = []
    others: list[Expression] = []
    for part in parts:
        columns = columns_of(part)
        is_only = bool(columns) and all(resolve(c, shape).is_partition for c in columns)
        (only_partition if is_only else others).append(part)
    return only_partition, others


def _conjuncts(expr: Expression) -> Iterable[Expression]:
    pending = [expr]
    while pending:
        part = pending.pop()
        if isinstance(part, And):
            pending.extend(reversed(part.operands))
        else:
            yield part
