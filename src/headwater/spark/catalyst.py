"""Catalyst's filters in the log's own expression tree, for pruning.

The planner hands its filters to `listFiles` as JVM objects. Each tree crosses py4j once, as JSON; only
literals that the JSON cannot carry exactly are fetched by themselves. What has no counterpart becomes
`Unknown`, which keeps every file, so a wrong translation is the only way to lose a row: in doubt, this module
says `Unknown`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

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
from headwater.spark.jvm import EXPRESSIONS, JavaObject

Resolve = Callable[[tuple[str, ...]], "Column | None"]
"""From the path of a column in the scan to the table's column; None when it is no column of the table."""

_COMPARISONS: dict[str, CompareOp] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_FLIPPED: dict[CompareOp, CompareOp] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_EPOCH = datetime(1970, 1, 1)
_SEPARATOR = "\x1f\x1e"


class _UntranslatableError(Exception):
    """This part of the filter has no counterpart; never leaves this module."""


_MAX_DEPTH = 100
"""What goes through a filter calls itself, and Python has room for so many calls only."""


@dataclass(frozen=True)
class _Node:
    """One node of the JSON tree."""

    number: int
    """Its position in pre-order, which is also how the JVM numbers the tree's nodes."""
    name: str
    fields: dict[str, Any]
    children: list[_Node] = field(default_factory=list)


def to_expression(condition: JavaObject, resolve: Resolve) -> Expression:
    """Translate one Catalyst predicate.

    Args:
        condition: a resolved, optimised Catalyst expression of boolean type.
        resolve: finds the table's column for a column of the scan.
    """
    try:
        nodes = json.loads(condition.toJSON())
    except Exception:  # an expression that Spark cannot write as JSON is simply not understood
        nodes = None
    return from_json(nodes, lambda: condition, resolve)


def from_json(nodes: Any, condition: Callable[[], JavaObject], resolve: Resolve) -> Expression:
    """Translate one Catalyst predicate of which the JSON is at hand.

    Args:
        nodes: what its `toJSON` says; None if that failed.
        condition: gives the expression itself, for what the JSON does not carry.
        resolve: finds the table's column for a column of the scan.
    """
    try:
        tree = _tree(nodes)
    except Exception as error:
        return Unknown(f"no JSON: {type(error).__name__}")
    return _Translation(condition, resolve).predicate(tree)


def _tree(nodes: list[dict[str, Any]]) -> _Node:
    """The tree of nodes that stand in pre-order. It may be deeper than Python may call: chains of OR are."""
    root = _Node(-1, "", {"num-children": 1})
    unfilled = [root]
    for number, fields in enumerate(nodes):
        package, _, name = fields["class"].rpartition(".")
        node = _Node(number, name if package == EXPRESSIONS else fields["class"], fields)
        while len(unfilled[-1].children) == unfilled[-1].fields["num-children"]:
            unfilled.pop()
        unfilled[-1].children.append(node)
        unfilled.append(node)
    (tree,) = root.children
    return tree


def _chained(node: _Node) -> list[_Node]:
    """The operands of a chain of ANDs or ORs, from left to right: to Catalyst, a chain is as deep as it is long."""
    found: list[_Node] = []
    pending = [node]
    while pending:
        part = pending.pop()
        if part.name == node.name:
            pending.extend(reversed(part.children))
        else:
            found.append(part)
    return found


