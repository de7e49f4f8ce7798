"""The expression tree of filters, and the tools to walk and rewrite it.

SQL text (`headwater.log.filters.sql`), Catalyst's filters and Python code all become this tree. What a source cannot
express here becomes `Unknown`, which keeps every file. `str()` of a tree without `Unknown` is SQL again.

>>> expr = and_(Compare("=", column("date"), Literal("2024-01-01")), Compare(">", column("id"), Literal(5)))
>>> str(expr)
"(date = '2024-01-01' AND id > 5)"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Literal as OneOf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CompareOp: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]
"""Comparison operators; `<=>` is SQL's null-safe equality."""
FLIPPED: dict[CompareOp, CompareOp] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "<=>": "<=>",
}
"""The operator that says the same when its operands change places."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(
    "all|and|any|array|as|asc|between|by|case|cast|cross|current_date|current_timestamp|current_user|desc|"
    "distinct|else|end|escape|except|exists|false|for|from|full|group|having|ilike|in|inner|intersect|interval|into|is|"
    "isnull|join|lateral|left|like|limit|map|natural|not|notnull|null|on|or|order|outer|over|right|rlike|select|set|"
    "some|struct|table|then|true|union|unique|using|values|when|where|with",
    re.IGNORECASE,
)


def _quoted_name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and not _RESERVED.fullmatch(name):
        return name
    return f"`{name.replace('`', '``')}`"


def _quoted_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its logical name; nested fields are further parts: `Column(("address", "city"))`."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(map(_quoted_name, self.parts))


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: None, bool, int, float, Decimal, str, bytes, date, or datetime (naive: without zone)."""

    value: Any

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return str(self.value).upper()
            case str():
                return _quoted_text(self.value)
            case bytes():
                return f"X'{self.value.hex()}'"
            case Decimal():
                text = f"{self.value:f}"
                return text if "." in text else f"{text}BD"
            case float():
                return f"{self.value!r}D"
            case datetime():
                kind = "TIMESTAMP_NTZ" if self.value.tzinfo is None else "TIMESTAMP"
                return f"{kind} '{self.value.isoformat(' ')}'"
            case date():
                return f"DATE '{self.value.isoformat()}'"
            case _:
                return str(self.value)


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op literal`, or `column op column`. A literal is always on the right.

    The log knows bounds of single columns only, so a comparison of two columns prunes nothing. It tells a MERGE which
    columns are its keys.
    """

    op: CompareOp
    left: Column
    right: Literal | Column

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (literals)`; a null among the literals never matches."""

    column: Column
    values: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class StartsWith:
    """`column LIKE 'prefix%'`."""

    column: Column
    prefix: str

    def __str__(self) -> str:
        pattern = re.sub(r"([\\%_])", r"\\\1", self.prefix) + "%"
        return f"{self.column} LIKE {_quoted_text(pattern)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`, in SQL's three-valued logic."""

    operand: Expression

    def __str__(self) -> str:
        return f"NOT {self.operand}"


@dataclass(frozen=True, slots=True)
class And:
    """True when all operands are; without operands, always."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.operands))})"


@dataclass(frozen=True, slots=True)
class Or:
    """True when any operand is; without operands, never."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"({' OR '.join(map(str, self.operands))})"


@dataclass(frozen=True, slots=True)
class Constant:
    """A predicate that is the same for every row; None is SQL's unknown and matches nothing."""

    value: bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something this tree cannot say: any row may match it, and may match its negation."""

    text: str

    def __str__(self) -> str:
        return f"<{self.text}>"


Predicate: TypeAlias = Compare | In | StartsWith | IsNull | Constant | Unknown
"""A leaf of the tree."""
Expression: TypeAlias = Predicate | Not | And | Or


def column(*parts: str) -> Column:
    """Return a column reference: `column("id")`, `column("address", "city")`."""
    return Column(parts)


def and_(*operands: Expression) -> Expression:
    """Return the conjunction of any number of expressions; without any, it is always true."""
    if len(operands) == 1:
        return operands[0]
    return And(operands) if operands else Constant(True)


def walk(expr: Expression) -> Iterator[Expression]:
    """Yield every node, parents before children and left before right. The tree may be deeper than Python's stack."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        match node:
            case Not(operand=inner):
                pending.append(inner)
            case And(operands=parts) | Or(operands=parts):
                pending.extend(reversed(parts))


def transform(expr: Expression, change: Callable[[Predicate], Expression]) -> Expression:
    """Return the tree with every leaf replaced by what `change` makes of it.

    >>> str(transform(Not(IsNull(column("a"))), lambda leaf: Unknown(str(leaf))))
    'NOT <a IS NULL>'
    """
    match expr:
        case Not(operand=inner):
            return Not(transform(inner, change))
        case And(operands=parts) | Or(operands=parts):
            return type(expr)(tuple(transform(part, change) for part in parts))
    return change(expr)


def chain(expr: Expression, kind: type[And] | type[Or]) -> list[Expression]:
    """Return the operands of directly nested ANDs (or ORs) as one list; any other expression is its only operand.

    >>> a, b, c = (IsNull(column(name)) for name in "abc")
    >>> [str(part) for part in chain(And((a, And((b, c)))), And)]
    ['a IS NULL', 'b IS NULL', 'c IS NULL']
    """
    found: list[Expression] = []
    pending = [expr]
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending.extend(reversed(part.operands))
        else:
            found.append(part)
    return found


def columns_of(expr: Expression) -> set[Column]:
    """Return every column that the expression mentions, except those in the text of an `Unknown`."""
    found: set[Column] = set()
    for node in walk(expr):
        match node:
            case Compare(left=left, right=Column() as right):
                found |= {left, right}
            case Compare(left=col) | In(column=col) | StartsWith(column=col) | IsNull(column=col):
                found.add(col)
    return found


def rename_columns(expr: Expression, rename: Callable[[Column], Column]) -> Expression:
    """Return the tree with other columns in the place of its own."""

    def renamed(leaf: Predicate) -> Expression:
        match leaf:
            case Compare(left=left, right=Column() as right):
                return replace(leaf, left=rename(left), right=rename(right))
            case Compare(left=left):
                return replace(leaf, left=rename(left))
            case In(column=col) | StartsWith(column=col) | IsNull(column=col):
                return replace(leaf, column=rename(col))
        return leaf

    return transform(expr, renamed)


def has_unknown(expr: Expression) -> bool:
    """Return whether the log cannot evaluate some part: an `Unknown`, or a comparison of two columns."""
    return any(is_unknown(node) for node in walk(expr))


def is_unknown(node: Expression) -> bool:
    """Return whether this node alone says nothing that the log can evaluate."""
    return isinstance(node, Unknown) or (isinstance(node, Compare) and isinstance(node.right, Column))
