"""New values for columns of the table: `{"column": value, "struct.field": value}` over the rows of a DataFrame.

Values are SQL text or Columns. They are converted to the types of the table's columns as the values of a write are; a
field in a struct is replaced, and the struct's other fields stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import ColumnNotFoundError, SchemaMismatchError
from headwater.log.schema import StructField, StructType
from headwater.log.schema.lookup import resolve
from headwater.spark.char_types import declared_type
from headwater.spark.conform import conformed
from headwater.spark.dml.condition import explained
from headwater.spark.functions import functions
from headwater.spark.schema_match import as_table, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.log.schema import DataType

Path: TypeAlias = tuple[str, ...]
OldValue: TypeAlias = "Callable[[str], Column]"
"""The value of a column of the table before."""


@dataclass(frozen=True)
class Assignment:
    """A column, or a field in a struct, and its new value."""

    path: Path
    value: str | Column

    @property
    def column(self) -> Column:
        """The value as a Column."""
        return functions().expr(self.value) if isinstance(self.value, str) else self.value


@dataclass(frozen=True)
class _Typed:
    """A value whose type is known."""

    path: Path
    """As the table spells it."""
    fields: tuple[StructField, ...]
    value: Column
    type: DataType


def new_values(
    view: DataFrame, assignments: Sequence[Assignment], table: StructType, old: OldValue, what: str
) -> dict[str, Column]:
    """The new values of columns, by the table's names, in the table's types.

    Args:
        view: the rows over which the values are expressions.
        assignments: no two are for the same value.
        table: the table's schema.
        old: the value of a column before: what stays of a struct. It is asked for no other columns.
        what: for messages: whose assignments these are.

    Raises:
        ColumnNotFoundError: the table has no such column, or a value mentions one that is not there.
        FilterError: Spark does not understand a value.
        SchemaMismatchError: the type of a value does not fit the column.
    """
    typed = _typed(view, assignments, table, what)
    found: dict[str, Column] = {}
    for name in dict.fromkeys(value.path[0] for value in typed):
        field = table.field(name)
        own = [value for value in typed if value.path[0] == name]
        is_whole = any(len(value.path) == 1 for value in own)
        found[name] = _built(declared_type(field), own, None if is_whole else old(name), 1)
    return found


def _typed(view: DataFrame, assignments: Sequence[Assignment], table: StructType, what: str) -> list[_Typed]:
    from pyspark.errors import PySparkException

    paths: list[tuple[StructField, ...]] = []
    for assignment in assignments:
        try:
            paths.append(resolve(table, assignment.path))
        except ColumnNotFoundError as error:
            raise ColumnNotFoundError(f"{what} assigns to a column that the table does not have: {error}") from error
    if not assignments:
        return []
    try:
        columns = [assignment.column for assignment in assignments]
        schema: Any = view.select(*(column.alias(f"value{i}") for i, column in enumerate(columns))).schema
    except PySparkException as error:
        raise explained(error, what) from error
    types = [field.type for field in StructType.from_spark(schema).fields]
    typed = [
        _Typed(tuple(field.name for field in fields), fields, column, type_)
        for fields, column, type_ in zip(paths, columns, types, strict=True)
    ]
    _check_types(typed, table, what)
    return typed


def _check_types(typed: list[_Typed], table: StructType, what: str) -> None:
    found = [
        difference
        for value in typed
        for difference in differences(_nested(value.path, value.type), table)
        if difference.data_type != "-"  # what is not assigned stays
    ]
    if found:
        raise SchemaMismatchError(f"{what} assigns values that do not fit the table:\n{as_table(found)}")


def _nested(path: Path, type_: DataType) -> StructType:
    for name in reversed(path):
        type_ = StructType([StructField(name, type_)])
    assert isinstance(type_, StructType)
    return type_


def _built(type_: DataType, values: list[_Typed], old: Column | None, depth: int) -> Column:
    """The new value of a column or field, some of which is assigned; the old one is for what is not."""
    sf = functions()
    whole = next((value for value in values if len(value.path) == depth), None)
    if whole is not None:
        return conformed(whole.value, whole.type, type_, whole.path)
    assert isinstance(type_, StructType), "only fields of structs have names"
    assert old is not None
    parts = []
    for inner in type_.fields:
        own = [value for value in values if value.path[depth] == inner.name]
        part = _built(inner.type, own, old[inner.name], depth + 1) if own else old[inner.name]
        parts.append(part.alias(inner.name))
    struct: Column = sf.struct(*parts)
    return struct
