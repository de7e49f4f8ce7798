"""SQL conditions as queries of the index, with SQL's three-valued logic.

For each condition there are two queries: the rows where it is true, and the rows where it is false; the others, where
it is unknown because of a null, are in neither. NOT swaps the two. What the index cannot say exactly becomes a query
that finds more rows (never fewer), and the answer says that the condition must be asked again of the rows.

>>> from headwater.log.filter_sql import parse_filter
>>> from headwater.log.schema import LONG, STRING
>>> from headwater.search.fields import FieldConfig, IndexConfig
>>> config = IndexConfig((FieldConfig("code", "code", "i64", LONG), FieldConfig("host", "host", "string", STRING)))
>>> query, exact = index_filter(parse_filter("NOT code = 500 AND upper(host) = 'A'"), config)
>>> str(query), exact
('(+code:* -code:500)', False)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log import expressions as sql
from headwater.search.filter_leaves import FilterField, Found, filter_field
from headwater.search.query import MAX_DEPTH, All, Exists, Nothing, all_of, any_of, none_of

if TYPE_CHECKING:
    from headwater.search.fields import IndexConfig
    from headwater.search.query import Query


_EVERYTHING = Found(None, exact=False)
_ALL = Found(All(), exact=True)
_NOTHING = Found(Nothing(), exact=True)


def index_filter(expression: sql.Expression, config: IndexConfig) -> tuple[Query | None, bool]:
    """The query for the rows where a condition is true.

    Args:
        expression: the condition.
        config: the fields of the index.

    Returns:
        The query, or None when the index cannot help; and whether it is exact: if not, the condition must still be
        asked of the rows that it finds.
    """
    return _rows(expression, config, is_true=True, depth=0)


def _rows(expression: sql.Expression, config: IndexConfig, *, is_true: bool, depth: int) -> Found:
    if depth > MAX_DEPTH:  # whoever goes through the query later has no more room than a parsed one needs
        return _EVERYTHING
    match expression:
        case sql.Constant(value=value):
            return _ALL if value is is_true else _NOTHING
        case sql.Not(operand=operand):
            return _rows(operand, config, is_true=not is_true, depth=depth + 1)
        case sql.And() | sql.Or():
            parts = [_rows(part, config, is_true=is_true, depth=depth + 1) for part in _flat(expression)]
            return _all(parts) if isinstance(expression, sql.And) is is_true else _any(parts)
        case sql.Unknown():
            return _EVERYTHING
    column = expression.left if isinstance(expression, sql.Compare) else expression.column
    field = filter_field(column, config)
    return _EVERYTHING if field is None else _condition(expression, field, is_true)


def _flat(expression: sql.And | sql.Or) -> list[sql.Expression]:
    """The operands of a chain of ANDs or ORs, which may be thousands and nested as deeply."""
    found: list[sql.Expression] = []
    pending: list[sql.Expression] = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, type(expression)):
            pending.extend(reversed(part.operands))
        else:
            found.append(part)
    return found


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
        case sql.Compare(op="<=>", right=right):
            found = field.compare("=", right.value)
            return found if is_true or found.query is None else _not(found, None)
        case sql.Compare(op=op, right=right):
            found = field.compare(op, right.value)
        case sql.In(values=values):
            if not is_true and any(v.value is None for v in values):
                return _NOTHING
            found = field.one_of([v.value for v in values if v.value is not None])
        case sql.StartsWith(prefix=prefix):
            found = field.starts_with(prefix)
    return found if is_true else _not(found, filled)


def _not(found: Found, filled: Query | None) -> Found:
    """The rows of `filled` that were not found."""
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