class _Translation:
    """The translation of one condition."""

    def __init__(self, condition: Callable[[], JavaObject], resolve: Resolve) -> None:
        self._condition = condition
        self._resolve = resolve

    def predicate(self, node: _Node, depth: int = 0) -> Expression:
        if depth > _MAX_DEPTH:
            return Unknown("nested too deeply")
        match node.name:
            case "And":
                return And(tuple(self.predicate(part, depth + 1) for part in _chained(node)))
            case "Or":
                return Or(tuple(self.predicate(part, depth + 1) for part in _chained(node)))
            case "Not":
                return Not(self.predicate(node.children[0], depth + 1))
        try:
            return self._leaf(node)
        except Exception:  # pruning is an optimisation: a filter that is not understood must not fail a query
            return Unknown(node.name)

    def _leaf(self, node: _Node) -> Expression:
        match node.name:
            case "IsNull":
                return IsNull(self._column(node.children[0]))
            case "IsNotNull":
                return Not(IsNull(self._column(node.children[0])))
            case "Literal" if node.fields["dataType"] == "boolean":
                return Constant(self._value(node))
            case "AttributeReference" | "GetStructField":
                return Compare("=", self._column(node), Literal(True))
            case "In":
                values = tuple(Literal(self._value(child)) for child in node.children[1:])
                return In(self._column(node.children[0]), values)
            case "InSet":
                return In(self._column(node.children[0]), self._set_values(node))
            case "StartsWith":
                return StartsWith(self._text_column(node.children[0]), self._text(node.children[1]))
            case "Like":
                return self._like(node)
            case "If" | "CaseWhen":
                return self._guarded(node)
        return self._comparison(node)

    def _comparison(self, node: _Node) -> Expression:
        op = _COMPARISONS.get(node.name)
        if op is None:
            raise _UntranslatableError
        left, right = node.children
        if left.name == "Literal":
            left, right = right, left
            op = _FLIPPED.get(op, op)
        column, value = self._column(left), self._value(right)
        if value is None:
            if op == "<=>":
                return IsNull(column)
            raise _UntranslatableError
        return Compare(op, column, Literal(value))

    def _like(self, node: _Node) -> Expression:
        """The fixed beginning of a pattern; the rest of it stays unknown."""
        pattern, escape = self._text(node.children[1]), node.fields["escapeChar"]
        prefix = re.match(r"[^%_]*", pattern.split(escape)[0])
        if not prefix or not prefix[0]:
            raise _UntranslatableError
        return And((StartsWith(self._text_column(node.children[0]), prefix[0]), Unknown("LIKE")))

    def _guarded(self, node: _Node) -> Expression:
        """`if (s IS NULL) false else p`: what a filter on a renamed nested field becomes."""
        condition, *branches = node.children
        otherwise_first = node.name == "If"
        if condition.name != ("IsNull" if otherwise_first else "IsNotNull") or len(branches) > 2:
            raise _UntranslatableError
        then = branches[1] if otherwise_first else branches[0]
        fallback = branches[0] if otherwise_first else (branches[1] if len(branches) == 2 else None)
        if fallback is not None and (fallback.name != "Literal" or fallback.fields["value"] not in (None, "false")):
            raise _UntranslatableError
        return And((Unknown("guard"), self.predicate(then)))

    # --- columns ----------------------------------------------------------------------------------------

    def _column(self, node: _Node) -> Column:
        path, type_ = self._path(node)
        column = self._resolve(path)
        if column is None or not isinstance(type_, str):  # structs, arrays and maps have no statistics
            raise _UntranslatableError
        return column

    def _text_column(self, node: _Node) -> Column:
        _, type_ = self._path(node)
        if type_ != "string":
            raise _UntranslatableError
        return self._column(node)

    def _path(self, node: _Node) -> tuple[tuple[str, ...], Any]:
        """The names that lead to a column, and its Catalyst type as JSON."""
        match node.name:
            case "AttributeReference":
                return (node.fields["name"],), node.fields["dataType"]
            case "GetStructField":
                path, type_ = self._path(node.children[0])
                child = type_["fields"][node.fields["ordinal"]]
                return (*path, child["name"]), child["type"]
            case "Cast":
                path, type_ = self._path(node.children[0])
                target = node.fields["dataType"]
                if _keeps_value(type_, target) if isinstance(type_, str) else _only_renames(type_, target):
                    return path, type_
        raise _UntranslatableError

    # --- literals ---------------------------------------------------------------------------------------

    def _text(self, node: _Node) -> str:
        value = self._value(node)
        if not isinstance(value, str):
            raise _UntranslatableError
        return value

    def _value(self, node: _Node) -> Any:
        if node.name != "Literal":
            raise _UntranslatableError
        type_, text = node.fields["dataType"], node.fields["value"]
        if text is None:
            return None
        if type_ in ("timestamp", "timestamp_ntz", "binary"):
            # The text is in the session's zone, where an hour may occur twice; bytes have no text at all.
            return _from_internal(type_, self._condition().apply(node.number).value())
        if type_ == "date":
            return date.fromisoformat(text)
        return _from_internal(type_, text)

    def _set_values(self, node: _Node) -> tuple[Literal, ...]:
        """The elements of an `InSet`, which are not in the JSON: fetched as one text."""
        _, type_ = self._path(node.children[0])
        inset = self._condition().apply(node.number)
        elements = inset.hset()
        if type_ == "binary" or inset.hasNull():
            raise _UntranslatableError
        texts = elements.mkString(_SEPARATOR).split(_SEPARATOR)
        if len(texts) != elements.size():
            raise _UntranslatableError
        return tuple(Literal(_from_internal(type_, text)) for text in texts)


def _from_internal(type_: Any, value: Any) -> Any:
    """A value of Catalyst's internal form (or the text of it) in Python's."""
    match type_:
        case "byte" | "short" | "integer" | "long":
            return int(value)
        case "string":
            return value
        case "boolean":
            return value == "true"
        case "double":
            return float(value)
        case "float":
            # The text is the shortest that names the float; its value is that float, widened.
            return struct.unpack("f", struct.pack("f", float(value)))[0]
        case "date":
            return (_EPOCH + timedelta(days=int(value))).date()
        case "timestamp":
            return (_EPOCH + timedelta(microseconds=int(value))).replace(tzinfo=UTC)
        case "timestamp_ntz":
            return _EPOCH + timedelta(microseconds=int(value))
        case "binary":
            return bytes(value)
        case str() if _DECIMAL.fullmatch(type_):
            return Decimal(value)
    raise _UntranslatableError


def _only_renames(source: Any, target: Any) -> bool:
    """Whether a cast changes nothing but the names of struct fields, which are cast by position."""
    if isinstance(source, str) or isinstance(target, str):
        return bool(source == target)
    if source["type"] != "struct" or target["type"] != "struct":
        return False
    pairs = zip(source["fields"], target["fields"], strict=True)
    return all(_only_renames(ours["type"], theirs["type"]) for ours, theirs in pairs)


def _keeps_value(source: str, target: Any) -> bool:
    """Whether a cast keeps every value, so that comparing before or after it is the same."""
    if not isinstance(target, str):
        return False
    if source == target or (source, target) == ("float", "double"):
        return True
    if source in _DIGITS and target in _DIGITS:
        return _DIGITS[source] <= _DIGITS[target]
    narrow, wide = _DECIMAL.fullmatch(source), _DECIMAL.fullmatch(target)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if source in _DIGITS:
        return precision - scale >= _DIGITS[source]
    if narrow is None:
        return False
    return scale >= int(narrow[2]) and precision - scale >= int(narrow[1]) - int(narrow[2])
