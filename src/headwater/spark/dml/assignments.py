"""Resolve assignments: `{"column": value, "struct.field": value}` over the rows of a DataFrame.

Values are SQL text or Columns. They are converted to the types of the table's columns as the values of a write are; a
field in a struct is replaced, and the struct's other fields stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import ColumnNotFoundError, SchemaError, SchemaMismatchError
from headwater.features.column_mapping import column_path
from headwater.log.schema import DataType, StructField, StructType
from headwater.log.schema.types import dotted, resolve
from headwater.spark.dml.condition import explained, is_column
from headwater.spark.functions import functions
from headwater.spark.write.schema import as_table, differences
from headwater.spark.write.values import conformed, declared_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame


def checked_values(values: object, what: str) -> dict[str, str | Column]:
    """Check the new values of a clause as users give them.

    Args:
        values: by column: `name`, `struct.field`, either perhaps with the target's alias before it.
        what: for messages: whose dictionary it is.

    Raises:
        TypeError: it is not a dictionary, or has other things in it than names, and texts or Columns.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a dict from names to SQL texts or Columns, not {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"the keys of {what} must be column names, not {name!r} of type {type(name).__name__}")
        if not isinstance(value, str) and not is_column(value):
            raise TypeError(
                f"the values of {what} must be SQL texts or Columns, not {value!r} of type {type(value).__name__}: for "
                "a constant, write lit(...)"
            )
    return dict(values)


def assignment_paths(schema: StructType, names: list[str], alias: str | None, what: str) -> list[Path]:
    """Resolve the columns that a SET names, as the schema spells them.

    Args:
        names: as the user has them: dots lead into structs, backticks quote; the alias may stand before them.
        what: for messages: the table and the command.

    Raises:
        ColumnNotFoundError: there is no such column.
        SchemaError: a column is set twice, or it is inside an array or map.
    """
    found = [_resolved(schema, column_path(name), alias, what) for name in names]
    for number, path in enumerate(found):
        for other in found[:number]:
            shared = min(len(path), len(other))
            if path[:shared] == other[:shared]:
                raise SchemaError(f"{what} sets {dotted(path)} and {dotted(other)}: one value cannot be set twice.")
    return found


def _resolved(schema: StructType, path: Path, alias: str | None, what: str) -> Path:
    try:
        fields = resolve(schema, path)
    except ColumnNotFoundError:
        if alias is None or len(path) < 2 or path[0].lower() != alias.lower():
            raise
        fields = resolve(schema, path[1:])
    for outer in fields[:-1]:
        if not isinstance(outer.type, StructType):
            raise SchemaError(f"{what} sets {dotted(path)}: only fields of structs can be set one by one.")
    return tuple(field.name for field in fields)


Path: TypeAlias = tuple[str, ...]
OldValue: TypeAlias = "Callable[[str], Column]"
"""Returns the old value of a column of the table."""


@dataclass(frozen=True)
class Assignment:
    """A column, or a field in a struct, and its new value."""

    path: Path
    value: str | Column

    @property
    def column(self) -> Column:
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
    """Return the new values of columns, by the table's names, in the table's types.

    Args:
        view: the rows over which the values are expressions.
        assignments: no two are for the same value.
        old: returns the old value of a column, for the fields of a struct that stay.
        what: for messages: whose assignments these are.

    Raises:
        ColumnNotFoundError: the table lacks a column, or a value mentions an unknown one.
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
    """Return the new value of a column or field; fields that are not assigned keep the old value."""
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
