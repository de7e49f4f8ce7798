"""Filters as SQL text: `parse_filter` turns the text of a WHERE clause into an expression tree.

The text is parsed as Spark 4 does by default (ANSI mode); timestamps without a zone are in UTC. What the tree cannot
express (functions of columns, arithmetic) becomes `Unknown`, for the smallest part that holds it, so that the rest
still prunes. Each rule of the translation from sqlglot's tree accepts only nodes whose parts it knows, because an
unknown part may change the meaning.

>>> str(parse_filter("date >= DATE '2024-01-01' AND upper(name) = 'X' AND id IN (1, 2)"))
"(date >= DATE '2024-01-01' AND <UPPER(name) = 'X'> AND id IN (1, 2))"
"""

from __future__ import annotations

import logging
import operator
import re
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headwater.errors import FilterError
from headwater.log.filters.expressions import (
    FLIPPED,
    And,
    Column,
    Compare,
    CompareOp,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
)
from headwater.log.filters.literals import NoLiteralError, cast
from headwater.log.filters.tokens import HINT, syntax_error, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PLAIN_REASONS = (
    (re.compile(r"Required keyword"), "something is missing here"),
    (re.compile(r"Expecting (\S+)"), r"expected \1 here"),
    (re.compile(r"Invalid expression / Unexpected token"), "did not expect this"),
)

_HINTS = {"&&": "Write AND instead of &&.", "where": "Leave out the word WHERE: a filter is only its condition."}


def parse_filter(text: str) -> Expression:
    """Parse the text of a WHERE clause.

    Args:
        text: a condition in Spark's SQL, such as `date = '2024-01-01' AND id > 5`.

    Raises:
        FilterError: the text is not a condition; the message shows where.

    >>> parse_filter("5 < `my id`")
    Compare(op='>', left=Column(parts=('my id',)), right=Literal(value=5))
    """
    if not isinstance(text, str):
        raise FilterError(f"a filter is SQL text or an expression tree, not {type(text).__name__}")
    with _quiet_sqlglot():
        try:
            return Translator(text).predicate(_parse(text))
        except RecursionError as e:
            raise FilterError(
                "cannot understand the filter: it is nested too deeply. Use IN for lists of values, "
                "and fewer parentheses."
            ) from e


def _parse(text: str) -> Any:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    dialect = Dialect.get_or_raise("spark")
    tokens = tokenize(text, dialect)
    if not tokens:
        raise FilterError("the filter is empty: leave it out to select everything")
    try:
        conditions = dialect.parser().parse_into(exp.Condition, tokens, text)
    except ParseError as e:
        raise _parse_error(text, e.errors) from e
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:  # sqlglot slips on odd input
        raise FilterError(f"cannot understand the filter {text!r}. {HINT}") from e
    if len(conditions) != 1 or conditions[0] is None:
        raise FilterError(f"a filter is one condition without semicolons, not {text!r}")
    return conditions[0]


def _parse_error(text: str, errors: list[dict[str, Any]]) -> FilterError:
    if not errors:
        return FilterError(f"cannot understand the filter {text!r}. {HINT}")
    first = errors[0]
    reason = str(first.get("description"))
    for pattern, plain in _PLAIN_REASONS:
        if m := pattern.search(reason):
            reason = m.expand(plain)
    line, column = first.get("line") or 1, first.get("col") or 1
    word = str(first.get("highlight") or " ")
    offset = sum(len(part) + 1 for part in text.split("\n")[: line - 1])
    position = min(max(offset + column - len(word), 0), len(text))
    return syntax_error(text, position, reason, _HINTS.get(word.lower(), HINT))


@contextmanager
def _quiet_sqlglot() -> Iterator[None]:
    """Silence the log of sqlglot in this thread: the caller gets errors instead."""
    thread = get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger("sqlglot")
    logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another_thread)


