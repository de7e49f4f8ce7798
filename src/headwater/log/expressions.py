"""A small expression tree: the filters that pruning understands.

Filters come from SQL text (`headwater.log.filter_sql`), from Catalyst (Spark's planner) or from Python code;
all of them become this tree, and pruning (`headwater.log.pruning`) knows nothing else. What a source cannot
express here becomes `Unknown`, which keeps every file. `str()` of a tree is SQL again, but for `Unknown`.

>>> expr = and_(Compare("=", column("date"), Literal("2024-01-01")), Compare(">", column("id"), Literal(5)))
>>> str(expr)
"(date = '2024-01-01' AND id > 5)"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from typing import Literal as OneOf

CompareOp: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]
"""Comparison operators; `<=>` is SQL's null-safe equality."""


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
    """`column op literal`. Build it with the literal on the right."""

    op: CompareOp
    left: Column
    right: Literal

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
    """True when all operands are true."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.operands))})"


@dataclass(frozen=True, slots=True)
class Or:
    """True when any operand is true."""

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


Expression: TypeAlias = Compare | In | StartsWith | IsNull | Not | And | Or | Constant | Unknown


def column(*parts: str) -> Column:
    """A column reference: `column("id")`, `column("address", "city")`."""
    return Column(parts)


def and_(*operands: Expression) -> Expression:
    """The conjunction of any number of expressions (none of them: always true)."""
    if len(operands) == 1:
        return operands[0]
    return And(operands) if operands else Constant(True)


def columns_of(expr: Expression) -> set[Column]:
    """Every column that the expression mentions (those inside `Unknown` are not known)."""
    found: set[Column] = set()
    pending = [expr]
    while pending:
        match pending.pop():
            case Compare(left=col) | In(column=col) | StartsWith(column=col) | IsNull(column=col):
                found.add(col)
            case Not(operand=inner):
                pending.append(inner)
            case And(operands=parts) | Or(operands=parts):
                pending.extend(parts)
    return found
