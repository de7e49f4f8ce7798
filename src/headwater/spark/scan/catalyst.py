"""Translate Catalyst's filters into the log's expressions, for pruning, and evaluate them on partition values.

The planner hands its filters to `listFiles` as JVM objects. Each tree crosses py4j once, as JSON; only literals that
the JSON cannot carry exactly are fetched by themselves. What has no counterpart becomes `Unknown`, which keeps every
file, so a wrong translation is the only way to lose a row: in doubt, this module says `Unknown`.

Partition filters must be applied exactly, for Spark does not look at them again. Most are comparisons of a number, a
date or a text, and Arrow evaluates them several times faster than a call to the JVM does; it is used only where it is
sure to agree with Spark on every value. For all others the answer is None, and Spark's own evaluation has to do it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files.arrow import int64s, strings
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
from headwater.spark.jvm import EXPRESSIONS, JavaObject

if TYPE_CHECKING:
    from collections.abc import Mapping


Resolve = Callable[[tuple[str, ...]], "Column | None"]
"""Finds the table's column for the path of a column in the scan; None for a column that the scan adds."""

_COMPARISONS: dict[str, CompareOp] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_EPOCH = datetime(1970, 1, 1)
_SEPARATOR = "\x1f\x1e"


class _UntranslatableError(Exception):
    """This part of the filter has no counterpart; never leaves this module."""


_MAX_DEPTH = 100
"""Walks through a filter are recursive, and Python limits their depth."""


@dataclass(frozen=True)
class _Node:
    """One node of the JSON tree; its number is its position in pre-order, as the JVM numbers the tree's nodes."""

    number: int
    name: str
    fields: dict[str, Any]
    children: list[_Node] = field(default_factory=list)


def to_expression(condition: JavaObject, resolve: Resolve) -> Expression:
    """Translate one Catalyst predicate: a resolved, optimised expression of boolean type."""
    try:
        nodes = json.loads(condition.toJSON())
    except Exception:  # an expression that Spark cannot write as JSON is simply not understood
        nodes = None
    return from_json(nodes, lambda: condition, resolve)


def from_json(nodes: Any, condition: Callable[[], JavaObject], resolve: Resolve) -> Expression:
    """Translate one Catalyst predicate from the `nodes` of its JSON (None if Spark could not write it).

    `condition` gives the expression itself, for what the JSON does not carry.
    """
    try:
        tree = _tree(nodes)
    except Exception as error:
        return Unknown(f"no JSON: {type(error).__name__}")
    return _Translation(condition, resolve).predicate(tree)


def _tree(nodes: list[dict[str, Any]]) -> _Node:
    """Return the tree of nodes that stand in pre-order, without recursion: chains of OR are deep."""
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
    """Return the operands of a chain of ANDs or ORs, from left to right; in Catalyst it is as deep as it is long."""
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
            op = FLIPPED[op]
        column, value = self._column(left), self._value(right)
        if value is None:
            if op == "<=>":
                return IsNull(column)
            raise _UntranslatableError
        return Compare(op, column, Literal(value))

    def _like(self, node: _Node) -> Expression:
        """Translate the fixed beginning of a pattern; the rest of it stays unknown."""
        pattern, escape = self._text(node.children[1]), node.fields["escapeChar"]
        prefix = re.match(r"[^%_]*", pattern.split(escape)[0])
        if not prefix or not prefix[0]:
            raise _UntranslatableError
        return And((StartsWith(self._text_column(node.children[0]), prefix[0]), Unknown("LIKE")))

    def _guarded(self, node: _Node) -> Expression:
        """Translate `if (s IS NULL) false else p`, which a filter on a renamed nested field becomes."""
        condition, *branches = node.children
        otherwise_first = node.name == "If"
        if condition.name != ("IsNull" if otherwise_first else "IsNotNull") or len(branches) > 2:
            raise _UntranslatableError
        then = branches[1] if otherwise_first else branches[0]
        fallback = branches[0] if otherwise_first else (branches[1] if len(branches) == 2 else None)
        if fallback is not None and (fallback.name != "Literal" or fallback.fields["value"] not in (None, "false")):
            raise _UntranslatableError
        return And((Unknown("guard"), self.predicate(then)))

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
        """Return the names that lead to a column, and its Catalyst type as JSON."""
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
        """Return the elements of an `InSet`, which are not in the JSON: they are fetched as one text."""
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
    """Return a Python value for one in Catalyst's internal form, or for its text."""
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
    """Say whether a cast changes nothing but the names of struct fields, which are cast by position."""
    if isinstance(source, str) or isinstance(target, str):
        return bool(source == target)
    if source["type"] != "struct" or target["type"] != "struct":
        return False
    pairs = zip(source["fields"], target["fields"], strict=True)
    return all(_only_renames(ours["type"], theirs["type"]) for ours, theirs in pairs)


