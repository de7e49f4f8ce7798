"""Partition filters applied exactly, without the JVM: most are comparisons of a number, a date or a text.

Spark does not look at partition filters again, so a filter is evaluated here only where Arrow and Spark are sure to
agree on every value. For all others the answer is None, and Spark's own evaluation has to do it.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import int64s, strings
from headwater.log.expressions import (
    And,
    Column,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EPOCH = date(1970, 1, 1)
_REPLACEMENT = "\ufffd"
"""What Java puts where text is not valid; the literal itself is then not known."""


class _InexactError(Exception):
    """This filter is not for Arrow to evaluate; never leaves this module."""


def exact_rows(rows: pa.Table, condition: Expression, names: Mapping[Column, str]) -> pa.Table | None:
    """The rows for which the condition is true; None where that is for Spark to say.

    Args:
        rows: the files, with typed partition columns.
        condition: a filter on partition columns.
        names: the columns of `rows`, by the table's columns.

    >>> from headwater.log.expressions import column
    >>> files = pa.table({"year": [2023, 2024, None]})
    >>> later = Compare(">", column("year"), Literal(2023))
    >>> exact_rows(files, later, {column("year"): "year"}).to_pylist()
    [{'year': 2024}]
    """
    try:
        return rows.filter(_Evaluation(rows, names).predicate(condition))
    except _InexactError:
        return None


class _Evaluation:
    """Conditions over the rows of one table, in SQL's logic of three values."""

    def __init__(self, rows: pa.Table, names: Mapping[Column, str]) -> None:
        self._rows = rows
        self._names = names

    def predicate(self, expr: Expression) -> Any:
        match expr:
            case And(operands=parts) if parts:
                return reduce(pc.and_kleene, map(self.predicate, parts))
            case Or(operands=parts) if parts:
                return reduce(pc.or_kleene, map(self.predicate, parts))
            case And():
                return self._constant(True)
            case Not(operand=inner):
                return pc.invert(self.predicate(inner))
            case Constant(value=bool() as value):
                return self._constant(value)
            case IsNull(column=column):
                return pc.is_null(self._column(column))
            case Compare(op="<=>", left=column, right=right):
                equal = pc.equal(*self._comparable(column, [right]))
                return pc.fill_null(equal, False)
            case Compare(op=op, left=column, right=right):
                return _COMPARISONS[op](*self._comparable(column, [right]))
            case In(column=column, values=values) if values:
                values_of, found = self._comparable(column, list(values), one=False)
                return pc.if_else(pc.is_valid(values_of), pc.is_in(values_of, value_set=found), None)
            case StartsWith(column=column, prefix=prefix) if _REPLACEMENT not in prefix:
                texts = self._column(column)
                if pa.types.is_string(texts.type):
                    return pc.starts_with(texts, pattern=prefix)
        raise _InexactError

    def _constant(self, value: bool) -> Any:
        return pc.fill_null(pa.nulls(self._rows.num_rows, pa.bool_()), value)

    def _column(self, column: Column) -> Any:
        name = self._names.get(column)
        if name is None:
            raise _InexactError
        return self._rows.column(name)

    def _comparable(self, column: Column, literals: list[Literal], *, one: bool = True) -> tuple[Any, Any]:
        """A column and literals in a type in which Arrow compares as Spark does: 64-bit integers, or text by bytes."""
        values, constants = self._column(column), [literal.value for literal in literals]
        if pa.types.is_integer(values.type) and all(type(v) is int and abs(v) < 2**63 for v in constants):
            values, found = values.cast(pa.int64()), int64s(constants)
        elif pa.types.is_date32(values.type) and all(_is_date(v) for v in constants):
            days = int64s([(v - _EPOCH).days for v in constants])
            values, found = values.cast(pa.int32()).cast(pa.int64()), days
        elif pa.types.is_boolean(values.type) and all(type(v) is bool for v in constants):
            values, found = values.cast(pa.int8()).cast(pa.int64()), int64s([int(v) for v in constants])
        elif pa.types.is_string(values.type) and all(type(v) is str and _REPLACEMENT not in v for v in constants):
            found = strings(constants)
        else:
            raise _InexactError
        return values, found[0] if one else found


def _is_date(value: object) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)
