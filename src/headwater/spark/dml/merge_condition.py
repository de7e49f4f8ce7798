"""What the condition of a MERGE says about the target's rows, as far as files can be skipped by it.

Of a condition `t.id = s.id AND t.date > '2024-01-01'` the second part is about the target alone; the first pairs a
column of the target with one of the source, whose values (`headwater.spark.dml.merge_source`) bound the target's. Spark
itself evaluates the condition; what is not understood here only skips no files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.expressions import (
    And,
    Column,
    Compare,
    Constant,
    Expression,
    Not,
    Or,
    Unknown,
    and_,
    columns_of,
)
from headwater.log.filter_sql import parse_filter
from headwater.log.schema.lookup import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headwater.log.schema import StructType

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Sides:
    """Whose column a name is."""

    target: StructType
    target_alias: str | None
    source_columns: frozenset[str]
    """In lower case."""

    @classmethod
    def of(cls, target: StructType, target_alias: str | None, source_columns: Iterable[str]) -> Sides:
        """The sides of a merge."""
        return cls(target, target_alias, frozenset(name.lower() for name in source_columns))

    def target_column(self, path: Path) -> Path | None:
        """The column of the target that a name means, as the schema spells it; None if it is none, or not surely so."""
        if self.target_alias is not None and len(path) > 1 and path[0].lower() == self.target_alias.lower():
            is_other = path[0].lower() in self.source_columns or self._resolved(path) is not None
            return None if is_other else self._resolved(path[1:])
        return None if path[0].lower() in self.source_columns else self._resolved(path)

    def source_column(self, path: Path) -> str | None:
        """The top-level column of the source that a name means; None if it is none, or not surely so."""
        first = path[0].lower()
        if len(path) == 1:
            return path[0] if first in self.source_columns and self._resolved(path) is None else None
        is_qualified = (
            len(path) == 2
            and path[1].lower() in self.source_columns
            and first not in self.source_columns
            and first != (self.target_alias or "").lower()
            and self._resolved(path[:1]) is None
        )
        return path[1] if is_qualified else None

    def _resolved(self, path: Path) -> Path | None:
        try:
            return tuple(field.name for field in resolve(self.target, path))
        except ColumnNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Key:
    """A column of the target that must equal one of the source."""

    target: Path
    source: str


@dataclass(frozen=True, slots=True)
class Understood:
    """What a condition says."""

    on_target: Expression | None
    """What must hold of the target's row alone; None if nothing is known of that."""
    keys: tuple[Key, ...] = ()
    is_keys: bool = False
    """Whether it says nothing but that the keys are equal."""


def understand(text: str | None, sides: Sides) -> Understood:
    """What a condition says of the target; None (a Column whose text is not known) says nothing.

    >>> from headwater.log.schema import LONG, StructField, StructType
    >>> sides = Sides.of(StructType([StructField("id", LONG), StructField("x", LONG)]), "t", ["id", "y"])
    >>> found = understand("t.id = s.id AND t.x > 5 AND s.y < 3", sides)
    >>> str(found.on_target), found.keys
    ('x > 5', (Key(target=('id',), source='id'),))
    """
    if text is None:
        return Understood(None)
    try:
        parsed = parse_filter(text)
    except FilterError:  # Spark may read it all the same; if not, it says so itself
        return Understood(None)
    keys: list[Key] = []
    on_target: list[Expression] = []
    parts = list(_conjuncts(parsed))
    for part in parts:
        if isinstance(part, Unknown):
            key = _key(part.text, sides)
            keys += [] if key is None else [key]
        elif (own := _on_target(part, sides)) is not None:
            on_target.append(own)
    is_keys = len(keys) == len(parts)
    return Understood(and_(*on_target) if on_target else None, tuple(dict.fromkeys(keys)), is_keys)


def _conjuncts(expr: Expression) -> Iterator[Expression]:
    if isinstance(expr, And):
        for operand in expr.operands:
            yield from _conjuncts(operand)
    else:
        yield expr


def _key(text: str, sides: Sides) -> Key | None:
    """`target = source`, in either order."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    from headwater.log.filter_operands import Operands, has_only

    try:
        node = parse_one(text, dialect="spark")
    except SqlglotError:
        return None
    if type(node) is not exp.EQ or not has_only(node, "this", "expression"):
        return None
    operands = Operands(text)
    left, right = operands.column(node.this), operands.column(node.expression)
    if left is None or right is None:
        return None
    for one, other in ((left, right), (right, left)):
        target, source = sides.target_column(one.parts), sides.source_column(other.parts)
        if target is not None and source is not None:
            return Key(target, source)
    return None


def _on_target(expr: Expression, sides: Sides) -> Expression | None:
    """A condition over the target's own names; None where it has others, or parts that are not understood."""
    match expr:
        case Not(operand=inner):
            own = _on_target(inner, sides)
            return None if own is None else Not(own)
        case And(operands=parts) | Or(operands=parts):
            found = [_on_target(part, sides) for part in parts]
            known = tuple(part for part in found if part is not None)
            return type(expr)(known) if len(known) == len(found) else None
        case Constant():
            return expr
        case Unknown():
            return None
    (column,) = columns_of(expr)
    path = sides.target_column(column.parts)
    if path is None:
        return None
    renamed = Column(path)
    return replace(expr, left=renamed) if isinstance(expr, Compare) else replace(expr, column=renamed)