def _keeps_value(source: str, target: Any) -> bool:
    """Say whether a cast keeps every value, so that comparing before or after it is the same."""
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


_ARROW_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EPOCH_DAY = date(1970, 1, 1)
_REPLACEMENT = "\ufffd"
"""What Java puts where text is not valid; the literal itself is then not known."""


class _InexactError(Exception):
    """Arrow might not agree with Spark on this filter; never leaves this module."""


def exact_rows(rows: pa.Table, condition: Expression, names: Mapping[Column, str]) -> pa.Table | None:
    """Return the rows for which a condition on partition columns is true; None where Spark has to decide.

    `rows` are files with typed partition columns; `names` has their names by the table's columns.

    >>> from headwater.log.filters.expressions import column
    >>> files = pa.table({"year": [2023, 2024, None]})
    >>> later = Compare(">", column("year"), Literal(2023))
    >>> exact_rows(files, later, {column("year"): "year"}).to_pylist()
    [{'year': 2024}]
    """
    try:
        return rows.filter(_Evaluation(rows, names).predicate(condition))
    except _InexactError:
        return None


class _Evaluation:
    """Evaluates conditions over the rows of one table, in SQL's logic of three values."""

    def __init__(self, rows: pa.Table, names: Mapping[Column, str]) -> None:
        self._rows = rows
        self._names = names

    def predicate(self, expr: Expression) -> Any:
        match expr:
            case And(operands=parts) if parts:
                return reduce(pc.and_kleene, map(self.predicate, parts))
            case Or(operands=parts) if parts:
                return reduce(pc.or_kleene, map(self.predicate, parts))
            case And():
                return self._constant(True)
            case Not(operand=inner):
                return pc.invert(self.predicate(inner))
            case Constant(value=bool() as value):
                return self._constant(value)
            case IsNull(column=column):
                return pc.is_null(self._column(column))
            case Compare(op="<=>", left=column, right=Literal() as right):
                equal = pc.equal(*self._comparable(column, [right]))
                return pc.fill_null(equal, False)
            case Compare(op=op, left=column, right=Literal() as right):
                return _ARROW_COMPARISONS[op](*self._comparable(column, [right]))
            case In(column=column, values=values) if values:
                values_of, found = self._comparable(column, list(values), one=False)
                return pc.if_else(pc.is_valid(values_of), pc.is_in(values_of, value_set=found), None)
            case StartsWith(column=column, prefix=prefix) if _REPLACEMENT not in prefix:
                texts = self._column(column)
                if pa.types.is_string(texts.type):
                    return pc.starts_with(texts, pattern=prefix)
        raise _InexactError

    def _constant(self, value: bool) -> Any:
        return pc.fill_null(pa.nulls(self._rows.num_rows, pa.bool_()), value)

    def _column(self, column: Column) -> Any:
        name = self._names.get(column)
        if name is None:
            raise _InexactError
        return self._rows.column(name)

    def _comparable(self, column: Column, literals: list[Literal], *, one: bool = True) -> tuple[Any, Any]:
        """Return a column and literals in a type that Arrow compares as Spark does: 64-bit integers, or text."""
        values, constants = self._column(column), [literal.value for literal in literals]
        if pa.types.is_integer(values.type) and all(type(v) is int and abs(v) < 2**63 for v in constants):
            values, found = values.cast(pa.int64()), int64s(constants)
        elif pa.types.is_date32(values.type) and all(_is_date(v) for v in constants):
            days = int64s([(v - _EPOCH_DAY).days for v in constants])
            values, found = values.cast(pa.int32()).cast(pa.int64()), days
        elif pa.types.is_boolean(values.type) and all(type(v) is bool for v in constants):
            values, found = values.cast(pa.int8()).cast(pa.int64()), int64s([int(v) for v in constants])
        elif pa.types.is_string(values.type) and all(type(v) is str and _REPLACEMENT not in v for v in constants):
            found = strings(constants)
        else:
            raise _InexactError
        return values, found[0] if one else found


def _is_date(value: object) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)
