"""Conditions, rows, and what an expression tree says about a row: to compare filters with Spark's own answers."""

from __future__ import annotations

import operator
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headwater.log.filters.expressions import (
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

SCHEMA = (
    "i int, s string, b boolean, d date, f double, m decimal(10,2), t timestamp, n timestamp_ntz, p struct<`x q`:int>"
)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        "a",
        True,
        date(2024, 1, 1),
        0.1,
        Decimal("0.10"),
        datetime(2024, 1, 2, 10, tzinfo=UTC),
        datetime(2024, 1, 2),
        (1,),
    ),
    (
        -1,
        "ab",
        False,
        date(2024, 1, 2),
        1.5,
        Decimal("1.50"),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 2, 10),
        (2,),
    ),
    (
        5,
        "it's",
        True,
        date(2024, 1, 3),
        -2.0,
        Decimal("-2.00"),
        datetime(2024, 1, 3, tzinfo=UTC),
        datetime(2024, 1, 1),
        (None,),
    ),
    (2, "a%", None, None, 1e3, None, None, datetime(2024, 1, 3), None),
    (None, None, None, None, None, None, None, None, None),
    (0, "x\\y", False, date(2024, 1, 2), 0.0, Decimal("5.00"), datetime(2024, 1, 2, 10, tzinfo=UTC), None, (0,)),
    (1, "", True, date(2024, 1, 1), 0.5, Decimal("1.00"), datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 1), (1,)),
]
_LITERALS = {
    "i": [
        "1",
        "-1",
        "- 1",
        "5L",
        "2S",
        "(1)",
        "CAST('1' AS INT)",
        "'1'",
        "1.0",
        "1.5BD",
        "1e0",
        "int(2)",
        "99999999999",
    ],
    "s": ["'a'", '"ab"', "'it''s'", r"'it\'s'", "'a%'", "'a' 'b'", r"r'x\y'", r"'x\\y'", "''", r"'\u0061'", r"'a\%'"],
    "b": ["true", "FALSE", "CAST('true' AS BOOLEAN)"],
    "d": [
        "DATE '2024-01-02'",
        "date'2024-1-2'",
        "date('2024-01-02')",
        "to_date('2024-01-02')",
        "'2024-01-02'",
        "DATE '2024'",
    ],
    "f": ["0.1", "1.5", "1e3", "1.5D", "0.1F", ".5", "-2.0", "1000", "-2e0"],
    "m": ["0.1", "1.5BD", "-2", "5.", "1.50", "CAST(0.105 AS DECIMAL(5,2))", "15e-1BD"],
    "t": [
        "TIMESTAMP '2024-01-02 10:00:00'",
        "TIMESTAMP '2024-01-02 12:00:00+02:00'",
        "TIMESTAMP '2024-01-02'",
        "CAST('2024-01-02 10:00:00' AS TIMESTAMP)",
        "TIMESTAMP '2024-01-02 11:00:00 Europe/Paris'",
    ],
    "n": ["TIMESTAMP_NTZ '2024-01-02 10:00:00'", "TIMESTAMP_NTZ '2024-01-02 10:00:00+02:00'"],
}
_PATTERNS = [
    "'a%'",
    "'ab'",
    r"'a\%'",
    r"'a\\%'",
    "'a_'",
    "'%'",
    "'%b'",
    "''",
    "'a!%%' ESCAPE '!'",
    r"'x\\\\y'",
    "'1'",
    "'1%'",
]
_OPERATORS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


# --- conditions -------------------------------------------------------------------------------------------


def conditions(count: int, seed: int) -> list[str]:
    """Random conditions, among them odd ones that show the precedence of operators."""
    pick = random.Random(seed)
    return [_condition(pick, pick.choice([0, 0, 1, 1, 2])) for _ in range(count)]


def _condition(pick: random.Random, depth: int) -> str:
    if depth == 0:
        return _leaf(pick)
    inner, other = _condition(pick, depth - 1), _condition(pick, depth - 1)
    forms = [
        f"{inner} AND {other}",
        f"{inner} OR {other}",
        f"({inner}) AND {other}",
        f"NOT {inner}",
        f"! {inner}",
        f"({inner}) IS {pick.choice(['', 'NOT '])}{pick.choice(['TRUE', 'FALSE', 'NULL'])}",
        f"{inner} IS {pick.choice(['', 'NOT '])}{pick.choice(['TRUE', 'NULL'])}",
        f"{inner} {pick.choice(['=', '<>', '<', '<=>'])} {pick.choice(['true', 'b', 'NOT b'])}",
        f"true {pick.choice(['=', '<'])} {inner}",
        f"{inner} {pick.choice(['IN (true)', 'BETWEEN false AND true', 'IS DISTINCT FROM true'])}",
    ]
    return pick.choice(forms)