_OPERATORS: dict[CompareOp, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Translator:
    """Translates sqlglot's tree to expressions."""

    def __init__(self, text: str) -> None:
        from sqlglot import exp

        self._text = text
        self._exp = exp
        self._operands = Operands(text)
        self._compare_ops: dict[type, CompareOp] = {
            exp.EQ: "=",
            exp.NEQ: "<>",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "<=>",
        }
        self._handlers: dict[type, Callable[[Any], Expression | None]] = {
            exp.And: self._junction,
            exp.Or: self._junction,
            exp.Not: self._not,
            exp.NullSafeNEQ: self._distinct,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is,
            exp.Like: self._like,
            exp.Escape: self._like,
            exp.StartsWith: self._starts_with,
            exp.Anonymous: self._null_function,
            exp.Column: self._bare,
            exp.Dot: self._bare,
            **dict.fromkeys(self._compare_ops, self._comparison),
        }

    def predicate(self, node: Any) -> Expression:
        """Translate a condition; what is not understood becomes `Unknown`."""
        node = self._operands.inner(node)
        handler = self._handlers.get(type(node))
        found = handler(node) if handler is not None else self._constant(node)
        return found if found is not None else self._unknown(node)

    def _unknown(self, node: Any) -> Unknown:
        if node.find(self._exp.Placeholder, self._exp.Parameter) is not None:
            raise FilterError(f"the filter {self._text!r} has a parameter: write its value instead")
        from sqlglot.errors import ErrorLevel, SqlglotError

        try:
            return Unknown(node.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.IGNORE))
        except (AttributeError, KeyError, TypeError, ValueError, SqlglotError):
            return Unknown(self._text)  # sqlglot reads more than it can write

    def _constant(self, node: Any) -> Expression | None:
        try:
            value = self._operands.value(node)
        except NoLiteralError:
            return None
        if value is None or isinstance(value, bool):
            return Constant(value)
        if isinstance(value, str):
            return None  # Spark may read it as true or false
        raise FilterError(f"{self._unknown(node).text} is a value, not a condition, in the filter {self._text!r}")

    def _junction(self, node: Any) -> Expression:
        # A chain of thousands of ANDs becomes one list, without recursion.
        kind = type(node)
        operands: list[Expression] = []
        pending = [node]
        while pending:
            part = self._operands.inner(pending.pop())
            if type(part) is kind:
                pending += [part.expression, part.this]
            else:
                operands.append(self.predicate(part))
        return And(tuple(operands)) if kind is self._exp.And else Or(tuple(operands))

    def _not(self, node: Any) -> Expression:
        return Not(self.predicate(node.this))

    def _comparison(self, node: Any) -> Expression | None:
        if not has_only(node, "this", "expression"):
            return None
        return self._compare(self._compare_ops[type(node)], node.this, node.expression)

    def _distinct(self, node: Any) -> Expression | None:
        found = self._compare("<=>", node.this, node.expression) if has_only(node, "this", "expression") else None
        return None if found is None else Not(found)

    def _compare(self, op: CompareOp, left: Any, right: Any) -> Expression | None:
        one = self._operands.column(left) or self._operands.literal(left)
        other = None if one is None else self._operands.column(right) or self._operands.literal(right)
        match one, other:
            case Column(), Column():
                return Compare(op, one, other)
            case Column(), Literal():
                return _compare(op, one, other)
            case Literal(), Column():
                return _compare(FLIPPED[op], other, one)
            case Literal(), Literal():
                return _fold(op, one.value, other.value)
        return None

    def _between(self, node: Any) -> Expression | None:
        if not has_only(node, "this", "low", "high"):
            return None
        exp, value, low, high = self._exp, node.this, node.args["low"], node.args["high"]
        above = self._compare(">=", value, low) or self._unknown(exp.GTE(this=value.copy(), expression=low.copy()))
        below = self._compare("<=", value, high) or self._unknown(exp.LTE(this=value.copy(), expression=high.copy()))
        return And((above, below))

    def _in(self, node: Any) -> Expression | None:
        if not has_only(node, "this", "expressions"):
            return None
        if not node.expressions:
            raise FilterError(f"the list after IN is empty in the filter {self._text!r}")
        column = self._operands.column(node.this)
        values = [self._operands.literal(v) for v in node.expressions]
        known = tuple(v for v in values if v is not None)
        if column is None or len(known) < len(values):
            return None
        # Spark first brings all values to one type; with values of one kind that changes nothing.
        if len({kind_of(v.value) for v in known if v.value is not None}) > 1:
            return None
        return In(column, known)

    def _is(self, node: Any) -> Expression | None:
        wanted = node.expression
        if not has_only(node, "this", "expression"):
            return None
        column = self._operands.column(node.this)
        if isinstance(wanted, self._exp.Null):
            return None if column is None else IsNull(column)
        if not isinstance(wanted, self._exp.Boolean):
            return None
        if column is not None:
            return Compare("<=>", column, Literal(bool(wanted.this)))
        # `x IS TRUE` is false where x is null, so only its true side is that of x.
        condition = self.predicate(node.this)
        return And((condition if wanted.this else Not(condition), self._unknown(node)))

    def _like(self, node: Any) -> Expression | None:
        exp, escape, like = self._exp, "\\", self._operands.inner(node)
        if type(like) is exp.Escape:
            if not has_only(like, "this", "expression") or not is_string(like.expression):
                return None
            escape, like = like.expression.this, self._operands.inner(like.this)
            if len(escape) != 1:
                raise FilterError(f"ESCAPE takes one character, not {escape!r}, in the filter {self._text!r}")
        if type(like) is not exp.Like or not has_only(like, "this", "expression", "negate"):
            return None
        column = self._operands.column(like.this)
        if column is None or not is_string(like.expression):
            return None
        positive = self._pattern(column, like.expression.this, escape, node)
        return Not(positive) if like.args.get("negate") else positive

    def _pattern(self, column: Column, pattern: str, escape: str, node: Any) -> Expression:
        prefix, rest = self._prefix(pattern, escape)
        if rest == "":
            # The prefix makes it a comparison of text, whatever the type of the column is.
            return And((Compare("=", column, Literal(prefix)), StartsWith(column, prefix)))
        if rest == "%":
            return StartsWith(column, prefix)
        return And((StartsWith(column, prefix), self._unknown(node))) if prefix else self._unknown(node)

    def _prefix(self, pattern: str, escape: str) -> tuple[str, str]:
        """Return the text before the first wildcard of a LIKE pattern, and the pattern from there on."""
        prefix: list[str] = []
        position = 0
        while position < len(pattern):
            char = pattern[position]
            if char == escape:
                following = pattern[position + 1 : position + 2]
                if following not in ("%", "_", escape):
                    raise FilterError(f"in the pattern {pattern!r}, {escape!r} must stand before %, _ or itself")
                prefix.append(following)
                position += 2
            elif char in "%_":
                break
            else:
                prefix.append(char)
                position += 1
        rest = pattern[position:]
        return "".join(prefix), "%" if rest.strip("%") == "" and rest else rest

    def _starts_with(self, node: Any) -> Expression | None:
        column = self._operands.column(node.this)
        if column is None or not has_only(node, "this", "expression") or not is_string(node.expression):
            return None
        return StartsWith(column, node.expression.this)

    def _null_function(self, node: Any) -> Expression | None:
        name, arguments = str(node.this).lower(), node.expressions
        column = self._operands.column(arguments[0]) if len(arguments) == 1 else None
        if column is None or name not in ("isnull", "isnotnull") or not has_only(node, "this", "expressions"):
            return None
        return IsNull(column) if name == "isnull" else Not(IsNull(column))

    def _bare(self, node: Any) -> Expression | None:
        column = self._operands.column(node)  # a boolean column by itself
        return None if column is None else Compare("=", column, Literal(True))


