"""From sqlglot's tree of a condition to the tree that pruning understands.

Every rule here says what it accepts; a node with a part that a rule does not know is not used, because that
part may change the meaning.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from headwater.errors import FilterError
from headwater.log.expressions import (
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
from headwater.log.filter_literals import NoLiteralError
from headwater.log.filter_operands import Operands, has_only, is_string, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

_FLIPPED: dict[CompareOp, CompareOp] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "<=>": "<=>",
}
_OPERATORS: dict[CompareOp, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Translator:
    """From sqlglot's tree to ours."""

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

    # --- conditions ---------------------------------------------------------------------------------------

    def predicate(self, node: Any) -> Expression:
        """A condition; what is not understood is `Unknown`."""
        node = self._operands.inner(node)
        if isinstance(node, self._exp.Placeholder | self._exp.Parameter):
            raise FilterError(f"the filter {self._text!r} has a parameter: write its value instead")
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
        """AND and OR, as one list: chains of thousands must not recurse."""
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
        column = self._operands.column(left)
        if column is not None:
            literal = self._operands.literal(right)
            return None if literal is None else _compare(op, column, literal)
        literal = self._operands.literal(left)
        if literal is None:
            return None
        column = self._operands.column(right)
        if column is not None:
            return _compare(_FLIPPED[op], column, literal)
        other = self._operands.literal(right)
        return None if other is None else _fold(op, literal.value, other.value)

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
            # The prefix says that the comparison is one of text, whatever the type of the column is.
            return And((Compare("=", column, Literal(prefix)), StartsWith(column, prefix)))
        if rest == "%":
            return StartsWith(column, prefix)
        return And((StartsWith(column, prefix), self._unknown(node))) if prefix else self._unknown(node)

    def _prefix(self, pattern: str, escape: str) -> tuple[str, str]:
        """The text before the first wildcard of a LIKE pattern, and the pattern from there on."""
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
        """`isnull(x)` and `isnotnull(x)`."""
        name, arguments = str(node.this).lower(), node.expressions
        column = self._operands.column(arguments[0]) if len(arguments) == 1 else None
        if column is None or name not in ("isnull", "isnotnull") or not has_only(node, "this", "expressions"):
            return None
        return IsNull(column) if name == "isnull" else Not(IsNull(column))

    def _bare(self, node: Any) -> Expression | None:
        """A boolean column by itself."""
        column = self._operands.column(node)
        return None if column is None else Compare("=", column, Literal(True))


def _compare(op: CompareOp, column: Column, literal: Literal) -> Expression:
    if literal.value is None:
        return IsNull(column) if op == "<=>" else Constant(None)
    return Compare(op, column, literal)


def _fold(op: CompareOp, left: object, right: object) -> Expression | None:
    """Two literals compared, such as `1 = 0`."""
    if op == "<=>" and (left is None or right is None):
        return Constant(left is right)
    if left is None or right is None:
        return Constant(None)
    if kind_of(left) != kind_of(right) or isinstance(left, float):
        return None
    return Constant(_OPERATORS["=" if op == "<=>" else op](left, right))