def _leaf(pick: random.Random) -> str:
    name = pick.choice([*_LITERALS, "p"])
    kind = "i" if name == "p" else name
    col = "p.`x q`" if name == "p" else pick.choice([name, name.upper(), f"`{name}`", f"({name})"])
    one, two = (pick.choice([*_LITERALS[kind], "NULL"]) for _ in range(2))
    op, negation = pick.choice(_OPERATORS), pick.choice(["", "NOT "])
    forms = [
        f"{col} {op} {one}",
        f"{one} {op} {col}",
        f"{col} {negation}IN ({one}, {two})",
        f"{col} {negation}BETWEEN {one} AND {two}",
        f"{one} BETWEEN {col} AND {two}",
        f"{col} IS {negation}NULL",
        f"{col} IS {negation}DISTINCT FROM {one}",
        f"isnotnull({col})",
        f"{one} {op} {two}",
        f"coalesce({col}, {one}) {op} {two}",
    ]
    if kind == "b":
        forms += [col, f"NOT {col}", f"{col} IS {negation}TRUE", f"{col} IS {negation}UNKNOWN"]
    if kind in "sid":
        forms += [f"{col} {negation}LIKE {pick.choice(_PATTERNS)}", f"startswith({col}, 'a')"] * 2
    return pick.choice(forms)


# --- what a tree says -------------------------------------------------------------------------------------

Answer = frozenset[bool | None]
ANY: Answer = frozenset([True, False, None])
_COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARABLE: dict[str, tuple[type, ...]] = {
    "i": (int, Decimal, float),
    "s": (str,),
    "b": (bool,),
    "d": (date,),
    "f": (int, Decimal, float),
    "m": (int, Decimal),
    "t": (datetime,),
    "n": (datetime,),
    "p": (int, Decimal, float),
}


def possible(tree: Expression, row: tuple[Any, ...]) -> Answer:
    """The answers that a tree allows for a row: one of them if it is exact, all three if it does not know."""
    match tree:
        case Compare(op=op, left=column, right=Literal(value=value)):
            return _compare(row, column, op, value)
        case In(column=column, values=values):
            return _any_of([_compare(row, column, "=", v.value) for v in values])
        case IsNull(column=column):
            return frozenset([_value(row, column) is None])
        case StartsWith(column=column, prefix=prefix):
            value = _value(row, column)
            if value is None:
                return frozenset([None])
            return frozenset([value.startswith(prefix)]) if isinstance(value, str) else ANY
        case Not(operand=operand):
            return _negated(possible(operand, row))
        case And(operands=operands):
            return _negated(_any_of([_negated(possible(o, row)) for o in operands]))
        case Or(operands=operands):
            return _any_of([possible(o, row) for o in operands])
        case Constant(value=value):
            return frozenset([value])
    return ANY


def _compare(row: tuple[Any, ...], column: Column, op: str, value: Any) -> Answer:
    found, name = _value(row, column), column.parts[0].lower()
    if value is None:
        return frozenset([found is None]) if op == "<=>" else frozenset([None])
    if type(value) not in _COMPARABLE[name] or (name in "tn" and (value.tzinfo is None) != (name == "n")):
        return ANY  # Spark converts one side; that is not the parser's matter
    if found is None:
        return frozenset([False]) if op == "<=>" else frozenset([None])
    return frozenset([_COMPARE[op if op != "<=>" else "="](found, float(value) if name == "f" else value)])


def _value(row: tuple[Any, ...], column: Column) -> Any:
    value = row["isbdfmtnp".index(column.parts[0].lower())]
    return value[0] if column.parts[0].lower() == "p" and value is not None else value


def _negated(answer: Answer) -> Answer:
    return frozenset(None if a is None else not a for a in answer)


def _any_of(answers: list[Answer]) -> Answer:
    result: Answer = frozenset([False])
    for answer in answers:
        pairs = [(a, b) for a in result for b in answer]
        result = frozenset(True if True in pair else None if None in pair else False for pair in pairs)
    return result