def _compare(op: CompareOp, column: Column, literal: Literal) -> Expression:
    if literal.value is None:
        return IsNull(column) if op == "<=>" else Constant(None)
    return Compare(op, column, literal)


def _fold(op: CompareOp, left: object, right: object) -> Expression | None:
    """Compare two literals, such as `1 = 0`."""
    if op == "<=>" and (left is None or right is None):
        return Constant(left is right)
    if left is None or right is None:
        return Constant(None)
    if kind_of(left) != kind_of(right) or isinstance(left, float):
        return None
    return Constant(_OPERATORS["=" if op == "<=>" else op](left, right))


class Operands:
    """Finds the column or the value that a node stands for, in one filter text."""

    def __init__(self, text: str) -> None:
        from sqlglot import exp

        self._text = text
        self._exp = exp

    def inner(self, node: Any) -> Any:
        """Return the node without the parentheses around it."""
        while type(node) is self._exp.Paren:
            node = node.this
        return node

    def column(self, node: Any) -> Column | None:
        exp, node, after = self._exp, self.inner(node), []
        while type(node) is exp.Dot and type(node.expression) is exp.Identifier:
            after.append(node.expression)
            node = node.this
        if type(node) is not exp.Column or not has_only(node, "this", "table", "db", "catalog"):
            return None
        names = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
        parts = [name for name in names if name is not None] + after[::-1]
        if any(type(part) is not exp.Identifier for part in parts):
            return None
        return Column(tuple(part.this for part in parts))

    def literal(self, node: Any) -> Literal | None:
        try:
            return Literal(self.value(node))
        except NoLiteralError:
            return None

    def value(self, node: Any) -> object:
        """Return the value of a literal. Raises `NoLiteralError` for everything else."""
        exp, node = self._exp, self.inner(node)
        kind = type(node)
        if kind is exp.Literal:
            return node.this if node.is_string else _number(node.this)
        if kind is exp.Boolean:
            return bool(node.this)
        if kind is exp.Null:
            return None
        if kind is exp.HexString and has_only(node, "this"):
            digits = str(node.this)
            return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
        if kind is exp.Neg:
            return _negated(self.value(node.this))
        if kind in (exp.Cast, exp.TryCast) and has_only(node, "this", "to", "safe"):
            return self._cast(node)
        if kind is exp.TsOrDsToDate and has_only(node, "this", "safe"):
            return self._converted(node, "DATE", strict=True)
        raise NoLiteralError

    def _cast(self, node: Any) -> object:
        to = node.args["to"]
        target = to.this.name if type(to) is self._exp.DataType and not isinstance(to.this, str) else ""
        parameters = [p.name for p in to.expressions]
        if not all(p.isdecimal() for p in parameters) or len(parameters) > (2 if target == "DECIMAL" else 0):
            raise NoLiteralError
        # sqlglot makes `DATE '...'` and `date('...')` a Cast, and CAST(... AS ...) a TryCast.
        return self._converted(node, target, *map(int, parameters), strict=type(node) is self._exp.Cast)

    def _converted(self, node: Any, target: str, *parameters: int, strict: bool) -> object:
        value = self.value(node.this)
        try:
            return cast(value, target, *parameters)
        except ValueError as e:
            if strict:
                raise FilterError(f"bad literal in the filter {self._text!r}: {e}") from e
            raise NoLiteralError from e


def has_only(node: Any, *names: str) -> bool:
    """Return whether a node has no other parts than these."""
    return all(name in names or value in (None, False, []) for name, value in node.args.items())


def is_string(node: Any) -> bool:
    return bool(getattr(node, "is_string", False))


def _number(text: str) -> int | float | Decimal:
    if "e" in text or "E" in text:
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _negated(value: object) -> object:
    match value:
        case bool():
            raise NoLiteralError
        case int() | float():
            return -value
        case Decimal():
            return value.copy_negate() if value else value  # `-value` would round it
        case None:
            return None
        case _:
            raise NoLiteralError


def kind_of(value: object) -> str:
    """Return the kind of a literal: values of one kind compare with each other without conversion."""
    match value:
        case bool():
            return "boolean"
        case int() | Decimal():
            return "exact number"
        case datetime():
            return "timestamp" if value.tzinfo is not None else "timestamp_ntz"
        case date():
            return "date"
        case _:
            return type(value).__name__
