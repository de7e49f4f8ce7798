"""The text of a condition that was given as a Column, as far as it is made of comparisons joined by AND.

What cannot be said is left out, so the text may hold of more rows than the Column does: it is for pruning only. Columns
of both kinds of sessions are trees, one in the JVM and one of the client's own making.
"""

from __future__ import annotations

from typing import Any

from headwater.features.column_names import column_path
from headwater.spark.columns import quoted
from headwater.spark.functions import is_connect

_COMPARISONS = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def condition_sql(given: Any) -> str | None:
    """The text of a condition, or of a weaker one; None if nothing of it can be said.

    >>> condition_sql("t.id = s.id")
    't.id = s.id'
    """
    if isinstance(given, str):
        return given
    return _condition(_connect(given._expr) if is_connect(given) else _classic(given._jc.node()))


_Node = tuple[str, Any]
"""What a node is (`function`, `column`, `sql`, `literal` or `other`), and what it holds."""


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
    """A node of the JVM's."""
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
    """A node of a client of Spark Connect."""
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
