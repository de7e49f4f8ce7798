"""The operands of a condition: which column, or which value, a node of sqlglot's tree stands for."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from headwater.errors import FilterError
from headwater.log.expressions import Column, Literal
from headwater.log.filter_literals import NoLiteralError, cast


class Operands:
    """Reads columns and values of one filter text."""

    def __init__(self, text: str) -> None:
        from sqlglot import exp

        self._text = text
        self._exp = exp

    def inner(self, node: Any) -> Any:
        """What stands inside parentheses."""
        while type(node) is self._exp.Paren:
            node = node.this
        return node

    def column(self, node: Any) -> Column | None:
        """The column that a node names, or None."""
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
        """The literal that a node is, or None."""
        try:
            return Literal(self.value(node))
        except NoLiteralError:
            return None

    def value(self, node: Any) -> object:
        """The value of a literal. Raises `NoLiteralError` for everything else."""
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
    """Whether a node has no parts but these: an unknown part may change the meaning."""
    return all(name in names or value in (None, False, []) for name, value in node.args.items())


def is_string(node: Any) -> bool:
    """Whether a node is a string literal."""
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
    """Values of one kind compare with each other without being converted."""
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
