"""SQL conditions as queries of the index, with SQL's three-valued logic.

For each condition there are two queries: the rows where it is true, and the rows where it is false; the others, where
it is unknown because of a null, are in neither. NOT swaps the two. What the index cannot say exactly becomes a query
that finds more rows (never fewer), and the answer says that the condition must still be evaluated on the rows.

Literals are converted to the column's type by Spark's rules; where Spark would rather convert the column, the index
cannot help. Text that is only indexed as words still narrows an equality down to the rows that have its words in their
order, and a time without a zone narrows instants down to those of any zone.

>>> from headwater.log.filters.sql import parse_filter
>>> from headwater.log.schema import LONG, STRING
>>> from headwater.search.config import FieldConfig, IndexConfig
>>> config = IndexConfig((FieldConfig("code", "code", "i64", LONG), FieldConfig("host", "host", "string", STRING)))
>>> query, exact = index_filter(parse_filter("NOT code = 500 AND upper(host) = 'A'"), config)
>>> str(query), exact
('(+code:* -code:500)', False)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import SearchQueryError
from headwater.log.filters import expressions as sql
from headwater.log.filters.literals import NotComparableError, coerce
from headwater.log.schema import (
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
    UserDefinedType,
    is_char,
    is_string,
)
from headwater.search.analysis import ip_text, tokens
from headwater.search.query.targets import Target, target_of
from headwater.search.query.tree import (
    MAX_DEPTH,
    All,
    Exists,
    Nothing,
    Phrase,
    Prefix,
    Range,
    Term,
    TermSet,
    all_of,
    any_of,
    none_of,
)
from headwater.search.query.values import Between, leaf_value, scaled_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.filters.expressions import Column, CompareOp
    from headwater.log.schema import DataType
    from headwater.search.config import FieldConfig, IndexConfig
    from headwater.search.query.tree import FieldPath, Query, Value


_MAX_OFFSET_US = 18 * 3600 * 1_000_000
_EXACT_KINDS = ("string", "i64", "f64", "bool")


class Found(NamedTuple):
    """Rows among which are all that a condition asks for; None is every row. If exact, there are no others."""

    query: Query | None
    exact: bool


def filter_field(column: Column, config: IndexConfig) -> FilterField | None:
    """Return the field that answers best for a column; None if the index knows nothing about it."""
    fields = config.fields_of(column.parts[0]) or _similar(config, column.parts[0])
    if not fields:
        return None
    if len(column.parts) == 1:
        best = next((f for f in fields if f.indexed and f.kind in _EXACT_KINDS), None)
        best = best or next((f for f in fields if f.indexed), fields[0])
        if best.kind == "json":
            return FilterField(Target(best, (), "object", best.data_type))
        return FilterField(target_of(best))
    nested = next((f for f in fields if f.indexed and f.kind == "json" and not is_string(f.data_type)), None)
    if nested is None:
        return None
    path = _exact_path(nested.data_type, column.parts[1:])
    try:
        return None if path is None else FilterField(target_of(nested, path))
    except SearchQueryError:
        return None


def _similar(config: IndexConfig, name: str) -> tuple[FieldConfig, ...]:
    columns = {field.column for field in config.fields if field.column.lower() == name.lower()}
    return config.fields_of(columns.pop()) if len(columns) == 1 else ()


def _exact_path(data_type: DataType, parts: Sequence[str]) -> tuple[str, ...] | None:
    """Return the path of a nested column by exact names; None if it passes arrays or does not lead to a value."""
    path: list[str] = []
    for part in parts:
        match data_type:
            case StructType(fields=members):
                found = [m for m in members if m.name == part] or [m for m in members if m.name.lower() == part.lower()]
                if len(found) != 1:
                    return None
                path.append(found[0].name)
                data_type = found[0].type
            case MapType(key_type=key_type, value_type=value_type) if is_string(key_type):
                path.append(part)
                data_type = value_type
            case _:
                return None
    is_value = not isinstance(data_type, StructType | ArrayType | MapType | UserDefinedType)
    return tuple(path) if is_value else None


@dataclass(frozen=True, slots=True)
class FilterField:
    """A place in the index that knows about a column."""

    target: Target

    @property
    def on(self) -> FieldPath:
        return self.target.on

    def compare(self, op: CompareOp, value: Any) -> Found:
        """Translate `column op value`, where the value is not null; `op` is one of `= < <= > >=`."""
        if not self.target.field.indexed or self._has_own_rules():
            return _EVERYTHING
        if self.target.kind in ("text", "ip"):
            return self._with_words_of(value) if op == "=" else _EVERYTHING
        if self.target.kind not in _EXACT_KINDS or self.target.data_type is None:
            return _EVERYTHING
        try:
            op, literal = self._literal(op, value)
        except (NotComparableError, ValueError):
            return _EVERYTHING
        if literal is None:
            return Found(Nothing(), exact=True) if op == "=" else _EVERYTHING
        if self.target.data_type == TIMESTAMP and not _is_instant(value):
            return self._around(op, literal)
        if op == "=":
            return Found(Term(self.on, literal), exact=True)
        if not self._is_ordered():
            return _EVERYTHING
        inclusive = op.endswith("=")
        if op[0] == "<":
            return Found(Range(self.on, upper=literal, include_upper=inclusive), exact=True)
        return Found(Range(self.on, lower=literal, include_lower=inclusive), exact=True)

    def one_of(self, values: Sequence[Any]) -> Found:
        """Translate `column IN values`, none of which is null."""
        parts = [self.compare("=", value) for value in values]
        if any(part.query is None for part in parts):
            return _EVERYTHING
        terms = [part.query.value for part in parts if isinstance(part.query, Term)]
        others = [part.query for part in parts if not isinstance(part.query, Term | Nothing) and part.query is not None]
        queries: list[Query] = [TermSet(self.on, tuple(terms))] if len(terms) > 1 else [Term(self.on, t) for t in terms]
        return Found(any_of(*queries, *others), all(part.exact for part in parts))

    def starts_with(self, prefix: str) -> Found:
        """Translate `column LIKE 'prefix%'`."""
        is_text = (
            self.target.kind == "string" and self.target.data_type is not None and is_string(self.target.data_type)
        )
        if not is_text or not self.target.field.indexed or self._has_own_rules():
            return _EVERYTHING
        return Found(Prefix(self.on, prefix) if prefix else Exists(self.on), exact=True)

    def _is_ordered(self) -> bool:
        is_text = self.target.data_type is not None and is_string(self.target.data_type)
        return self.target.kind in ("i64", "f64") or (self.target.kind == "string" and is_text)

    def _has_own_rules(self) -> bool:
        return self.target.data_type is not None and is_char(self.target.data_type)

    def _with_words_of(self, value: Any) -> Found:
        """Find rows that have at least the words (or the address) of a text: those that are equal to it have."""
        if not isinstance(value, str):
            return _EVERYTHING
        if self.target.kind == "ip":
            address = ip_text(value)
            return _EVERYTHING if address is None else Found(Term(self.on, address), exact=False)
        words = tokens(self.target.tokenizer, value)
        if not words:
            return _EVERYTHING
        query = Term(self.on, words[0]) if len(words) == 1 else Phrase(self.on, tuple(words))
        return Found(query, exact=False)

    def _around(self, op: CompareOp, literal: Value) -> Found:
        """Find all instants that a time can be when only the session knows its zone."""
        earliest = latest = None
        if op[0] != "<":
            earliest = literal - _MAX_OFFSET_US  # type: ignore[operator]
        if op[0] != ">":
            latest = literal + _MAX_OFFSET_US  # type: ignore[operator]
        return Found(Range(self.on, earliest, latest), exact=False)

    def _literal(self, op: CompareOp, value: Any) -> tuple[CompareOp, Value | None]:
        """Return the operator and value in the form of the index; None when no value is equal to it."""
        data_type = self.target.data_type
        assert data_type is not None
        op, scalar = coerce(op, value, data_type)
        if scalar is None:
            return op, None
        plain = scalar.as_py()
        if isinstance(data_type, DecimalType) and self.target.kind == "i64":
            scaled = scaled_value(Decimal(plain), data_type.scale)
            if not isinstance(scaled, Between):
                return op, scaled
            if op == "=":
                return op, None
            return ("<=", scaled.below) if op[0] == "<" else (">", scaled.below)
        return op, leaf_value(data_type, plain)


def _is_instant(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


_EVERYTHING = Found(None, exact=False)
_ALL = Found(All(), exact=True)
_NOTHING = Found(Nothing(), exact=True)


def index_filter(expression: sql.Expression, config: IndexConfig) -> tuple[Query | None, bool]:
    """Translate a condition to a query for the rows where it is true.

    Returns:
        The query, or None when the index cannot help; and whether it is exact: if not, the condition must still be
        evaluated on the rows that it finds.
    """
    return _rows(expression, config, is_true=True, depth=0)


def _rows(expression: sql.Expression, config: IndexConfig, *, is_true: bool, depth: int) -> Found:
    if depth > MAX_DEPTH:  # functions on the query have no more room than a parsed one needs
        return _EVERYTHING
    match expression:
        case sql.Constant(value=value):
            return _ALL if value is is_true else _NOTHING
        case sql.Not(operand=operand):
            return _rows(operand, config, is_true=not is_true, depth=depth + 1)
        case sql.And() | sql.Or():
            parts = [
                _rows(part, config, is_true=is_true, depth=depth + 1)
                for part in sql.chain(expression, type(expression))
            ]
            return _all(parts) if isinstance(expression, sql.And) is is_true else _any(parts)
        case sql.Unknown() | sql.Compare(right=sql.Column()):
            return _EVERYTHING
    column = expression.left if isinstance(expression, sql.Compare) else expression.column
    field = filter_field(column, config)
    return _EVERYTHING if field is None else _condition(expression, field, is_true)


def _condition(
    expression: sql.Compare | sql.In | sql.StartsWith | sql.IsNull, field: FilterField, is_true: bool
) -> Found:
    filled = Exists(field.on)
    match expression:
        case sql.IsNull():
            return Found(none_of(filled) if is_true else filled, exact=True)
        case sql.Compare(op="<=>", right=sql.Literal(value=None)):
            return Found(none_of(filled) if is_true else filled, exact=True)
        case sql.Compare(right=sql.Literal(value=None)):
            return _NOTHING
        case sql.Compare(op="<>", right=right):
            return _condition(sql.Compare("=", expression.left, right), field, not is_true)
        case sql.Compare(op="<=>", right=sql.Literal(value=value)):
            found = field.compare("=", value)
            return found if is_true or found.query is None else _not(found, None)
        case sql.Compare(op=op, right=sql.Literal(value=value)):
            found = field.compare(op, value)
        case sql.In(values=values):
            if not is_true and any(v.value is None for v in values):
                return _NOTHING
            found = field.one_of([v.value for v in values if v.value is not None])
        case sql.StartsWith(prefix=prefix):
            found = field.starts_with(prefix)
        case _:  # two columns compared
            return _EVERYTHING
    return found if is_true else _not(found, filled)


def _not(found: Found, filled: Query | None) -> Found:
    """Return the rows of `filled` that were not found."""
    if found.query is None or not found.exact:
        return Found(filled, exact=False)
    return Found(none_of(found.query) if filled is None else all_of(filled, none_of(found.query)), exact=True)


def _all(parts: list[Found]) -> Found:
    queries = [part.query for part in parts if part.query is not None]
    exact = all(part.exact for part in parts)
    return Found(all_of(*queries) if queries or exact else None, exact)


def _any(parts: list[Found]) -> Found:
    queries = [part.query for part in parts if part.query is not None]
    if len(queries) < len(parts):
        return _EVERYTHING
    return Found(any_of(*queries), all(part.exact for part in parts))
