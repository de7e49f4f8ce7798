"""Derive from the condition of a MERGE which files of the target can be skipped.

Of a condition `t.id = s.id AND t.date > '2024-01-01'` the second part is about the target alone; the first pairs a
column of the target with one of the source, whose values (`headwater.spark.merge.source`) bound the target's. Spark
evaluates the condition; a part that is not understood here only skips no files.

A condition that was given as a Column, a tree in the JVM or in the client of Spark Connect, becomes SQL text as far as
it consists of comparisons joined by AND. The text may hold for more rows than the Column does: it is for pruning only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.features.column_mapping import column_path
from headwater.log.filters.expressions import (
    And,
    Column,
    Compare,
    Constant,
    Expression,
    Predicate,
    Unknown,
    and_,
    chain,
    columns_of,
    has_unknown,
    is_unknown,
    rename_columns,
    transform,
)
from headwater.log.filters.sql import parse_filter
from headwater.log.schema.types import quoted, resolve
from headwater.spark.functions import java_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.schema import StructType


Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Sides:
    """Tells whose column a name is."""

    target: StructType
    target_alias: str | None
    source_columns: frozenset[str]
    """In lower case."""

    @classmethod
    def of(cls, target: StructType, target_alias: str | None, source_columns: Iterable[str]) -> Sides:
        return cls(target, target_alias, frozenset(name.lower() for name in source_columns))

    def target_column(self, path: Path) -> Path | None:
        """Return the column of the target that a name surely means, as the schema spells it."""
        if self.target_alias is not None and len(path) > 1 and path[0].lower() == self.target_alias.lower():
            is_other = path[0].lower() in self.source_columns or self._resolved(path) is not None
            return None if is_other else self._resolved(path[1:])
        return None if path[0].lower() in self.source_columns else self._resolved(path)

    def source_column(self, path: Path) -> str | None:
        """Return the top-level column of the source that a name surely means."""
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
    """The part on the target's row alone; None if there is none."""
    keys: tuple[Key, ...] = ()
    is_keys: bool = False
    """Whether it says only that the keys are equal."""


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
    parts = chain(parsed, And)
    for part in parts:
        match part:
            case Compare(op="=", left=left, right=Column() as right):
                key = _key(left, right, sides)
                keys += [] if key is None else [key]
            case _:
                own = transform(part, lambda leaf: _on_target(leaf, sides))
                on_target += [] if has_unknown(own) else [own]
    is_keys = len(keys) == len(parts)
    return Understood(and_(*on_target) if on_target else None, tuple(dict.fromkeys(keys)), is_keys)


def _key(left: Column, right: Column, sides: Sides) -> Key | None:
    """Match `target = source`, in either order."""
    for one, other in ((left, right), (right, left)):
        target, source = sides.target_column(one.parts), sides.source_column(other.parts)
        if target is not None and source is not None:
            return Key(target, source)
    return None


def _on_target(leaf: Predicate, sides: Sides) -> Expression:
    """A condition under the target's own names; `Unknown` if it is about anything else."""
    if isinstance(leaf, Constant) or is_unknown(leaf):
        return leaf
    (column,) = columns_of(leaf)
    path = sides.target_column(column.parts)
    return Unknown(str(leaf)) if path is None else rename_columns(leaf, lambda _: Column(path))


_COMPARISONS = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def condition_sql(given: Any) -> str | None:
    """Return the text of a condition, or of a weaker one; None if no part of it is understood.

    >>> condition_sql("t.id = s.id")
    't.id = s.id'
    """
    if isinstance(given, str):
        return given
    node = java_node(given)
    return _condition(_connect(given._expr) if node is None else _classic(node))


_Node = tuple[str, Any]
"""The kind of a node (`function`, `column`, `sql`, `literal` or `other`), and what it holds."""


def _condition(node: _Node) -> str | None:
    kind, held = node
    if kind == "sql":
        return f"({held})"
    if kind != "function":
        return None
    name, arguments = held[0].lower(), held[1]
    if name == "and":
        parts = [part for part in map(_condition, arguments) if part is not None]
        return " AND ".join(parts) if parts else None
    if name not in _COMPARISONS or len(arguments) != 2:
        return None
    left, right = _operand(arguments[0]), _operand(arguments[1])
    return None if left is None or right is None else f"{left} {_COMPARISONS[name]} {right}"


def _operand(node: _Node) -> str | None:
    kind, held = node
    if kind == "column":
        return ".".join(quoted(part) for part in held)
    if kind == "literal" and isinstance(held, int) and not isinstance(held, bool):
        return str(held)
    if kind == "literal" and isinstance(held, str) and held.isalnum():
        return f"'{held}'"
    return None


def _classic(node: Any) -> _Node:
    """Convert a node of the JVM."""
    match node.getClass().getSimpleName():
        case "UnresolvedFunction":
            arguments = node.arguments()
            return "function", (node.functionName(), [_classic(arguments.apply(i)) for i in range(arguments.size())])
        case "UnresolvedAttribute":
            parts = node.nameParts()
            is_plain = not node.isMetadataColumn() and node.planId().isEmpty()
            return ("column", [parts.apply(i) for i in range(parts.size())]) if is_plain else ("other", None)
        case "SqlExpression":
            return "sql", node.expression()
        case "Literal":
            return "literal", node.value()
    return "other", None


def _connect(node: Any) -> _Node:
    """Convert a node of Spark Connect's client."""
    match type(node).__name__:
        case "UnresolvedFunction":
            return "function", (node._name, [_connect(argument) for argument in node._args])
        case "ColumnReference" if node._plan_id is None:
            return "column", list(column_path(node._unparsed_identifier))
        case "SQLExpression":
            return "sql", node._expr
        case "LiteralExpression":
            return "literal", node._value
    return "other", None
